# What is counted: zeros, floors, saturation, NaN and Inf.
mkmodel zeros.safetensors <<'SPEC'
tensor a.weight BF16 256x256 0 0=1.0 1=1e-6
SPEC
fp8q convert zeros.safetensors -o a.safetensors
fp8q convert zeros.safetensors -o b.safetensors --amax-floor 0 | grep -v quantization
mkmodel small.safetensors <<'SPEC'
tensor a.weight BF16 128x128 1e-5
SPEC
fp8q convert small.safetensors -o c.safetensors | head -4
fp8q convert small.safetensors -o d.safetensors --amax-floor=0 | head -4
echo "# the first element that is not finite ends the run"
mkmodel nan.safetensors <<'SPEC'
tensor a.q_proj.weight BF16 256x256 1.0 70000=nan
tensor a.k_proj.weight BF16 256x256 1.0 300=inf 700=nan
tensor mask BF16 256 inf
SPEC
fp8q convert nan.safetensors -o n.safetensors
fp8q convert nan.safetensors -o n.safetensors --threads 1
ls n.safetensors* 2>&1
mkmodel plain <<'SPEC'
file model-00001-of-00003.safetensors
tensor l.mlp.down_proj.weight BF16 256x256 1.0
file model-00002-of-00003.safetensors
tensor l.self_attn.q_proj.weight BF16 256x256 1.0
file model-00003-of-00003.safetensors
tensor l.self_attn.k_proj.weight BF16 256x256 1.0 300=nan
tensor l.self_attn.v_proj.weight BF16 256x256 1.0
tensor l.mlp.up_proj.weight BF16 256x256 2.0
index
text config.json {"model_type": "tiny"}
SPEC
fp8q convert plain --on-nonfinite keep
fp8q inspect plain-fp8-sm90
cat plain-fp8-sm90/config.json
echo "# FP8 back: saturated, and NaN codes"
mkmodel codes.safetensors <<'SPEC'
tensor a.weight F8_E4M3 128x128 448 byte:0x38 5=448
tensor a.weight_scale_inv F32 1x1 1e36
tensor b.weight F8_E4M3 128x128 byte:0x38 byte:0x7f
tensor b.weight_scale_inv F32 1x1 1
SPEC
fp8q dequant codes.safetensors -o back.safetensors
fp8q_json dequant codes.safetensors -o back16.safetensors --dtype f16 | grep -E 'saturated|nan_codes|^!'
