// A scale that is not found, or read in the wrong shape, turns a model to noise without a word:
// every form that is accepted, and a fault with a name for every other.
#include "lib/pairing.h"
#include "lib/plan.h"
#include "tests/check.h"
#include "tests/header_checkpoint.h"

static header_checkpoint headers;
static fq_arena arena;
static fq_pairing pairing;
static fq_messages faults;

static const fq_quant_config no_config = {0};
static const fq_quant_config blocks_of_128 = {
    .present = true, .method = "fp8", .fmt = "e4m3", .has_block = true, .block = {128, 128}};
static const fq_quant_config blocks_of_32 = {
    .present = true, .method = "fp8", .has_block = true, .block = {32, 32}, .ue8m0 = true};
static const fq_quant_config ue8m0 = {
    .present = true, .method = "fp8", .has_block = true, .block = {128, 128}, .ue8m0 = true};
static const fq_quant_config mxfp8 = {
    .present = true, .method = "mxfp8", .has_block = true, .block = {1, 32}};

static void reset(void) {
    header_free(&headers);
    fq_arena_free(&arena);
    fq_messages_free(&faults);
    headers = (header_checkpoint){0};
    pairing = (fq_pairing){0};
}

static void pair(const char *text, const fq_quant_config *quant) {
    reset();
    CHECK(header_add_text(&headers, text));
    header_finish(&headers);
    fq_error err = {0};
    CHECK(fq_pair_scales(&pairing, &arena, &headers.checkpoint, quant, &faults, &err) == FQ_OK);
}

static void pair_weight(const char *weight, const char *scale, const fq_quant_config *quant) {
    char text[512];
    snprintf(text, sizeof text, "%s\n%s\n", weight, scale);
    pair(text, quant);
}

// One weight and one scale that belong together.
static void check_accepted(const char *weight, const char *scale, const fq_quant_config *quant,
                           fq_scale_storage storage, uint64_t rows, uint64_t cols) {
    pair_weight(weight, scale, quant);
    if (!CHECK(faults.n == 0 && pairing.n == 1)) {
        fprintf(stderr, "    %s, %s: %s\n", weight, scale, faults.n ? faults.lines[0] : "no pair");
        return;
    }
    const fq_pair *found = &pairing.pairs[0];
    CHECK(strncmp(found->weight->name, weight, strlen(found->weight->name)) == 0);
    CHECK(strncmp(found->scale->name, scale, strlen(found->scale->name)) == 0);
    CHECK(found->storage == storage);
    CHECK_U64(found->block.rows, rows);
    CHECK_U64(found->block.cols, cols);
    CHECK(pairing.pair_of[0] == found && pairing.pair_of[1] == found);
}

// Exactly one fault, on the tensor of that name, for that reason.
static void check_refused(const char *text, const fq_quant_config *quant, const char *name,
                          const char *reason) {
    char start[256];
    snprintf(start, sizeof start, "model.safetensors: %s: ", name);
    pair(text, quant);
    CHECK_U64(faults.n, 1);
    if (faults.n == 0)
        return;
    if (!CHECK(strncmp(faults.lines[0], start, strlen(start)) == 0))
        fprintf(stderr, "    %s\n", faults.lines[0]);
    CHECK_HAS(faults.lines[0], reason);
    CHECK_U64(pairing.n, 0);
}

static void check_scale_refused(const char *scale_dtype_and_shape, const fq_quant_config *quant,
                                const char *reason) {
    char text[256];
    snprintf(text, sizeof text, "x.weight F8_E4M3 [130, 300]\nx.weight_scale_inv %s\n",
             scale_dtype_and_shape);
    check_refused(text, quant, "x.weight_scale_inv", reason);
}

static void test_names(void) {
    const char *weight = "x.weight F8_E4M3 [130, 300]";
    check_accepted(weight, "x.weight_scale_inv F32 [2, 3]", &blocks_of_128, FQ_STORED_GRID, 128,
                   128);
    check_accepted(weight, "x.weight_scale F32 [2, 3]", &no_config, FQ_STORED_GRID, 128, 128);
    check_accepted(weight, "x.scale F32 [2, 3]", &no_config, FQ_STORED_GRID, 128, 128);
    check_accepted("w F8_E4M3 [130, 300]", "w_scale_inv F32 [2, 3]", &no_config, FQ_STORED_GRID,
                   128, 128);
    check_accepted("weight F8_E4M3 [130, 300]", "weight_scale_inv F32 [2, 3]", &no_config,
                   FQ_STORED_GRID, 128, 128);
    check_accepted("a.experts.gate_up_proj F8_E4M3 [4, 256, 300]",
                   "a.experts.gate_up_proj_scale_inv BF16 [4, 2, 3]", &no_config, FQ_STORED_GRID,
                   128, 128);
}

static void test_dtypes(void) {
    const char *weight = "x.weight F8_E4M3 [130, 300]";
    check_accepted(weight, "x.weight_scale_inv BF16 [2, 3]", &blocks_of_128, FQ_STORED_GRID, 128,
                   128);
    check_accepted(weight, "x.weight_scale_inv F16 [2, 3]", &blocks_of_128, FQ_STORED_GRID, 128,
                   128);
    check_accepted(weight, "x.scale F8_E8M0 [2, 3]", &blocks_of_128, FQ_STORED_GRID, 128, 128);
    check_accepted(weight, "x.weight_scale_inv U8 [2, 3]", &ue8m0, FQ_STORED_U8, 128, 128);
    check_accepted(weight, "x.weight_scale_inv I32 [1, 132]", &blocks_of_128, FQ_STORED_PACKED, 128,
                   128);
    check_accepted("x.weight F8_E4M3 [256, 640]", "x.weight_scale_inv I32 [2, 256]", &no_config,
                   FQ_STORED_PACKED, 128, 128);
    check_scale_refused("U8 [2, 3]", &blocks_of_128, "U8 scales are taken for exponents only if");
    check_scale_refused("I32 [2, 3]", &blocks_of_128, "would be [1, 132]");
    check_scale_refused("I32 [1, 130]", &no_config, "would be [1, 132]");
    check_scale_refused("I32 [1, 132]", &blocks_of_32, "packed exponents");
    check_scale_refused("F64 [2, 3]", &blocks_of_128, "F64");
    check_scale_refused("I64 [2, 3]", &no_config, "I64");
    check_scale_refused("F8_E4M3 [2, 3]", &no_config, "F8_E4M3");
}

static void test_blocks(void) {
    const char *weight = "x.weight F8_E4M3 [130, 320]";
    check_accepted(weight, "x.scale F8_E8M0 [5, 10]", &no_config, FQ_STORED_GRID, 32, 32);
    check_accepted(weight, "x.scale F8_E8M0 [5, 10]", &blocks_of_32, FQ_STORED_GRID, 32, 32);
    check_accepted(weight, "x.scale F8_E8M0 [130, 10]", &no_config, FQ_STORED_GRID, 1, 32);
    check_accepted(weight, "x.scale F8_E8M0 [130, 10]", &blocks_of_32, FQ_STORED_GRID, 1, 32);
    check_accepted(weight, "x.weight_scale_inv U8 [130, 10]", &no_config, FQ_STORED_U8, 1, 32);
    check_accepted(weight, "x.weight_scale_inv U8 [130, 10]", &mxfp8, FQ_STORED_U8, 1, 32);
    check_accepted(weight, "x.weight_scale_inv F32 [5, 10]", &blocks_of_32, FQ_STORED_GRID, 32, 32);
    // The config is not argued with.
    check_scale_refused("F32 [2, 3]", &blocks_of_32, "needs [5, 10] in blocks of 32 x 32");
    check_scale_refused("F8_E8M0 [5, 10]", &blocks_of_128, "needs [2, 3]");
    check_scale_refused("F32 [5, 10]", &no_config, "needs [2, 3] in blocks of 128 x 128");
}

static void test_shapes(void) {
    const fq_scale_storage grid = FQ_STORED_GRID;
    const fq_quant_config *config = &blocks_of_128;
    check_accepted("x.weight F8_E4M3 [256, 256]", "x.weight_scale F32 [2, 1, 2, 1]", config, grid,
                   128, 128);
    check_accepted("x.weight F8_E4M3 [100, 300]", "x.weight_scale F32 [3]", config, grid, 128, 128);
    check_accepted("x.weight F8_E4M3 [300, 100]", "x.weight_scale F32 [3]", config, grid, 128, 128);
    check_accepted("x.weight F8_E4M3 [100, 100]", "x.weight_scale F32 []", config, grid, 128, 128);
    check_accepted("x.weight F8_E4M3 [100, 100]", "x.weight_scale F32 [1]", config, grid, 128, 128);
    check_accepted("x.weight F8_E4M3 [576, 7168]", "x.weight_scale_inv F32 [5, 56]", config, grid,
                   128, 128);
    static const char *const misfits[] = {"F32 [3, 2]",    "F32 [6]",    "F32 [1, 3]",
                                          "F32 [2, 4]",    "F32 [0, 3]", "F32 [2, 3, 1]",
                                          "F32 [1, 2, 3]", "F32 [2]",    "F32 [2, 1, 3, 2]"};
    for (size_t i = 0; i < sizeof misfits / sizeof misfits[0]; i++)
        check_scale_refused(misfits[i], config, "needs [2, 3]");
}

// Forms that other tools write, and that are no blocks of 128: the message says what they are.
static void test_known_misfits(void) {
    check_scale_refused(
        "F32 []", &blocks_of_128,
        "shape [] is one scale for the whole tensor of x.weight; this version reads "
        "block scales only, here [2, 3] for blocks of 128 x 128");
    check_scale_refused("F32 [1]", &no_config, "one scale for the whole tensor of x.weight");
    check_scale_refused("F32 [130, 1]", &no_config,
                        "one scale for each row of x.weight; this version");
    check_scale_refused("F32 [130]", &blocks_of_128, "one scale for each row of x.weight");
    check_scale_refused("F32 [4, 3]", &blocks_of_128, "tensor-parallel split");
    check_refused("qkv.weight F8_E4M3 [27136, 6144]\nqkv.weight_scale_inv F32 [216, 48]\n",
                  &blocks_of_128, "qkv.weight_scale_inv", "tensor-parallel split");
    check_refused("experts.down_proj F8_E4M3 [4, 256, 256]\n"
                  "experts.down_proj_scale_inv F32 [4, 1, 1]\n",
                  &no_config, "experts.down_proj_scale_inv", "one scale for each expert");
    check_refused("experts.down_proj F8_E4M3 [4, 256, 256]\n"
                  "experts.down_proj_scale_inv F32 [2, 2]\n",
                  &no_config, "experts.down_proj_scale_inv", "needs [4, 2, 2]");
}

static void test_missing_and_orphan_scales(void) {
    check_refused("mtp.0.e_proj.weight F8_E4M3 [256, 256]\n", &blocks_of_128, "mtp.0.e_proj.weight",
                  "without a scale");
    check_refused("a.weight_scale_inv F32 [1, 1]\n", &no_config, "a.weight_scale_inv",
                  "whose weight no file holds");
    check_refused("a.weight_scale BF16 [1, 1]\n", &no_config, "a.weight_scale", "no file holds");
    check_refused("a.scale F8_E8M0 [1, 1]\n", &no_config, "a.scale", "no file holds");
    check_refused("weight_scale F32 [1]\n", &no_config, "weight_scale", "no file holds");
    check_refused("a.weight BF16 [256, 256]\na.weight_scale_inv F32 [2, 2]\n", &no_config,
                  "a.weight_scale_inv", "whose weight is BF16");
    check_refused("p.experts.down_proj BF16 [4, 256, 256]\n"
                  "p.experts.down_proj_scale_inv F32 [4, 2, 2]\n",
                  &no_config, "p.experts.down_proj_scale_inv", "whose weight is BF16");
    check_refused("a.weight F8_E4M3 [256]\na.weight_scale_inv F32 [2]\n", &no_config, "a.weight",
                  "no matrix");
    check_refused("a.weight F8_E4M3 [0, 128]\na.weight_scale_inv F32 [0, 1]\n", &no_config,
                  "a.weight", "without elements");
    check_refused("a.weight F8_E4M3 [16385, 1, 1]\na.weight_scale_inv F32 [16385, 1, 1]\n",
                  &no_config, "a.weight", "more than 16384 matrices");
    pair("a.weight F8_E4M3 [16384, 1, 1]\na.weight_scale_inv F32 [16384, 1, 1]\n", &no_config);
    CHECK_U64(faults.n, 0);
    // Other tensors called scale are ordinary.
    pair("norm.scale F32 [4]\nlayer.scale BF16 [4]\na.k_scale F32 [1]\na.input_scale F32 []\n",
         &no_config);
    CHECK_U64(faults.n, 0);
    CHECK(!pairing.pair_of[0] && !pairing.pair_of[3]);

    pair("a.weight F8_E4M3 [128, 128]\na.weight_scale_inv F32 [1, 1]\na.scale F8_E8M0 [1, 1]\n",
         &no_config);
    CHECK_U64(faults.n, 1);
    CHECK_HAS(faults.n ? faults.lines[0] : "", "a.scale: a second scale");
}

static void test_foreign_formats(void) {
    check_refused("a.weight F8_E5M2 [128, 128]\na.weight_scale_inv F32 [1, 1]\n", &blocks_of_128,
                  "a.weight", "F8_E5M2");
    check_refused("a.weight F8_E4M3FNUZ [128, 128]\n", &blocks_of_128, "a.weight", "F8_E4M3FNUZ");
    check_refused("a.weight F8_E5M2FNUZ [128, 128]\n", &blocks_of_128, "a.weight", "F8_E5M2FNUZ");
    check_refused("a.weight I8 [256, 128]\na.scale F8_E8M0 [256, 8]\n", &no_config, "a.weight",
                  "MXFP4");
    check_refused("a.gate_up_proj_blocks U8 [2, 8, 2, 16]\na.gate_up_proj_scales U8 [2, 8, 2]\n",
                  &no_config, "a.gate_up_proj_blocks", "MXFP4");
    check_refused("a.weight U8 [256, 128]\na.weight_scale F8_E4M3 [256, 16]\n"
                  "a.weight_scale_2 F32 []\na.input_scale F32 []\n",
                  &no_config, "a.weight", "NVFP4");
    check_refused("a.weight_packed U8 [256, 128]\na.weight_scale F8_E4M3 [256, 16]\n"
                  "a.weight_global_scale F32 [1]\n",
                  &no_config, "a.weight_packed", "NVFP4");
    check_refused("a.weight_packed U8 [256, 128]\na.weight_scale U8 [256, 8]\n", &no_config,
                  "a.weight_packed", "MXFP4");
    check_refused("a.weight I8 [256, 128]\na.weight_scale F32 [256, 1]\n", &no_config, "a.weight",
                  "integer");
    check_refused("a.comfy_quant U8 [40]\na.x BF16 [1]\n", &no_config, "a.comfy_quant", "swizzled");
    // Bytes without scales are what they are.
    pair("a.weight I8 [4]\nb.weight U8 [128, 128]\nc.weight BOOL [8]\nd_blocks U8 [4]\n",
         &blocks_of_128);
    CHECK_U64(faults.n, 0);
    CHECK_U64(pairing.n, 0);
}

static void test_fmt_of_the_config(void) {
    const fq_quant_config fnuz = {.present = true, .method = "fp8", .fmt = "e4m3fnuz"};
    pair_weight("x.weight F8_E4M3 [128, 128]", "x.weight_scale_inv F32 [1, 1]", &fnuz);
    CHECK_U64(faults.n, 1);
    CHECK_HAS(faults.n ? faults.lines[0] : "", "config.json: quantization_config: fmt e4m3fnuz");
    static const struct {
        const char *fmt, *fault; // NULL: none
    } cases[] = {
        {"", NULL},
        {"e4m3", NULL},
        {"E4M3", NULL},
        {"Float8_E4M3FN", NULL},
        {"E4M3FNUZ", "fmt E4M3FNUZ is not read"},
        {"float8_e5m2", "fmt float8_e5m2 is not read"},
        {"E5M2", "fmt E5M2 is not read"},
        {"whatever", "fmt whatever is not known; this version reads e4m3 only"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const fq_quant_config quant = {.present = true, .method = "fp8", .fmt = cases[i].fmt};
        pair_weight("x.weight F8_E4M3 [128, 128]", "x.weight_scale_inv F32 [1, 1]", &quant);
        CHECK_U64(faults.n, cases[i].fault != NULL);
        CHECK_HAS(faults.n ? faults.lines[0] : "", cases[i].fault ? cases[i].fault : "");
    }
    const fq_quant_config long_name = {.present = true, .method = "fp8", .fmt = "float8_e4m3fn"};
    pair_weight("x.weight F8_E4M3 [128, 128]", "x.weight_scale_inv F32 [1, 1]", &long_name);
    CHECK_U64(faults.n, 0);
    pair("x.weight BF16 [128, 128]\n", &fnuz);
    CHECK_U64(faults.n, 0);
}

static void test_many_weights_and_all_faults_at_once(void) {
    pair("l.{0..11}.a.weight F8_E4M3 [256, 384]\nl.{0..11}.a.weight_scale_inv F32 [2, 3]\n"
         "l.{0..3}.b.weight F8_E4M3 [128, 128]\nnorm.weight BF16 [4]\n",
         &blocks_of_128);
    CHECK_U64(faults.n, 4);
    CHECK_U64(pairing.n, 12);
    for (size_t i = 1; i < pairing.n; i++)
        CHECK(strcmp(pairing.pairs[i - 1].weight->name, pairing.pairs[i].weight->name) < 0);
    for (size_t i = 0; i < headers.checkpoint.n_tensors; i++) {
        const fq_tensor *tensor = headers.checkpoint.by_name[i];
        const fq_pair *of = pairing.pair_of[i];
        CHECK(!of || of->weight == tensor || of->scale == tensor);
        CHECK((of != NULL) == (strstr(tensor->name, ".a.") != NULL));
    }
}

// One cause may spoil all of a model's tensors: what to do must not be lost in the list.
static void test_many_faults_of_a_kind(void) {
    pair("a.{0..24}.weight F8_E4M3 [128, 128]\nb.{0..19}.weight_scale F32 [1, 1]\n"
         "c.{0..99}.weight BF16 [1, 1]\nc.{0..99}.weight_scale F32 [1, 1]\n",
         &no_config);
    CHECK_U64(faults.n, 20 + 20 + 20 + 2);
    CHECK_STR(faults.n == 62 ? faults.lines[60] : "",
              "model: and 5 more FP8 weights without a scale");
    CHECK_STR(faults.n == 62 ? faults.lines[61] : "",
              "model: and 80 more scales whose weight is not FP8");
}

// A scale that is left over would be read with the new codes, or with weights that are not FP8.
// Other formats would make an output that neither an engine nor dequant reads.
static void test_leftovers_refused_by_convert(void) {
    reset();
    CHECK(header_add_text(&headers, "a.weight BF16 [256, 256]\na.weight_scale_inv F32 [2, 2]\n"
                                    "b.weight_scale BF16 [1]\nc BF16 [4, 4]\nc_scale_inv F32 []\n"
                                    "d.weight I8 [4, 4]\nd.weight_scale F32 [4, 1]\n"
                                    "norm.scale F32 [4]\ne.k_scale F32 []\nf_scale_inv F32 []\n"));
    header_finish(&headers);
    fq_error err = {0};
    const fq_model model = fq_model_unknown();
    const fq_quantize_options options = {.arch = "sm90", .version = "0"};
    fq_plan plan = {0};
    fq_messages warnings = {0};
    CHECK(fq_plan_quantize(&plan, &headers.checkpoint, &model, &options, &faults, &warnings,
                           &err) == FQ_OK);
    fq_plan_free(&plan);
    fq_messages_free(&warnings);
    static const char *const expected[] = {"d.weight: is an integer format",
                                           "a.weight_scale_inv: a scale whose weight is BF16",
                                           "b.weight_scale: a scale whose weight no file holds",
                                           "c_scale_inv: a scale whose weight is BF16"};
    CHECK_U64(faults.n, 4);
    for (size_t i = 0; i < 4; i++)
        CHECK_HAS(i < faults.n ? faults.lines[i] : "", expected[i]);
}

static void test_runtime_scales(void) {
    CHECK(fq_is_runtime_scale("model.layers.0.self_attn.k_scale"));
    CHECK(fq_is_runtime_scale("a.v_scale"));
    CHECK(fq_is_runtime_scale("input_scale"));
    CHECK(!fq_is_runtime_scale("a.weight_scale"));
    CHECK(!fq_is_runtime_scale("a.my_k_scale"));
    CHECK(!fq_is_runtime_scale("k_scale.weight"));
}

int main(void) {
    test_names();
    test_dtypes();
    test_blocks();
    test_shapes();
    test_known_misfits();
    test_missing_and_orphan_scales();
    test_foreign_formats();
    test_fmt_of_the_config();
    test_many_weights_and_all_faults_at_once();
    test_many_faults_of_a_kind();
    test_leftovers_refused_by_convert();
    test_runtime_scales();
    reset();
    return check_result();
}
