#!/usr/bin/env bash
# Runs fuzz targets for long, one after the other and at low priority: each for SECONDS of processor
# time. Prints a table of what they did, and of what the corpus covers that is left.
#
#     tests/fuzz/long.sh BUILD SECONDS [TARGET...]      TARGET: header, index, ...; all by default
#
# BUILD is a build of the preset fuzz. BUILD/fuzzing keeps the corpora, so that the next run goes on
# from them, and the inputs that failed. Lines are those of the files that a target names as under
# test, as its corpus covers them.
set -eu
build=$(realpath "$1") seconds=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$build/fuzzing
[ -w /dev/shm ] && memory=/dev/shm || memory=/tmp # fuzz_convert syncs files
TMPDIR=$(mktemp -d "${TMPDIR:-$memory}/fuzz-XXXXXX")
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
TIMEFORMAT='%U %S'

# Adds up a column of numbers.
sum() { awk '{ n += $1 + $2 } END { printf "%d", n }'; }

# One stretch of fuzzing for at most $2 seconds of the clock. Inputs that fail are kept, and it goes
# on; its exit status tells no more than they do.
fuzz() {
    local name=$1 findings=$work/findings/$1
    (cd "$TMPDIR" && time nice -n 19 "$build/tests/fuzz/fuzz_$name" -fork=1 -max_total_time="$2" \
        -ignore_crashes=1 -ignore_timeouts=1 -ignore_ooms=1 -rss_limit_mb=1024 -timeout=20 \
        -dict="$here/words.dict" -artifact_prefix="$findings/" "$work/corpus/$name" \
        "$here/corpus/$name" >"$work/$name.log" 2>&1) 2>>"$work/$name.times" || true
    sed -n 's/^#\([0-9]*\): cov: .*/\1/p' "$work/$name.log" | tail -1 >>"$work/$name.runs"
}

# Leaves of a corpus what covers all that it covers.
minimize() {
    local name=$1 corpus=$work/corpus/$1
    rm -rf "$corpus.small"
    mkdir "$corpus.small"
    (cd "$TMPDIR" && nice -n 19 "$build/tests/fuzz/fuzz_$name" -merge=1 -rss_limit_mb=1024 \
        -timeout=20 "$corpus.small" "$corpus" "$here/corpus/$name" >"$work/$name.merge.log" 2>&1)
    rm -rf "$corpus"
    mv "$corpus.small" "$corpus"
}

# The targets once more, without sanitizers, to count lines.
build_for_coverage() {
    cmake -S "$root" -B "$work/build" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER=clang \
        -DCMAKE_CXX_COMPILER=clang++ -DFP8Q_FUZZ=ON -DFP8Q_SANITIZE=fuzzer-no-link \
        -DCMAKE_C_FLAGS="-fprofile-instr-generate -fcoverage-mapping" >/dev/null
    nice -n 19 cmake --build "$work/build" --target fuzz_targets >/dev/null
}

# Prints "96.4% of 500": lines of the files under test that the corpus reaches.
line_coverage() {
    local name=$1 target=$work/build/tests/fuzz/fuzz_$1 files
    mapfile -t files < <(sed -n 's#^// Under test: ##p' "$here/fuzz_$name.c" | tr ' ' '\n')
    (cd "$TMPDIR" && LLVM_PROFILE_FILE=$TMPDIR/$name.raw nice -n 19 "$target" -runs=0 \
        "$work/corpus/$name" "$here/corpus/$name" >/dev/null 2>&1)
    llvm-profdata merge -o "$TMPDIR/$name.profile" "$TMPDIR/$name.raw"
    (cd "$root" && llvm-cov report "$target" -instr-profile="$TMPDIR/$name.profile" \
        "${files[@]}") >"$work/$name.coverage"
    awk '$1 == "TOTAL" { print $10 " of " $8 }' "$work/$name.coverage"
}

# Prints "395 | 1979": edges of the target's control flow, and what libFuzzer calls features.
reach() {
    local name=$1
    (cd "$TMPDIR" && nice -n 19 "$build/tests/fuzz/fuzz_$name" -runs=0 "$work/corpus/$name" \
        "$here/corpus/$name" 2>&1) | sed -n 's/.*INITED cov: \([0-9]*\) ft: \([0-9]*\).*/\1 | \2/p'
}

# One row of the table.
report() {
    local name=$1 findings
    findings=$(find "$work/findings/$name" -type f ! -name 'slow-unit-*' | wc -l)
    printf '| `%s` | %s | %s | %s | %s | %s |\n' "$name" "$(sum <"$work/$name.runs")" \
        "$(sum <"$work/$name.times")" "$(reach "$name")" "$(line_coverage "$name")" "$findings"
}

if [ $# -eq 0 ]; then
    mapfile -t names < <(cd "$here" && ls fuzz_*.c | sed 's/^fuzz_//; s/\.c$//')
    set -- "${names[@]}"
fi
mkdir -p "$work"
build_for_coverage
echo '| target | runs | seconds | edges | features | lines reached | findings |'
echo '|---|---|---|---|---|---|---|'
for name in "$@"; do
    [ -x "$build/tests/fuzz/fuzz_$name" ] || { echo "no target $name in $build"; exit 1; }
    mkdir -p "$work/corpus/$name" "$work/findings/$name"
    rm -f "$work/$name.runs" "$work/$name.times"
    spent=0
    while [ "$spent" -lt "$seconds" ]; do
        fuzz "$name" $((seconds - spent > 60 ? seconds - spent : 60))
        spent=$(sum <"$work/$name.times")
    done
    minimize "$name"
    report "$name"
done
