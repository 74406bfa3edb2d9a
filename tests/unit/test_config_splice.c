// config.json belongs to the user: what is written must be their bytes with one key more or less.
#include "formats/config.h"

#include "tests/check.h"

#include <stdlib.h>

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
    test_quantization_text();
    test_with();
    test_without();
    test_without_float8_dtype();
    test_find();
    test_invalid_text();
    test_there_and_back();
    return check_result();
}
