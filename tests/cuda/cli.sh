#!/usr/bin/env bash
# The program on a machine with two GPUs that are not there (fake_cuda.c): it writes what the CPU
# writes, and where a GPU cannot be used it says so, and goes on without if it may.
#
#     cli.sh PROGRAM PROGRAM-WITH-FAKE TOOLS      TOOLS: the folder that holds mkmodel
set -u
cpu=$1 fake=$2 PATH=$3:$PATH
. "$(dirname "$0")/../cli/models.sh"
folder=$(mktemp -d "${TMPDIR:-/tmp}/fp8q-cuda-XXXXXX")
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0

# expect CODE TEXT COMMAND...: the exit code, and a part of what the command prints.
expect() {
    local code=$1 text=$2 actual
    shift 2
    "$@" >printed 2>&1
    actual=$?
    if [ $actual -ne "$code" ] || ! grep -qF -- "$text" printed; then
        echo "$*: exit $actual, not $code, or not \"$text\":"
        cat printed
        failed=1
    fi
}

same() {
    diff -r "$1" "$2" || failed=1
}

# It runs without the libraries of C++, which sanitizers alone bring along, and of CUDA.
ldd "$cpu" >needed || exit 1
unwanted='libcuda|libnv'
grep -q 'lib[a-z]*san' needed || unwanted+='|libstdc'
! grep -E "$unwanted" needed || failed=1

make_model m
expect 0 'on cpu' "$cpu" convert m -o cpu8 --device cpu
expect 0 'on cpu' "$cpu" dequant cpu8 -o cpu16 --device cpu
for device in cuda cuda:0 cuda:1 cuda:1,0; do
    expect 0 'on cuda' "$fake" convert m -o "$device.8" --device $device --threads 3
    expect 0 'on cuda' "$fake" dequant cpu8 -o "$device.16" --device $device --threads 3
    same cpu8 $device.8
    same cpu16 $device.16
done
expect 0 '(2 x Fake GPU)' "$fake" convert m -o named --device cuda
verify=(verify cpu8 --reference m)
expect 0 'device: cuda (2 x Fake GPU)' "$fake" "${verify[@]}" --device cuda
expect 0 'device: cuda (Fake GPU)' "$fake" "${verify[@]}" --device cuda:1 --no-gemm
expect 5 'there is no GPU 2' "$fake" "${verify[@]}" --device cuda:2
expect 5 'there is no GPU 2, for this machine has 2' "$fake" convert m -o never --device cuda:0,2
expect 2 'GPU 1 is named twice' "$fake" convert m -o never --device cuda:1,1

# A GPU that fails: an error if it was asked for by name, a warning if not.
export FP8Q_CUDA_CONTEXT_SECONDS=-1
expect 0 '(2 x Fake GPU)' "$fake" convert m -o auto8
same cpu8 auto8
expect 0 'device: cuda (2 x Fake GPU)' "$fake" "${verify[@]}"
export FAKE_CUDA_FAIL_AT=4
expect 5 'out of memory; use less --memory' "$fake" convert m -o never --device cuda
expect 5 'out of memory; use less --memory' "$fake" "${verify[@]}" --device cuda
expect 0 'the CPU computes instead' "$fake" "${verify[@]}"
expect 0 'device: cpu (' "$fake" "${verify[@]}"
expect 0 'the CPU computes instead' "$fake" convert m -o auto8 --force
expect 0 'on cpu' "$fake" convert m -o auto8 --force
same cpu8 auto8
[ ! -e never ] && [ ! -e never.partial ] || failed=1
exit $failed
