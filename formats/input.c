// What the user named as INPUT: shards, index, config.json and side files put together.
#include "input.h"

#include "config.h"
#include "file.h"
#include "index_check.h"
#include "input_path.h"
#include "retry.h"
#include "safetensors.h"
#include "shard_list.h"
#include "side_list.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    CONFIG_MAX_NBYTES = 64 << 20,
    DUPLICATES_SHOWN = 20,
    ABSENT_SHOWN = 200, // shards: a line for each, as it is to be downloaded
};

static const char config_name[] = "config.json";

// Where the faults and warnings of one opening go, and what it needs only until its end.
typedef struct opening {
    fq_input *input;
    fq_messages *faults, *warnings;
    fq_messages *disagreements; // faults, unless the caller takes them for findings
    size_t n_absent;            // shards that only the index knows
    fq_arena scratch;
} opening;

// Turns bad input into a fault, so that the opening goes on to find others.
static fq_status as_fault(opening *o, fq_status status, fq_error *err) {
    if (status != FQ_BAD_INPUT)
        return status;
    fq_messages_add(o->faults, "%s", err->text);
    *err = (fq_error){0};
    return FQ_OK;
}

// Lets the process hold n_shards files open, several times over (a reference, an output), as far
// as the hard limit goes. Opening fails with a message of its own where that is not enough.
static void raise_file_limit(size_t n_shards) {
    struct rlimit limit;
    const rlim_t wanted = 4 * (rlim_t)n_shards + 64;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < wanted) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

// Makes the slots of the shards. A slot that could not be read keeps its name and has no source.
static fq_status add_shards(fq_input *input, const char *const *names, size_t n, fq_error *err) {
    fq_checkpoint *checkpoint = &input->checkpoint;
    checkpoint->shards = fq_arena_array(&input->arena, n, sizeof *checkpoint->shards);
    if (!checkpoint->shards)
        return fq_fail_memory(err);
    for (; checkpoint->n_shards < n; checkpoint->n_shards++) {
        const char *name = names[checkpoint->n_shards];
        fq_shard *shard = &checkpoint->shards[checkpoint->n_shards];
        shard->name = fq_arena_strndup(&input->arena, name, strlen(name));
        if (!shard->name)
            return fq_fail_memory(err);
    }
    return FQ_OK;
}

// Reads the header of a shard from source, which it owns from now on.
static fq_status read_shard(opening *o, size_t number, fq_source *source, fq_error *err) {
    fq_shard *shard = &o->input->checkpoint.shards[number];
    const fq_status status =
        fq_safetensors_read(shard, &o->input->arena, source, (uint32_t)number, err);
    if (status == FQ_OK)
        shard->source = source;
    else
        fq_file_close(source);
    return as_fault(o, status, err);
}

// True if the folder has nothing of that name, no dangling link either.
static bool is_absent(const fq_input *input, const char *name) {
    return faccessat(input->folder_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT;
}

// Only an index names shards that are not there: other names come from the folder itself.
static fq_status open_shard(opening *o, size_t number, fq_error *err) {
    const fq_input *input = o->input;
    const char *name = input->checkpoint.shards[number].name;
    fq_source *source = NULL;
    if (input->index_name && is_absent(input, name)) {
        if (o->n_absent++ < ABSENT_SHOWN)
            fq_messages_add(o->disagreements,
                            "%s/%s: the index names it, but it is not there; download it",
                            input->folder, name);
        return FQ_OK;
    }
    const fq_status status = fq_input_open_file(&source, input, name, err);
    return status == FQ_OK ? read_shard(o, number, source, err) : as_fault(o, status, err);
}

static fq_status open_shards(opening *o, const char *const *names, size_t n, fq_error *err) {
    fq_status status = add_shards(o->input, names, n, err);
    raise_file_limit(n);
    for (size_t i = 0; i < n && status == FQ_OK; i++)
        status = open_shard(o, i, err);
    if (o->n_absent > ABSENT_SHOWN)
        fq_messages_add(o->disagreements, "%s: %zu more files that the index names are not there",
                        o->input->folder, o->n_absent - ABSENT_SHOWN);
    return status;
}

// Sorts all tensors by name; names that occur twice are faults.
static fq_status index_tensors(opening *o, fq_error *err) {
    fq_checkpoint *checkpoint = &o->input->checkpoint;
    const fq_tensor *duplicate = NULL;
    size_t n = 0;
    const fq_status status = fq_checkpoint_index(checkpoint, &o->input->arena, &duplicate, err);
    if (status != FQ_OK || !duplicate)
        return status;
    for (size_t i = 1; i < checkpoint->n_tensors; i++) {
        const fq_tensor *tensor = checkpoint->by_name[i], *before = checkpoint->by_name[i - 1];
        if (strcmp(tensor->name, before->name) == 0 && n++ < DUPLICATES_SHOWN)
            fq_messages_add(o->disagreements, "%s/%s: %s: is also in %s; remove one of the two",
                            o->input->folder, fq_tensor_file(checkpoint, tensor), tensor->name,
                            fq_tensor_file(checkpoint, before));
    }
    if (n > DUPLICATES_SHOWN)
        fq_messages_add(o->disagreements, "%s: %zu more tensors are in two shards",
                        o->input->folder, n - DUPLICATES_SHOWN);
    return FQ_OK;
}

static fq_status read_index(opening *o, fq_index *out, const char *file, fq_error *err) {
    fq_source *source = NULL;
    char *text = NULL;
    size_t nbytes = 0;
    fq_status status = fq_input_open_file(&source, o->input, o->input->index_name, err);
    if (status == FQ_OK)
        status = fq_source_read_all(&text, &nbytes, source, FQ_INDEX_MAX_NBYTES, err);
    if (status == FQ_OK)
        status = fq_index_read(out, &o->scratch, text, nbytes, file, o->faults, err);
    free(text);
    fq_file_close(source);
    return as_fault(o, status, err);
}

static fq_status keep_metadata(fq_input *input, const fq_index *index, fq_error *err) {
    input->index_metadata =
        fq_arena_array(&input->arena, index->n_metadata, sizeof *input->index_metadata);
    if (!input->index_metadata)
        return fq_fail_memory(err);
    for (size_t i = 0; i < index->n_metadata; i++) {
        const fq_index_metadata *from = &index->metadata[i];
        fq_index_metadata *to = &input->index_metadata[input->n_index_metadata++];
        to->key = fq_arena_strndup(&input->arena, from->key, strlen(from->key));
        to->value = fq_arena_strndup(&input->arena, from->value, strlen(from->value));
        if (!to->key || !to->value)
            return fq_fail_memory(err);
    }
    return FQ_OK;
}

static fq_status open_indexed(opening *o, fq_error *err) {
    fq_index index = {0};
    char *file = fq_arena_printf(&o->scratch, "%s/%s", o->input->folder, o->input->index_name);
    fq_status status = file ? read_index(o, &index, file, err) : fq_fail_memory(err);
    if (status != FQ_OK || index.n_entries == 0)
        return status;
    status = open_shards(o, index.shard_names, index.n_shard_names, err);
    if (status == FQ_OK)
        status = index_tensors(o, err);
    if (status != FQ_OK)
        return status;
    const bool takes_findings = o->disagreements != o->faults;
    fq_index_check(&index, &o->input->checkpoint, file, o->disagreements,
                   takes_findings ? o->disagreements : o->warnings);
    return keep_metadata(o->input, &index, err);
}

static fq_status open_unindexed(opening *o, const fq_names *names, fq_error *err) {
    fq_names shards = {0};
    fq_input *input = o->input;
    fq_status status = fq_shard_list(&shards, &o->scratch, names, input->folder_fd, input->folder,
                                     o->disagreements, err);
    if (status == FQ_OK)
        status = open_shards(o, shards.items, shards.n, err);
    return status == FQ_OK ? index_tensors(o, err) : status;
}

static fq_status read_config(opening *o, fq_error *err) {
    fq_input *input = o->input;
    fq_source *source = NULL;
    if (is_absent(input, config_name))
        return FQ_OK;
    fq_status status = fq_input_open_file(&source, input, config_name, err);
    if (status == FQ_OK)
        status = fq_source_read_all(&input->config_text, &input->config_nbytes, source,
                                    CONFIG_MAX_NBYTES, err);
    if (status == FQ_OK)
        status = fq_config_read(&input->model, &input->arena, input->config_text,
                                input->config_nbytes, source->name, err);
    fq_file_close(source);
    return as_fault(o, status, err);
}

static void warn_of_side_files(opening *o, const fq_input_options *options) {
    if (!o->input->config_text)
        fq_messages_add(o->warnings, "%s/%s: does not exist; none is written", o->input->folder,
                        config_name);
    fq_side_warn(o->input, options, o->warnings);
}

static fq_status open_folder(opening *o, const fq_input_place *place,
                             const fq_input_options *options, fq_error *err) {
    fq_input *input = o->input;
    fq_names names = {0};
    input->checkpoint.path = input->folder;
    input->checkpoint.is_folder = true;
    input->folder_fd =
        fq_retry_openat(AT_FDCWD, input->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (input->folder_fd < 0)
        return fq_fail_errno(err, errno, "%s: cannot open the folder", input->folder);
    fq_status status = fq_folder_list(&names, &o->scratch, input->folder_fd, input->folder, err);
    if (status != FQ_OK)
        return status;
    const char *index =
        place->name ? place->name : fq_index_choose(&names, input->folder, o->faults);
    if (index) {
        input->index_name = fq_arena_strndup(&input->arena, index, strlen(index));
        status = input->index_name ? open_indexed(o, err) : fq_fail_memory(err);
    } else {
        status = open_unindexed(o, &names, err);
    }
    if (status == FQ_OK)
        status = read_config(o, err);
    // Without all shards, side files cannot be told from weights. Nothing will be written then, so
    // what it would lack is not worth a line.
    if (status != FQ_OK || o->faults->n > 0 || options->findings)
        return status;
    status = fq_side_list(input, options, err);
    if (status == FQ_OK)
        warn_of_side_files(o, options);
    return status;
}

// A lone file has no config.json; fp8q puts the quantization_config into its metadata. Others may
// put there what they like: what cannot be read is no fault of the weights.
static fq_status read_embedded_config(opening *o, fq_error *err) {
    fq_input *input = o->input;
    const fq_shard *shard = &input->checkpoint.shards[0];
    const char *text = fq_metadata_find(shard->metadata, shard->n_metadata, "quantization_config");
    if (!text)
        return FQ_OK;
    char *place = fq_arena_printf(&o->scratch, "%s: metadata", input->checkpoint.path);
    if (!place)
        return fq_fail_memory(err);
    const fq_status status = fq_config_read_quantization(&input->model.quant, &input->arena, text,
                                                         strlen(text), place, err);
    if (status != FQ_BAD_INPUT)
        return status;
    const bool takes_findings = o->disagreements != o->faults;
    fq_messages_add(takes_findings ? o->disagreements : o->warnings, "%s", err->text);
    *err = (fq_error){0};
    return FQ_OK;
}

static fq_status open_lone_file(opening *o, const char *name, fq_error *err) {
    fq_input *input = o->input;
    fq_source *source = NULL;
    input->checkpoint.path = fq_arena_printf(&input->arena, "%s/%s", input->folder, name);
    if (!input->checkpoint.path)
        return fq_fail_memory(err);
    fq_status status = add_shards(input, &name, 1, err);
    if (status == FQ_OK)
        status =
            fq_file_open(&source, AT_FDCWD, input->checkpoint.path, input->checkpoint.path, err);
    status = status == FQ_OK ? read_shard(o, 0, source, err) : as_fault(o, status, err);
    if (status == FQ_OK)
        status = index_tensors(o, err);
    return status == FQ_OK ? read_embedded_config(o, err) : status;
}

fq_status fq_input_open(fq_input *out, const char *path, const fq_input_options *options,
                        fq_messages *faults, fq_messages *warnings, fq_error *err) {
    opening o = {
        .input = out,
        .faults = faults,
        .warnings = warnings,
        .disagreements = options->findings ? options->findings : faults,
    };
    fq_input_place place = {0};
    out->folder_fd = -1;
    out->model = fq_model_unknown();
    fq_status status = fq_input_locate(&place, path, err);
    if (status != FQ_OK)
        goto out;
    out->folder = place.folder;
    place.folder = NULL;
    status = fq_hub_snapshot_find(&out->hub, &out->arena, out->folder, err);
    if (status != FQ_OK)
        goto out;
    status = place.is_folder ? open_folder(&o, &place, options, err)
                             : open_lone_file(&o, place.name, err);
out:
    fq_arena_free(&o.scratch);
    fq_input_place_finish(&place);
    return status;
}

fq_status fq_input_check_unchanged(const fq_input *input, fq_error *err) {
    fq_status status = FQ_OK;
    for (size_t i = 0; i < input->checkpoint.n_shards && status == FQ_OK; i++) {
        if (input->checkpoint.shards[i].source) // a missing one may be a finding
            status = fq_file_check_unchanged(input->checkpoint.shards[i].source, err);
    }
    return status;
}

void fq_input_close(fq_input *input) {
    for (size_t i = 0; i < input->checkpoint.n_shards; i++)
        fq_file_close(input->checkpoint.shards[i].source);
    if (input->folder && input->folder_fd >= 0) // a zeroed one never opened its folder
        close(input->folder_fd);
    free(input->folder);
    free(input->config_text);
    fq_arena_free(&input->arena);
    *input = (fq_input){.folder_fd = -1};
}
