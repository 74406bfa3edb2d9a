# What a checkpoint holds: list, order, choice, statistics, folding, JSON.
make_model m
make_file f.safetensors
make_fp8_file q.safetensors
fp8q inspect m
fp8q inspect m/ --sort size --quiet
fp8q inspect ./m/model.safetensors.index.json --sort dtype
fp8q inspect m --tensor '*_proj*' --sort=name
fp8q inspect f.safetensors --stats --no-progress
fp8q inspect q.safetensors --stats
fp8q_json inspect q.safetensors --stats
fp8q_json inspect m --tensor lm_head.weight
fp8q inspect m --tensor none
fp8q inspect m --tensor none --tensor 'model.norm.*' --tensor '*head*'
echo "# every name that differs in numbers alone is one line"
for i in {0..69}; do
    for j in {0..2}; do echo "tensor layers.$i.experts.$j.up.weight F32 4x4"; done
done | mkmodel many.safetensors
fp8q inspect many.safetensors
"$program" inspect many.safetensors --sort name | grep -c experts
echo "# colours come after escaping, and only where asked for"
"$program" inspect f.safetensors --color always | sed -n l | tail -4
NO_COLOR=1 "$program" inspect f.safetensors | grep -c $'\033'
