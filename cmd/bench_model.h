// A model to measure with: random weights, of any size.
#ifndef FQ_CMD_BENCH_MODEL_H
#define FQ_CMD_BENCH_MODEL_H

#include "lib/error.h"

#include <stdbool.h>
#include <stdint.h>

// Writes n_shards safetensors files of about nbytes of BF16 matrices in all, which convert
// quantizes, and brings them into the page cache and to the disk. With is_folder, path is an
// existing folder, and gets a config.json too; else the one shard is the file path. FQ_IO.
fq_status fq_bench_model_write(const char *path, bool is_folder, uint64_t nbytes, uint32_t n_shards,
                               fq_error *err);

#endif
