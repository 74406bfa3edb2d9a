#!/bin/sh
# Makes the model folder of the demo: a small Qwen3 in BF16, two shards, random weights.
#
# Usage: scripts/demo_model.sh MKMODEL FOLDER
set -eu
mkmodel=$1 folder=$2

hidden=512 intermediate=768 head_dim=64 vocabulary=2048 n_layers=12
queries=$((8 * head_dim)) keys=$((4 * head_dim))
seed=0

# norm NAME SIZE, matrix NAME ROWSxCOLS: a line for mkmodel each.
norm() { echo "tensor $1.weight BF16 $2 1"; }
matrix() { seed=$((seed + 1)) && echo "tensor $1.weight BF16 $2 random:$seed"; }

# layers FIRST LAST: the lines of these layers.
layers() {
    for i in $(seq "$1" "$2"); do layer "$i"; done
}

layer() {
    norm "model.layers.$1.input_layernorm" $hidden
    matrix "model.layers.$1.self_attn.q_proj" ${queries}x$hidden
    matrix "model.layers.$1.self_attn.k_proj" ${keys}x$hidden
    matrix "model.layers.$1.self_attn.v_proj" ${keys}x$hidden
    matrix "model.layers.$1.self_attn.o_proj" ${hidden}x$queries
    norm "model.layers.$1.self_attn.q_norm" $head_dim
    norm "model.layers.$1.self_attn.k_norm" $head_dim
    norm "model.layers.$1.post_attention_layernorm" $hidden
    matrix "model.layers.$1.mlp.gate_proj" ${intermediate}x$hidden
    matrix "model.layers.$1.mlp.up_proj" ${intermediate}x$hidden
    matrix "model.layers.$1.mlp.down_proj" ${hidden}x$intermediate
}

{
    echo 'file model-00001-of-00002.safetensors'
    echo 'meta format pt'
    matrix model.embed_tokens ${vocabulary}x$hidden
    layers 0 $((n_layers / 2 - 1))
    echo 'file model-00002-of-00002.safetensors'
    echo 'meta format pt'
    layers $((n_layers / 2)) $((n_layers - 1))
    norm model.norm $hidden
    matrix lm_head ${vocabulary}x$hidden
    echo 'index'
    echo 'text generation_config.json {"temperature": 0.6, "top_k": 20, "top_p": 0.95}'
    echo 'text tokenizer_config.json {"tokenizer_class": "PreTrainedTokenizerFast"}'
    echo 'text tokenizer.json {"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}'
} | "$mkmodel" "$folder"

cat >"$folder/config.json" <<EOM
{
  "architectures": ["Qwen3ForCausalLM"],
  "model_type": "qwen3",
  "hidden_size": $hidden,
  "intermediate_size": $intermediate,
  "num_hidden_layers": $n_layers,
  "num_attention_heads": $((queries / head_dim)),
  "num_key_value_heads": $((keys / head_dim)),
  "head_dim": $head_dim,
  "hidden_act": "silu",
  "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0,
  "max_position_embeddings": 40960,
  "tie_word_embeddings": false,
  "torch_dtype": "bfloat16",
  "vocab_size": $vocabulary
}
EOM
