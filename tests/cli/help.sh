# Help, from the same rows everywhere; the committed man page and completion are what it makes.
docs=$here/../../docs
fp8q --help
fp8q convert --help
fp8q dequant -h
fp8q help inspect
fp8q bench --help
fp8q help help
COLUMNS=40 fp8q help dequant
COLUMNS=nonsense fp8q help help
fp8q --version | sed -E 's/[0-9]+\.[0-9]+\.[0-9]+$/VERSION/'
for words in "help" "-h" "help convert" "inspect --help"; do
    "$program" $words | grep -q '^Usage: fp8q' || echo "no usage: $words"
done
"$program" help --man | diff "$docs/fp8q.1" - && echo "the man page is up to date"
"$program" help --completion | diff "$docs/fp8q.bash" - && echo "the completion is up to date"
"$program" help --completion >completion
complete_word() {
    bash -c '. ./completion; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _fp8q; echo "${COMPREPLY[@]}"' \
        bash "$@"
}
complete_word fp8q in
complete_word fp8q convert --scale-format ""
complete_word fp8q convert --scale
complete_word fp8q help de
complete_word fp8q bench d
