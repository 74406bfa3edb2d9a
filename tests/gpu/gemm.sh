#!/bin/sh
# Runs test_gpu_gemm for every rung and every instance of the Hopper kernels: gemm.sh TEST_GEMM [COUNT].
test_gpu_gemm=$1
count=${2:-60}
status=0
"$test_gpu_gemm" simple 1 "$count" || exit
for rung in mma auto; do
    "$test_gpu_gemm" $rung 2 $((3 * count)) || status=1
done
# Another GPU than Hopper has no instances to try.
if "$test_gpu_gemm" 0 3 1; then
    i=0
    n=$("$test_gpu_gemm" count)
    while [ "$i" -lt "$n" ]; do
        "$test_gpu_gemm" "$i" $((100 + i)) "$count" || status=1
        i=$((i + 1))
    done
fi
exit $status
