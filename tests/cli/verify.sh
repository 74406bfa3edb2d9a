# verify: the report for people and for programs, of a good conversion and of broken ones.
. "$here/models.sh"
make_model model
"$program" convert model -o good --quiet
fp8q verify good --reference model
fp8q verify good
cp -r good bad
# A code of down_proj. Behind it come its scales, a norm and lm_head; the header may be of any size.
file=bad/model-00002-of-00002.safetensors
behind=$((512 * 256 * 2 + 256 * 4 + 6 * 4 + 100))
printf '\x01' | dd of=$file bs=1 seek=$(($(stat -c %s $file) - behind)) conv=notrunc status=none
printf '{}' >bad/config.json
fp8q verify bad --reference model --tensor '*mlp*'
fp8q_json verify bad --reference model --tensor '*up_proj*'
fp8q verify good --reference good
fp8q verify good --tensor nothing
fp8q verify model
fp8q verify good --quiet
fp8q verify good --tp 16 --quiet
fp8q verify bad --reference model --quiet
# Limits that nothing is held to.
fp8q verify good --max-weight-error 0.01 --max-gemm-error 0.01 --quiet
fp8q verify good --reference model --no-gemm --max-gemm-error 0.01 --quiet
