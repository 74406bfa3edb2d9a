// config.json: what it says, and the text with quantization_config put in or taken out.
#ifndef FQ_FORMATS_CONFIG_H
#define FQ_FORMATS_CONFIG_H

#include "lib/model.h"
#include "lib/plan.h"

// Reads what fq_model holds from the text of config.json: each key from the top level or, where it
// is absent there, from text_config. quantization_config is also taken, first come, from any other
// object (thinker_config.text_config). Strings live in arena. file is the name for messages.
// What fq_json_parse refuses (Infinity and NaN are taken), a top level that is no object, and
// values of the wrong type under the keys it reads are FQ_BAD_INPUT, naming the key. null, 0
// and "" count as absent, and so does a list under the sizes: some models give one value per
// modality.
fq_status fq_config_read(fq_model *out, fq_arena *arena, const char *text, size_t nbytes,
                         const char *file, fq_error *err);

// Reads the text of a quantization_config alone, as metadata hold it. Like fq_config_read, but null
// and what is no object are FQ_BAD_INPUT. *out stays as it is after a failure.
fq_status fq_config_read_quantization(fq_quant_config *out, fq_arena *arena, const char *text,
                                      size_t nbytes, const char *file, fq_error *err);

// The quantization_config of a plan_quantize plan as JSON text, indented by `indent` spaces (0 to
// 8) per level and starting at the level of a top-level key; 0: on one line without spaces. *out is
// owned by the caller (free).
fq_status fq_config_quantization(char **out, const fq_plan *plan, uint32_t indent, fq_error *err);

// The text of a valid config.json with quantization_config added as its last top-level key, or put
// in the place of the one that is there (null, mostly), in the text's own indentation and line
// ends; every other byte is unchanged. *out is owned by the caller (free).
fq_status fq_config_with_quantization(char **out, size_t *out_nbytes, const char *text,
                                      size_t nbytes, const fq_plan *plan, fq_error *err);

// The text of a valid config.json without quantization_config, at any depth; a torch_dtype or dtype
// that names a float8 type becomes `dtype`'s name (BF16, F16 or F32). Every other byte is
// unchanged: what with_quantization added is gone without a trace. *out is owned by the caller
// (free).
fq_status fq_config_without_quantization(char **out, size_t *out_nbytes, const char *text,
                                         size_t nbytes, fq_dtype dtype, fq_error *err);

// Finds the object quantization_config in the text of a valid config.json, at the top level, else
// in text_config, else the first anywhere: *out_nbytes of text from *out, borrowed from text. *out
// is NULL if there is none.
fq_status fq_config_find_quantization(const char **out, size_t *out_nbytes, const char *text,
                                      size_t nbytes, fq_error *err);

#endif
