#!/usr/bin/env bash
# verify finds the same on a GPU as on the CPU, to the last digit, in files that are right and in
# files that are not. Skipped where there is no GPU.
#
#     verify.sh PROGRAM TOOLS      TOOLS: the folder that holds mkmodel
set -u
fp8q=$1 PATH=$2:$PATH
. "$(dirname "$0")/../cli/models.sh"
folder=$(mktemp -d "${TMPDIR:-/tmp}/fp8q-gpu-XXXXXX")
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0

# report DEVICE OPTIONS...: the report, the page and the exit code, but for what is the device's own.
report() {
    local device=$1
    shift
    {
        "$fp8q" verify "$@" --no-gemm --json --html page --device "$device" 2>&1
        echo "exit $?"
    } | sed -E 's/^"(gemm_)?device.*//; s/"seconds": [^,]*//'
    grep -v '^<div><dt>Checked' page
    rm page
}

# on_both CODE OPTIONS...: both devices give the same report, and that exit code.
on_both() {
    local code=$1
    shift
    report cpu "$@" >cpu
    report cuda "$@" >cuda
    if ! diff cpu cuda || ! grep -q "^exit $code\$" cpu; then
        echo "verify $*: see above, or not exit $code:"
        tail -n 3 cpu
        failed=1
    fi
}

# products DEVICE OPTIONS...: a line for each weight: the errors of its product.
products() {
    local device=$1
    shift
    "$fp8q" verify "$@" --json --device "$device" |
        sed -nE 's/.*"gemm": \{"tokens": [0-9]+, "rel_l2": ([^,]*), "kernel_rel_l2": ([^}]*)\}.*/\1 \2/p'
}

# close_products OPTIONS...: the products of both devices have the same error, give or take what their
# own sums are off (the triangle inequality, with the exact product nearly as long as the reference's), and
# these are no further off than they may be.
close_products() {
    products cpu "$@" >cpu
    products cuda "$@" >cuda
    if ! paste -d ' ' cpu cuda | awk '
        { d = $1 - $3; bad += d * d > (1.1 * ($2 + $4)) ^ 2 || $2 > 1e-6 || $4 > 5e-3 }
        END { exit bad || NR == 0 }'; then
        echo "verify $*: products differ:"
        paste cpu cuda
        failed=1
    fi
}

convert() { "$fp8q" convert "$@" -q --device cpu 2>/dev/null || exit 1; }

# make_rare FILE SEED [FILL...]: of all dtypes, with zeros, tiny and great values, and widths of all
# kinds.
make_rare() {
    mkmodel "$1" <<SPEC
meta format pt
tensor a.up_proj.weight F16 300x264 random:${2}1 5=60000 700=0
tensor b.up_proj.weight F32 257x383 random:${2}2 9=1e30 1000=1e-42 1001=0
tensor c.up_proj.weight BF16 129x2049 random:${2}3 77=3e38 ${*:3}
tensor d.up_proj.weight BF16 256x256 0.0
tensor e.up_proj.weight F32 256x130 1e-12 3=$2
SPEC
}

# Experts that are split and turned.
make_experts() {
    mkmodel "$1" <<'SPEC'
file model.safetensors
tensor model.layers.0.mlp.experts.gate_up_proj BF16 2x128x512 random:1
tensor model.layers.0.mlp.experts.down_proj BF16 2x256x128 random:2
text config.json {"model_type": "tiny", "hidden_size": 128, "moe_intermediate_size": 256}
SPEC
}

# spoil FILE PERCENT BYTE: a byte of a file, so far from its start.
spoil() {
    local at=$(($(stat -c %s "$1") * $2 / 100))
    printf '%b' "$3" | dd of="$1" bs=1 seek=$at conv=notrunc status=none
}

make_model m
make_rare rare.safetensors 1
make_rare other.safetensors 2 90=nan 4000=-inf
make_experts moe
"$fp8q" convert m -o probe -n --device cuda >/dev/null 2>why || { cat why; exit 77; }

for format in f32 pow2 e8m0 packed; do
    convert m -o q.$format --scale-format $format
    convert rare.safetensors -o rare.$format.safetensors --scale-format $format
    on_both 0 q.$format --reference m --threads 3
    on_both 0 rare.$format.safetensors --reference rare.safetensors
done

# The scales that are stored as they are, and those that are not, through all the rest.
for format in f32 packed; do
    convert moe -o moe.$format --scale-format $format
    on_both 0 q.$format --reference m --threads 1
    on_both 0 moe.$format --reference moe
    close_products q.$format --reference m --threads 3
    close_products moe.$format --reference moe --tokens 3 --activations outlier
    on_both 1 rare.$format.safetensors --reference other.safetensors
    on_both 0 q.$format
    # Of another maker, as far as anyone can tell.
    LC_ALL=C sed -i 's/fp8q\.version/FP8Q.VERSION/' rare.$format.safetensors
    on_both 1 rare.$format.safetensors --reference other.safetensors
    for percent in 30 90; do
        spoil rare.$format.safetensors $percent '\x7f'
        spoil q.$format/model-00002-of-00002.safetensors $percent '\xff'
        on_both 1 rare.$format.safetensors --reference rare.safetensors
        on_both 1 q.$format --reference m
    done
done
exit $failed
