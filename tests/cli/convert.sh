# A whole conversion: what is written, what is said, what is refused.
make_model m
make_file f.safetensors
fp8q convert m
ls m-fp8-sm90
cat m-fp8-sm90/config.json
cmp m/tokenizer.json m-fp8-sm90/tokenizer.json
fp8q inspect m-fp8-sm90
echo "# an existing output is refused, and replaced by --force"
fp8q convert m
fp8q convert m --force --quiet
fp8q_json convert m -f --output=m-fp8-sm90 | head -30
echo "# a lone file: the config is in its metadata and in the summary"
fp8q convert f.safetensors -o out.safetensors --scale-format pow2
fp8q_json inspect out.safetensors | grep '^summary'
fp8q_json convert f.safetensors -o other.safetensors --arch sm100 | grep -v '^tensors'
echo "# the same bytes, whatever the threads and the memory"
"$program" convert f.safetensors -o one.safetensors --threads 1 --memory 2M --quiet
"$program" convert f.safetensors -o many.safetensors --threads 16 --quiet
cmp one.safetensors many.safetensors
echo "# the model's index stands for its folder; names come from the input"
"$program" convert m/model.safetensors.index.json --arch sm100 --quiet 2>&1
"$program" convert f.safetensors --quiet 2>&1
echo "# weights that the index does not name are left out, unless asked for"
mkmodel extra.safetensors <<'SPEC'
tensor extra.up_proj.weight BF16 128x128 1.0
SPEC
mv extra.safetensors m/
fp8q convert m -o without --quiet
fp8q convert m -o with --include-file 'ex*.safetensors' --quiet
ls without with
echo "# several inputs are none"
fp8q convert m f.safetensors
ls
