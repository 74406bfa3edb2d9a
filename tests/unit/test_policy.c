// Which tensors are quantized decides whether a model loads and stays sound: the rules on names,
// dtypes and sizes, and the user's own.
#include "tests/policy_case.h"

// Each row of the built-in rules has a name that it keeps, and one like it that no row may keep.
static void test_component_rules(void) {
    static const struct {
        const char *kept, *like_it;
    } names[] = {
        {"model.embed_tokens", "model.reembed"},
        {"tok_embeddings", "tok_embedding"},
        {"transformer.word_embeddings", "transformer.word_embedded"},
        {"wte", "wten"},
        {"wpe", "xwpe"},
        {"lm_head", "lm_headroom"},
        {"model.layers.61.shared_head.head", "model.heads"},
        {"head", "a.heads.b"},
        {"output", "encoder.layer.0.output.dense"},
        {"model.post_norm_a", "model.layers.0.nor_m"},
        {"h.0.ln_1", "h.0.aln_1"},
        {"model.layers.0.mlp.gate", "model.layers.0.mlp.gated"},
        {"model.layers.0.mlp.router", "model.layers.0.mlp.router_proj"},
        {"model.layers.0.mlp.shared_expert_gate", "model.layers.0.mlp.shared_expert_gate_proj"},
        {"model.layers.61.eh_proj", "mtp.0.e_proj"},
        {"mtp.fc", "model.layers.0.fc"},
        {"mtp_block.0.fc", "fc.mtp_x"},
        {"l.0.self_attn.indexer.weights_proj", "l.0.self_attn.indexer.weights_projs"},
        {"layers.0.attn.compressor.wkv", "layers.0.attn.wkv"},
        {"l.0.linear_attn.conv1d", "l.0.linear_attn.conv1da"},
        {"l.0.linear_attn.in_proj_a", "l.0.linear_attn.in_proj_ab"},
        {"l.0.linear_attn.in_proj_b", "l.0.linear_attn.in_proj_c"},
        {"l.0.linear_attn.in_proj_ba", "l.0.linear_attn.in_proj_qkvz"},
        {"score", "scores"},
        {"classifier", "classifiers"},
        {"model.visual.blocks.0.mlp.linear_fc1", "model.visuals.blocks.0.mlp.linear_fc1"},
        {"vision_tower.layers.0.fc1", "a.pre_vision.layers.0.fc1"},
        {"audio_tower.layers.0.fc1", "model.naudio.fc1"},
        {"speech_tower.layers.0.fc1", "model.speech_towers.fc1"},
        {"multi_modal_projector.linear_1", "model.projection.linear_1"},
        {"a.merger.linear_fc1", "a.mergers.linear_fc1"},
        {"aligner.layers.0", "aligners.layers.0"},
        {"patch_merge_mlp.fc1", "patch_merge_mlps.fc1"},
        {"layers.0.hc_attn", "layers.0.xhc_attn"},
        {"l.0.q_proj.lora_A", "l.0.q_proj.xlora_A"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char text[512], name[256];
        snprintf(text, sizeof text, "%s.weight BF16 [256, 256]\n%s.weight BF16 [256, 256]\n",
                 names[i].kept, names[i].like_it);
        decide(text);
        snprintf(name, sizeof name, "%s.weight", names[i].kept);
        check_kept(name, "");
        snprintf(name, sizeof name, "%s.weight", names[i].like_it);
        check_quantized(name, "");
    }
    size_t n_rules;
    const fq_component_rule *rules = fq_policy_rules(&n_rules);
    for (size_t i = 0; i < n_rules; i++)
        CHECK(*rules[i].glob && *rules[i].reason);
}

static void test_dtype_rank_and_size(void) {
    decide("a.weight F16 [128, 128]\n"
           "b.weight F32 [256, 128]\n"
           "c.weight F64 [256, 256]\n"
           "d.weight I32 [256, 256]\n"
           "e.weight BF16 [127, 256]\n"
           "f.weight BF16 [256, 127]\n"
           "g.weight BF16 [256]\n"
           "h.weight BF16 [2, 256, 256]\n"
           "i.weight BF16 [0, 128]\n"
           "j.weight_g BF16 [256, 256]\n"
           "weight BF16 [256, 256]\n"
           ".weight BF16 [256, 256]\n"
           "k.weight BF16 [576, 7168]\n"
           "l.weight BF16 [256, 300]\n"
           "m.weight BF16 [130, 300]\n"
           "n.weight BF16 []\n");
    check_quantized("a.weight", "");
    check_quantized("b.weight", "");
    check_kept("c.weight", "not BF16, F16 or F32");
    check_kept("d.weight", "not BF16, F16 or F32");
    check_kept("e.weight", "smaller than a block");
    check_kept("f.weight", "smaller than a block");
    check_kept("g.weight", "not 2-D");
    check_kept("h.weight", "not 2-D");
    check_kept("i.weight", "empty");
    check_kept("j.weight_g", "does not end in .weight");
    check_kept("weight", "does not end in .weight");
    check_kept(".weight", "is .weight alone");
    check_quantized("k.weight", "ragged: 576 rows");
    check_quantized("l.weight", "ragged: 300 columns");
    check_quantized("m.weight", "ragged: 130 rows, 300 columns");
    check_kept("n.weight", "not 2-D");
}

static void test_last_rule_wins(void) {
    const fq_name_rule rules[] = {{"*.o_proj.weight", false}, {"a.*", true}, {"a.b.*", false}};
    decide_by_rules("a.o_proj.weight BF16 [256, 256]\n"
                    "b.o_proj.weight BF16 [256, 256]\n"
                    "a.b.c.weight BF16 [256, 256]\n"
                    "a.gate.weight BF16 [64, 256]\n"
                    "a.x BF16 [256, 256]\n"
                    "a.norm.weight BF16 [256]\n",
                    rules, 3);
    check_quantized("a.o_proj.weight", "");
    check_kept("b.o_proj.weight", "by --exclude *.o_proj.weight");
    check_kept("a.b.c.weight", "by --exclude a.b.*");
    check_quantized("a.gate.weight", "by --include a.*");
    check_quantized("a.x", "by --include a.*");
    check_kept("a.norm.weight", "not 2-D");
    CHECK_U64(faults.n + warnings.n, 0);
}

static void test_rules_that_name_one_tensor(void) {
    const char *text = "a.weight BF16 [2, 1, 128]\n"
                       "b.weight I8 [128, 128]\n"
                       "c.weight BF16 [0, 128]\n"
                       "d.weight BF16 [1, 1]\n";
    const fq_name_rule rules[] = {{"a.weight", true}, {"b.weight", true},  {"c.weight", true},
                                  {"d.weight", true}, {"no.such", true},   {"no.other", false},
                                  {"none*", true},    {"a.weight*", false}};
    decide_by_rules(text, rules, 7);
    CHECK_U64(faults.n, 4);
    CHECK_HAS(faults.lines[0], "model.safetensors: a.weight: cannot be quantized: not 2-D");
    CHECK_HAS(faults.lines[1], "b.weight: cannot be quantized: not BF16");
    CHECK_HAS(faults.lines[2], "c.weight: cannot be quantized: empty");
    CHECK_HAS(faults.lines[3], "no.such: no tensor has this name");
    CHECK_U64(warnings.n, 2);
    CHECK_HAS(warnings.lines[0], "no.other");
    CHECK_HAS(warnings.lines[1], "none*");
    check_quantized("d.weight", "by --include d.weight");
    // A rule that a later one overrides asks for nothing.
    decide_by_rules(text, rules, 8);
    CHECK_U64(faults.n, 3);
}

// Brackets are characters of some names: the very name of a tensor is no set.
static void test_rules_that_name_brackets(void) {
    const char *text = "a[0].weight BF16 [256, 256]\n"
                       "b[0].weight BF16 [1, 256]\n"
                       "c[0].weight BF16 [256]\n"
                       "d[0.weight BF16 [1, 256]\n";
    const fq_name_rule rules[] = {{"a[0].weight", false},
                                  {"b[0].weight", true},
                                  {"c[0].weight", true},
                                  {"d[0.weight", true},
                                  {"e[0.weight", true}};
    decide_by_rules(text, rules, 5);
    check_kept("a[0].weight", "by --exclude a[0].weight");
    check_quantized("b[0].weight", "by --include b[0].weight");
    check_quantized("d[0.weight", "by --include d[0.weight");
    CHECK_U64(warnings.n, 0);
    CHECK_U64(faults.n, 2);
    CHECK_HAS(faults.n ? faults.lines[0] : "", "c[0].weight: cannot be quantized: not 2-D");
    CHECK_HAS(faults.n == 2 ? faults.lines[1] : "", "e[0.weight: no tensor has this name");
}

static void test_nonfinite_tensors(void) {
    const char *text = "a.q_proj.weight BF16 [256, 256]\n"
                       "a.k_proj.weight BF16 [256, 256]\n"
                       "a.v_proj.weight BF16 [256, 256]\n"
                       "b.weight BF16 [256, 256]\n"
                       "n.experts.gate_up_proj BF16 [4, 512, 128]\n"
                       "n.experts.down_proj BF16 [4, 128, 256]\n";
    decide(text);
    // Found in a first run, in the same checkpoint: --include cannot bring it back, and is no
    // fault.
    const fq_tensor *found[] = {
        fq_checkpoint_find(&headers.checkpoint, "a.k_proj.weight"),
        fq_checkpoint_find(&headers.checkpoint, "n.experts.down_proj"),
    };
    const fq_name_rule rules[] = {{"a.k_proj.weight", true}};
    const fq_policy_options options = {
        .rules = rules, .n_rules = 1, .nonfinite = found, .n_nonfinite = 2};
    const fq_model model = {0};
    fq_error err = {0};
    CHECK(fq_policy_decide(&policy, &arena, &headers.checkpoint, &model, &options, &faults,
                           &warnings, &err) == FQ_OK);
    check_kept("a.k_proj.weight", "holds NaN or Inf");
    check_kept("a.q_proj.weight", "kept with k_proj: holds NaN or Inf");
    check_kept("a.v_proj.weight", "kept with k_proj: holds NaN or Inf");
    check_kept("n.experts.gate_up_proj", "kept with experts.down_proj: holds NaN or Inf");
    check_quantized("b.weight", "");
    CHECK_U64(faults.n, 0);
    CHECK(is_listed("n.experts"));
}

static void test_modules_to_not_convert(void) {
    decide("model.embed_tokens.weight BF16 [256, 256]\n"
           "model.layers.{0..1}.mlp.gate.weight F32 [64, 256]\n"
           "model.layers.{0..1}.mlp.shared_expert_gate.weight BF16 [1, 256]\n"
           "model.layers.0.linear_attn.conv1d.weight BF16 [256, 1, 4]\n"
           "model.layers.0.linear_attn.dt_bias BF16 [256, 256]\n"
           "model.layers.0.o_proj.weight BF16 [256, 256]\n"
           "model.layers.0.tid2eid.weight I64 [256, 256]\n"
           "model.norm.weight BF16 [256]\n"
           "model.visual.pos_embed.weight BF16 [256, 256]\n"
           "language_model.lm_head.weight BF16 [256, 256]\n");
    static const char *const expected[] = {
        "language_model.lm_head",  "lm_head",
        "model.layers.0.mlp.gate", "model.layers.0.mlp.shared_expert_gate",
        "model.layers.1.mlp.gate", "model.layers.1.mlp.shared_expert_gate",
        "model.visual.pos_embed"};
    const size_t n = sizeof expected / sizeof expected[0];
    CHECK_U64(policy.n_modules, n);
    for (size_t i = 0; i < n && i < policy.n_modules; i++)
        CHECK_STR(policy.modules_to_not_convert[i], expected[i]);
    decide("lm_head.weight BF16 [256, 256]\n");
    CHECK_U64(policy.n_modules, 1);
}

// Engines read what is listed unquantized. A head that is quantized, under any parent, is not.
static void test_included_embeddings_and_heads(void) {
    const char *text = "lm_head.weight BF16 [256, 256]\n"
                       "language_model.lm_head.weight BF16 [256, 256]\n"
                       "model.embed_tokens.weight BF16 [256, 256]\n"
                       "model.layers.0.mlp.gate.weight BF16 [256, 256]\n"
                       "model.layers.0.xlm_head.weight BF16 [256, 256]\n";
    const fq_name_rule rules[] = {
        {"lm_head.weight", true}, {"*.gate.weight", true}, {"*.xlm_head.weight", true}};
    decide_by_rules(text, rules, 3);
    CHECK(!is_listed("lm_head"));
    CHECK(is_listed("language_model.lm_head"));
    CHECK_U64(warnings.n, 1);
    CHECK_HAS(
        warnings.n ? warnings.lines[0] : "",
        "model: lm_head.weight: is quantized by --include lm_head.weight, but engines have no "
        "FP8 form of output heads");
    // One of the same name elsewhere that stays is listed by its full name, and bare where it is.
    const fq_name_rule others[] = {{"language_model.lm_head.weight", true}, {"*embed*", true}};
    decide_by_rules(text, others, 2);
    CHECK(is_listed("lm_head"));
    CHECK(!is_listed("language_model.lm_head"));
    CHECK_U64(warnings.n, 2);
    CHECK_HAS(
        warnings.n == 2 ? warnings.lines[1] : "",
        "model.embed_tokens.weight: is quantized by --include *embed*, but engines have no FP8 "
        "form of embeddings");
    decide_by_rules("language_model.lm_head.weight BF16 [256, 256]\n", others, 1);
    CHECK_U64(policy.n_modules, 0);
    decide_by_rules("l.xlm_head.weight BF16 [256, 256]\n", NULL, 0);
    CHECK(is_listed("lm_head"));
}

int main(void) {
    test_component_rules();
    test_dtype_rank_and_size();
    test_last_rule_wins();
    test_rules_that_name_one_tensor();
    test_rules_that_name_brackets();
    test_nonfinite_tensors();
    test_modules_to_not_convert();
    test_included_embeddings_and_heads();
    reset();
    return check_result();
}
