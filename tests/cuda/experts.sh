#!/usr/bin/env bash
# verify multiplies models of experts on GPUs that are not there (fake_cuda.c): in one launch for each
# projection of each layer's experts, or as few as there is room for; and reports what the CPU does.
#
#     experts.sh PROGRAM-WITH-FAKE TOOLS      TOOLS: the folder that holds mkmodel
set -u
fp8q=$1 PATH=$2:$PATH
lists=$(cd "$(dirname "$0")/../data/models" && pwd)
folder=$(mktemp -d "${TMPDIR:-/tmp}/fp8q-experts-XXXXXX")
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0

# make LIST DIVISOR: three layers of a model, with three experts each, and its sizes divided; in the
# order of names, so that projections lie mixed.
make() {
    local name dtype rows cols first one seed=0
    grep -E 'experts\.|o_proj' "$lists/$1.txt" | tr -d '[],' | while read -r name dtype rows cols; do
        while [[ $name =~ \{([0-9]+)\.\.[0-9]+\} ]]; do
            first=${BASH_REMATCH[1]}
            name=${name/"${BASH_REMATCH[0]}"/"{$first,$((first + 1)),$((first + 2))}"}
        done
        for one in $(eval "echo $name"); do
            echo "tensor $one $dtype $((rows / $2))x$((cols / $2)) random:$((++seed))"
        done
    done | sort | { echo 'file model.safetensors' && cat && echo 'text config.json {}'; } | mkmodel "$1"
}

report() {
    "$fp8q" verify "$@" --json --tokens 8 2>&1 | sed -E 's/^"(gemm_)?device.*//; s/"seconds": [^,]*//'
}

# check GPUS MEMORY OPTIONS...: the report is the CPU's; the launches go to the file counts.
check() {
    report "${@:3}" --device cpu >cpu
    FAKE_CUDA_GPUS=$1 FAKE_CUDA_MEMORY=$2 FAKE_CUDA_GEMMS=counts report "${@:3}" --device cuda >cuda
    if ! diff cpu cuda || ! grep -q '"verdict": "pass"' cpu; then
        echo "$*: see above"
        failed=1
    fi
}

# expect TEXT: what the last check counted.
expect() {
    if ! grep -qE "^$1\$" counts; then
        echo "not $1, but $(cat counts)"
        failed=1
    fi
}

for model in Mixtral-8x7B:16 Qwen3-30B-A3B:6 DeepSeek-V3:16; do
    name=${model%:*}
    make "$name" "${model#*:}"
    for format in f32 packed; do
        "$fp8q" convert "$name" -o q -q --force --device cpu --scale-format $format 2>/dev/null || exit 1
        check 1 0 q --reference "$name"
        expect 'dense [1-9][0-9]* masked 9 groups 27'
        check 2 0 q --reference "$name" --threads 4
        expect 'dense [1-9][0-9]* masked (9|1[0-8]) groups 27'
        check 1 0 q
        expect 'dense [1-9][0-9]* masked 9 groups 27'
    done
done

# Of the last model down_proj has more rows, and its products more elements. Room for all gate_proj
# and up_proj of a layer, but two of down_proj; for two of the others, and none of down_proj, since one
# place is too little; for nothing.
small=(q --reference "$name" --threads 1 --memory 2M)
check 1 8000000 "${small[@]}"
expect 'dense 15 masked 12 groups 27'
check 1 5000000 "${small[@]}"
expect 'dense 24 masked 12 groups 18'
check 1 3000000 "${small[@]}"
expect 'dense 42 masked 0 groups 0'

# Of those that are chosen, none is waited for in vain.
check 1 0 q --tensor '*.experts.[12].*'
expect 'dense 0 masked 9 groups 18'
exit $failed
