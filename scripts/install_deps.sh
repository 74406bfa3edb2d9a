#!/bin/sh
# Installs what building and testing fp8q needs and this machine lacks, from the distribution.
#
# Usage: scripts/install_deps.sh [ci]
#   ci: also what only .ci/run needs: clang, the linters, valgrind, a compiler and an emulator
#       for ARM, a browser.
# With apt-get missing packages are installed (sudo where needed); without it they are named.
set -eu

# One line each: the package in Debian's names, then a command that succeeds if it is there.
needed() {
    cat <<'LIST'
build-essential: make --version && echo '#include <cstdio>' | c++ -x c++ -c -o /dev/null -
cmake: cmake --version
libcjson-dev: echo '#include <cjson/cJSON.h>' | cc -E -
libdeflate-dev: echo '#include <libdeflate.h>' | cc -E -
libxxhash-dev: echo '#include <xxhash.h>' | cc -E -
zlib1g-dev: echo '#include <zlib.h>' | cc -E -
python3: python3 --version
LIST
    [ "${1-}" = ci ] || return 0
    cat <<'LIST'
clang: clang --version
libclang-rt-14-dev: echo 'int main(void) { return 0; }' | clang -fsanitize=address -x c -o /dev/null -
clang-format-14: clang-format-14 --version
cppcheck: cppcheck --version
shellcheck: shellcheck --version
valgrind: valgrind --version
python3-venv: python3 -c 'import ensurepip'
libc6-dev-arm64-cross: test -f /usr/aarch64-linux-gnu/include/stdio.h
gcc-aarch64-linux-gnu: aarch64-linux-gnu-gcc --version
qemu-user: qemu-aarch64 --version
chromium: chromium --version
LIST
}

missing=$(needed "${1-}" | while IFS=: read -r package probe; do
    sh -c "$probe" >/dev/null 2>&1 </dev/null || printf '%s ' "$package"
done)
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    cat >&2 <<EOM
Please install these first (Debian's package names): $missing
  Fedora: gcc gcc-c++ make cmake cjson-devel libdeflate-devel xxhash-devel zlib-devel python3
  Arch:   gcc make cmake cjson libdeflate xxhash zlib python
  Alpine: build-base cmake cjson-dev libdeflate-dev xxhash-dev zlib-dev python3
EOM
    exit 1
fi

sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
echo "Installing: $missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # lists of words
$sudo apt-get install -y --no-install-recommends $missing >/dev/null 2>&1 || {
    # The usual reason is a list of packages that is old or was never fetched.
    $sudo apt-get update >/dev/null
    $sudo apt-get install -y --no-install-recommends $missing >/dev/null
}
