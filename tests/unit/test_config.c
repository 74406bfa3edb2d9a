// config.json is the user's, and so is the quantization_config that stands alone in the metadata of
// a file: what is read from them must be what they say.
#include "formats/config.h"

#include "tests/check.h"

static fq_status read_config(fq_model *out, fq_arena *arena, const char *text, fq_error *err) {
    return fq_config_read(out, arena, text, strlen(text), "config.json", err);
}

static void test_plain(void) {
    fq_arena arena = {0};
    fq_model model = {0};
    fq_error err = {0};
    CHECK(read_config(&model, &arena,
                      "{\"model_type\":\"qwen3_moe\",\"hidden_size\":2048,\"x\":[NaN,-Infinity],"
                      "\"moe_intermediate_size\":768,\"tie_word_embeddings\":true}",
                      &err) == FQ_OK);
    CHECK(model.has_config && model.tie_word_embeddings && !model.quant.present);
    CHECK_STR(model.model_type, "qwen3_moe");
    CHECK_U64(model.hidden_size, 2048);
    CHECK_U64(model.moe_intermediate_size, 768);
    CHECK(read_config(&model, &arena, "{}", &err) == FQ_OK);
    CHECK(model.has_config && !model.tie_word_embeddings && !model.quant.present);
    CHECK_STR(model.model_type, "");
    CHECK_STR(model.quant.method, "");
    CHECK_STR(model.quant.fmt, "");
    CHECK_STR(model.quant.scale_format, "");
    CHECK_U64(model.hidden_size, 0);
    fq_arena_free(&arena);
}

static void test_quantization_config(void) {
    fq_arena arena = {0};
    fq_model model = {0};
    fq_error err = {0};
    CHECK(read_config(&model, &arena,
                      "{\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\","
                      "\"weight_block_size\":[32,2147483648],\"scale_fmt\":\"ue8m0\","
                      "\"modules_to_not_convert\":[\"lm_head\"],\"hidden_size\":5,"
                      "\"fp8q\":{\"scale_format\":\"packed\",\"fmt\":\"x\"}},\"fmt\":7}",
                      &err) == FQ_OK);
    CHECK(model.quant.present && model.quant.has_block && model.quant.ue8m0);
    CHECK_STR(model.quant.method, "fp8");
    CHECK_STR(model.quant.fmt, "e4m3");
    CHECK_STR(model.quant.scale_format, "packed");
    CHECK_U64(model.quant.block.rows, 32);
    CHECK_U64(model.quant.block.cols, UINT64_C(1) << 31);
    CHECK_U64(model.hidden_size, 0);
    // scale_fmt of other makers, and null where per-tensor checkpoints have no block
    CHECK(
        read_config(&model, &arena,
                    "{\"quantization_config\":{\"scale_fmt\":\"float\",\"weight_block_size\":null,"
                    "\"fmt\":null,\"quant_method\":null,\"fp8q\":null}}",
                    &err) == FQ_OK);
    CHECK(model.quant.present && !model.quant.has_block && !model.quant.ue8m0);
    CHECK_STR(model.quant.method, "");
    CHECK(read_config(&model, &arena, "{\"quantization_config\":null}", &err) == FQ_OK);
    CHECK(!model.quant.present);
    fq_arena_free(&arena);
}

// Lists of modules: the first key that has one counts, and only strings name modules.
static void test_lists_of_modules(void) {
    fq_arena arena = {0};
    fq_model model = {0};
    fq_error err = {0};
    CHECK(read_config(&model, &arena,
                      "{\"num_key_value_heads\":8,\"quantization_config\":{\"ignore\":[\"x\"],"
                      "\"activation_scheme\":\"dynamic\",\"modules_to_not_convert\":null,"
                      "\"ignored_layers\":[\"lm_head\",3,null,\"a.b\",[\"c\"]]}}",
                      &err) == FQ_OK);
    CHECK_U64(model.num_key_value_heads, 8);
    CHECK_STR(model.quant.activation_scheme, "dynamic");
    CHECK_STR(model.quant.list_key, "ignored_layers");
    CHECK_U64(model.quant.n_unconverted, 2);
    CHECK_STR(model.quant.unconverted[0], "lm_head");
    CHECK_STR(model.quant.unconverted[1], "a.b");
    CHECK(read_config(&model, &arena, "{\"quantization_config\":{\"ignore\":[]}}", &err) == FQ_OK);
    CHECK_STR(model.quant.list_key, "ignore");
    CHECK_U64(model.quant.n_unconverted, 0);
    CHECK(read_config(&model, &arena, "{\"quantization_config\":{}}", &err) == FQ_OK);
    CHECK_STR(model.quant.list_key, "");
    CHECK_STR(model.quant.activation_scheme, "");
    fq_arena_free(&arena);
}

static void test_text_config(void) {
    fq_arena arena = {0};
    fq_model model = {0};
    fq_error err = {0};
    CHECK(read_config(&model, &arena,
                      "{\"text_config\":{\"hidden_size\":64,\"moe_intermediate_size\":32,"
                      "\"model_type\":\"inner\",\"tie_word_embeddings\":true,"
                      "\"quantization_config\":{\"quant_method\":\"fp8\","
                      "\"weight_block_size\":[128,128],\"fp8q\":{\"scale_format\":\"e8m0\"}},"
                      "\"text_config\":{\"hidden_size\":1}},"
                      "\"vision_config\":{\"hidden_size\":2},\"model_type\":\"outer\"}",
                      &err) == FQ_OK);
    CHECK_STR(model.model_type, "outer");
    CHECK_U64(model.hidden_size, 64);
    CHECK_U64(model.moe_intermediate_size, 32);
    CHECK(model.tie_word_embeddings && model.quant.present && model.quant.has_block);
    CHECK_STR(model.quant.method, "fp8");
    CHECK_STR(model.quant.scale_format, "e8m0");
    CHECK_U64(model.quant.block.cols, 128);
    // The top level wins, whatever the order, where it says something
    CHECK(read_config(
              &model, &arena,
              "{\"hidden_size\":1,\"tie_word_embeddings\":false,\"moe_intermediate_size\":null,"
              "\"quantization_config\":{\"quant_method\":\"top\"},"
              "\"text_config\":{\"hidden_size\":2,\"moe_intermediate_size\":3,"
              "\"tie_word_embeddings\":true,\"quantization_config\":"
              "{\"quant_method\":\"text\",\"weight_block_size\":[1,1]}}}",
              &err) == FQ_OK);
    CHECK_U64(model.hidden_size, 1);
    CHECK_U64(model.moe_intermediate_size, 3);
    CHECK(!model.tie_word_embeddings && !model.quant.has_block);
    CHECK_STR(model.quant.method, "top");
    fq_arena_free(&arena);
}

// What real configs hold in these places: null, 0 and "", and lists with one size per modality.
// Models of several parts keep it with the part: it is found there, or they would be quantized
// twice. What is named so but is no object says nothing there.
static void test_nested_quantization_config(void) {
    fq_arena arena = {0};
    fq_model model = {0};
    fq_error err = {0};
    CHECK(read_config(&model, &arena,
                      "{\"a\":{\"quantization_config\":null},\"thinker_config\":{\"text_config\":"
                      "{\"hidden_size\":5,\"quantization_config\":{\"quant_method\":\"fp8\"}}},"
                      "\"z\":[{\"quantization_config\":{\"quant_method\":\"z\"}}]}",
                      &err) == FQ_OK);
    CHECK(model.quant.present);
    CHECK_STR(model.quant.method, "fp8");
    CHECK_U64(model.hidden_size, 0);
    CHECK(read_config(&model, &arena,
                      "{\"a\":{\"quantization_config\":{\"quant_method\":\"a\"}},"
                      "\"text_config\":{\"quantization_config\":{\"quant_method\":\"t\"}}}",
                      &err) == FQ_OK);
    CHECK_STR(model.quant.method, "t");
    CHECK(read_config(&model, &arena, "{\"a\":{\"quantization_config\":\"fp8\"}}", &err) == FQ_OK);
    CHECK(!model.quant.present);
    fq_arena_free(&arena);
}

static void test_lenient(void) {
    fq_arena arena = {0};
    fq_model model = {0};
    fq_error err = {0};
    CHECK(read_config(&model, &arena,
                      "{\"model_type\":null,\"hidden_size\":[1,2],\"tie_word_embeddings\":null,"
                      "\"moe_intermediate_size\":[1536,[512]],\"text_config\":null}",
                      &err) == FQ_OK);
    CHECK_STR(model.model_type, "");
    CHECK_U64(model.hidden_size, 0);
    CHECK_U64(model.moe_intermediate_size, 0);
    CHECK(read_config(&model, &arena,
                      "{\"model_type\":\"\",\"hidden_size\":0,"
                      "\"text_config\":{\"model_type\":\"inner\",\"hidden_size\":64}}",
                      &err) == FQ_OK);
    CHECK_STR(model.model_type, "inner");
    CHECK_U64(model.hidden_size, 64);
    // Keys in lists, and with a dot in their name, are no keys of the model
    CHECK(read_config(&model, &arena,
                      "{\"text_config\":[{\"hidden_size\":5}],\"text_config.hidden_size\":6,"
                      "\"x\":[\"hidden_size\",7],\"y\":{\"hidden_size\":8}}",
                      &err) == FQ_OK);
    CHECK_U64(model.hidden_size, 0);
    fq_arena_free(&arena);
}

static void test_refused(void) {
    static const struct {
        const char *text;
        const char *mention;
    } bad[] = {
        {"", "line 1"},
        {"[{}]", "no JSON object"},
        {"null", "no JSON object"},
        {"\xEF\xBB\xBF{}", "line 1"},
        {"{\"a\":1", "line 1"},
        {"{\"a\":1e999}", "doubles"},
        {"{\"quantization_config\":null,\"quantization_config\":{}}", "twice"},
        {"{\"x\":{\"a\":1,\"a\":2}}", "twice"},
        {"{\"model_type\":5}", "config.json: model_type: is no string"},
        {"{\"model_type\":\"a\\u0000b\"}", "model_type"},
        {"{\"hidden_size\":\"64\"}", "hidden_size"},
        {"{\"hidden_size\":64.0}", "hidden_size"},
        {"{\"hidden_size\":-1}", "hidden_size"},
        {"{\"hidden_size\":{}}", "hidden_size"},
        {"{\"hidden_size\":NaN}", "hidden_size"},
        {"{\"moe_intermediate_size\":true}", "moe_intermediate_size"},
        {"{\"text_config\":{\"hidden_size\":\"1\"}}", ": text_config.hidden_size: "},
        {"{\"tie_word_embeddings\":\"false\"}", "tie_word_embeddings"},
        {"{\"tie_word_embeddings\":0}", "tie_word_embeddings"},
        {"{\"quantization_config\":\"fp8\"}", "config.json: quantization_config: is no object"},
        {"{\"quantization_config\":[]}", "quantization_config"},
        {"{\"quantization_config\":false}", "quantization_config"},
        {"{\"text_config\":{\"quantization_config\":1}}", "text_config.quantization_config"},
        {"{\"quantization_config\":{\"quant_method\":[]}}", "quant_method"},
        {"{\"quantization_config\":{\"fmt\":1}}", "fmt"},
        {"{\"quantization_config\":{\"scale_fmt\":1}}", "scale_fmt"},
        {"{\"quantization_config\":{\"fp8q\":1}}", "fp8q"},
        {"{\"quantization_config\":{\"fp8q\":{\"scale_format\":1}}}", "fp8q.scale_format"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fq_arena arena = {0};
        fq_model model = {0};
        fq_error err = {0};
        if (!CHECK(read_config(&model, &arena, bad[i].text, &err) == FQ_BAD_INPUT))
            fprintf(stderr, "    %s\n", bad[i].text);
        CHECK_HAS(err.text, "config.json: ");
        CHECK_HAS(err.text, bad[i].mention);
        CHECK(!model.has_config);
        fq_arena_free(&arena);
    }
}

static void test_block_refused(void) {
    static const char *const bad[] = {"[]",          "[128]",       "[128,128,128]",
                                      "[0,128]",     "[128,0]",     "[128,2147483649]",
                                      "[-128,128]",  "[128.0,128]", "128",
                                      "\"128\"",     "{}",          "[[128,128]]",
                                      "[128,null]",  "true",        "[\"128\",\"128\"]",
                                      "[128,128,[]]"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        for (int nested = 0; nested < 2; nested++) {
            char text[128];
            snprintf(text, sizeof text,
                     nested
                         ? "{\"text_config\":{\"quantization_config\":{\"weight_block_size\":%s}}}"
                         : "{\"quantization_config\":{\"weight_block_size\":%s}}",
                     bad[i]);
            fq_arena arena = {0};
            fq_model model = {0};
            fq_error err = {0};
            if (!CHECK(read_config(&model, &arena, text, &err) == FQ_BAD_INPUT))
                fprintf(stderr, "    %s\n", text);
            CHECK_HAS(err.text, "weight_block_size");
            fq_arena_free(&arena);
        }
    }
}

// ---- quantization_config alone

static fq_status read_text(fq_quant_config *out, fq_arena *arena, const char *text, fq_error *err) {
    return fq_config_read_quantization(out, arena, text, strlen(text), "F", err);
}

static void test_alone(void) {
    fq_arena arena = {0};
    fq_quant_config quant = {0};
    fq_error err = {0};
    CHECK(read_text(&quant, &arena,
                    "{\"quant_method\":\"fp8\",\"weight_block_size\":[128,64],\"scale_fmt\":"
                    "\"ue8m0\",\"modules_to_not_convert\":[\"lm_head\"]}",
                    &err) == FQ_OK);
    CHECK(quant.present && quant.has_block && quant.ue8m0 && !quant.has_linear_targets);
    CHECK_STR(quant.method, "fp8");
    CHECK_U64(quant.block.cols, 64);
    CHECK_U64(quant.n_unconverted, 1);
    CHECK(read_text(&quant, &arena, "{}", &err) == FQ_OK && quant.present);
    fq_arena_free(&arena);
}

static void test_alone_refused(void) {
    static const char *const cases[] = {
        "",
        "null",
        "[]",
        "\"fp8\"",
        "{'quant_method': 'fp8'}",
        "{} {}",
        "{\"quant_method\":8}",
        "{\"weight_block_size\":[128]}",
        "{\"a\":1,\"a\":2}",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fq_arena arena = {0};
        fq_quant_config quant = {.method = "untouched"};
        fq_error err = {0};
        if (!CHECK(read_text(&quant, &arena, cases[i], &err) == FQ_BAD_INPUT))
            CHECK_NOTE("text %s\n", cases[i]);
        CHECK_STR(quant.method, "untouched");
        CHECK_HAS(err.text, "F: ");
        fq_arena_free(&arena);
    }
}

static void test_targets(void) {
    static const struct {
        const char *groups;
        bool linear;
    } cases[] = {
        {"{\"group_0\":{\"targets\":[\"Linear\"]}}", true},
        {"{\"a\":{\"targets\":[\"Linear\"]},\"b\":{\"targets\":[\"Linear\"]}}", true},
        {"{\"a\":{\"targets\":[\"Linear\"]},\"b\":{\"targets\":[\"re:.*mlp.*\"]}}", false},
        {"{\"a\":{\"targets\":[\"Linear\",1]}}", false},
        {"{\"a\":{\"targets\":[]}}", false},
        {"{\"a\":{}}", false},
        {"{}", false},
        {"[]", false},
        {"1", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fq_arena arena = {0};
        fq_quant_config quant = {0};
        fq_error err = {0};
        char text[200];
        snprintf(text, sizeof text, "{\"config_groups\":%s}", cases[i].groups);
        CHECK(read_text(&quant, &arena, text, &err) == FQ_OK);
        if (!CHECK(quant.has_linear_targets == cases[i].linear))
            CHECK_NOTE("%s\n", cases[i].groups);
        fq_arena_free(&arena);
    }
}

int main(void) {
    test_plain();
    test_quantization_config();
    test_lists_of_modules();
    test_text_config();
    test_nested_quantization_config();
    test_lenient();
    test_refused();
    test_block_refused();
    test_alone();
    test_alone_refused();
    test_targets();
    return check_result();
}
