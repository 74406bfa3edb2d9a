// Snapshots of a Hugging Face cache, recognised by their paths.
#include "hub_snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// The start of REPO if [begin, end) is "models--ORG--REPO" or "models--REPO", else NULL.
static const char *repo_of(const char *begin, const char *end) {
    static const char prefix[] = "models--";
    const size_t prefix_nbytes = sizeof prefix - 1;
    if ((size_t)(end - begin) <= prefix_nbytes || memcmp(begin, prefix, prefix_nbytes) != 0)
        return NULL;
    const char *repo = end;
    while (memcmp(repo - 2, "--", 2) != 0) // found in the prefix at the latest
        repo--;
    return repo < end ? repo : NULL;
}

fq_status fq_hub_snapshot_find(fq_hub_snapshot *out, fq_arena *arena, const char *folder,
                               fq_error *err) {
    static const char middle[] = "/snapshots/";
    *out = (fq_hub_snapshot){0};
    for (const char *at = folder; (at = strstr(at, middle)); at++) {
        const char *begin = at;
        while (begin > folder && begin[-1] != '/')
            begin--;
        const char *repo = repo_of(begin, at);
        if (!repo || at[sizeof middle - 1] == '\0')
            continue;
        out->repo = fq_arena_strndup(arena, repo, (size_t)(at - repo));
        out->folder = fq_arena_strndup(arena, folder, (size_t)(at - folder));
        char *path = fq_arena_printf(arena, "%.*s/blobs", (int)(at - folder), folder);
        if (!out->repo || !out->folder || !path)
            return fq_fail_memory(err);
        char *blobs = realpath(path, NULL);
        if (!blobs && errno == ENOENT)
            continue;
        if (!blobs)
            return fq_fail_errno(err, errno, "%s: cannot be opened", path);
        out->blobs = fq_arena_strndup(arena, blobs, strlen(blobs));
        free(blobs);
        if (!out->blobs)
            return fq_fail_memory(err);
    }
    return FQ_OK;
}

bool fq_is_hub_repository(const char *folder) {
    return repo_of(strrchr(folder, '/') + 1, folder + strlen(folder)) != NULL;
}
