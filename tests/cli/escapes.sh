# No byte of a file or an argument reaches the terminal raw.
mkmodel evil.safetensors <<'SPEC'
tensor \u001b[31mred.weight BF16 128x128 1.0
tensor \u202egnp.weight BF16 128x128 1.0
tensor line\nbreak.weight BF16 128x128 nan
tensor \u0085next BF16 4 1.0
tensor caf\u00e9 BF16 4 1.0
SPEC
fp8q inspect evil.safetensors
fp8q_json inspect evil.safetensors
fp8q convert evil.safetensors -n
fp8q convert evil.safetensors -o out.safetensors --on-nonfinite error
fp8q_json convert evil.safetensors -n
COLUMNS=20 fp8q inspect evil.safetensors --color never | tail -3
bad=$(printf 'a\033[0m\377')
for arguments in "$bad" "inspect $bad" "inspect --$bad" "inspect x --sort $bad" "help $bad"; do
    "$program" $arguments 2>&1
done
