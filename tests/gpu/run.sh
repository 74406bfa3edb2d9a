#!/usr/bin/env bash
# All that needs a GPU, on a machine that has one: tests, compute-sanitizer, benchmarks, one table.
#
#     tests/gpu/run.sh [BUILD [PART...]]
#
# BUILD is a build folder, or one that tests/gpu/pack.sh filled elsewhere; build/gpu by default,
# built here if it is not there. Parts: tests, sanitizer, kernels, gemm, products, tmpfs, disk, memory,
# python, small, gpus; all of them by default. Logs go to $OUT, or BUILD/results. SIZE, REPEAT, TMPFS and
# DISK choose what is measured (8G, 3, /dev/shm, /var/tmp), PYTHON_SIZE and PYTHON_SECONDS the part python
# (2G, 85: it takes fewer turns where time is short). Exits with 1 if a test failed. Needs no network.
set -u
cd "$(dirname "$0")/../.." || exit 2
root=$PWD
build=${1:-build/gpu}
[ $# -gt 0 ] && shift
parts=${*:-tests sanitizer kernels gemm products tmpfs disk memory python small gpus}
size=${SIZE:-8G} repeat=${REPEAT:-3} tmpfs=${TMPFS:-/dev/shm} disk=${DISK:-/var/tmp}
python_size=${PYTHON_SIZE:-2G} python_seconds=${PYTHON_SECONDS:-85}

if [ ! -x "$build/fp8q" ]; then
    cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CUDA_ARCHITECTURES=native &&
        cmake --build "$build" --parallel "$(nproc)" || exit 2
fi
build=$(realpath "$build")
out=${OUT:-$build/results}
mkdir -p "$out"
fp8q=$build/fp8q
failed=0

now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.2f", b - a }'; }
row() { printf '%-34s %9s  %s\n' "$1" "$2" "$3" | tee -a "$out/table.txt"; }
title() { printf '\n%s\n' "== $*" | tee -a "$out/table.txt"; }

# check NAME COMMAND...: a line of the table; 77 means skipped. What it prints goes to a log.
check() {
    local name=$1 start code
    shift
    start=$(now)
    ("$@") >"$out/$name.log" 2>&1
    code=$?
    case $code in
    0) row "$name" "$(since "$start") s" ok ;;
    77) row "$name" "$(since "$start") s" "skipped: $(tail -n 1 "$out/$name.log")" ;;
    *)
        row "$name" "$(since "$start") s" "FAILED, exit $code"
        tail -n 15 "$out/$name.log"
        failed=1
        ;;
    esac
}

# ---- Tests

run_tests() {
    local test
    title 'tests'
    for test in all_values compare exhaustive gemm gemm_golden gemm_groups golden lanes scales shapes; do
        check "kernels-$test" sh -c "cd '$root/tests' &&
            FP8Q_TEST_DEVICE=cuda exec '$build/tests/kernels/test_$test'"
    done
    for test in "$build"/tests/gpu/test_*; do
        [ -x "$test" ] && check "gpu-$(basename "$test" | cut -d_ -f2-)" "$test"
    done
    for test in convert verify; do
        check gpu-$test tests/gpu/$test.sh "$fp8q" "$build/tests/cli"
    done
}

# sanitize NAME TOOL COMMAND...
sanitize() {
    local name=$1 tool=$2
    shift 2
    check "$tool-$name" sh -c "cd '$root/tests' && FP8Q_TEST_DEVICE=cuda \
        compute-sanitizer --require-cuda-init no --error-exitcode 9 --tool $tool $*"
}

run_sanitizer() {
    local tool
    title 'compute-sanitizer'
    command -v compute-sanitizer >/dev/null || {
        row compute-sanitizer - 'skipped: not there'
        return
    }
    for tool in memcheck racecheck synccheck initcheck; do
        sanitize shapes $tool "$build/tests/kernels/test_shapes" 10
        sanitize compare $tool "$build/tests/kernels/test_compare" 10
    done
    # A few small cases of every rung and every instance. Racecheck takes what a lane has read for
    # unguarded where another lane of the warp arrives for it.
    for tool in memcheck synccheck; do
        sanitize gemm $tool "$build/tests/gpu/test_gpu_gemm" all 1 4 200
    done
    sanitize gemm racecheck "$build/tests/gpu/test_gpu_gemm_lanes" all 1 4 200
    sanitize verify_gemm memcheck "$build/tests/kernels/test_gemm" 2
    sanitize gemm_groups memcheck "$build/tests/kernels/test_gemm_groups"
    sanitize lanes memcheck --leak-check full "$build/tests/kernels/test_lanes" 1
    sanitize golden memcheck "$build/tests/kernels/test_golden"
}

# ---- Benchmarks

run_kernels() {
    title 'kernels: fp8q bench'
    {
        "$fp8q" bench --device cuda:0
        "$fp8q" bench --device cuda:0 --block 128x128 --scale-format pow2
        "$fp8q" bench --device cuda:0 --block 128x128 --dtype f32
        "$fp8q" bench --device cpu --block 128x128 --repeat 5
    } 2>&1 | tee -a "$out/table.txt"
}

run_gemm() {
    title 'the FP8 GEMM: fp8q bench gemm'
    "$fp8q" bench gemm --device cuda:0 2>&1 | tee -a "$out/table.txt"
}

# Whole runs in a folder, on the GPU and on the CPU, each beside cp.
run_folder() {
    local device
    for device in cuda cpu; do
        title "fp8q bench convert --size $size --repeat $repeat --dir $1 --device $device"
        "$fp8q" bench convert --size "$size" --repeat "$repeat" --dir "$1" --device $device 2>&1 |
            tee -a "$out/table.txt"
    done
}
run_tmpfs() { run_folder "$tmpfs"; }
run_disk() { run_folder "$disk"; }

# gpu_memory COMMAND...: the most memory of the GPU that is in use while a command runs, above what is
# in use now, in MiB.
gpu_memory() {
    local before most=0 used pid
    used_mib() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i 0; }
    before=$(used_mib)
    "$@" >/dev/null 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null; do
        used=$(used_mib)
        [ "$used" -gt "$most" ] && most=$used
        sleep 0.02
    done
    wait $pid
    echo $((most - before))
}

run_memory() {
    command -v nvidia-smi >/dev/null || return
    title 'GPU memory of a conversion'
    row 'most in use' "$(gpu_memory "$fp8q" bench convert --size "$size" --repeat 1 \
        --dir "$tmpfs" --device cuda) MiB" "a context's own included"
}

# time_run NAME COMMAND...: the median of its seconds, a line of the table.
time_run() {
    local name=$1 start i seconds=()
    shift
    for ((i = 0; i < repeat; i++)); do
        start=$(now)
        "$@" >"$out/$name.log" 2>&1 || {
            failed=1
            tail -n 5 "$out/$name.log"
        }
        seconds+=("$(since "$start")")
    done
    row "$name" "$(printf '%s\n' "${seconds[@]}" | sort -n | sed -n $(((repeat + 1) / 2))p) s" \
        "median of $repeat"
}

# verify beside convert, with products of 128 tokens: 8 GiB of BF16 in four files.
run_products() {
    local folder=$tmpfs/fp8q-products-$$ shard i
    title "verify on the GPU, 8 GiB of BF16 in $tmpfs"
    mkdir -p "$folder/in"
    for shard in 1 2 3 4; do
        for i in $(seq 16); do
            echo "tensor model.layers.$((16 * shard + i)).mlp.up_proj.weight BF16 8192x8192 random:$shard$i"
        done | "$build/tests/cli/mkmodel" "$folder/in/model-0000$shard-of-00004.safetensors" &
    done
    wait
    time_run products-convert "$fp8q" convert "$folder/in" -o "$folder/fp8" --device cuda --force
    time_run products-verify-no-gemm "$fp8q" verify "$folder/fp8" --reference "$folder/in" \
        --device cuda --no-gemm
    time_run products-verify "$fp8q" verify "$folder/fp8" --reference "$folder/in" --device cuda
    tail -n 2 "$out/products-verify.log" | tee -a "$out/table.txt"
    command -v nvidia-smi >/dev/null &&
        row 'GPU memory' "$(gpu_memory "$fp8q" verify "$folder/fp8" --reference "$folder/in" \
            --device cuda) MiB" "a context's own included"
    rm -rf "$folder"
}

gib() { numfmt --from=iec --to-unit=1Gi --format=%.2f "$1"; }

# The plain scripts on the GPU, if torch has one. Loading torch for the first time takes a while.
run_python() {
    local device=cpu begin=$SECONDS
    title 'against plain scripts with torch'
    timeout 60 python3 -c 'import safetensors.torch, torch; torch.zeros(1, device="cuda")' \
        2>/dev/null && device=cuda
    FP8Q=$fp8q PYTHONPATH=$root/tests:${PYTHONPATH-} timeout "$python_seconds" python3 -B tests/bench/flows.py \
        --gib "$(gib "$python_size")" --dir "$tmpfs" --device cuda auto --torch-device $device \
        --repetitions "$repeat" --seconds $((python_seconds - (SECONDS - begin))) 2>&1 |
        tee -a "$out/table.txt"
}

# Bytes and times of one GPU, each, and all.
run_gpus() {
    title 'several GPUs'
    FP8Q=$fp8q PYTHONPATH=$root/tests:${PYTHONPATH-} timeout 500 python3 -B tests/gpu/gpus.py \
        --gib "$(gib "$size")" --repetitions "$repeat" --dir "$tmpfs" 2>&1 | tee -a "$out/table.txt"
    case ${PIPESTATUS[0]} in
    0 | 77) ;;
    *) failed=1 ;;
    esac
}

# What the start of a GPU costs a small model, and how long a context takes without fp8q.
run_small() {
    local device
    for device in cuda cpu auto; do
        title "a model of 10 MB, --device $device"
        "$fp8q" bench convert --size 10M --shards 1 --repeat 9 --dir "$tmpfs" --device $device 2>&1 |
            head -n 5 | tee -a "$out/table.txt"
    done
    row 'a context alone' "$(context_seconds) s" 'median of 5 processes, by the driver'
}

context_seconds() {
    for _ in 1 2 3 4 5; do
        python3 - <<'PYTHON'
import ctypes, time
start = time.monotonic()
driver = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
failed = driver.cuInit(0) or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
print("nan" if failed else f"{time.monotonic() - start:.3f}")
PYTHON
    done | sort -n | sed -n 3p
}

: >"$out/table.txt"
{
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
    echo "$(nproc) cores, $(grep MemTotal /proc/meminfo), Linux $(uname -r)"
    echo "$tmpfs is $(stat -f -c %T "$tmpfs"), $disk is $(stat -f -c %T "$disk")"
} 2>&1 | tee -a "$out/table.txt"
for part in $parts; do
    case $part in
    tests | sanitizer | kernels | gemm | products | tmpfs | disk | memory | python | small | gpus)
        "run_$part"
        ;;
    *) echo "no such part: $part" >&2 && exit 2 ;;
    esac
done

printf '\n==== The table\n'
cat "$out/table.txt"
[ $failed -eq 0 ] || echo 'FAILED: see above'
exit $failed
