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
echo "# what the run would be refused for ends the dry run alike, behind the plan"
refused() {
    "$program" "$@" -n >plan 2>errors
    echo "$* -n: exit $?"
    tail -n 1 plan
    cat errors
    "$program" "$@" 2>errors
    echo "$*: exit $?"
    cat errors
}
mkdir there left.partial
refused convert m -o there
refused convert m -o m
refused convert m -o m/inside
refused convert m -o left
refused convert m -o no/such/folder
refused convert m -o never --device cuda
refused dequant q.safetensors -o /dev/null -f
fp8q convert f.safetensors -n --force -o left.safetensors
fp8q convert m -n -o left --force --json >/dev/null
ls
