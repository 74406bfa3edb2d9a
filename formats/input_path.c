// Paths inside a model folder, and the rule that nothing outside of it is read.
#include "input_path.h"

#include "file.h"
#include "lib/names.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// For a path that stat or realpath refused; missing is the status for a file that is not there.
static fq_status fail_unresolved(const char *path, int errno_value, fq_status missing,
                                 fq_error *err) {
    char target[PATH_MAX];
    switch (errno_value) {
    case ENOMEM:
        return fq_fail_memory(err);
    case ENOENT: {
        const ssize_t n = readlink(path, target, sizeof target);
        if (n < 0)
            return fq_fail(err, missing, "%s: does not exist; check the path, or download it",
                           *path ? path : "\"\"");
        return fq_fail(err, missing,
                       "%s: is a link to %.*s, which does not exist; download it again", path,
                       (int)n, target);
    }
    case ENOTDIR:
        return fq_fail(err, missing, "%s: does not exist, a part of the path is no folder", path);
    case ELOOP:
        return fq_fail(err, missing, "%s: is a loop of links; remove it", path);
    case ENAMETOOLONG:
        return fq_fail(err, missing, "%s: the name is too long", path);
    default:
        return fq_fail_errno(err, errno_value, "%s: cannot be opened", path);
    }
}

// Splits path, which names a file: the folder is resolved, the name is kept even if it is a link.
static fq_status split(fq_input_place *out, const char *path, fq_error *err) {
    const char *slash = strrchr(path, '/');
    out->name = strdup(slash ? slash + 1 : path);
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    if (out->name && folder)
        out->folder = realpath(folder, NULL);
    const int errno_value = errno;
    free(folder);
    if (out->folder)
        return FQ_OK;
    return fail_unresolved(path, errno_value, FQ_IO, err);
}

fq_status fq_input_locate(fq_input_place *out, const char *path, fq_error *err) {
    struct stat st;
    *out = (fq_input_place){0};
    if (stat(path, &st) != 0)
        return fail_unresolved(path, errno, FQ_IO, err);
    if (S_ISDIR(st.st_mode)) {
        out->is_folder = true;
        out->folder = realpath(path, NULL);
        return out->folder ? FQ_OK : fail_unresolved(path, errno, FQ_IO, err);
    }
    const fq_status status = split(out, path, err);
    if (status != FQ_OK)
        return status;
    if (fq_has_suffix(path, ".zst"))
        return fq_fail(err, FQ_BAD_INPUT,
                       "%s: compressed files are not supported; unpack it with zstd -d first",
                       path);
    if (fq_has_suffix(path, ".json")) {
        out->is_folder = strstr(out->name, ".safetensors.index.") != NULL;
        if (!out->is_folder)
            return fq_fail(err, FQ_BAD_INPUT,
                           "%s: is no index of safetensors files; name the model folder or a "
                           ".safetensors file",
                           path);
    }
    return FQ_OK;
}

void fq_input_place_finish(fq_input_place *place) {
    free(place->folder);
    free(place->name);
    *place = (fq_input_place){0};
}

static bool lies_in(const char *path, const char *folder) {
    const size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && (path[n] == '/' || strcmp(folder, "/") == 0);
}

fq_status fq_input_resolve(char **out, const fq_input *input, const char *path, fq_error *err) {
    fq_status status = FQ_OK;
    char *real = NULL, *joined = NULL;
    if (asprintf(&joined, "%s/%s", input->folder, path) < 0)
        return fq_fail_memory(err);
    real = realpath(joined, NULL);
    if (!real) {
        status = fail_unresolved(joined, errno, FQ_BAD_INPUT, err);
        goto out;
    }
    const char *blobs = input->hub.blobs;
    if (!lies_in(real, input->folder) && !(blobs && lies_in(real, blobs))) {
        status = fq_fail(err, FQ_BAD_INPUT,
                         "%s: is a link that leads out of the model folder, to %s; put the file "
                         "itself there",
                         joined, real);
        goto out;
    }
    *out = real;
    real = NULL;
out:
    free(real);
    free(joined);
    return status;
}

fq_status fq_input_open_file(fq_source **out, const fq_input *input, const char *path,
                             fq_error *err) {
    char *real = NULL, *label = NULL;
    fq_status status = fq_input_resolve(&real, input, path, err);
    if (status != FQ_OK)
        return status;
    if (asprintf(&label, "%s/%s", input->folder, path) < 0) {
        free(real);
        return fq_fail_memory(err);
    }
    status = fq_file_open(out, AT_FDCWD, real, label, err);
    free(label);
    free(real);
    return status;
}
