# A run that ends in the middle, what it leaves, and how the next one goes on from it.
mkmodel m <<'SPEC'
file model-00001-of-00002.safetensors
tensor a.weight BF16 256x256 random:1
tensor a.norm.weight BF16 256 1.0
file model-00002-of-00002.safetensors
tensor b.weight BF16 2048x1024 random:2
index
text config.json {}
text tokenizer.json {"vocabulary": 512}
SPEC
# The second shard does not fit into so large a file (1024 KiB).
stopped() { (ulimit -f 1024 && fp8q "$@" --threads 1); }
stopped convert m -o out --exclude '*.norm.*'
ls -A . out.partial
wc -l <out.partial.journal
echo "# refused: nothing is changed"
fp8q convert m -o out
fp8q convert m -o out --resume
fp8q convert m -o out --resume --exclude '*.norm.*' --scale-format pow2
fp8q convert m -o out --resume --force --exclude '*.norm.*' --amax-floor 0
fp8q dequant m -o out --resume
fp8q convert m -o out --resume --exclude '*.norm.*' --arch sm100 --dry-run
cp m/config.json kept
echo >>m/config.json
fp8q convert m -o out --resume --exclude '*.norm.*'
mv kept m/config.json
touch out.partial/notes
fp8q convert m -o out --resume --exclude '*.norm.*'
rm out.partial/notes
mv out.partial.journal elsewhere
fp8q convert m -o out --resume --exclude '*.norm.*'
mv elsewhere out.partial.journal
ls -A . out.partial
echo "# the plan, and what is left of it"
fp8q convert m -o out --resume --exclude '*.norm.*' --dry-run
fp8q convert m -o out --resume --exclude '*.norm.*'
"$program" convert m -o whole -q --exclude '*.norm.*' 2>/dev/null
diff -r whole out && echo "as without interruption"
ls
echo "# a finished shard that decayed"
stopped convert m -o again -q
truncate -s -1 again.partial/model-00001-of-00002.safetensors
fp8q_json convert m -o again --resume | grep -E '^(warnings|summary.n_files|!)'
diff -r out again && echo "as without interruption"
echo "# nothing to go on with"
fp8q convert m -o fresh --resume -q
fp8q convert m -o fresh --resume
echo "# checksums of what is copied"
fp8q_json convert m -o sums --checksum | grep -E 'name|checksum'
fp8q convert m -o sums --checksum --force
