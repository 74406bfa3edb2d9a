// Reads config.json: the few keys that matter, from text_config and then from the top level, and
// quantization_config wherever it is.
#include "config.h"

#include "json_tree.h"

#include <string.h>

// A copy that outlives the tree. "" says as little as no string, in fq_model too.
static fq_status read_string(const char **out, fq_arena *arena, const fq_json_object *in,
                             const char *key, fq_error *err) {
    const char *string = "";
    const fq_status status = fq_json_get_string(&string, in, key, err);
    if (status != FQ_OK || !*string)
        return status;
    *out = fq_arena_strndup(arena, string, strlen(string));
    return *out ? FQ_OK : fq_fail_memory(err);
}

// Likewise 0, and a list: some models give one size per modality, or one per layer.
static fq_status read_size(uint64_t *out, const fq_json_object *in, const char *key,
                           fq_error *err) {
    uint64_t size = 0;
    if (cJSON_IsArray(fq_json_get(in, key)))
        return FQ_OK;
    const fq_status status = fq_json_get_u64(&size, in, key, err);
    if (size != 0)
        *out = size;
    return status;
}

static bool is_block(fq_block *out, const cJSON *list) {
    const uint64_t most = UINT64_C(1) << 31;
    return cJSON_IsArray(list) && cJSON_GetArraySize(list) == 2 &&
           fq_json_is_u64(&out->rows, list->child) &&
           fq_json_is_u64(&out->cols, list->child->next) && out->rows >= 1 && out->rows <= most &&
           out->cols >= 1 && out->cols <= most;
}

static fq_status read_block(fq_quant_config *out, const fq_json_object *quant, fq_error *err) {
    static const char key[] = "weight_block_size";
    const cJSON *list = fq_json_get(quant, key);
    if (list && !is_block(&out->block, list))
        return fq_json_fail_value(quant, key, "is no list of two whole numbers from 1 to 2^31",
                                  err);
    out->has_block = list != NULL;
    return FQ_OK;
}

// The strings of a list of modules. What is no string names no module.
static fq_status read_list(fq_quant_config *out, fq_arena *arena, const cJSON *list,
                           fq_error *err) {
    const char **strings = fq_arena_array(arena, (size_t)cJSON_GetArraySize(list), sizeof *strings);
    if (!strings)
        return fq_fail_memory(err);
    size_t n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, list) {
        if (!cJSON_IsString(item))
            continue;
        strings[n] = fq_arena_strndup(arena, item->valuestring, strlen(item->valuestring));
        if (!strings[n++])
            return fq_fail_memory(err);
    }
    out->unconverted = strings;
    out->n_unconverted = n;
    return FQ_OK;
}

static fq_status read_lists(fq_quant_config *out, fq_arena *arena, const fq_json_object *quant,
                            fq_error *err) {
    static const char *const keys[] = {"modules_to_not_convert", "ignored_layers", "ignore"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const cJSON *list = fq_json_get(quant, keys[i]);
        if (!cJSON_IsArray(list))
            continue;
        out->list_key = keys[i];
        return read_list(out, arena, list, err);
    }
    return FQ_OK;
}

// compressed-tensors: what the groups quantize is every module of the class Linear, and no names.
static bool has_linear_targets(const fq_json_object *quant) {
    size_t n = 0;
    const cJSON *group, *target;
    cJSON_ArrayForEach(group, fq_json_get(quant, "config_groups")) {
        cJSON_ArrayForEach(target, cJSON_GetObjectItemCaseSensitive(group, "targets")) {
            if (!cJSON_IsString(target) || strcmp(target->valuestring, "Linear") != 0)
                return false;
            n++;
        }
    }
    return n > 0;
}

static fq_status read_quant(fq_quant_config *out, fq_arena *arena, const fq_json_object *quant,
                            fq_error *err) {
    fq_json_object fp8q = {0};
    const char *scale_fmt = "";
    *out = fq_model_unknown().quant;
    out->present = true;
    fq_status status = read_string(&out->method, arena, quant, "quant_method", err);
    if (status == FQ_OK)
        status = read_string(&out->fmt, arena, quant, "fmt", err);
    if (status == FQ_OK)
        status = read_string(&out->activation_scheme, arena, quant, "activation_scheme", err);
    if (status == FQ_OK)
        status = read_block(out, quant, err);
    if (status == FQ_OK)
        status = read_lists(out, arena, quant, err);
    if (status == FQ_OK)
        status = fq_json_get_string(&scale_fmt, quant, "scale_fmt", err);
    if (status == FQ_OK)
        status = fq_json_get_object(&fp8q, quant, "fp8q", err);
    if (status == FQ_OK)
        status = read_string(&out->scale_format, arena, &fp8q, "scale_format", err);
    out->ue8m0 = strcmp(scale_fmt, "ue8m0") == 0;
    out->has_linear_targets = has_linear_targets(quant);
    return status;
}

// Takes what the top level or text_config says. What it does not say stays as it is.
static fq_status read_level(fq_model *out, fq_arena *arena, const fq_json_object *level,
                            fq_error *err) {
    fq_json_object quant = {0};
    fq_status status = read_string(&out->model_type, arena, level, "model_type", err);
    if (status == FQ_OK)
        status = read_size(&out->hidden_size, level, "hidden_size", err);
    if (status == FQ_OK)
        status = read_size(&out->moe_intermediate_size, level, "moe_intermediate_size", err);
    if (status == FQ_OK)
        status = read_size(&out->num_key_value_heads, level, "num_key_value_heads", err);
    if (status == FQ_OK)
        status = fq_json_get_bool(&out->tie_word_embeddings, level, "tie_word_embeddings", err);
    if (status == FQ_OK)
        status = fq_json_get_object(&quant, level, "quantization_config", err);
    if (status == FQ_OK && quant.node)
        status = read_quant(&out->quant, arena, &quant, err);
    return status;
}

// The first object quantization_config below in, in the order of the text; NULL if there is none.
static const cJSON *find_quant(const cJSON *in) {
    const cJSON *item, *found = NULL;
    cJSON_ArrayForEach(item, in) {
        const bool is_quant = item->string && strcmp(item->string, "quantization_config") == 0;
        found = !is_quant ? find_quant(item) : cJSON_IsObject(item) ? item : NULL;
        if (found)
            break;
    }
    return found;
}

fq_status fq_config_read(fq_model *out, fq_arena *arena, const char *text, size_t nbytes,
                         const char *file, fq_error *err) {
    const fq_json_tree_options options = {.scan = {.file = file, .allow_constants = true}};
    fq_model model = fq_model_unknown();
    cJSON *root = NULL;
    fq_status status = fq_json_parse(&root, text, nbytes, &options, err);
    if (status != FQ_OK)
        return status;
    const fq_json_object top = {.node = root, .file = file};
    const fq_json_object inner = {
        .node = fq_json_get(&top, "text_config"), .file = file, .path = "text_config."};
    if (!cJSON_IsObject(root))
        status = fq_fail(err, FQ_BAD_INPUT, "%s: is no JSON object; repair the file", file);
    if (status == FQ_OK)
        status = read_level(&model, arena, &inner, err);
    if (status == FQ_OK)
        status = read_level(&model, arena, &top, err);
    const fq_json_object nested = {
        .node = find_quant(root), .file = file, .path = "quantization_config."};
    if (status == FQ_OK && !model.quant.present && nested.node)
        status = read_quant(&model.quant, arena, &nested, err);
    cJSON_Delete(root);
    model.has_config = true;
    if (status == FQ_OK)
        *out = model;
    return status;
}

fq_status fq_config_read_quantization(fq_quant_config *out, fq_arena *arena, const char *text,
                                      size_t nbytes, const char *file, fq_error *err) {
    const fq_json_tree_options options = {.scan = {.file = file, .allow_constants = true}};
    fq_quant_config quant;
    cJSON *root = NULL;
    fq_status status = fq_json_parse(&root, text, nbytes, &options, err);
    if (status != FQ_OK)
        return status;
    const fq_json_object object = {.node = root, .file = file, .path = "quantization_config."};
    if (!cJSON_IsObject(root))
        status = fq_fail(err, FQ_BAD_INPUT, "%s: quantization_config: is no JSON object", file);
    if (status == FQ_OK)
        status = read_quant(&quant, arena, &object, err);
    cJSON_Delete(root);
    if (status == FQ_OK)
        *out = quant;
    return status;
}
