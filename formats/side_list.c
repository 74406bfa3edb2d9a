// The files of a model folder that are no weights of its checkpoint, told apart by their names.
#include "side_list.h"

#include "grow.h"
#include "identity.h"
#include "input_path.h"
#include "lib/glob.h"
#include "lib/names.h"
#include "name_list.h"
#include "tree.h"

#include <errno.h>
#include <stdlib.h>

typedef struct lister {
    fq_input *input;
    const fq_input_options *options;
    fq_identities shards;
    size_t capacity;
} lister;

// An index beside weights that are left out would only mislead.
bool fq_is_weight_file(const char *path) {
    static const char *const ends[] = {
        ".safetensors", ".bin",     ".pt",   ".pth",        ".gguf",
        ".h5",          ".msgpack", ".onnx", ".index.json", ".safetensors.zst",
    };
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        if (fq_has_suffix(path, ends[i]))
            return true;
    }
    return strstr(path, ".safetensors.index.") != NULL;
}

// What other tools leave behind about their own quantization, always at the top.
static bool is_stale(const char *path) {
    return strcmp(path, "hf_quant_config.json") == 0 || strcmp(path, "quantize_config.json") == 0 ||
           strcmp(path, "recipe.yaml") == 0;
}

static fq_side_kind kind_of(const lister *l, const char *path) {
    if (strcmp(path, "config.json") == 0)
        return FQ_SIDE_CONFIG;
    if (l->input->index_name && strcmp(path, l->input->index_name) == 0)
        return FQ_SIDE_INDEX;
    if (fq_glob_match_any(l->options->include_files, l->options->n_include_files, path))
        return FQ_SIDE_COPY;
    return fq_is_weight_file(path) ? FQ_SIDE_WEIGHT : is_stale(path) ? FQ_SIDE_STALE : FQ_SIDE_COPY;
}

// Replaces *st by that of the file that a link leads to, or *kind by FQ_SIDE_LINK where it leads to
// nothing that may be copied.
static fq_status follow(const lister *l, const char *path, struct stat *st, fq_side_kind *kind,
                        fq_error *err) {
    char *real = NULL;
    fq_status status = fq_input_resolve(&real, l->input, path, err);
    const bool leads_inside = status == FQ_OK;
    if (leads_inside && stat(real, st) != 0)
        status = fq_fail_errno(err, errno, "%s: cannot be examined", real);
    free(real);
    if (status != FQ_OK && status != FQ_BAD_INPUT)
        return status;
    if (leads_inside && !S_ISDIR(st->st_mode))
        return FQ_OK;
    *err = (fq_error){0};
    if (*kind == FQ_SIDE_COPY)
        *kind = FQ_SIDE_LINK;
    return FQ_OK;
}

static fq_status on_entry(void *context, fq_tree_event event, const fq_tree_entry *entry,
                          bool *skip, fq_error *err) {
    lister *l = context;
    fq_input *input = l->input;
    if (event != FQ_TREE_OTHER) {
        *skip = strcmp(entry->name, ".git") == 0 || strcmp(entry->name, ".cache") == 0;
        return FQ_OK;
    }
    fq_side_kind kind = kind_of(l, entry->path);
    struct stat st = *entry->stat;
    if (S_ISLNK(st.st_mode)) {
        const fq_status status = follow(l, entry->path, &st, &kind, err);
        if (status != FQ_OK)
            return status;
    }
    if (fq_identities_find(&l->shards, &st))
        return FQ_OK;
    if (kind == FQ_SIDE_COPY && !S_ISREG(st.st_mode))
        kind = FQ_SIDE_SPECIAL;
    input->side_files = fq_arena_grown(&input->arena, input->side_files, input->n_side_files,
                                       &l->capacity, sizeof *input->side_files);
    const char *path = fq_arena_strndup(&input->arena, entry->path, strlen(entry->path));
    if (!input->side_files || !path)
        return fq_fail_memory(err);
    input->side_files[input->n_side_files++] = (fq_side_file){path, kind, (uint64_t)st.st_size};
    return FQ_OK;
}

static int compare_paths(const void *a, const void *b) {
    return strcmp(((const fq_side_file *)a)->path, ((const fq_side_file *)b)->path);
}

fq_status fq_side_list(fq_input *input, const fq_input_options *options, fq_error *err) {
    lister l = {.input = input, .options = options};
    fq_arena scratch = {0};
    fq_status status = fq_identities_of(&l.shards, &scratch, &input->checkpoint, err);
    if (status == FQ_OK)
        status = fq_tree_walk(input->folder_fd, input->folder, on_entry, &l, err);
    // The walk goes by components, where "a/b" comes before "a.txt".
    if (input->n_side_files > 0)
        qsort(input->side_files, input->n_side_files, sizeof *input->side_files, compare_paths);
    fq_arena_free(&scratch);
    return status;
}

static bool matches_any_file(const char *glob, const fq_input *input) {
    for (size_t i = 0; i < input->n_side_files; i++) {
        if (fq_glob_match(glob, input->side_files[i].path))
            return true;
    }
    return false;
}

void fq_side_warn(const fq_input *input, const fq_input_options *options, fq_messages *warnings) {
    static const struct {
        const char *why, *cure;
    } kinds[FQ_SIDE_KIND_COUNT] = {
        [FQ_SIDE_WEIGHT] = {"not converted and not copied, as weights outside the checkpoint",
                            "; --include-file copies them"},
        [FQ_SIDE_STALE] = {"not copied, as descriptions of another quantization", ""},
        [FQ_SIDE_LINK] = {"not copied, as links out of the folder, to a folder or to nothing", ""},
        [FQ_SIDE_SPECIAL] = {"not copied, as no regular files", ""},
    };
    for (int kind = 0; kind < FQ_SIDE_KIND_COUNT; kind++) {
        fq_name_list names = {0};
        for (size_t i = 0; i < input->n_side_files; i++) {
            if (kinds[kind].why && (int)input->side_files[i].kind == kind)
                fq_name_list_add(&names, input->side_files[i].path);
        }
        if (names.n > 0)
            fq_messages_add(warnings, "%s: %s: %s%s", input->folder, kinds[kind].why, names.text,
                            kinds[kind].cure);
    }
    for (size_t i = 0; i < options->n_include_files; i++) {
        if (!matches_any_file(options->include_files[i], input))
            fq_messages_add(warnings,
                            "%s: no file beside the checkpoint's own matches "
                            "--include-file %s",
                            input->folder, options->include_files[i]);
    }
}
