// Which files of a folder without an index are its shards; numbered sets must be complete.
#include "shard_list.h"

#include "hub_snapshot.h"
#include "lib/names.h"
#include "name_list.h"
#include "retry.h"
#include "side_list.h"
#include "tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

fq_status fq_folder_list(fq_names *out, fq_arena *arena, int fd, const char *folder,
                         fq_error *err) {
    struct dirent **items = NULL;
    const int n = fq_tree_list(&items, fd);
    if (n < 0)
        return fq_fail_errno(err, errno, "%s: cannot list the folder", folder);
    *out = (fq_names){.items = fq_arena_array(arena, (size_t)n, sizeof *out->items)};
    fq_status status = out->items ? FQ_OK : fq_fail_memory(err);
    for (int i = 0; i < n; i++) {
        const char *name = items[i]->d_name;
        if (status == FQ_OK) {
            out->items[out->n++] = fq_arena_strndup(arena, name, strlen(name));
            if (!out->items[i])
                status = fq_fail_memory(err);
        }
        free(items[i]);
    }
    free(items);
    return status;
}

const char *fq_index_choose(const fq_names *names, const char *folder, fq_messages *faults) {
    fq_name_list others = {0};
    const char *other = NULL;
    for (size_t i = 0; i < names->n; i++) {
        const char *name = names->items[i];
        if (strcmp(name, "model.safetensors.index.json") == 0)
            return name;
        if (fq_has_suffix(name, ".safetensors.index.json")) {
            fq_name_list_add(&others, name);
            other = name;
        }
    }
    if (others.n > 1)
        fq_messages_add(faults, "%s: holds %zu indexes (%s); name the one to be used", folder,
                        others.n, others.text);
    return other;
}

enum { MISSING_SHOWN = 200 }; // lines for one set: its total may be anything

// A file name PREFIX-NUMBER-of-TOTAL.safetensors.
typedef struct numbered {
    const char *name;
    int prefix_nbytes; // up to the '-' before NUMBER, that included
    int width;         // digits of NUMBER
    uint64_t number, total;
    const char *tail; // "-of-TOTAL.safetensors"
} numbered;

// Reads up to 18 digits at *at and goes past them. Returns their number, 0 for none or too many.
static int read_digits(uint64_t *out, const char **at) {
    int n = 0;
    *out = 0;
    for (; **at >= '0' && **at <= '9' && n <= 18; n++, (*at)++)
        *out = *out * 10 + (uint64_t)(**at - '0');
    return n <= 18 ? n : 0;
}

static bool parse_numbered(numbered *out, const char *name) {
    const char *tail = NULL;
    for (const char *at = name; (at = strstr(at, "-of-")); at++)
        tail = at;
    if (!tail)
        return false;
    const char *digits = tail;
    while (digits > name && digits[-1] >= '0' && digits[-1] <= '9')
        digits--;
    if (digits == name || digits[-1] != '-')
        return false;
    *out = (numbered){.name = name, .prefix_nbytes = (int)(digits - name), .tail = tail};
    out->width = read_digits(&out->number, &digits);
    const char *at = tail + strlen("-of-");
    return out->width > 0 && digits == tail && read_digits(&out->total, &at) > 0 &&
           strcmp(at, ".safetensors") == 0;
}

// Orders by prefix and total: 0 for two files of one set.
static int compare_sets(const numbered *a, const numbered *b) {
    if (a->prefix_nbytes != b->prefix_nbytes)
        return a->prefix_nbytes < b->prefix_nbytes ? -1 : 1;
    const int order = memcmp(a->name, b->name, (size_t)a->prefix_nbytes);
    return order != 0 ? order : strcmp(a->tail, b->tail);
}

static int compare_numbered(const void *a_raw, const void *b_raw) {
    const numbered *a = a_raw, *b = b_raw;
    const int order = compare_sets(a, b);
    if (order != 0)
        return order;
    return a->number < b->number ? -1 : a->number > b->number;
}

// One set: items [0, n) with the same prefix and total, sorted by number. Sets count from 1, or
// from 0 where 0 is there.
static void check_set(const numbered *items, size_t n, const char *folder, fq_messages *faults) {
    const bool from_zero = items[0].number == 0;
    const uint64_t end = from_zero ? items[0].total : items[0].total + 1;
    uint64_t next = from_zero ? 0 : 1, n_missing = 0;
    for (size_t i = 0; i <= n; i++) {
        const uint64_t number = i < n && items[i].number < end ? items[i].number : end;
        for (; next < number && n_missing < MISSING_SHOWN; next++, n_missing++)
            fq_messages_add(faults, "%s/%.*s%0*" PRIu64 "%s: is missing from the set; download it",
                            folder, items[0].prefix_nbytes, items[0].name, items[0].width, next,
                            items[0].tail);
        if (next < number)
            n_missing += number - next;
        next = number + 1;
    }
    if (n_missing > MISSING_SHOWN)
        fq_messages_add(faults, "%s: %" PRIu64 " more files are missing from the same set", folder,
                        n_missing - MISSING_SHOWN);
}

static fq_status check_sets(const fq_names *shards, const char *folder, fq_messages *faults,
                            fq_error *err) {
    numbered *items = calloc(shards->n + 1, sizeof *items);
    size_t n = 0;
    if (!items)
        return fq_fail_memory(err);
    for (size_t i = 0; i < shards->n; i++)
        n += parse_numbered(&items[n], shards->items[i]);
    qsort(items, n, sizeof *items, compare_numbered);
    for (size_t begin = 0, end; begin < n; begin = end) {
        end = begin + 1;
        while (end < n && compare_sets(&items[begin], &items[end]) == 0)
            end++;
        check_set(&items[begin], end - begin, folder, faults);
    }
    free(items);
    return FQ_OK;
}

// The first snapshot of a repository of the Hugging Face cache, by name; NULL if folder is none, or
// holds no snapshot.
static fq_status find_snapshot(const char **out, fq_arena *arena, int folder_fd, const char *folder,
                               fq_error *err) {
    fq_names snapshots = {0};
    *out = NULL;
    const int fd =
        fq_is_hub_repository(folder)
            ? fq_retry_openat(folder_fd, "snapshots", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)
            : -1;
    if (fd < 0)
        return FQ_OK;
    const fq_status status = fq_folder_list(&snapshots, arena, fd, folder, err);
    close(fd);
    if (snapshots.n > 0)
        *out = snapshots.items[0];
    return status;
}

// What the folder holds in place of shards.
static fq_status report_no_shards(fq_arena *arena, const fq_names *names, int fd,
                                  const char *folder, fq_messages *faults, fq_error *err) {
    const char *snapshot;
    const fq_status status = find_snapshot(&snapshot, arena, fd, folder, err);
    if (status != FQ_OK)
        return status;
    fq_name_list others = {0};
    for (size_t i = 0; i < names->n; i++) {
        const char *name = names->items[i];
        if (fq_is_weight_file(name) && !fq_has_suffix(name, ".safetensors") &&
            !fq_has_suffix(name, ".json"))
            fq_name_list_add(&others, name);
    }
    if (snapshot)
        fq_messages_add(faults,
                        "%s: is a repository of the Hugging Face cache; name one of its snapshots: "
                        "snapshots/%s",
                        folder, snapshot);
    else if (others.n > 0)
        fq_messages_add(faults, "%s: holds no .safetensors file, only %s, which is not read; %s",
                        folder, others.text,
                        fq_has_suffix(others.text, ".zst") ? "unpack it with zstd -d first"
                                                           : "save the model as safetensors first");
    else
        fq_messages_add(faults, "%s: holds no .safetensors file; name a model folder or a file",
                        folder);
    return FQ_OK;
}

fq_status fq_shard_list(fq_names *out, fq_arena *arena, const fq_names *names, int fd,
                        const char *folder, fq_messages *faults, fq_error *err) {
    *out = (fq_names){.items = fq_arena_array(arena, names->n, sizeof *out->items)};
    if (!out->items)
        return fq_fail_memory(err);
    for (size_t i = 0; i < names->n; i++) {
        const char *name = names->items[i];
        struct stat st;
        if (name[0] == '.' || !fq_has_suffix(name, ".safetensors"))
            continue;
        if (fstatat(fd, name, &st, 0) == 0 && S_ISDIR(st.st_mode))
            continue;
        if (strcmp(name, "model.safetensors") == 0) {
            out->items[0] = name;
            out->n = 1;
            return FQ_OK;
        }
        out->items[out->n++] = name;
    }
    if (out->n == 0)
        return report_no_shards(arena, names, fd, folder, faults, err);
    return check_sets(out, folder, faults, err);
}
