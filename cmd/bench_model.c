// Writes the model that bench convert converts.
#include "bench_model.h"

#include "signals.h"

#include "formats/safetensors.h"
#include "kernels/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    COLS = 8192,
    BLOCK_ROWS = 128,
    MAX_ROWS = 4096, // of one matrix: 64 MiB
    ROW_NBYTES = COLS * 2,
};

// One file of equal matrices, side by side.
typedef struct shard_spec {
    uint32_t index;
    uint64_t rows; // of each matrix
    uint64_t n_matrices;
} shard_spec;

// Matrices of whole blocks that come as near to the shard's size as they can.
static shard_spec spec_of(uint64_t nbytes, uint32_t n_shards, uint32_t index) {
    const uint64_t n_block_rows = nbytes / n_shards / (BLOCK_ROWS * ROW_NBYTES);
    const uint64_t most = MAX_ROWS / BLOCK_ROWS;
    const uint64_t per_matrix = n_block_rows < most ? n_block_rows : most;
    const uint64_t n = per_matrix ? per_matrix : 1;
    const uint64_t n_matrices = n_block_rows / n;
    return (shard_spec){index, n * BLOCK_ROWS, n_matrices ? n_matrices : 1};
}

static fq_status layout_of(fq_shard *out, fq_arena *arena, const shard_spec *spec, fq_error *err) {
    const uint64_t nbytes = spec->rows * ROW_NBYTES;
    uint64_t *shape = fq_arena_array(arena, 2, sizeof *shape);
    *out = (fq_shard){.data_nbytes = spec->n_matrices * nbytes,
                      .tensors = fq_arena_array(arena, spec->n_matrices, sizeof *out->tensors),
                      .n_tensors = spec->n_matrices};
    if (!shape || !out->tensors)
        return fq_fail_memory(err);
    shape[0] = spec->rows;
    shape[1] = COLS;
    for (uint64_t i = 0; i < spec->n_matrices; i++) {
        fq_tensor *tensor = &out->tensors[i];
        *tensor = (fq_tensor){
            .name = fq_arena_printf(
                arena, "model.layers.%" PRIu32 ".mlp.experts.%" PRIu64 ".down_proj.weight",
                spec->index, i),
            .dtype = FQ_BF16,
            .rank = 2,
            .shape = shape,
            .nbytes = nbytes,
            .offset = i * nbytes,
        };
        if (!tensor->name)
            return fq_fail_memory(err);
    }
    return FQ_OK;
}

static fq_status write_all(int fd, const char *path, const void *bytes, size_t nbytes,
                           fq_error *err) {
    for (size_t n_done = 0; n_done < nbytes;) {
        const ssize_t n = write(fd, (const char *)bytes + n_done, nbytes - n_done);
        if (n > 0)
            n_done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            return fq_fail_errno(err, n == 0 ? EIO : errno, "%s: cannot be written", path);
    }
    return FQ_OK;
}

static fq_status write_rows(int fd, const char *path, uint64_t nbytes, fq_error *err) {
    enum { TILE_NBYTES = BLOCK_ROWS * ROW_NBYTES };
    char *tile = malloc(TILE_NBYTES);
    fq_status status = tile ? FQ_OK : fq_fail_memory(err);
    if (tile)
        fq_bench_fill(tile, TILE_NBYTES / 2, FQ_BF16, 1);
    for (uint64_t n = 0; n < nbytes && !status; n += TILE_NBYTES)
        status = __atomic_load_n(&fq_signals_caught, __ATOMIC_RELAXED)
                     ? fq_fail(err, FQ_CANCELLED, "interrupted")
                     : write_all(fd, path, tile, TILE_NBYTES, err);
    free(tile);
    return status;
}

static fq_status write_shard(const char *path, const shard_spec *spec, fq_error *err) {
    fq_arena arena = {0};
    fq_shard layout;
    char *header = NULL;
    size_t header_nbytes = 0;
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    fq_status status = fd < 0 ? fq_fail_errno(err, errno, "%s: cannot be created", path) : FQ_OK;
    if (!status)
        status = layout_of(&layout, &arena, spec, err);
    if (!status)
        status = fq_safetensors_header(&header, &header_nbytes, &layout, err);
    if (!status)
        status = write_all(fd, path, header, header_nbytes, err);
    if (!status)
        status = write_rows(fd, path, layout.data_nbytes, err);
    // Its pages stay in the cache, and are not written out while something is measured.
    if (!status && fsync(fd) != 0)
        status = fq_fail_errno(err, errno, "%s: cannot be made durable", path);
    if (fd >= 0)
        close(fd);
    free(header);
    fq_arena_free(&arena);
    return status;
}

static fq_status write_config(const char *folder, fq_error *err) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *file = fopen(path, "w");
    const bool ok = file && fputs("{}\n", file) >= 0;
    if (file && fclose(file) == 0 && ok)
        return FQ_OK;
    return fq_fail_errno(err, errno, "%s: cannot be written", path);
}

fq_status fq_bench_model_write(const char *path, bool is_folder, uint64_t nbytes, uint32_t n_shards,
                               fq_error *err) {
    fq_status status = is_folder ? write_config(path, err) : FQ_OK;
    for (uint32_t i = 0; i < n_shards && !status; i++) {
        const shard_spec spec = spec_of(nbytes, n_shards, i);
        char name[PATH_MAX];
        if (is_folder)
            snprintf(name, sizeof name, "%s/model-%05" PRIu32 "-of-%05" PRIu32 ".safetensors", path,
                     i + 1, n_shards);
        else
            snprintf(name, sizeof name, "%s", path);
        status = write_shard(name, &spec, err);
    }
    return status;
}
