// config.json belongs to the user: what is read from it must be what it says, and what is written
// must be their bytes with one key more or less.
#include "formats/config.h"

#include "tests/check.h"

#include <stdlib.h>

// ---- Reading

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

// ---- Writing

static const char *const modules[] = {"lm_head", "a.\"b\".\xC3\xA9"};

static fq_plan plan_of(fq_scale_format scale_format, size_t n_modules) {
    return (fq_plan){
        .scale_format = scale_format, .modules_to_not_convert = modules, .n_modules = n_modules};
}

#define FP8Q_F32                                                                                   \
    "{\"activation_scheme\":\"dynamic\",\"fmt\":\"e4m3\",\"quant_method\":\"fp8\","                \
    "\"weight_block_size\":[128,128],\"modules_to_not_convert\":[\"lm_head\"],"                    \
    "\"fp8q\":{\"scale_format\":\"f32\"}}"

static void test_quantization_text(void) {
    char *text = NULL;
    fq_error err = {0};
    fq_plan plan = plan_of(FQ_SCALE_F32, 1);
    CHECK(fq_config_quantization(&text, &plan, 0, &err) == FQ_OK);
    CHECK_STR(text, FP8Q_F32);
    free(text);
    plan = plan_of(FQ_SCALE_PACKED, 2);
    CHECK(fq_config_quantization(&text, &plan, 0, &err) == FQ_OK);
    CHECK_STR(text,
              "{\"activation_scheme\":\"dynamic\",\"fmt\":\"e4m3\",\"quant_method\":\"fp8\","
              "\"weight_block_size\":[128,128],\"scale_fmt\":\"ue8m0\",\"modules_to_not_convert\":"
              "[\"lm_head\",\"a.\\\"b\\\".\\u00e9\"],\"fp8q\":{\"scale_format\":\"packed\"}}");
    free(text);
    plan = plan_of(FQ_SCALE_POW2, 0);
    CHECK(fq_config_quantization(&text, &plan, 2, &err) == FQ_OK);
    CHECK_STR(text, "{\n    \"activation_scheme\": \"dynamic\",\n    \"fmt\": \"e4m3\",\n"
                    "    \"quant_method\": \"fp8\",\n    \"weight_block_size\": [\n      128,\n"
                    "      128\n    ],\n    \"scale_fmt\": \"ue8m0\",\n"
                    "    \"modules_to_not_convert\": [],\n    \"fp8q\": {\n"
                    "      \"scale_format\": \"pow2\"\n    }\n  }");
    free(text);
}

// Text with quantization_config added must be `expected`, byte for byte.
static void check_with(const char *text, const char *expected) {
    const fq_plan plan = plan_of(FQ_SCALE_F32, 1);
    char *out = NULL;
    size_t nbytes = 0;
    fq_error err = {0};
    CHECK(fq_config_with_quantization(&out, &nbytes, text, strlen(text), &plan, &err) == FQ_OK);
    CHECK_STR(out, expected);
    CHECK_U64(nbytes, strlen(expected));
    free(out);
}

static void check_without(const char *text, const char *expected) {
    char *out = NULL;
    size_t nbytes = 0;
    fq_error err = {0};
    CHECK(fq_config_without_quantization(&out, &nbytes, text, strlen(text), FQ_BF16, &err) ==
          FQ_OK);
    CHECK_STR(out, expected);
    CHECK_U64(nbytes, strlen(expected));
    free(out);
}

#define LINES(nl, i)                                                                               \
    "{" nl i i "\"activation_scheme\": \"dynamic\"," nl i i "\"fmt\": \"e4m3\"," nl i i            \
    "\"quant_method\": \"fp8\"," nl i i "\"weight_block_size\": [" nl i i i "128," nl i i i        \
    "128" nl i i "]," nl i i "\"modules_to_not_convert\": [" nl i i i "\"lm_head\"" nl i i         \
    "]," nl i i "\"fp8q\": {" nl i i i "\"scale_format\": \"f32\"" nl i i "}" nl i "}"

static void test_with(void) {
    check_with(
        "{\n  \"a\": 1.0,\n  \"b\": {}\n}\n",
        "{\n  \"a\": 1.0,\n  \"b\": {},\n  \"quantization_config\": " LINES("\n", "  ") "\n}\n");
    check_with(
        "{\r\n\t\"a\": [\r\n\t]\r\n}\r\n",
        "{\r\n\t\"a\": [\r\n\t],\r\n\t\"quantization_config\": " LINES("\r\n", "\t") "\r\n}\r\n");
    check_with("{\n\n    \"a\": 1  \n\n}",
               "{\n\n    \"a\": 1,\n    \"quantization_config\": " LINES("\n", "    ") "  \n\n}");
    check_with("{\"a\":1}", "{\"a\":1,\"quantization_config\":" FP8Q_F32 "}");
    check_with(
        " { \"a\" : Infinity , \"b\" : \"}\" } ",
        " { \"a\" : Infinity , \"b\" : \"}\", \"quantization_config\" : "
        "{\"activation_scheme\" : \"dynamic\", \"fmt\" : \"e4m3\", \"quant_method\" : \"fp8\", "
        "\"weight_block_size\" : [128, 128], \"modules_to_not_convert\" : [\"lm_head\"], "
        "\"fp8q\" : {\"scale_format\" : \"f32\"}} } ");
    check_with("{}", "{\n  \"quantization_config\": " LINES("\n", "  ") "\n}");
    check_with("{\r\n}", "{\r\n  \"quantization_config\": " LINES("\r\n", "  ") "\r\n}");
    // In the place of what is there
    check_with("{\"quantization_config\":null,\"z\":1}",
               "{\"quantization_config\":" FP8Q_F32 ",\"z\":1}");
    check_with("{\"a\":1,\"quantization_config\":{\"x\":[{}]}}",
               "{\"a\":1,\"quantization_config\":" FP8Q_F32 "}");
    // text_config's own is another key
    check_with("{\"text_config\":{\"quantization_config\":null}}",
               "{\"text_config\":{\"quantization_config\":null},\"quantization_config\":" FP8Q_F32
               "}");
}

static void test_without(void) {
    check_without("{\n  \"a\": 1,\n  \"quantization_config\": {\n    \"x\": [1]\n  }\n}\n",
                  "{\n  \"a\": 1\n}\n");
    check_without("{\n  \"quantization_config\": {\"x\": {}},\n  \"a\": 1\n}\n",
                  "{\n  \"a\": 1\n}\n");
    check_without("{\r\n  \"a\": 1,\r\n  \"quantization_config\": null,\r\n  \"b\": 2\r\n}",
                  "{\r\n  \"a\": 1,\r\n  \"b\": 2\r\n}");
    check_without("{\"a\":1,\"quantization_config\":{},\"b\":2}", "{\"a\":1,\"b\":2}");
    check_without("{\"quantization_config\" : [ ] , \"b\" : 2}", "{\"b\" : 2}");
    check_without("{\n  \"quantization_config\": {}\n}\n", "{}\n");
    check_without("{ \"a\" : -0.0 }\n", "{ \"a\" : -0.0 }\n");
    // At any depth
    check_without("{\"text_config\":{\"quantization_config\":{\"quantization_config\":1},\"a\":1,"
                  "\"vision\":{\"quantization_config\":2}},\"quantization_config\":{},\"x\":"
                  "[{\"quantization_config\":3}]}",
                  "{\"text_config\":{\"a\":1,\"vision\":{}},\"x\":[{}]}");
    check_without("{\"vision_config\":{\"quantization_config\":1},\"text_config\":{\"a\":{},"
                  "\"quantization_config\":{}}}",
                  "{\"vision_config\":{},\"text_config\":{\"a\":{}}}");
    check_without(
        "{\"t\":{\"text_config\":{\"quantization_config\":{\"dtype\":\"float8\"},\"a\":1,"
        "\"dtype\":\"float8\"},\"quantization_config\":{},\"b\":[[{\"dtype\":\"float8\"}]]}}",
        "{\"t\":{\"text_config\":{\"a\":1,\"dtype\":\"bfloat16\"},"
        "\"b\":[[{\"dtype\":\"bfloat16\"}]]}}");
    check_without("{\"quantization\\u005fconfig\":{},\"a\":\"quantization_config\"}",
                  "{\"a\":\"quantization_config\"}");
}

static void test_without_float8_dtype(void) {
    check_without("{\"torch_dtype\":\"float8_e4m3fn\",\"dtype\":\"torch.float8_e4m3fn\","
                  "\"text_config\":{\"torch_dtype\":\"float8_e5m2\",\"dtype\":\"float16\"},"
                  "\"quantization_config\":1}",
                  "{\"torch_dtype\":\"bfloat16\",\"dtype\":\"bfloat16\","
                  "\"text_config\":{\"torch_dtype\":\"bfloat16\",\"dtype\":\"float16\"}}");
    check_without("{\"torch_dtype\":\"float32\",\"dtype\":{\"dtype\":\"float8\"},"
                  "\"kv_cache_dtype\":\"float8\",\"x\":{\"dtype\":\"float8\"}}",
                  "{\"torch_dtype\":\"float32\",\"dtype\":{\"dtype\":\"bfloat16\"},"
                  "\"kv_cache_dtype\":\"float8\",\"x\":{\"dtype\":\"bfloat16\"}}");
    const char text[] = "{\"dtype\":\"float8_e4m3fn\"}";
    char *out = NULL;
    size_t nbytes = 0;
    fq_error err = {0};
    CHECK(fq_config_without_quantization(&out, &nbytes, text, strlen(text), FQ_F16, &err) == FQ_OK);
    CHECK_STR(out, "{\"dtype\":\"float16\"}");
    free(out);
    CHECK(fq_config_without_quantization(&out, &nbytes, text, strlen(text), FQ_F32, &err) == FQ_OK);
    CHECK_STR(out, "{\"dtype\":\"float32\"}");
    free(out);
}

static void check_found(const char *text, const char *expected) {
    const char *out = "";
    size_t nbytes = 0;
    fq_error err = {0};
    CHECK(fq_config_find_quantization(&out, &nbytes, text, strlen(text), &err) == FQ_OK);
    CHECK_U64(nbytes, strlen(expected));
    CHECK(nbytes == 0 ? out == NULL : out && strncmp(out, expected, nbytes) == 0);
}

static void test_find(void) {
    check_found("{\"a\":{\"quantization_config\":[{\"quantization_config\":{}}]}}", "");
    check_found(
        "{\"a\":{\"b\":{\"quantization_config\":{\"1\":{}}}},\"c\":{\"quantization_config\":{}}}",
        "{\"1\":{}}");
    check_found(
        "{\"a\":{\"quantization_config\":{}},\"text_config\":{\"quantization_config\":{\"t\":1}}}",
        "{\"t\":1}");
    check_found("{\"quantization_config\":null}", "");
    check_found("{\"x\":1,\"quantization_config\": {\"a\":[{}]} }", "{\"a\":[{}]}");
    check_found("{\"text_config\":{\"quantization_config\":{\"t\":1}}}", "{\"t\":1}");
    check_found(
        "{\"text_config\":{\"quantization_config\":{\"t\":1}},\"quantization_config\":null}",
        "{\"t\":1}");
    check_found("{\"text_config\":{\"quantization_config\":{\"t\":1}},\"quantization_config\":{}}",
                "{}");
}

// A text that fq_config_read would refuse is refused here as well.
static void test_invalid_text(void) {
    const char text[] = "{\"dtype\":\"float8\",\"dtype\":\"float8\",\"dtype\":\"float8\"}";
    const fq_plan plan = plan_of(FQ_SCALE_F32, 1);
    char *out = NULL;
    const char *found = NULL;
    size_t nbytes = 0;
    fq_error err = {0};
    CHECK(fq_config_without_quantization(&out, &nbytes, text, strlen(text), FQ_BF16, &err) ==
          FQ_BAD_INPUT);
    CHECK(fq_config_with_quantization(&out, &nbytes, text, strlen(text), &plan, &err) ==
          FQ_BAD_INPUT);
    CHECK(fq_config_find_quantization(&found, &nbytes, text, strlen(text), &err) == FQ_BAD_INPUT);
    CHECK(out == NULL && found == NULL);
}

// Adding the key and taking it out again leaves no trace, and what was added reads as meant.
static void test_there_and_back(void) {
    static const char *const texts[] = {
        "{}",
        "{\"a\":1}",
        "{\n\t\"a\": {\n\t\t\"b\": []\n\t} \n}\n\n",
        "{\r\n  \"a\" : 1,\r\n\r\n  \"b\" : 2}",
        ("{\"rope_theta\":1000000.0,\"big\":9007199254740993,\"neg\":-0.0,\"exp\":1E+2,"
         "\"t\":[0.0, Infinity],\"A\":\"\\u00e9\\/\xC3\xA9\\ud83d\\ude00\"}"),
    };
    const fq_plan plan = plan_of(FQ_SCALE_E8M0, 2);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char *with = NULL, *without = NULL;
        size_t with_nbytes = 0, without_nbytes = 0;
        fq_arena arena = {0};
        fq_model model = {0};
        fq_error err = {0};
        CHECK(fq_config_with_quantization(&with, &with_nbytes, texts[i], strlen(texts[i]), &plan,
                                          &err) == FQ_OK);
        CHECK(fq_config_read(&model, &arena, with, with_nbytes, "F", &err) == FQ_OK);
        CHECK(model.quant.present && model.quant.ue8m0 && model.quant.block.rows == 128);
        CHECK_STR(model.quant.scale_format, "e8m0");
        CHECK(fq_config_without_quantization(&without, &without_nbytes, with, with_nbytes, FQ_BF16,
                                             &err) == FQ_OK);
        CHECK_STR(without, texts[i]);
        free(with);
        free(without);
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
    test_quantization_text();
    test_with();
    test_without();
    test_without_float8_dtype();
    test_find();
    test_invalid_text();
    test_there_and_back();
    return check_result();
}
