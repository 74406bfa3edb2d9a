// The quantization_config that convert writes (docs/formats.md), in any layout.
#include "config_style.h"

#include "config.h"
#include "lib/scale.h"

#include <assert.h>
#include <string.h>

void fq_config_put_break(fq_json_text *out, const fq_config_style *style, uint32_t level,
                         bool is_first) {
    if (*style->newline) {
        fq_json_put(out, style->newline);
        for (uint32_t i = 0; i < level; i++)
            fq_json_put_bytes(out, style->indent, style->indent_nbytes);
    } else if (!is_first) {
        fq_json_put_bytes(out, style->gap, style->gap_nbytes);
    }
}

// An object or a list that is being written.
typedef struct writer {
    fq_json_text *out;
    const fq_config_style *style;
    uint32_t level; // of its members
    bool is_empty;
} writer;

static writer open_container(fq_json_text *out, const fq_config_style *style, uint32_t level,
                             const char *bracket) {
    fq_json_put(out, bracket);
    return (writer){.out = out, .style = style, .level = level, .is_empty = true};
}

static void next_member(writer *w) {
    if (!w->is_empty)
        fq_json_put(w->out, ",");
    fq_config_put_break(w->out, w->style, w->level, w->is_empty);
    w->is_empty = false;
}

static void put_key(writer *w, const char *key) {
    next_member(w);
    fq_json_put_string(w->out, key, strlen(key));
    fq_json_put_bytes(w->out, w->style->colon, w->style->colon_nbytes);
}

static void put_string(writer *w, const char *key, const char *value) {
    put_key(w, key);
    fq_json_put_string(w->out, value, strlen(value));
}

static void close_container(writer *w, const char *bracket) {
    if (!w->is_empty)
        fq_config_put_break(w->out, w->style, w->level - 1, true);
    fq_json_put(w->out, bracket);
}

void fq_config_put_quantization(fq_json_text *out, const fq_config_style *style,
                                const fq_plan *plan) {
    writer w = open_container(out, style, 2, "{");
    put_string(&w, "activation_scheme", "dynamic");
    put_string(&w, "fmt", "e4m3");
    put_string(&w, "quant_method", "fp8");
    put_key(&w, "weight_block_size");
    writer list = open_container(out, style, 3, "[");
    for (int i = 0; i < 2; i++) {
        next_member(&list);
        fq_json_put_u64(out, FQ_BLOCK_SIZE);
    }
    close_container(&list, "]");
    if (fq_scale_format_is_ue8m0(plan->scale_format))
        put_string(&w, "scale_fmt", "ue8m0");
    put_key(&w, "modules_to_not_convert");
    list = open_container(out, style, 3, "[");
    for (size_t i = 0; i < plan->n_modules; i++) {
        next_member(&list);
        fq_json_put_string(out, plan->modules_to_not_convert[i],
                           strlen(plan->modules_to_not_convert[i]));
    }
    close_container(&list, "]");
    put_key(&w, "fp8q");
    writer own = open_container(out, style, 3, "{");
    put_string(&own, "scale_format", fq_scale_format_name(plan->scale_format));
    close_container(&own, "}");
    close_container(&w, "}");
}

fq_status fq_config_quantization(char **out, const fq_plan *plan, uint32_t indent, fq_error *err) {
    static const char spaces[] = "        ";
    assert(indent < sizeof spaces);
    const fq_config_style style = {
        .newline = indent > 0 ? "\n" : "",
        .indent = spaces,
        .indent_nbytes = indent,
        .gap = "",
        .colon = indent > 0 ? ": " : ":",
        .colon_nbytes = indent > 0 ? 2 : 1,
    };
    fq_json_text text = {0};
    fq_config_put_quantization(&text, &style, plan);
    if (text.out_of_memory) {
        fq_json_text_free(&text);
        return fq_fail_memory(err);
    }
    *out = text.bytes;
    return FQ_OK;
}
