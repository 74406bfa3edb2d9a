// A journal read: line by line, as far as the checksums hold and the lines are understood.
#include "journal_parts.h"

#include "grow.h"
#include "json_tree.h"

#include <string.h>

typedef struct reader {
    fq_journal *journal;
    size_t shards_capacity, nonfinite_capacity;
} reader;

// For messages that nobody sees: a line that is not understood ends the journal, no more.
static const fq_json_tree_options json_options = {.scan.file = "journal"};

static bool out_of_memory(fq_error *err) {
    fq_fail_memory(err);
    return false;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// Reverts put_name of journal_write.c. NULL if node is no such string, with FQ_OK, or when out of
// memory.
static const char *name_of(const cJSON *node, fq_arena *arena, fq_error *err) {
    if (!cJSON_IsString(node))
        return NULL;
    const char *from = node->valuestring;
    char *name = fq_arena_strndup(arena, from, strlen(from));
    if (!name) {
        fq_fail_memory(err);
        return NULL;
    }
    char *to = name;
    while (*from) {
        if (*from != '%') {
            *to++ = *from++;
            continue;
        }
        const int high = hex_digit(from[1]), low = high < 0 ? -1 : hex_digit(from[2]);
        if (low < 0 || (high == 0 && low == 0))
            return NULL;
        *to++ = (char)(high << 4 | low);
        from += 3;
    }
    *to = '\0';
    return name;
}

static const char *name_at(const fq_json_object *in, const char *key, fq_arena *arena,
                           fq_error *err) {
    return name_of(fq_json_get(in, key), arena, err);
}

static bool u64_at(uint64_t *out, const fq_json_object *in, const char *key) {
    return fq_json_is_u64(out, fq_json_get(in, key));
}

static bool u32_at(uint32_t *out, const fq_json_object *in, const char *key) {
    uint64_t value;
    if (!u64_at(&value, in, key) || value > UINT32_MAX)
        return false;
    *out = (uint32_t)value;
    return true;
}

static size_t n_members(const cJSON *node) {
    size_t n = 0;
    for (const cJSON *child = node->child; child; child = child->next)
        n++;
    return n;
}

// The functions below return false for what they do not understand, and when out of memory: err
// tells the two apart.

static bool read_names(const char ***out, size_t *n, const cJSON *list, fq_arena *arena,
                       fq_error *err) {
    if (!cJSON_IsArray(list))
        return false;
    *out = fq_arena_array(arena, n_members(list), sizeof **out);
    if (!*out)
        return out_of_memory(err);
    for (const cJSON *child = list->child; child; child = child->next) {
        (*out)[*n] = name_of(child, arena, err);
        if (!(*out)[(*n)++])
            return false;
    }
    return true;
}

static bool read_options(fq_journal *journal, const cJSON *options, fq_error *err) {
    fq_journal_run *run = &journal->run;
    if (!cJSON_IsObject(options))
        return false;
    run->options = fq_arena_array(&journal->arena, n_members(options), sizeof *run->options);
    if (!run->options)
        return out_of_memory(err);
    for (const cJSON *child = options->child; child; child = child->next) {
        fq_journal_option *option = &run->options[run->n_options++];
        option->name = fq_arena_strndup(&journal->arena, child->string, strlen(child->string));
        if (!option->name)
            return out_of_memory(err);
        if (!read_names(&option->values, &option->n_values, child, &journal->arena, err))
            return false;
    }
    return true;
}

static bool read_inputs(fq_journal *journal, const cJSON *inputs, fq_error *err) {
    fq_journal_run *run = &journal->run;
    if (!cJSON_IsArray(inputs))
        return false;
    run->inputs = fq_arena_array(&journal->arena, n_members(inputs), sizeof *run->inputs);
    if (!run->inputs)
        return out_of_memory(err);
    for (const cJSON *child = inputs->child; child; child = child->next) {
        const fq_json_object in = {.node = child};
        fq_journal_input *input = &run->inputs[run->n_inputs++];
        input->name = name_at(&in, "name", &journal->arena, err);
        if (!input->name || !u64_at(&input->nbytes, &in, "nbytes") ||
            !u64_at(&input->mtime_ns, &in, "mtime_ns") || !u32_at(&input->crc32, &in, "crc32"))
            return false;
    }
    return true;
}

static bool read_run(reader *r, const fq_json_object *line, fq_error *err) {
    fq_journal *journal = r->journal;
    uint64_t format;
    if (!u64_at(&format, line, FQ_JOURNAL_FIRST_KEY) || format != FQ_JOURNAL_FORMAT)
        return false;
    journal->run.version = name_at(line, "version", &journal->arena, err);
    journal->run.command = name_at(line, "command", &journal->arena, err);
    return journal->run.version && journal->run.command &&
           read_options(journal, fq_json_get(line, "options"), err) &&
           read_inputs(journal, fq_json_get(line, "input"), err);
}

static bool read_nonfinite(reader *r, const fq_json_object *line, fq_error *err) {
    fq_journal *journal = r->journal;
    const char **names = NULL;
    size_t n = 0;
    if (!read_names(&names, &n, fq_json_get(line, "nonfinite"), &journal->arena, err))
        return false;
    for (size_t i = 0; i < n; i++) {
        journal->nonfinite =
            fq_arena_grown(&journal->arena, journal->nonfinite, journal->n_nonfinite,
                           &r->nonfinite_capacity, sizeof *journal->nonfinite);
        if (!journal->nonfinite)
            return out_of_memory(err);
        journal->nonfinite[journal->n_nonfinite++] = names[i];
    }
    return true;
}

static const fq_journal_field *field_of(const char *name) {
    for (size_t i = 0; i < FQ_JOURNAL_N_FIELDS; i++) {
        if (strcmp(fq_journal_fields[i].name, name) == 0)
            return &fq_journal_fields[i];
    }
    return NULL;
}

static bool read_counts(fq_journal_shard *shard, const cJSON *counts, fq_arena *arena,
                        fq_error *err) {
    size_t n = 0;
    if (!cJSON_IsObject(counts))
        return false;
    for (const cJSON *list = counts->child; list; list = list->next)
        n += n_members(list);
    shard->counts = fq_arena_array(arena, n / 2 + 1, sizeof *shard->counts);
    if (!shard->counts)
        return out_of_memory(err);
    for (const cJSON *list = counts->child; list; list = list->next) {
        const fq_journal_field *field = field_of(list->string);
        if (!field || !cJSON_IsArray(list))
            return false;
        for (const cJSON *step = list->child; step; step = step->next->next) {
            fq_journal_count *count = &shard->counts[shard->n_counts++];
            count->field = field->offset;
            if (!step->next || !fq_json_is_u64(&count->step, step) ||
                !fq_json_is_u64(&count->value, step->next))
                return false;
        }
    }
    return true;
}

static bool read_shard(reader *r, const fq_json_object *line, fq_error *err) {
    fq_journal *journal = r->journal;
    fq_journal_shard shard = {0};
    shard.name = name_at(line, "shard", &journal->arena, err);
    if (!shard.name || !u64_at(&shard.digest.nbytes, line, "nbytes") ||
        !u32_at(&shard.digest.crc32, line, "crc32") ||
        !read_counts(&shard, fq_json_get(line, "counts"), &journal->arena, err))
        return false;
    journal->shards = fq_arena_grown(&journal->arena, journal->shards, journal->n_shards,
                                     &r->shards_capacity, sizeof *journal->shards);
    if (!journal->shards)
        return out_of_memory(err);
    journal->shards[journal->n_shards++] = shard;
    return true;
}

static bool read_place(fq_journal_place *out, const fq_json_object *line, const char *key) {
    const fq_json_object place = {.node = fq_json_get(line, key)};
    return u64_at(&out->inode, &place, "inode") && u64_at(&out->birth_ns, &place, "birth_ns");
}

static bool read_complete(reader *r, const fq_json_object *line, fq_error *err) {
    (void)err;
    fq_journal *journal = r->journal;
    if (!read_place(&journal->output, line, "complete") ||
        !read_place(&journal->replaced, line, "replaced"))
        return false;
    journal->is_complete = true;
    return true;
}

// The first line is that of the run, and no other is.
static bool read_line(reader *r, const fq_json_object *line, fq_error *err) {
    static const struct {
        const char *key;
        bool (*read)(reader *r, const fq_json_object *line, fq_error *err);
    } kinds[] = {{"nonfinite", read_nonfinite}, {"shard", read_shard}, {"complete", read_complete}};
    if (r->journal->nbytes == 0)
        return read_run(r, line, err);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (fq_json_get(line, kinds[i].key))
            return kinds[i].read(r, line, err);
    }
    return false;
}

static bool is_checked(const char *line, size_t nbytes) {
    char check[FQ_JOURNAL_CHECK_NBYTES + 1];
    if (nbytes < FQ_JOURNAL_CHECK_NBYTES)
        return false;
    const size_t begin = nbytes - FQ_JOURNAL_CHECK_NBYTES;
    fq_journal_check(check, line, begin);
    return memcmp(line + begin, check, FQ_JOURNAL_CHECK_NBYTES) == 0;
}

fq_status fq_journal_parse(fq_journal *out, const char *text, size_t nbytes, fq_error *err) {
    reader r = {.journal = out};
    memset(out, 0, sizeof *out);
    const char *end;
    while ((end = memchr(text + out->nbytes, '\n', nbytes - out->nbytes))) {
        const char *begin = text + out->nbytes;
        const size_t n = (size_t)(end - begin);
        fq_error why = {0};
        cJSON *root = NULL;
        bool is_good =
            is_checked(begin, n) && fq_json_parse(&root, begin, n, &json_options, &why) == FQ_OK;
        if (is_good) {
            const fq_json_object line = {.node = root, .file = json_options.scan.file};
            is_good = read_line(&r, &line, &why);
        }
        cJSON_Delete(root);
        if (why.status == FQ_DEVICE) {
            *err = why;
            return why.status;
        }
        if (!is_good)
            break;
        out->nbytes += n + 1;
    }
    return FQ_OK;
}

bool fq_journal_is_begun(const char *text, size_t nbytes) {
    static const char first[] = "{\"" FQ_JOURNAL_FIRST_KEY "\":";
    const size_t n = sizeof first - 1;
    return memcmp(text, first, nbytes < n ? nbytes : n) == 0;
}
