# A dry run shows the whole plan and writes nothing.
make_model m
make_file f.safetensors
make_fp8_file q.safetensors
fp8q convert m --dry-run
fp8q convert m -n --arch sm100 --quiet
fp8q convert f.safetensors -n
fp8q_json convert m -n
fp8q dequant q.safetensors -n --dtype f32
fp8q_json dequant q.safetensors -n
ls
