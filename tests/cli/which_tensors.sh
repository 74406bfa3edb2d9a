# Options that choose tensors, and what they warn of.
make_model m
mkmodel moe <<'SPEC'
file model.safetensors
tensor model.layers.0.mlp.experts.gate_up_proj BF16 2x512x128 random:1
tensor model.layers.0.mlp.experts.down_proj BF16 2x128x256 random:2
tensor model.layers.0.mlp.gate.weight BF16 2x128 random:3
text config.json {"model_type": "tiny", "hidden_size": 128, "moe_intermediate_size": 256}
SPEC
"$program" convert m -n --include-file '*.gguf' --include-file 'tokenizer*' 2>&1 >/dev/null
fp8q convert --list-rules | head -5
fp8q_json convert --list-rules | head -4
fp8q convert m -n --exclude '*.self_attn.*'
fp8q convert m -n --exclude '*.k_proj.*' | tail -12
fp8q convert m -n --exclude '*' --include '*down_proj*' | head -2
fp8q convert m -n --include '*down_proj*' --exclude '*' | head -2
fp8q convert m -n --include model.norm.weight
fp8q convert m -n --include no.such.tensor
fp8q convert m -n --include 'no.such.*' | head -1
fp8q convert m -n --include lm_head.weight | tail -5
echo "# fused experts: split, or left as they are"
fp8q convert moe -n
fp8q_json convert moe -n
fp8q convert moe -n --experts keep
"$program" convert moe -o kept --experts keep -q 2>/dev/null
cmp kept/config.json moe/config.json && echo "config.json as it was"
fp8q_json convert moe -n --experts keep | grep quantization_config
fp8q convert moe
fp8q inspect moe-fp8-sm90
