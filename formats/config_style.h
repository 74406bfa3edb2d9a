// How a config.json is laid out, and quantization_config written in that layout.
#ifndef FQ_FORMATS_CONFIG_STYLE_H
#define FQ_FORMATS_CONFIG_STYLE_H

#include "json.h"
#include "lib/plan.h"

// White space between tokens. Borrowed, not NUL-terminated.
typedef struct fq_config_style {
    const char *newline; // NUL-terminated: "\n" or "\r\n", or "" where all stands on one line
    const char *indent;  // of one level; only with newline
    size_t indent_nbytes;
    const char *gap; // behind a comma; only without newline
    size_t gap_nbytes;
    const char *colon; // with the white space around it
    size_t colon_nbytes;
} fq_config_style;

// What goes before a key or a value of that level, the comma aside: level 1 for top-level keys.
void fq_config_put_break(fq_json_text *out, const fq_config_style *style, uint32_t level,
                         bool is_first);

// The object, as the value of a top-level key.
void fq_config_put_quantization(fq_json_text *out, const fq_config_style *style,
                                const fq_plan *plan);

#endif
