# bench: what it prints and refuses, with figures left out. Small sizes: nothing here is a measure.
masked() {
    sed -E -e 's/on cpu \(.*\),/on cpu (...),/' -e 's/^(dense +1( +[0-9]+){3}) .*/\1 .../' \
        -e 's/ +(-?[0-9]+\.[0-9]+(e-?[0-9]+)?|[0-9.]+ [kM]B)/ N/g' \
        -e 's/ +%/ %/' -e 's/^(benchmarks\.[0-9]+\.(device_name|kernel|tflops|threads|seconds|.*_seconds|.*gb_per_s|ratio|peak_nbytes)) .*/\1 N/' \
        -e 's/^(benchmarks\.[0-9]+\.disk) .*/\1 TRUTH/' -e 's/ on a (disk|file system in memory),/ on a ...,/' \
        -e 's/cp -r(, sync)? +/cp -r... /' -e 's/"cp -r(, sync)?"/"cp -r..."/'
}
bench() { fp8q bench --device cpu "$@" | masked; }
bench --threads 2 --repeat 2 --shape 128x256 --shape 129x130 --block 128x128 --block 1x128
bench dequantize --repeat 1 --shape 1x1 --block 32x32 --dtype f32 --scale-format pow2
echo "# JSON"
flat() {
    echo "\$ fp8q bench $* --json"
    "$program" bench --device cpu "$@" --json | flatjson | masked
}
flat quantize --repeat 1 --shape 200x64 --block 32x32 --dtype f16
echo "# the GEMM"
bench gemm --threads 2 --repeat 2 --shape 16x256x512 --shape 3x130x129
flat gemm --repeat 1 --shape 5x200x384 --scale-format pow2
echo "# whole runs, in a folder that is gone afterwards"
bench convert --size 4M --shards 2 --repeat 1
ls -A
mkdir elsewhere
flat convert --size 2M --shards 1 --repeat 2 --threads 1 --memory 2M --dir elsewhere
ls -A . elsewhere
echo "# stopped on the way: nothing stays"
"$program" bench convert --size 8M --repeat 1000 --device cpu >stdout 2>stderr &
until ls -d fp8q-bench-*/fp8* >/dev/null 2>&1; do sleep 0.02; done
kill -TERM $!
wait $!
echo "[exit $?]"
cat stderr
rm stdout stderr
ls -A . elsewhere
echo "# refusals"
fp8q bench gem
fp8q bench quantize --size 1G
fp8q bench gemm --block 1x128
fp8q bench quantize --grouping masked
fp8q bench gemm --shape 128x128
fp8q bench gemm --shape 2x1x1x1 --grouping dense
fp8q bench gemm --device cpu --shape 2x1x1x1
fp8q bench convert --shape 1x1
fp8q bench --dir .
fp8q bench --shape 128
fp8q bench --shape 0x128
fp8q bench --shape " 1x1"
fp8q bench --shape 128x128x2
fp8q bench --block 9999999999x1
fp8q bench quantize --device cuda:x
fp8q bench quantize --shape 2147483648x2147483648 --json
fp8q bench convert --dir missing
fp8q bench convert --size 100000T 2>&1 | sed 's/only [0-9]* are/only N are/'
FP8Q_CPU=z80 fp8q bench convert --size 2M --repeat 1 --json 2>&1 | sed 's/use one of .*/use one of .../'
ls -A . elsewhere
