// What engines fuse must be quantized all or none, and experts cut apart only where the layout is
// certain: a mistake here loads without a word and computes nonsense.
#include "tests/policy_case.h"

// Servers fuse these by name: what they cannot load in blocks, or would find half quantized.
static void test_groups_are_kept_whole(void) {
    decide("a.q_proj.weight BF16 [256, 256]\n"
           "a.k_proj.weight BF16 [64, 256]\n"
           "a.v_proj.weight BF16 [64, 256]\n"
           "a.o_proj.weight BF16 [256, 256]\n"
           "b.q_proj.weight BF16 [256, 256]\n"
           "b.k_proj.weight BF16 [192, 256]\n"
           "b.v_proj.weight BF16 [192, 256]\n"
           "c.q_proj.weight BF16 [256, 256]\n"
           "c.k_proj.weight BF16 [256, 256]\n"
           "c.v_proj.weight BF16 [192, 256]\n"
           "d.q_a_proj.weight BF16 [1536, 256]\n"
           "d.kv_a_proj_with_mqa.weight BF16 [576, 256]\n"
           "e.in_proj_qkv.weight BF16 [320, 256]\n"
           "e.in_proj_z.weight BF16 [256, 256]\n"
           "f.q_proj.weight BF16 [256, 256]\n"
           "f.k_proj.weight I8 [256, 256]\n"
           "q_proj.weight BF16 [192, 256]\n"
           "k_proj.weight BF16 [256, 256]\n");
    check_kept("a.q_proj.weight", "kept with k_proj: smaller than a block");
    check_kept("a.k_proj.weight", "smaller than a block");
    check_quantized("a.o_proj.weight", "");
    check_kept("b.q_proj.weight", "kept with k_proj: its 192 rows are no multiple of 128");
    check_kept("b.k_proj.weight", "its 192 rows are no multiple of 128, and engines fuse it");
    check_kept("b.v_proj.weight", "kept with k_proj");
    check_quantized("c.q_proj.weight", "");
    check_quantized("c.v_proj.weight", "ragged: 192 rows");
    check_quantized("d.q_a_proj.weight", "");
    check_quantized("d.kv_a_proj_with_mqa.weight", "ragged: 576 rows");
    check_kept("e.in_proj_qkv.weight", "its 320 rows are no multiple of 128");
    check_kept("e.in_proj_z.weight", "kept with in_proj_qkv");
    check_kept("f.q_proj.weight", "kept with k_proj: not BF16");
    check_kept("q_proj.weight", "192 rows");
    check_kept("k_proj.weight", "kept with q_proj");
    CHECK_U64(warnings.n, 0);
}

static void test_ragged_gate_and_up_keep_down(void) {
    decide("a.gate_proj.weight BF16 [10944, 256]\n"
           "a.up_proj.weight BF16 [10944, 256]\n"
           "a.down_proj.weight BF16 [256, 10944]\n"
           "b.w1.weight BF16 [320, 256]\n"
           "b.w3.weight BF16 [320, 256]\n"
           "b.w2.weight BF16 [256, 320]\n"
           "c.gate_up_proj.weight BF16 [384, 256]\n"
           "c.down_proj.weight BF16 [256, 192]\n"
           "d.gate_up_proj.weight BF16 [512, 256]\n"
           "d.down_proj.weight BF16 [256, 256]\n"
           "e.up_proj.weight BF16 [320, 256]\n"
           "e.down_proj.weight BF16 [256, 320]\n"
           "f.gate_up_proj.weight BF16 [385, 256]\n"
           "f.down_proj.weight BF16 [256, 256]\n");
    check_kept("a.gate_proj.weight", "its 10944 rows are no multiple of 128");
    check_kept("a.up_proj.weight", "kept with gate_proj: its 10944 rows are no multiple of 128");
    check_kept("a.down_proj.weight",
               "behind a ragged gate_proj: its 10944 columns are no multiple");
    check_kept("b.w1.weight", "320 rows");
    check_kept("b.w2.weight", "behind a ragged w1: its 320 columns");
    check_kept("c.gate_up_proj.weight", "its two halves of 192 rows are no multiple of 128");
    check_kept("c.down_proj.weight", "behind a ragged gate_up_proj: its 192 columns");
    check_quantized("d.gate_up_proj.weight", "");
    check_quantized("e.up_proj.weight", "ragged: 320 rows");
    check_quantized("e.down_proj.weight", "ragged: 320 columns");
    check_kept("f.gate_up_proj.weight", "its two halves of 192.5 rows are no multiple of 128");
    check_quantized("f.down_proj.weight", "");
}

static void test_experts_are_one_group(void) {
    decide("a.experts.{0..3}.gate_proj.weight BF16 [128, 256]\n"
           "a.experts.{0..3}.up_proj.weight BF16 [128, 256]\n"
           "a.experts.{0..2}.down_proj.weight BF16 [256, 128]\n"
           "a.experts.3.down_proj.weight I8 [256, 128]\n"
           "a.experts.3.norm.weight BF16 [256]\n"
           "b.experts.{0..1}.w1.weight BF16 [320, 256]\n"
           "b.experts.{0..1}.w2.weight BF16 [256, 320]\n"
           "b.experts.{0..1}.w3.weight BF16 [320, 256]\n"
           "c.experts.{0..10}.w1.weight BF16 [128, 256]\n"
           "c.experts.{0..10}.w2.weight BF16 [256, 128]\n"
           "c.experts.{0..10}.norm.weight BF16 [256]\n"
           "c.shared_experts.w1.weight BF16 [64, 256]\n"
           "experts.0.w2.weight BF16 [300, 128]\n");
    check_kept("a.experts.0.gate_proj.weight", "kept with experts.3.down_proj: not BF16");
    check_kept("a.experts.3.up_proj.weight", "kept with experts.3.down_proj");
    check_kept("a.experts.3.norm.weight", "not 2-D");
    check_kept("b.experts.0.w1.weight", "its 320 rows are no multiple of 128, and engines fuse it");
    check_kept("b.experts.1.w3.weight", "320 rows");
    check_kept("b.experts.1.w2.weight", "kept with experts.0.w1");
    check_quantized("c.experts.10.w1.weight", "");
    check_quantized("c.experts.2.w2.weight", "");
    check_quantized("experts.0.w2.weight", "ragged: 300 rows");
    CHECK(is_listed("a.experts"));
    CHECK(is_listed("a.experts.0.gate_proj"));
    CHECK(!is_listed("c.experts"));
}

static void check_split(const char *name, fq_experts experts, bool transposed) {
    check_quantized(name, "");
    CHECK(find(name)->experts == experts);
    CHECK(find(name)->transposed == transposed);
}

// The pair of tensors tells the layout, even where one alone is square.
static void test_fused_experts(void) {
    decide("a.experts.gate_up_proj BF16 [4, 512, 128]\n"
           "a.experts.down_proj BF16 [4, 128, 256]\n"
           "b.experts.gate_up_proj BF16 [4, 128, 512]\n"
           "b.experts.down_proj BF16 [4, 256, 128]\n"
           "c.experts.gate_up_proj BF16 [4, 256, 256]\n"
           "c.experts.down_proj BF16 [4, 256, 128]\n"
           "d.experts.gate_up_proj BF16 [4, 256, 256]\n"
           "d.experts.down_proj BF16 [4, 128, 256]\n"
           "experts.gate_up_proj BF16 [4, 256, 256]\n"
           "experts.down_proj BF16 [4, 256, 128]\n");
    check_split("a.experts.gate_up_proj", FQ_EXPERTS_GATE_UP, false);
    check_split("a.experts.down_proj", FQ_EXPERTS_DOWN, false);
    check_split("b.experts.gate_up_proj", FQ_EXPERTS_GATE_UP, true);
    check_split("b.experts.down_proj", FQ_EXPERTS_DOWN, true);
    check_split("c.experts.gate_up_proj", FQ_EXPERTS_GATE_UP, false);
    check_split("c.experts.down_proj", FQ_EXPERTS_DOWN, false);
    check_split("d.experts.gate_up_proj", FQ_EXPERTS_GATE_UP, true);
    check_split("d.experts.down_proj", FQ_EXPERTS_DOWN, true);
    check_split("experts.gate_up_proj", FQ_EXPERTS_GATE_UP, false);
    CHECK_U64(policy.n_modules, 1);
    CHECK_U64(warnings.n, 0);
}

static void check_left_fused(const char *text, const fq_model *model, const char *reason) {
    const fq_policy_options options = {0};
    decide_with(text, model, &options);
    for (size_t i = 0; i < headers.checkpoint.n_tensors; i++) {
        const char *name = headers.checkpoint.by_name[i]->name;
        if (strstr(name, ".experts.") && !strstr(name, "bias"))
            check_kept(name, reason);
    }
    CHECK(is_listed("a.experts"));
    CHECK(warnings.n > 0);
    CHECK_HAS(warnings.n ? warnings.lines[0] : "", "a.experts.");
}

static void test_fused_experts_of_unsure_layout(void) {
    const char *sound = "a.experts.gate_up_proj BF16 [4, 512, 128]\n"
                        "a.experts.down_proj BF16 [4, 128, 256]\n";
    const fq_model none = {0};
    check_left_fused("a.experts.gate_up_proj BF16 [4, 512, 128]\n", &none, "down_proj is missing");
    check_left_fused("a.experts.down_proj BF16 [4, 512, 128]\n", &none, "gate_up_proj is missing");
    check_left_fused("a.experts.gate_up_proj BF16 [4, 512, 128]\n"
                     "a.experts.down_proj BF16 [4, 512, 128]\n",
                     &none, "no known layout");
    check_left_fused("a.experts.gate_up_proj BF16 [4, 511, 128]\n"
                     "a.experts.down_proj BF16 [4, 128, 255]\n",
                     &none, "no known layout");
    check_left_fused("a.experts.gate_up_proj BF16 [4, 512, 128]\n"
                     "a.experts.down_proj BF16 [5, 128, 256]\n",
                     &none, "number of experts");
    check_left_fused("a.experts.gate_up_proj BF16 [2, 2, 512, 128]\n"
                     "a.experts.down_proj BF16 [2, 2, 128, 256]\n",
                     &none, "not 3-D");
    check_left_fused("a.experts.gate_up_proj BF16 [4, 512, 128]\n"
                     "a.experts.gate_up_proj_bias BF16 [4, 512]\n"
                     "a.experts.down_proj BF16 [4, 128, 256]\n",
                     &none, "interleaved");
    check_left_fused("a.experts.gate_up_proj BF16 [4, 512, 128]\n"
                     "a.experts.down_proj BF16 [4, 128, 256]\n"
                     "a.experts.down_proj_bias BF16 [4, 128]\n",
                     &none, "interleaved");
    check_left_fused("a.experts.gate_up_proj BF16 [4, 512, 128]\n"
                     "a.experts.down_proj BF16 [4, 128, 256]\n"
                     "a.experts.2.up_proj.weight BF16 [256, 128]\n",
                     &none, "per-expert tensors too");
    const fq_model gpt_oss = {.has_config = true, .model_type = "gpt_oss"};
    check_left_fused(sound, &gpt_oss, "interleaved");
    const fq_model hidden = {.has_config = true, .model_type = "", .hidden_size = 256};
    check_left_fused(sound, &hidden, "contradicts hidden_size");
    const fq_model moe = {.has_config = true, .model_type = "", .moe_intermediate_size = 128};
    check_left_fused(sound, &moe, "contradicts moe_intermediate_size");
}

static void test_fused_experts_by_the_other_rules(void) {
    decide("a.experts.gate_up_proj BF16 [4, 640, 128]\n"
           "a.experts.down_proj BF16 [4, 128, 320]\n"
           "b.experts.gate_up_proj BF16 [4, 512, 64]\n"
           "b.experts.down_proj BF16 [4, 64, 256]\n"
           "visual.experts.gate_up_proj BF16 [4, 512, 128]\n"
           "visual.experts.down_proj BF16 [4, 128, 256]\n"
           "c.experts.gate_up_proj BF16 [4, 512, 300]\n"
           "c.experts.down_proj BF16 [4, 300, 256]\n"
           "d.experts.gate_up_proj BF16 [4, 512, 128]\n"
           "d.experts.down_proj I8 [4, 128, 256]\n");
    check_kept("a.experts.gate_up_proj", "320 rows of gate and up are no multiple of 128");
    check_kept("a.experts.down_proj", "320 rows of gate and up");
    check_kept("b.experts.gate_up_proj", "smaller than a block");
    check_kept("b.experts.down_proj", "smaller than a block");
    check_kept("visual.experts.down_proj", "vision");
    check_quantized("c.experts.gate_up_proj", "ragged: 300 columns");
    check_quantized("c.experts.down_proj", "ragged: 300 rows");
    check_kept("d.experts.gate_up_proj", "kept with experts.down_proj: not BF16");
    check_kept("d.experts.down_proj", "not BF16");
    CHECK(!is_listed("c.experts"));
    CHECK(is_listed("d.experts"));

    const fq_model model = {0};
    const fq_policy_options keep = {.keep_fused_experts = true};
    decide_with("c.experts.gate_up_proj BF16 [4, 512, 128]\n"
                "c.experts.down_proj BF16 [4, 128, 256]\n",
                &model, &keep);
    check_kept("c.experts.gate_up_proj", "--experts keep");
    CHECK(is_listed("c.experts"));
}

// Fused experts under names of which no layout is known stay, and engines must be told so.
static void test_experts_under_other_names(void) {
    decide("a.{0..3}.mlp.experts.gate_up_proj.weight BF16 [4, 512, 128]\n"
           "b.experts.w13_weight BF16 [4, 512, 128]\n"
           "c.experts.0.experts.w1 F64 [4, 512, 128]\n"
           "d.moe.input_linear.weight BF16 [4, 512, 128]\n"
           "e.myexperts.w1 BF16 [4, 512, 128]\n"
           "f.experts.bias BF16 [4, 1, 128]\n"
           "g.experts.table I8 [4, 512, 128]\n"
           "h.conv1d.weight BF16 [512, 1, 4]\n"
           "i.linear_attn.conv1d.weight BF16 [512, 512, 512]\n"
           "visual.patch_embed.weight BF16 [512, 256, 256]\n"
           "visual.experts.w1 BF16 [4, 512, 128]\n"
           "j.conv.weight BF16 [512, 512, 4]\n");
    check_kept("a.0.mlp.experts.gate_up_proj.weight", "fused experts: only gate_up_proj and");
    check_kept("b.experts.w13_weight", "fused experts: only");
    check_kept("d.moe.input_linear.weight", "not 2-D, but a stack of matrices");
    check_kept("f.experts.bias", "not 2-D");
    static const char *const expected[] = {
        "a.0.mlp.experts", "a.1.mlp.experts",     "a.2.mlp.experts",    "a.3.mlp.experts",
        "b.experts",       "c.experts.0.experts", "d.moe.input_linear", "j.conv",
        "lm_head",         "visual.experts"};
    const size_t n = sizeof expected / sizeof expected[0];
    CHECK_U64(policy.n_modules, n);
    for (size_t i = 0; i < n && i < policy.n_modules; i++)
        CHECK_STR(policy.modules_to_not_convert[i], expected[i]);
    static const char *const warned[] = {
        "model: a.{0..3}.mlp.experts.gate_up_proj.weight: stays unquantized: fused experts: only",
        "b.experts.w13_weight: stays unquantized", "c.experts.0.experts.w1: stays unquantized",
        "d.moe.input_linear.weight: stays unquantized: not 2-D, but a stack of matrices"};
    CHECK_U64(warnings.n, sizeof warned / sizeof warned[0]);
    for (size_t i = 0; i < sizeof warned / sizeof warned[0]; i++)
        CHECK_HAS(i < warnings.n ? warnings.lines[i] : "", warned[i]);
}

static void check_warned(const char *text) {
    size_t i = 0;
    while (i < warnings.n && !strstr(warnings.lines[i], text))
        i++;
    if (!CHECK(i < warnings.n))
        fprintf(stderr, "    no warning has \"%s\"\n", text);
}

// Engines skip the whole module of a stack that stays, so nothing else in it may become FP8.
static void test_matrices_beside_kept_experts(void) {
    const char *text = "a.experts.down_proj BF16 [1, 128, 128]\n"
                       "a.experts.extra.weight BF16 [128, 128]\n"
                       "b.experts.w13_weight BF16 [2, 256, 128]\n"
                       "b.experts.0.w1.weight BF16 [128, 128]\n"
                       "c.experts.extra.weight BF16 [128, 128]\n"
                       "d.experts.gate_up_proj BF16 [2, 256, 128]\n"
                       "d.experts.down_proj BF16 [2, 128, 128]\n"
                       "d.experts.extra.weight BF16 [128, 128]\n"
                       "e.experts.down_proj BF16 [1, 128]\n"
                       "e.experts.extra.weight BF16 [128, 128]\n"
                       "e.experts.0.f.experts.1.up.weight BF16 [128, 128]\n"
                       "g.experts.0.up.weight BF16 [64, 128]\n"
                       "g.experts.1.up.weight BF16 [128, 128]\n"
                       "g.experts.extra.weight BF16 [128, 128]\n"
                       "g.other_experts.weight BF16 [64, 128]\n"
                       "g.other_experts.up.weight BF16 [128, 128]\n";
    decide(text);
    check_kept("e.experts.0.f.experts.1.up.weight", "kept with experts.down_proj");
    check_kept("g.experts.1.up.weight", "kept with experts.0.up: smaller");
    check_kept("g.experts.extra.weight", "kept with experts.0.up: smaller");
    check_quantized("g.other_experts.up.weight", "");
    check_kept("a.experts.extra.weight", "kept with experts.down_proj: fused experts");
    check_kept("e.experts.extra.weight", "kept with experts.down_proj: fused experts");
    check_kept("b.experts.0.w1.weight", "kept with experts.w13_weight: fused experts: only");
    check_quantized("c.experts.extra.weight", "");
    check_quantized("d.experts.extra.weight", "");
    const fq_name_rule rules[] = {{"a.experts.extra.weight", true}};
    decide_by_rules(text, rules, 1);
    check_warned("a.experts: engines fuse these: quantized are experts.extra, kept are "
                 "experts.down_proj");
}

// The user's rules may quantize what would have stayed anyway, and keep what would not.
static void test_rules_beside_experts(void) {
    const char *text = "a.experts.down_proj BF16 [1, 128, 128]\n"
                       "a.experts.unnamed BF16 [128, 128]\n"
                       "b.experts.gate_up_proj BF16 [2, 256, 128]\n"
                       "b.experts.down_proj BF16 [2, 128, 128]\n"
                       "b.experts.extra.weight BF16 [128, 128]\n"
                       "b.experts.small.weight BF16 [64, 128]\n"
                       "c.experts.gate_up_proj BF16 [2, 256, 128]\n"
                       "c.experts.down_proj BF16 [2, 128, 128]\n"
                       "c.experts.small.weight BF16 [64, 128]\n";
    const fq_name_rule rules[] = {{"a.experts.unnamed", true}, {"b.experts.*_proj", false}};
    decide_by_rules(text, rules, 2);
    check_quantized("b.experts.extra.weight", "");
    check_quantized("c.experts.down_proj", "");
    check_warned("a.experts: engines fuse these: quantized are experts.unnamed, kept are "
                 "experts.down_proj");
    check_warned("b.experts: engines fuse these: quantized are experts.extra, kept are "
                 "experts.down_proj and experts.gate_up_proj");
    for (size_t i = 0; i < warnings.n; i++)
        CHECK(!strstr(warnings.lines[i], "c.experts: "));
}

// Sizes and groups give way to --include, layouts do not.
static void test_included_fused_experts(void) {
    const fq_name_rule rules[] = {{"*.experts.*", true}};
    decide_by_rules("a.experts.gate_up_proj BF16 [4, 128, 640]\n"
                    "a.experts.down_proj BF16 [4, 320, 128]\n"
                    "b.experts.gate_up_proj BF16 [4, 128, 640]\n",
                    rules, 1);
    CHECK(find("a.experts.gate_up_proj")->quantize);
    CHECK(find("a.experts.gate_up_proj")->experts == FQ_EXPERTS_GATE_UP);
    CHECK(find("a.experts.down_proj")->experts == FQ_EXPERTS_DOWN);
    CHECK(find("a.experts.down_proj")->transposed);
    check_kept("b.experts.gate_up_proj", "down_proj is missing");
    CHECK_U64(faults.n, 0);
    CHECK_U64(warnings.n, 2);
    CHECK_HAS(
        warnings.n ? warnings.lines[0] : "",
        "a.experts: engines fuse experts.down_proj and experts.gate_up_proj, and refuse "
        "experts.gate_up_proj: its two halves of 320 rows are no multiple of 128; remove this "
        "--include");
}

static void test_groups_broken_by_rules(void) {
    const char *text = "l.{0..2}.q_proj.weight BF16 [256, 256]\n"
                       "l.{0..2}.k_proj.weight BF16 [256, 256]\n"
                       "l.{0..2}.v_proj.weight BF16 [256, 256]\n"
                       "m.gate_proj.weight BF16 [320, 256]\n"
                       "m.up_proj.weight BF16 [320, 256]\n"
                       "o.gate_up_proj.weight BF16 [384, 256]\n"
                       "m.experts.{0..3}.w1.weight BF16 [128, 256]\n"
                       "m.experts.{0..3}.w2.weight BF16 [256, 128]\n"
                       "n.experts.gate_up_proj BF16 [4, 512, 128]\n"
                       "n.experts.down_proj BF16 [4, 128, 256]\n";
    const fq_name_rule rules[] = {{"*.k_proj.weight", false},
                                  {"m.*_proj.weight", true},
                                  {"m.experts.2.*", false},
                                  {"n.experts.down_proj", false},
                                  {"o.*", true}};
    decide_by_rules(text, rules, 5);
    check_quantized("l.1.q_proj.weight", "");
    check_kept("l.1.k_proj.weight", "by --exclude");
    check_quantized("m.gate_proj.weight", "by --include m.*_proj.weight");
    check_kept("m.experts.2.w1.weight", "by --exclude");
    check_quantized("m.experts.1.w1.weight", "");
    CHECK_U64(faults.n, 0);
    CHECK_U64(warnings.n, 6);
    check_warned("model: l.{0..2}: engines fuse these: quantized are q_proj and "
                 "v_proj, kept are k_proj; treat them alike with --exclude");
    check_warned("m: engines fuse gate_proj and up_proj, and refuse gate_proj: its 320 rows are no "
                 "multiple of 128; remove this --include");
    check_warned("o: engines refuse gate_up_proj: its two halves of 192 rows are no multiple of "
                 "128; remove this --include");
    check_warned("m.experts: engines fuse these: quantized are experts.0.w1, "
                 "experts.0.w2, experts.1.w1 and 3 more, kept are experts.2.w1 and "
                 "experts.2.w2;");
    check_warned("n.experts: engines fuse these: quantized are "
                 "experts.gate_up_proj, kept are experts.down_proj");
    check_warned("n.experts.down_proj: stays unquantized: by --exclude");
    CHECK(is_listed("n.experts"));
    CHECK(!is_listed("m.experts"));
}

int main(void) {
    test_groups_are_kept_whole();
    test_ragged_gate_and_up_keep_down();
    test_experts_are_one_group();
    test_fused_experts();
    test_fused_experts_of_unsure_layout();
    test_fused_experts_by_the_other_rules();
    test_experts_under_other_names();
    test_matrices_beside_kept_experts();
    test_rules_beside_experts();
    test_included_fused_experts();
    test_groups_broken_by_rules();
    reset();
    return check_result();
}
