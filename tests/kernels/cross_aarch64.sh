#!/bin/sh
# Builds the kernel tests for 64-bit ARM and runs a part of each under QEMU, so that NEON code is
# tested on other machines too.
#
# cross_aarch64.sh SOURCE BUILD. Exit 77: no cross compiler or no emulator, nothing was tested.
set -eu
source=$1
build=$2
compiler=${AARCH64_CC:-aarch64-linux-gnu-gcc}
emulator=${AARCH64_EMULATOR:-qemu-aarch64}

for tool in "$compiler" "$emulator"; do
    if ! command -v "$tool" >/dev/null; then
        echo "skipped: no $tool"
        exit 77
    fi
done

# The sources of kernels/CMakeLists.txt for this processor.
kernels="backends host_memory cuda/none cpu/backend cpu/compare cpu/quantize cpu/dequantize cpu/gemm
         cpu/multiply_plain cpu/multiply_neon cpu/plain cpu/steps cpu/variants_aarch64 cpu/neon"
# "-" stands for one run without an argument.
tests="backends:- codecs:- compare:40 golden:- scales:- shapes:40 all_values:64 exhaustive:4099
       lanes:1 gemm:6 gemm_golden:-"
flags="-std=c11 -D_GNU_SOURCE -O2 -ffp-contract=off -Wall -Wextra -Werror -I$source"

rm -rf "$build"
mkdir -p "$build"
for file in "$source"/lib/*.c; do
    echo "$file -o $build/lib_$(basename "$file" .c).o"
done >"$build/list"
for name in $kernels; do
    echo "$source/kernels/$name.c -o $build/kernels_$(basename "$name").o"
done >>"$build/list"
for test in $tests; do
    echo "$source/tests/kernels/test_${test%:*}.c -o $build/test_${test%:*}.o"
done >>"$build/list"
# shellcheck disable=SC2086 # flags are words
xargs -P "$(nproc)" -L 1 "$compiler" $flags -c <"$build/list"

cd "$source/tests"
for test in $tests; do
    name=test_${test%:*}
    argument=${test#*:}
    [ "$argument" = - ] && argument=
    "$compiler" -static "$build/$name.o" "$build"/kernels_*.o "$build"/lib_*.o \
        -o "$build/$name" -lm -lpthread
    echo "$name $argument"
    # shellcheck disable=SC2086 # no argument is no word
    "$emulator" "$build/$name" $argument
done
