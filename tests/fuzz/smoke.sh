#!/bin/sh
# Runs every fuzz target for a few seconds, from the seeds in its corpus folder if there is one.
#
# Usage: tests/fuzz/smoke.sh BUILD_FOLDER SECONDS
set -eu
build=$1 seconds=$2
seeds=$(cd "$(dirname "$0")" && pwd)/corpus
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

n=0
for target in "$build"/tests/fuzz/fuzz_*; do
    if [ ! -f "$target" ] || [ ! -x "$target" ]; then continue; fi
    name=$(basename "$target")
    mkdir "$work/$name"
    set -- "$work/$name"
    [ -d "$seeds/${name#fuzz_}" ] && set -- "$@" "$seeds/${name#fuzz_}"
    "$target" -max_total_time="$seconds" -rss_limit_mb=1024 -timeout=10 -verbosity=0 \
        -print_final_stats=1 -artifact_prefix="$build/" "$@" >"$work/log" 2>&1 || {
        cat "$work/log"
        echo "$name: failed; the input is in $build"
        exit 1
    }
    echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$work/log") runs"
    n=$((n + 1))
done
[ "$n" -gt 0 ] || { echo "no fuzz targets in $build"; exit 1; }
