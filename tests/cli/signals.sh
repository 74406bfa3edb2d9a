# A signal stops the run soon, the exit code tells which, and the output is absent.
mkmodel big <<'SPEC'
file model-00001-of-00002.safetensors
tensor a.weight BF16 128x128 1.0
text config.json {}
SPEC
# The second shard is 6 GB of holes: long enough to be met at work.
header='{"b.weight":{"dtype":"BF16","shape":[300000,10240],"data_offsets":[0,6144000000]}}'
shard=big/model-00002-of-00002.safetensors
printf "\\x$(printf %x ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header" >$shard
truncate -s $((6144000000 + 8 + ${#header})) $shard
set -m # or the shell lets its children ignore SIGINT
stop() {
    "$program" convert big -o "$1" --no-progress --threads 1 >out 2>errors &
    local pid=$!
    # Once the first shard is finished, the second one is at work.
    until [ -e "$1.partial/model-00001-of-00002.safetensors" ]; do
        kill -0 $pid || break
        sleep 0.02
    done
    kill -"$2" $pid
    wait $pid
    echo "$2: exit $?"
    cat out errors
    ls -d "$1" 2>&1
    ls "$1.partial"
}
stop a INT 2>&1
stop b TERM 2>&1
stop c HUP 2>&1
fp8q convert big -o a
