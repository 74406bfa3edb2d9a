#!/bin/sh
# Shows fp8q at work: a small model folder to FP8, a look inside, a check, and back to BF16.
#
# Usage: scripts/demo.sh BUILD_FOLDER. Leaves the folders in demo/.
set -eu
build=$(cd "$1" && pwd)
PATH=$build:$PATH
export PATH

# say TEXT: what comes next.
say() {
    printf '\n\033[1m%s\033[0m\n' "$1"
}

# show COMMAND...: prints the command as one would type it, and runs it.
show() {
    printf '$ %s\n' "$*"
    "$@"
}

[ -t 1 ] || say() { printf '\n%s\n' "$1"; }

rm -rf demo
mkdir demo
"$(dirname "$0")/demo_model.sh" "$build/tests/cli/mkmodel" demo/Qwen3-tiny
cd demo

say 'A small Qwen3 in BF16, with random weights, as a folder from a hub has it:'
show ls -sh Qwen3-tiny

say 'To FP8. Linear weights get codes and a scale for each block of 128x128; the rest stays:'
show fp8q convert Qwen3-tiny

say 'What is in it now:'
show fp8q inspect Qwen3-tiny-fp8-sm90

say 'config.json tells engines; nothing else in it changed:'
show diff Qwen3-tiny/config.json Qwen3-tiny-fp8-sm90/config.json || true

say 'Is it right? Every code and scale, computed anew from the original:'
show fp8q verify Qwen3-tiny-fp8-sm90 --reference Qwen3-tiny

say 'And back to BF16:'
show fp8q dequant Qwen3-tiny-fp8-sm90 -o Qwen3-tiny-again

say 'Your own model next:'
cat <<EOM
  export PATH=$build:\$PATH
  fp8q convert YOUR-MODEL --dry-run     what would be done; nothing is written
  fp8q convert YOUR-MODEL               writes YOUR-MODEL-fp8-sm90
  fp8q verify YOUR-MODEL-fp8-sm90 --reference YOUR-MODEL
  fp8q help convert                     all options
EOM
