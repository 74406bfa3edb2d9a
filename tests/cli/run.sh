#!/usr/bin/env bash
# Runs cases of the command line: each is a script whose transcript must equal its .expected file.
#
#     run.sh PROGRAM TOOLS CASE...      TOOLS: the folder that holds mkmodel and flatjson
#     UPDATE=1 run.sh ...               writes the .expected files instead
#
# A case runs in an empty folder of its own, with the functions below. "fp8q ARGS" shows the
# command, its stdout, its stderr behind "! ", and its exit code unless that is 0.
set -u
here=$(cd "$(dirname "$0")" && pwd)
program=$(realpath "$1")
tools=$(realpath "$2")
shift 2

fp8q() {
    local code
    echo "\$ fp8q $*"
    "$program" "$@" >"$scratch/out" 2>"$scratch/err"
    code=$?
    cat "$scratch/out"
    sed 's/^/! /' "$scratch/err"
    [ $code -eq 0 ] || echo "[exit $code]"
    return $code
}

# The JSON that a command prints, one line per value, without what differs from run to run.
fp8q_json() {
    local code
    echo "\$ fp8q $* --json"
    "$program" "$@" --json 2>"$scratch/err" >"$scratch/out"
    code=$?
    flatjson <"$scratch/out" | grep -Ev '^(summary\.)?(seconds|gb_per_s|(gemm_)?device_name) '
    sed 's/^/! /' "$scratch/err"
    [ $code -eq 0 ] || echo "[exit $code]"
    return $code
}

# A transcript without paths, times, and the reason why a machine or a build has no GPU.
normalize() {
    sed -E -e "s#$1#DIR#g" \
        -e 's/(--device cuda[0-9:,]*): (this build has|there is|the NVIDIA driver) [^;]*;/\1: WHY NOT;/' \
        -e 's/in [0-9.]+ s, [0-9.]+ GB\/s, on (.*) \(.*\)$/in N s, N GB\/s, on \1 (...)/' \
        -e 's/[0-9.]+ s, device: (.*) \(.*\)$/N s, device: \1 (...)/'
}

run_case() {
    local case=$1 folder transcript
    folder=$(mktemp -d "${TMPDIR:-/tmp}/fp8q-cli-XXXXXX")
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/fp8q-cli-XXXXXX")
    transcript=$scratch/transcript
    (
        # No GPU is to be seen, where there is one.
        export LC_ALL=C COLUMNS=80 PATH="$tools:$PATH" CUDA_VISIBLE_DEVICES=
        unset NO_COLOR
        umask 022
        cd "$folder" && . "$here/models.sh" && . "$here/$case.sh"
    ) 2>&1 | normalize "$folder" >"$transcript"
    chmod -R u+rwx "$folder"
    rm -rf "$folder"
    if [ -n "${UPDATE:-}" ]; then
        cp "$transcript" "$here/$case.expected"
    elif ! diff -u "$here/$case.expected" "$transcript"; then
        echo "cli/$case: failed"
        failed=1
    fi
    rm -rf "$scratch"
}

failed=0
for case in "$@"; do
    run_case "$case"
done
exit $failed
