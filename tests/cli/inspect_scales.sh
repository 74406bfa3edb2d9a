# Scales that are odd or missing are warnings for inspect; other commands refuse them.
scales() { mkmodel "$1" && fp8q inspect "$1" --tensor '*weight*'; }
echo "# powers of two, unsaid: recognised by the values"
scales pow2.safetensors <<'SPEC'
tensor a.weight F8_E4M3 128x256 1.0
tensor a.weight_scale_inv F32 1x2 0=0.5 1=0.25
SPEC
echo "# the metadata say f32"
scales f32.safetensors <<'SPEC'
meta fp8q.scale_format f32
tensor a.weight F8_E4M3 128x256 1.0
tensor a.weight_scale_inv F32 1x2 0=0.5 1=0.25
SPEC
echo "# the config promises powers of two that are none"
mkmodel promise <<'SPEC'
file model.safetensors
tensor a.weight F8_E4M3 128x256 1.0
tensor a.weight_scale_inv F32 1x2 0=0.5 1=0.3
text config.json {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "scale_fmt": "ue8m0"}}
SPEC
fp8q inspect promise
fp8q_json inspect promise
echo "# UE8M0, missing, orphaned, misshapen, not a number"
scales e8m0.safetensors <<'SPEC'
tensor a.weight F8_E4M3 128x256 1.0
tensor a.scale F8_E8M0 1x2 byte:120
SPEC
scales missing.safetensors <<'SPEC'
tensor a.weight F8_E4M3 128x256 1.0
tensor b.weight_scale_inv F32 1x2 1.0
tensor c.weight F8_E4M3 128x256 1.0
tensor c.weight_scale_inv F32 3x5 1.0
SPEC
scales nan.safetensors <<'SPEC'
tensor a.weight F8_E4M3 128x256 1.0
tensor a.weight_scale_inv F32 1x2 0=1 1=nan
SPEC
fp8q inspect nan.safetensors --stats
echo "# packed: true of it, and no advice that inspect cannot take"
make_file f.safetensors
"$program" convert f.safetensors -o packed.safetensors --scale-format packed -q 2>&1
fp8q inspect packed.safetensors
fp8q dequant missing.safetensors
fp8q dequant nan.safetensors
ls -d *-bf16* 2>&1
