# Inputs and outputs that are refused: the exit code says whose fault it is, and nothing is left.
make_model m
make_file f.safetensors
mkdir sub
echo "# 4: not there, not readable"
fp8q convert nope
fp8q inspect sub/nope.safetensors
echo "# 3: not what it should be"
fp8q convert sub
mkdir -p pickles models--org--name/snapshots/0123
touch pickles/pytorch_model.bin
fp8q convert pickles
fp8q convert models--org--name
mkfifo pipe.safetensors
fp8q inspect pipe.safetensors
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n' >lfs.safetensors
fp8q convert lfs.safetensors
printf 'short' >short.safetensors
fp8q convert short.safetensors
cp -r m broken
rm broken/model-00002-of-00002.safetensors
truncate -s -1 broken/model-00001-of-00002.safetensors
fp8q convert broken
"$program" convert m -o m8 -q
fp8q convert m8
cp -r m stale
cp m8/config.json stale
fp8q convert stale
echo "tensor a.weight F8_E5M2 128x128 zero" | mkmodel e5m2.safetensors
fp8q convert e5m2.safetensors
echo "# 2: outputs in the way"
fp8q convert m -o m
fp8q convert m -o m/inside --force
fp8q convert m/ -o ./sub/../m -f
fp8q convert f.safetensors -o f.safetensors -f
ln f.safetensors hard.safetensors
fp8q convert f.safetensors -o hard.safetensors -f
mkdir m16.partial
fp8q dequant m8 -o m16
fp8q dequant m8 -o m16 --force -q
echo "# 4: nowhere to write"
fp8q convert m -o no/such/folder
echo "# 5: no such device"
fp8q convert m -o never --device cuda
fp8q convert m -o never --device cuda:0,1
ls
