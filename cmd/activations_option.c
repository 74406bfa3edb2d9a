// --activations of verify: see activations_option.h.
#include "activations_option.h"

#include "session.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_MAGNITUDE 1e3 // of outlier channels: the massive activations of published models

// True for a positive number that BF16 can hold.
static bool parse_magnitude(double *out, const char *text) {
    char *end;
    if (!isdigit((unsigned char)*text) && *text != '.')
        return false;
    *out = strtod(text, &end);
    return *end == '\0' && isfinite(*out) && *out > 0.0 && *out < 1e38;
}

static bool is_file(const char *text) {
    static const char suffix[] = ".safetensors";
    const size_t n = strlen(text), n_suffix = strlen(suffix);
    return n > n_suffix && strcmp(text + n - n_suffix, suffix) == 0;
}

static fq_status open_file(fq_activations_request *out, const char *path, fq_reply *reply,
                           fq_error *err) {
    const fq_input_options options = {0};
    fq_messages unwanted = {0}; // what there is beside the file
    fq_status status = fq_input_open(&out->file, path, &options, &reply->faults, &unwanted, err);
    fq_messages_free(&unwanted);
    if (!status)
        status = fq_reply_check_faults(reply, err);
    if (!status)
        status = fq_activations_check(&out->file.checkpoint, err);
    out->options.kind = FQ_ACTIVATIONS_CAPTURED;
    out->options.captured = &out->file.checkpoint;
    return status;
}

fq_status fq_activations_request_open(fq_activations_request *out, const char *text,
                                      uint64_t tokens, uint64_t seed, fq_reply *reply,
                                      fq_error *err) {
    static const char outlier[] = "outlier";
    const size_t n = strlen(outlier);
    fq_activations_options *options = &out->options;
    *options =
        (fq_activations_options){.tokens = tokens, .seed = seed, .magnitude = DEFAULT_MAGNITUDE};
    out->file.folder_fd = -1;
    if (strcmp(text, "normal") == 0)
        return FQ_OK;
    if (is_file(text))
        return open_file(out, text, reply, err);
    options->kind = FQ_ACTIVATIONS_OUTLIER;
    const bool has_magnitude = strncmp(text, outlier, n) == 0 && text[n] == ':';
    if (strcmp(text, outlier) == 0 ||
        (has_magnitude && parse_magnitude(&options->magnitude, text + n + 1)))
        return FQ_OK;
    return fq_fail(err, FQ_USAGE,
                   "verify: --activations takes normal, outlier, outlier:MAG or a .safetensors "
                   "file, not \"%s\"; see fp8q verify --help",
                   text);
}

void fq_activations_request_close(fq_activations_request *request) {
    fq_input_close(&request->file);
}
