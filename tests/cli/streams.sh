# Standard streams that are closed, full or gone.
make_file f.safetensors
"$program" inspect f.safetensors >/dev/full
echo "full: $?"
"$program" inspect f.safetensors >&-
echo "closed: $?"
"$program" convert f.safetensors -o a.safetensors >&- 2>&- <&-
echo "all closed: $?"
"$program" inspect a.safetensors -q | head -1
(
    until [ -e closed ]; do sleep 0.01; done
    "$program" help convert
    echo "reader gone: $?" >&2
) | {
    exec <&-
    touch closed
}
"$program" inspect nope 2>/dev/full
echo "messages lost: $?"
echo "# JSON alone on stdout, and nothing on stderr with --quiet"
"$program" convert f.safetensors -o b.safetensors --json --quiet 2>errors | flatjson | grep -c .
cat errors
echo "# a file that may not grow is like a full disk"
(
    ulimit -f 64
    "$program" convert f.safetensors -o c.safetensors 2>&1
    echo "limited: $?"
)
ls c.safetensors* 2>&1
