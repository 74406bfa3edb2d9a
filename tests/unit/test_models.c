// The policy on the tensors of real models, as their public configurations and code have them:
// data/models/NAME.txt against the plan in NAME.plan, which was read by eye. After a change that is
// meant, `test_models --rewrite` in tests/ writes the plans anew: read the difference.
#include "lib/fold.h"
#include "lib/policy.h"
#include "lib/scale.h"
#include "tests/check.h"
#include "tests/header_checkpoint.h"

#include <stdio.h>

static const char *const model_names[] = {
    "DeepSeek-V2-Lite", "DeepSeek-V3",        "DeepSeek-V3.2",    "GLM-4.5-Air",
    "Llama-3.1-8B",     "MiniMax-M2",         "Mixtral-8x7B",     "Qwen3-30B-A3B",
    "Qwen3-8B",         "Qwen3-Next-80B-A3B", "Qwen3-VL-30B-A3B", "Qwen3.5-35B-A3B",
};

// One model on its way from its list to its plan.
typedef struct model_case {
    const char *name;
    char *list; // text of NAME.txt
    header_checkpoint headers;
    fq_arena arena;
    fq_model model;
    fq_policy policy;
    fq_messages faults, warnings;
} model_case;

static char *read_file(fq_arena *arena, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!CHECK(file != NULL)) {
        fprintf(stderr, "    %s cannot be read\n", path);
        return fq_arena_strndup(arena, "", 0);
    }
    fseek(file, 0, SEEK_END);
    const size_t n = (size_t)ftell(file);
    rewind(file);
    char *text = fq_arena_alloc(arena, n + 1);
    CHECK_U64(fread(text, 1, n, file), n);
    fclose(file);
    return text;
}

// The value of "key=value" in the text, up to a blank; "" if it is not there.
static const char *read_value(model_case *c, const char *key) {
    const char *found = strstr(c->list, key);
    const size_t n = strlen(key);
    return found && found[n] == '='
               ? fq_arena_strndup(&c->arena, found + n + 1, strcspn(found + n + 1, " \n"))
               : "";
}

static uint64_t read_number(model_case *c, const char *key) {
    return strtoull(read_value(c, key), NULL, 10);
}

// The numbers of tensors and parameters are those of the published files, without the scales where
// these are FP8: they vouch for the list.
static void check_list(model_case *c) {
    uint64_t n_parameters = 0;
    for (size_t i = 0; i < c->headers.n; i++) {
        uint64_t volume = 0;
        CHECK(fq_shape_volume(&volume, c->headers.tensors[i].shape, c->headers.tensors[i].rank));
        n_parameters += volume;
    }
    CHECK_U64(c->headers.n, read_number(c, "tensors"));
    CHECK_U64(n_parameters, read_number(c, "parameters"));
}

static void open_case(model_case *c) {
    char path[128];
    snprintf(path, sizeof path, "data/models/%s.txt", c->name);
    c->list = read_file(&c->arena, path);
    CHECK(header_add_text(&c->headers, c->list));
    header_finish(&c->headers);
    check_list(c);
    c->model = (fq_model){
        .has_config = true,
        .model_type = read_value(c, "model_type"),
        .hidden_size = read_number(c, "hidden_size"),
        .moe_intermediate_size = read_number(c, "moe_intermediate_size"),
        .tie_word_embeddings = read_number(c, "tie_word_embeddings") != 0,
    };
    const fq_policy_options options = {0};
    fq_error err = {0};
    CHECK(fq_policy_decide(&c->policy, &c->arena, &c->headers.checkpoint, &c->model, &options,
                           &c->faults, &c->warnings, &err) == FQ_OK);
}

static void close_case(model_case *c) {
    header_free(&c->headers);
    fq_arena_free(&c->arena);
    fq_messages_free(&c->faults);
    fq_messages_free(&c->warnings);
}

static uint64_t matrix_nbytes(uint64_t n, uint64_t rows, uint64_t cols) {
    fq_dtype dtype;
    uint64_t shape[2], scale_nbytes = 0;
    fq_scale_tensor_shape(FQ_SCALE_F32, rows, cols, &dtype, shape);
    fq_tensor_nbytes(&scale_nbytes, dtype, shape, 2);
    return n * (rows * cols + scale_nbytes);
}

// Bytes of what becomes of a tensor, F32 scales too.
static uint64_t nbytes_out(const fq_decision *decision) {
    const fq_tensor *tensor = decision->tensor;
    const uint64_t *shape = tensor->shape;
    if (!decision->quantize)
        return tensor->nbytes;
    if (decision->experts == FQ_EXPERTS_NONE)
        return matrix_nbytes(1, shape[0], shape[1]);
    const uint64_t n_parts = decision->experts == FQ_EXPERTS_GATE_UP ? 2 : 1;
    const uint64_t rows = shape[decision->transposed ? 2 : 1];
    const uint64_t cols = shape[decision->transposed ? 1 : 2];
    return matrix_nbytes(shape[0] * n_parts, rows / n_parts, cols);
}

static const char *action_of(const fq_decision *decision) {
    if (!decision->quantize)
        return "keep";
    if (decision->experts == FQ_EXPERTS_NONE)
        return "quantize";
    return decision->transposed ? "split and transpose" : "split";
}

// "quantize: BF16 [576, 7168] (ragged: 576 rows)"
static const char *describe(fq_arena *arena, const fq_decision *decision) {
    const fq_tensor *tensor = decision->tensor;
    const char *shape = "";
    for (uint32_t i = 0; i < tensor->rank; i++)
        shape = fq_arena_printf(arena, "%s%s%" PRIu64, shape, i ? ", " : "", tensor->shape[i]);
    return fq_arena_printf(arena, "%s: %s [%s]%s%s%s", action_of(decision),
                           fq_dtype_name(tensor->dtype), shape, *decision->reason ? " (" : "",
                           decision->reason, *decision->reason ? ")" : "");
}

static void write_folded(FILE *out, fq_arena *arena, const fq_fold_item *items, size_t n) {
    fq_fold_line *lines = NULL;
    size_t n_lines = 0;
    fq_error err = {0};
    CHECK(fq_fold(&lines, &n_lines, arena, items, n, &err) == FQ_OK);
    for (size_t i = 0; i < n_lines; i++) {
        if (*lines[i].rest)
            fprintf(out, "%s\n    %" PRIu64 " x %s\n", lines[i].pattern, lines[i].n, lines[i].rest);
        else
            fprintf(out, "    %s\n", lines[i].pattern);
    }
}

typedef struct totals {
    uint64_t n_quantized, n_split, n_kept;
    uint64_t nbytes_in, nbytes_after;
} totals;

static totals count(const model_case *c) {
    totals sum = {0};
    for (size_t i = 0; i < c->headers.n; i++) {
        const fq_decision *decision = &c->policy.decisions[i];
        if (!decision->quantize)
            sum.n_kept++;
        else if (decision->experts != FQ_EXPERTS_NONE)
            sum.n_split++;
        else
            sum.n_quantized++;
        sum.nbytes_in += decision->tensor->nbytes;
        sum.nbytes_after += nbytes_out(decision);
    }
    return sum;
}

// Models that were released in FP8: what the rules make of the list has as many tensors, and where
// the bytes are published as many of them, as the release. A plan that is rewritten cannot hide it.
static void check_release(model_case *c) {
    const totals sum = count(c);
    const uint64_t n_released = read_number(c, "release_tensors");
    const uint64_t nbytes_released = read_number(c, "release_bytes");
    if (n_released)
        CHECK_U64(c->headers.n + sum.n_quantized, n_released); // one scale for each
    if (nbytes_released)
        CHECK_U64(sum.nbytes_after, nbytes_released);
}

static void write_totals(FILE *out, const model_case *c) {
    const totals sum = count(c);
    fprintf(out, "%zu tensors: %" PRIu64 " quantized, %" PRIu64 " split, %" PRIu64 " kept\n",
            c->headers.n, sum.n_quantized, sum.n_split, sum.n_kept);
    fprintf(out, "%" PRIu64 " bytes, %" PRIu64 " with F32 scales\n\n", sum.nbytes_in,
            sum.nbytes_after);
}

// The whole plan as text, tensors in the order of the list.
static void write_plan(FILE *out, model_case *c) {
    const size_t n = c->headers.n;
    fq_fold_item *items = fq_arena_array(&c->arena, n + c->policy.n_modules, sizeof *items);
    for (size_t i = 0; i < n; i++) {
        const char *name = c->headers.tensors[i].name;
        const size_t position = fq_checkpoint_position(&c->headers.checkpoint, name);
        items[i] = (fq_fold_item){name, describe(&c->arena, &c->policy.decisions[position])};
    }
    write_totals(out, c);
    write_folded(out, &c->arena, items, n);
    fprintf(out, "\nmodules_to_not_convert: %zu\n", c->policy.n_modules);
    for (size_t i = 0; i < c->policy.n_modules; i++)
        items[i] = (fq_fold_item){c->policy.modules_to_not_convert[i], ""};
    write_folded(out, &c->arena, items, c->policy.n_modules);
    for (size_t i = 0; i < c->faults.n; i++)
        fprintf(out, "\nfault: %s", c->faults.lines[i]);
    for (size_t i = 0; i < c->warnings.n; i++)
        fprintf(out, "\nwarning: %s", c->warnings.lines[i]);
}

static void compare_lines(const char *name, const char *actual, const char *expected) {
    for (int line = 1; *actual || *expected; line++) {
        const size_t n = strcspn(actual, "\n"), m = strcspn(expected, "\n");
        if (!CHECK(n == m && memcmp(actual, expected, n) == 0)) {
            fprintf(stderr, "    %s.plan:%d\n    is  %.*s\n    not %.*s\n", name, line, (int)n,
                    actual, (int)m, expected);
            return;
        }
        actual += n + (actual[n] == '\n');
        expected += m + (expected[m] == '\n');
    }
}

static void test_model(const char *name, bool rewrite) {
    model_case c = {.name = name};
    char path[128];
    snprintf(path, sizeof path, "data/models/%s.plan", name);
    open_case(&c);
    check_release(&c);
    char *text = NULL;
    size_t n_text = 0;
    FILE *out = rewrite ? fopen(path, "wb") : open_memstream(&text, &n_text);
    if (CHECK(out != NULL)) {
        write_plan(out, &c);
        CHECK(fclose(out) == 0);
    }
    if (text)
        compare_lines(name, text, read_file(&c.arena, path));
    free(text);
    close_case(&c);
}

int main(int argc, char **argv) {
    const bool rewrite = argc > 1 && strcmp(argv[1], "--rewrite") == 0;
    for (size_t i = 0; i < sizeof model_names / sizeof model_names[0]; i++)
        test_model(model_names[i], rewrite);
    return check_result();
}
