// The other files of an output: copies of the input's side files, and texts written whole.
#include "output_parts.h"

#include "file.h"
#include "input_path.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

enum { COPY_NBYTES = 1 << 20 };

static fq_status copy_bytes(fq_output_file *file, fq_source *source, char *buffer, fq_error *err) {
    fq_status status = FQ_OK;
    for (uint64_t at = 0; at < source->nbytes && status == FQ_OK;) {
        const uint64_t left = source->nbytes - at;
        const size_t n = left < COPY_NBYTES ? (size_t)left : COPY_NBYTES;
        status = source->read(source, at, buffer, n, err);
        if (status == FQ_OK)
            status = fq_output_file_write(file, at, buffer, n, err);
        at += n;
    }
    return status == FQ_OK ? fq_file_check_unchanged(source, err) : status;
}

static fq_status copy_file(fq_output *output, const fq_input *input, const char *path, char *buffer,
                           fq_error *err) {
    struct stat st;
    fq_source *source = NULL;
    fq_output_file file;
    fq_status status = fq_input_open_file(&source, input, path, err);
    if (status != FQ_OK)
        return status;
    if (fstatat(input->folder_fd, path, &st, 0) != 0)
        status = fq_fail_errno(err, errno, "%s: cannot be examined", source->name);
    else
        status = fq_output_file_create(&file, output, path, st.st_mode & 0777, err);
    if (status != FQ_OK)
        goto out;
    status = copy_bytes(&file, source, buffer, err);
    const struct timespec times[] = {st.st_atim, st.st_mtim};
    if (status == FQ_OK && futimens(file.fd, times) != 0)
        status = fq_fail_errno(err, errno, "%s: cannot be given its times", file.path);
    if (status == FQ_OK)
        status = fq_output_file_finish(&file, err);
    else
        fq_output_file_drop(&file);
out:
    fq_file_close(source);
    return status;
}

fq_status fq_output_copy_side_files(fq_output *output, const fq_input *input, fq_error *err) {
    fq_status status = FQ_OK;
    char *buffer = malloc(COPY_NBYTES);
    if (!buffer)
        return fq_fail_memory(err);
    for (size_t i = 0; i < input->n_side_files && status == FQ_OK; i++) {
        if (input->side_files[i].kind == FQ_SIDE_COPY)
            status = copy_file(output, input, input->side_files[i].path, buffer, err);
    }
    free(buffer);
    return status;
}

fq_status fq_output_put(fq_output *output, const char *name, const char *text, size_t nbytes,
                        fq_error *err) {
    fq_output_file file;
    assert(output->is_folder);
    fq_status status = fq_output_file_create(&file, output, name, 0666, err);
    if (status != FQ_OK)
        return status;
    status = fq_output_file_write(&file, 0, text, nbytes, err);
    if (status == FQ_OK)
        return fq_output_file_finish(&file, err);
    fq_output_file_drop(&file);
    return status;
}
