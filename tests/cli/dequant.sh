# Casting back: dtypes, a choice of tensors, what is left out.
make_model m
make_fp8_file q.safetensors
fp8q dequant q.safetensors
fp8q inspect q-bf16.safetensors --stats
fp8q dequant q.safetensors --dtype f16 --quiet
fp8q dequant q.safetensors --dtype f32 -q
fp8q_json dequant q.safetensors -o all.safetensors
fp8q dequant q.safetensors -o one.safetensors --tensor '*q_proj*'
fp8q dequant q.safetensors --tensor nothing
fp8q dequant q.safetensors -n --tensor nothing --tensor '*q_proj*' --include-file '*.gguf'
fp8q inspect one.safetensors
ls
echo "# and forth: what convert made loses its config, and every FP8 tensor"
"$program" convert m -o m8 --quiet
fp8q dequant m8 -o m16
cmp m/config.json m16/config.json
cmp m/tokenizer.json m16/tokenizer.json
fp8q inspect m16 | tail -4
fp8q dequant m8 -o part --tensor '*q_proj.weight'
ls part
fp8q dequant m
