#!/usr/bin/env bash
# Runs every fuzz target for some seconds from the seeds in its corpus folder, as many at a time as
# there are cores. An input that fails is left in BUILD.
#
#     tests/fuzz/smoke.sh BUILD SECONDS
set -eu
build=$(realpath "$1") seconds=$2
here=$(cd "$(dirname "$0")" && pwd)
[ -w /dev/shm ] && memory=/dev/shm || memory=/tmp # fuzz_convert syncs files
work=$(mktemp -d "${TMPDIR:-$memory}/fuzz-XXXXXX")
trap 'rm -rf "$work"' EXIT
export build seconds here work

run() {
    local target=$1 name
    name=$(basename "$target")
    mkdir "$work/$name"
    cd "$work"
    if TMPDIR=$work "$target" -max_total_time="$seconds" -rss_limit_mb=1024 -timeout=20 \
        -verbosity=0 -print_final_stats=1 -artifact_prefix="$build/$name-" \
        -dict="$here/words.dict" "$work/$name" "$here/corpus/${name#fuzz_}" >"$name.log" 2>&1; then
        echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$name.log") runs"
    else
        cat "$name.log"
        echo "$name: failed; the input is in $build"
        return 1
    fi
}
export -f run

targets=("$build"/tests/fuzz/fuzz_*)
[ -x "${targets[0]}" ] || { echo "no fuzz targets in $build"; exit 1; }
printf '%s\0' "${targets[@]}" | xargs -0 -n 1 -P "$(nproc)" bash -c 'run "$1"' run
