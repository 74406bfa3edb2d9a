# Completion of fp8q for bash. Made by "fp8q help --completion".
_fp8q() {
    local word=${COMP_WORDS[COMP_CWORD]} words=''
    case ${COMP_WORDS[1]}:${COMP_WORDS[COMP_CWORD - 1]} in
    convert:--arch) words='sm90 sm100' ;;
    convert:--scale-format) words='f32 pow2 e8m0 packed' ;;
    convert:--experts) words='split keep' ;;
    convert:--on-nonfinite) words='error keep' ;;
    convert:--color) words='auto always never' ;;
    verify:--color) words='auto always never' ;;
    dequant:--dtype) words='bf16 f16 f32' ;;
    dequant:--color) words='auto always never' ;;
    inspect:--sort) words='name size dtype' ;;
    inspect:--color) words='auto always never' ;;
    bench:bench) words='gemm quantize dequantize convert' ;;
    bench:--grouping) words='dense contiguous masked' ;;
    bench:--dtype) words='bf16 f16 f32' ;;
    bench:--scale-format) words='f32 pow2' ;;
    bench:--color) words='auto always never' ;;
    help:help) words='convert verify dequant inspect bench help' ;;
    esac
    [[ -z $words && $word == -* ]] && case ${COMP_WORDS[1]} in
    convert) words='--help --output --arch --scale-format --include --exclude --list-rules --experts --on-nonfinite --amax-floor --checksum --include-file --dry-run --force --resume --device --threads --memory --quiet --no-progress --json --color' ;;
    verify) words='--help --reference --max-weight-error --no-gemm --tokens --seed --activations --max-gemm-error --tensor --tp --html --device --threads --memory --quiet --no-progress --json --color' ;;
    dequant) words='--help --output --dtype --tensor --include-file --dry-run --force --resume --device --threads --memory --quiet --no-progress --json --color' ;;
    inspect) words='--help --tensor --stats --sort --device --threads --memory --quiet --no-progress --json --color' ;;
    bench) words='--help --shape --grouping --block --dtype --scale-format --size --shards --dir --repeat --device --threads --memory --quiet --no-progress --json --color' ;;
    help) words='--help --man --completion' ;;
    esac
    ((COMP_CWORD == 1)) && words='convert verify dequant inspect bench help --help --version'
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -o default -F _fp8q fp8q
