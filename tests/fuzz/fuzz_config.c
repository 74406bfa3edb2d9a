// Any text as config.json: no fault of memory, and where it is accepted, quantization_config can be
// put in, read, and taken out again with everything else as it was. Its list of modules may hold
// any patterns.
//
// Under test: formats/config_read.c formats/config_splice.c formats/config_quantization.c
// Under test: lib/module_list.c lib/pattern.c
#include "formats/config.h"
#include "lib/module_list.h"

#include "fuzz.h"

#include <string.h>

typedef struct text {
    char *bytes;
    size_t n;
} text;

static fq_model read_text(fq_arena *arena, text config) {
    fq_model model = {0};
    fq_error err = {0};
    DEMAND(fq_config_read(&model, arena, config.bytes, config.n, "F", &err) == FQ_OK);
    return model;
}

static text with(text config, const fq_plan *plan) {
    text out = {0};
    fq_error err = {0};
    DEMAND(fq_config_with_quantization(&out.bytes, &out.n, config.bytes, config.n, plan, &err) ==
           FQ_OK);
    return out;
}

static text without(text config) {
    text out = {0};
    fq_error err = {0};
    DEMAND(fq_config_without_quantization(&out.bytes, &out.n, config.bytes, config.n, FQ_BF16,
                                          &err) == FQ_OK);
    return out;
}

static void check_same_model(const fq_model *a, const fq_model *b) {
    DEMAND(strcmp(a->model_type, b->model_type) == 0);
    DEMAND(a->hidden_size == b->hidden_size);
    DEMAND(a->moe_intermediate_size == b->moe_intermediate_size);
    DEMAND(a->tie_word_embeddings == b->tie_word_embeddings);
}

// quantization_config is found where it was put, and says what it should.
static void check_quantized(text quantized, const fq_quant_config *quant, fq_scale_format format) {
    const char *found = NULL;
    size_t n = 0;
    fq_error err = {0};
    DEMAND(quant->present && quant->has_block && strcmp(quant->fmt, "e4m3") == 0);
    DEMAND(quant->ue8m0 == fq_scale_format_is_ue8m0(format));
    DEMAND(strcmp(quant->method, "fp8") == 0);
    DEMAND(strcmp(quant->scale_format, fq_scale_format_name(format)) == 0);
    DEMAND(fq_config_find_quantization(&found, &n, quantized.bytes, quantized.n, &err) == FQ_OK);
    DEMAND(found && n > 2 && found[0] == '{' && found[n - 1] == '}');
}

static void check_edits(fq_arena *arena, text config, const fq_model *model) {
    static const char *const modules[] = {"lm_head", "model.\"layers\".0.\x01\xC3\xA9.gate"};
    const fq_plan plan = {.scale_format = (fq_scale_format)(config.n % FQ_SCALE_FORMAT_COUNT),
                          .modules_to_not_convert = modules,
                          .n_modules = config.n / FQ_SCALE_FORMAT_COUNT % 3};
    text quantized = with(config, &plan), plain = without(config), back = without(quantized);
    const fq_model quantized_model = read_text(arena, quantized);
    check_quantized(quantized, &quantized_model.quant, plan.scale_format);
    check_same_model(model, &quantized_model);
    const fq_model plain_model = read_text(arena, plain);
    DEMAND(!plain_model.quant.present);
    check_same_model(model, &plain_model);
    // An object without keys may lose the white space in it.
    if (memchr(plain.bytes, '"', plain.n))
        DEMAND(back.n == plain.n && memcmp(back.bytes, plain.bytes, plain.n) == 0);
    free(quantized.bytes);
    free(plain.bytes);
    free(back.bytes);
}

// Whoever is in the list by name stays there; patterns take whatever name.
static void check_list(fq_arena *arena, const fq_quant_config *quant) {
    static const char name[] = "model.layers.0.mlp.gate";
    fq_module_list list = {0};
    fq_error err = {0};
    DEMAND(fq_module_list_read(&list, arena, quant, false, &err) == FQ_OK);
    DEMAND(list.n_names + list.n_globs + list.n_patterns + list.n_unread == quant->n_unconverted);
    for (size_t i = 0; i < list.n_names; i++)
        DEMAND(fq_module_list_names(&list, list.names[i], strlen(list.names[i])));
    for (size_t n = 0; n < sizeof name; n++)
        fq_module_list_match(&list, name, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    text config = {.bytes = malloc(size + 1), .n = size};
    DEMAND(config.bytes);
    if (size > 0)
        memcpy(config.bytes, data, size);
    config.bytes[size] = '\0';
    fq_arena arena = {0};
    fq_model model = {0};
    fq_error err = {0};
    const fq_status status = fq_config_read(&model, &arena, config.bytes, size, "F", &err);
    DEMAND(status == FQ_OK || (status == FQ_BAD_INPUT && strncmp(err.text, "F: ", 3) == 0));
    if (status == FQ_OK) {
        check_edits(&arena, config, &model);
        check_list(&arena, &model.quant);
    }
    fq_arena_free(&arena);
    free(config.bytes);
    return 0;
}
