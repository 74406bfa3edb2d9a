# Mistakes on the command line: exit 2, one line, a hint.
fp8q
fp8q convrt
fp8q --quiet
fp8q convert
fp8q inspect a b
fp8q convert in --scale-fnt f32
fp8q convert in --in-place
fp8q convert in -x
fp8q convert in -o
fp8q convert in --output
fp8q convert in --force=yes
fp8q convert in --arch sm80
fp8q convert in --scale-format float
fp8q convert in --experts=drop
fp8q convert in --on-nonfinite ignore
fp8q convert in --amax-floor -1
fp8q convert in --amax-floor 1e50
fp8q convert in --threads 0
fp8q convert in --memory lots
fp8q convert in --memory 1K
fp8q convert in --device gpu
fp8q convert in --device cuda:
fp8q dequant in --dtype fp8
fp8q dequant in --arch sm90
fp8q inspect in --sort shape
fp8q inspect in --color sometimes
fp8q help convret
echo "# a guess is named only where it is near"
fp8q quantize
fp8q convert in --frc
fp8q convert in --froce
make_model Llama-x
fp8q Llama-x
fp8q convert ""
rm -r Llama-x
# An option's value is what follows; "--" ends the options.
fp8q inspect -- --sort
fp8q inspect --sort --stats x
ls -A
