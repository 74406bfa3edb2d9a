# Small models for the cases: functions that write one into the folder that $1 names.

# Two shards: one layer of attention, one MLP, norms, embeddings; one small enough to be kept.
make_model() {
    mkmodel "$1" <<'SPEC'
file model-00001-of-00002.safetensors
meta format pt
tensor model.embed_tokens.weight BF16 512x256 random:1
tensor model.layers.0.input_layernorm.weight BF16 256 1.0
tensor model.layers.0.self_attn.q_proj.weight BF16 256x256 random:2
tensor model.layers.0.self_attn.k_proj.weight BF16 256x256 random:3
tensor model.layers.0.self_attn.v_proj.weight BF16 256x256 random:4
file model-00002-of-00002.safetensors
meta format pt
tensor model.layers.0.mlp.gate.weight BF16 64x256 random:5
tensor model.layers.0.mlp.gate_proj.weight BF16 384x256 random:6
tensor model.layers.0.mlp.up_proj.weight BF16 384x256 random:7
tensor model.layers.0.mlp.down_proj.weight BF16 256x384 random:8
tensor model.norm.weight F32 256 1.0
tensor lm_head.weight BF16 512x256 random:9
index
text config.json {"model_type": "tiny", "hidden_size": 256}
text tokenizer.json {"vocabulary": 512}
SPEC
}

# One file: a matrix, one that is ragged, and a norm.
make_file() {
    mkmodel "$1" <<'SPEC'
meta format pt
tensor mlp.up_proj.weight BF16 256x384 random:1
tensor mlp.down_proj.weight BF16 320x200 random:2
tensor norm.weight F32 256 1.0
SPEC
}

# One file with FP8 weights of another maker: BF16 scales, and scales for the KV cache.
make_fp8_file() {
    mkmodel "$1" <<'SPEC'
tensor attn.q_proj.weight F8_E4M3 128x256 1.0
tensor attn.q_proj.weight_scale_inv BF16 1x2 0=0.5 1=0.25
tensor attn.k_scale F32 - 2.0
tensor attn.v_scale F32 - 2.0
tensor norm.weight BF16 256 1.0
SPEC
}
