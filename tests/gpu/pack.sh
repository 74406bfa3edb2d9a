#!/usr/bin/env bash
# Builds what tests/gpu/run.sh needs, and packs it into a small folder that can be carried to a
# machine with a GPU: the program, the tests of the kernels, mkmodel, and the GEMM as a library for
# tests/bench/deepgemm.py. Needs nvcc; the machine it is carried to needs the driver and glibc alone.
#
#     tests/gpu/pack.sh CJSON-SOURCE [PACK]      PACK: build/gpu, made anew
#
# CJSON-SOURCE is a folder with cJSON.c and cJSON.h: on Debian what "apt-get source cjson" unpacks.
# ARCHITECTURES=90-real builds for one kind of GPU, which is quicker.
set -eu
cd "$(dirname "$0")/../.."
cjson=$(realpath "$1")
pack=${2:-build/gpu}
build=build/gpu-build

cmake -S . -B $build -DCMAKE_BUILD_TYPE=Release -DFP8Q_CJSON_SOURCE="$cjson" \
    ${ARCHITECTURES:+-DCMAKE_CUDA_ARCHITECTURES="$ARCHITECTURES"} >/dev/null
grep -q 'CUDAToolkit_NVCC_EXECUTABLE:.*=/' $build/CMakeCache.txt || {
    echo 'no nvcc: put it into PATH, or set CUDAToolkit_ROOT' >&2
    exit 1
}
cmake --build $build --parallel "$(nproc)" >$build/build.log 2>&1 || {
    tail -n 40 $build/build.log >&2
    exit 1
}

rm -rf "$pack"
mkdir -p "$pack/tests/kernels" "$pack/tests/gpu" "$pack/tests/cli"
cp $build/fp8q "$pack"
cp $build/tests/cli/mkmodel "$pack/tests/cli"
cp $build/tests/gpu/libtest_gemm_library.so "$pack/tests/gpu"
for folder in kernels gpu; do
    find $build/tests/$folder -maxdepth 1 -name 'test_*' -type f -perm -u+x \
        -exec cp -t "$pack/tests/$folder" {} +
done
find "$pack" -type f -exec strip {} +
du -sh "$pack"
