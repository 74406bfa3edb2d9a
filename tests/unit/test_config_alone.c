// A quantization_config also stands alone, in the metadata of a lone file, where anybody may have
// written anything; and compressed-tensors says in it which modules it is about.
#include "formats/config.h"
#include "tests/check.h"

static fq_arena arena;

static fq_status read_text(fq_quant_config *out, const char *text, fq_error *err) {
    return fq_config_read_quantization(out, &arena, text, strlen(text), "F", err);
}

static void test_read(void) {
    fq_quant_config quant = {0};
    fq_error err = {0};
    CHECK(read_text(&quant,
                    "{\"quant_method\":\"fp8\",\"weight_block_size\":[128,64],\"scale_fmt\":"
                    "\"ue8m0\",\"modules_to_not_convert\":[\"lm_head\"]}",
                    &err) == FQ_OK);
    CHECK(quant.present && quant.has_block && quant.ue8m0 && !quant.has_linear_targets);
    CHECK_STR(quant.method, "fp8");
    CHECK_U64(quant.block.cols, 64);
    CHECK_U64(quant.n_unconverted, 1);
    CHECK(read_text(&quant, "{}", &err) == FQ_OK && quant.present);
}

static void test_refusals(void) {
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
        fq_quant_config quant = {.method = "untouched"};
        fq_error err = {0};
        if (!CHECK(read_text(&quant, cases[i], &err) == FQ_BAD_INPUT))
            CHECK_NOTE("text %s\n", cases[i]);
        CHECK_STR(quant.method, "untouched");
        CHECK_HAS(err.text, "F: ");
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
        fq_quant_config quant = {0};
        fq_error err = {0};
        char text[200];
        snprintf(text, sizeof text, "{\"config_groups\":%s}", cases[i].groups);
        CHECK(read_text(&quant, text, &err) == FQ_OK);
        if (!CHECK(quant.has_linear_targets == cases[i].linear))
            CHECK_NOTE("%s\n", cases[i].groups);
    }
}

int main(void) {
    test_read();
    test_refusals();
    test_targets();
    fq_arena_free(&arena);
    return check_result();
}
