#!/usr/bin/env bash
# The program writes the same files on a GPU as on the CPU, in all forms of scales and any number of
# threads. Skipped where there is no GPU.
#
#     convert.sh PROGRAM TOOLS      TOOLS: the folder that holds mkmodel
set -u
fp8q=$1 PATH=$2:$PATH
. "$(dirname "$0")/../cli/models.sh"
folder=$(mktemp -d "${TMPDIR:-/tmp}/fp8q-gpu-XXXXXX")
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0

# on_both NAME COMMAND...: writes NAME.cpu and NAME.cuda, which must be the same.
on_both() {
    local name=$1
    shift
    "$fp8q" "$@" -q -o "$name.cpu" --device cpu || failed=1
    "$fp8q" "$@" -q -o "$name.cuda" --device cuda || failed=1
    diff -r "$name.cpu" "$name.cuda" || failed=1
}

make_model m
make_file f.safetensors
"$fp8q" convert m -o probe -n --device cuda >/dev/null 2>why || { cat why; exit 77; }
for format in f32 pow2 e8m0 packed; do
    for threads in 1 2 3 4; do
        on_both m.$format.$threads convert m --scale-format $format --threads $threads
    done
    on_both f.$format convert f.safetensors --scale-format $format
    on_both back.$format dequant m.$format.1.cpu
    for dtype in f16 f32; do
        on_both back.$format.$dtype dequant m.$format.1.cpu --dtype $dtype
    done
done
exit $failed
