// The benchmark of whole runs: convert, verify and dequant as processes of their own, in turns with
// cp.
#include "bench_model.h"
#include "benchmark.h"
#include "process.h"
#include "signals.h"

#include "formats/tree.h"
#include "kernels/bench.h"
#include "kernels/kernels.h"
#include "lib/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { DEFAULT_REPEATS = 5, DEFAULT_SHARDS = 4 };
static const uint64_t default_size = (uint64_t)8 << 30;

// A run of fp8q: names in the folder of the benchmark.
typedef struct flow {
    const char *command;
    const char *source;
    const char *option, *other; // where to, or what to compare with
    bool writes;                // other is removed before each turn
    const char *more;           // one more option, or NULL
} flow;

// The first one converts the model, which the others then make use of.

static const flow folder_flows[] = {
    {"convert", "in", "--output", "fp8", true, NULL},
    {"verify", "fp8", "--reference", "in", false, "--no-gemm"},
    {"dequant", "fp8", "--output", "back", true, NULL},
};
static const flow file_flows[] = {
    {"convert", "in.safetensors", "--output", "fp8.safetensors", true, NULL},
    {"verify", "fp8.safetensors", "--reference", "in.safetensors", false, "--no-gemm"},
    {"dequant", "fp8.safetensors", "--output", "back.safetensors", true, NULL},
};
enum { N_FLOWS = 3 }; // of each

static const char copy_name[] = "copy";

typedef struct bench {
    const fq_benchmark_options *options;
    const fq_printer *printer;
    fq_emit *emit;
    uint32_t n_repeats;
    uint32_t n_shards;
    uint64_t nbytes;
    char *folder; // of its own, inside --dir
    int folder_fd;
    bool is_memory;          // a file system without a disk: nothing is synced
    double *seconds;         // [n_repeats] of fp8q
    double *copy_seconds;    // [n_repeats] of cp
    double *durable_seconds; // [n_repeats] of cp and sync
    // The model at hand:
    const char *model; // its name in the folder
    uint32_t n_files;
    double convert_seconds; // median: what verify is held against
} bench;

// What the turns of a flow gave: medians.
typedef struct figures {
    double seconds;
    const char *yardstick;
    double yardstick_seconds;
    double copy_seconds; // NAN where nothing was copied
    uint64_t nbytes;     // read and written
    uint64_t peak_nbytes;
} figures;

// ---- Turns

static fq_status path_of(char out[PATH_MAX], const bench *b, const char *name, fq_error *err) {
    if ((size_t)snprintf(out, PATH_MAX, "%s/%s", b->folder, name) < PATH_MAX)
        return FQ_OK;
    return fq_fail_errno(err, ENAMETOOLONG, "%s", b->folder);
}

static fq_status remove_output(const bench *b, const char *name, fq_error *err) {
    return fq_tree_remove(b->folder_fd, name, name, err);
}

// Lets the disk come to rest: what was removed or copied is not a matter of the next turn.
static fq_status settle(const bench *b, fq_error *err) {
    if (b->is_memory || syncfs(b->folder_fd) == 0)
        return FQ_OK;
    return fq_fail_errno(err, errno, "%s: cannot be synced", b->folder);
}

static fq_status run_fp8q(const bench *b, const flow *f, fq_process_usage *usage, fq_error *err) {
    const fq_common_options *common = &b->options->common;
    char source[PATH_MAX], other[PATH_MAX], threads[16], memory[24];
    const char *argv[16] = {fq_process_self, f->command, source,     f->option,
                            other,           "--quiet",  "--device", common->device};
    size_t n = 8;
    if (f->more)
        argv[n++] = f->more;
    fq_status status = path_of(source, b, f->source, err);
    if (!status)
        status = path_of(other, b, f->other, err);
    if (status)
        return status;
    if (common->n_threads) {
        snprintf(threads, sizeof threads, "%" PRIu32, common->n_threads);
        argv[n++] = "--threads";
        argv[n++] = threads;
    }
    if (common->memory_nbytes) {
        snprintf(memory, sizeof memory, "%" PRIu64, common->memory_nbytes);
        argv[n++] = "--memory";
        argv[n++] = memory;
    }
    return fq_process_run(usage, argv, err);
}

// Gives the seconds of cp, and of cp with the sync that makes it as durable as fp8q's output.
static fq_status run_cp(const bench *b, double *copy, double *durable, fq_error *err) {
    char source[PATH_MAX], target[PATH_MAX];
    const char *argv[] = {"cp", "-r", source, target, NULL};
    fq_process_usage usage = {0};
    fq_status status = path_of(source, b, b->model, err);
    if (!status)
        status = path_of(target, b, copy_name, err);
    if (!status)
        status = fq_process_run(&usage, argv, err);
    const double synced_from = fq_clock_seconds();
    if (!status)
        status = settle(b, err);
    if (!status) {
        *copy = usage.seconds;
        *durable = usage.seconds + (b->is_memory ? 0 : fq_clock_seconds() - synced_from);
    }
    return status;
}

// Copies the model, beside which what the flow writes is as large or smaller, and frees its place.
static fq_status take_copy_turn(const bench *b, const flow *f, uint32_t turn, fq_error *err) {
    fq_status status = remove_output(b, f->other, err);
    if (!status)
        status = settle(b, err);
    if (!status)
        status = run_cp(b, &b->copy_seconds[turn], &b->durable_seconds[turn], err);
    if (!status)
        status = remove_output(b, copy_name, err);
    return status ? status : settle(b, err);
}

// One turn of fp8q, and before it one of cp. What was written stays: the next flow may read it.
static fq_status take_turn(const bench *b, const flow *f, uint32_t turn, uint64_t *peak_nbytes,
                           fq_error *err) {
    fq_process_usage usage = {0};
    fq_status status = f->writes ? take_copy_turn(b, f, turn, err) : FQ_OK;
    if (!status)
        status = run_fp8q(b, f, &usage, err);
    if (!status && __atomic_load_n(&fq_signals_caught, __ATOMIC_RELAXED))
        status = fq_fail(err, FQ_CANCELLED, "interrupted");
    b->seconds[turn] = usage.seconds;
    if (usage.peak_nbytes > *peak_nbytes)
        *peak_nbytes = usage.peak_nbytes;
    return status;
}

// ---- Figures

static fq_status add_nbytes(void *sum, fq_tree_event event, const fq_tree_entry *entry, bool *skip,
                            fq_error *err) {
    (void)skip, (void)err;
    if (event == FQ_TREE_OTHER)
        *(uint64_t *)sum += (uint64_t)entry->stat->st_size;
    return FQ_OK;
}

static fq_status add_size(uint64_t *sum, const bench *b, const char *name, fq_error *err) {
    struct stat st;
    const int fd = openat(b->folder_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        const int errno_value = errno;
        if (fd >= 0)
            close(fd);
        return fq_fail_errno(err, errno_value, "%s/%s: cannot be examined", b->folder, name);
    }
    fq_status status = FQ_OK;
    if (S_ISDIR(st.st_mode))
        status = fq_tree_walk(fd, name, add_nbytes, sum, err);
    else
        *sum += (uint64_t)st.st_size;
    close(fd);
    return status;
}

static void print_figures(const bench *b, const flow *f, const figures *found) {
    char peak[FQ_SIZE_TEXT], files[24];
    snprintf(files, sizeof files, "%" PRIu32 " file%s", b->n_files, fq_plural(b->n_files));
    fq_print_line(b->printer, "%-8s %9s %8.3f %8.2f %9s  %-12s %8.3f %8.2f", f->command, files,
                  found->seconds, 1e-9 * (double)found->nbytes / found->seconds,
                  fq_format_nbytes(peak, found->peak_nbytes), found->yardstick,
                  found->yardstick_seconds, found->seconds / found->yardstick_seconds);
    fflush(b->printer->file);
}

static void emit_figures(const bench *b, const flow *f, const figures *found) {
    fq_emit_begin(b->emit, NULL, '{');
    fq_emit_string(b->emit, "benchmark", "convert");
    fq_emit_string(b->emit, "command", f->command);
    fq_emit_u64(b->emit, "n_files", b->n_files);
    fq_emit_bool(b->emit, "disk", !b->is_memory);
    fq_emit_u64(b->emit, "repeats", b->n_repeats);
    fq_emit_u64(b->emit, "nbytes", found->nbytes);
    fq_emit_double(b->emit, "seconds", found->seconds);
    fq_emit_double(b->emit, "gb_per_s", 1e-9 * (double)found->nbytes / found->seconds);
    fq_emit_double(b->emit, "cp_seconds", found->copy_seconds);
    fq_emit_string(b->emit, "yardstick", found->yardstick);
    fq_emit_double(b->emit, "yardstick_seconds", found->yardstick_seconds);
    fq_emit_double(b->emit, "ratio", found->seconds / found->yardstick_seconds);
    fq_emit_u64(b->emit, "peak_nbytes", found->peak_nbytes);
    fq_emit_end(b->emit, '}');
}

static void set_medians(figures *out, const bench *b, const flow *f) {
    const uint32_t n = b->n_repeats;
    out->seconds = fq_bench_median(b->seconds, n);
    if (f->writes) {
        out->yardstick = b->is_memory ? "cp -r" : "cp -r, sync";
        out->yardstick_seconds = fq_bench_median(b->durable_seconds, n);
        out->copy_seconds = fq_bench_median(b->copy_seconds, n);
    } else {
        out->yardstick = "convert";
        out->yardstick_seconds = b->convert_seconds;
        out->copy_seconds = (double)NAN;
    }
}

static fq_status measure_flow(figures *found, const bench *b, const flow *f, fq_error *err) {
    *found = (figures){0};
    // The first turn warms the caches, and does not count.
    fq_status status = take_turn(b, f, 0, &found->peak_nbytes, err);
    for (uint32_t i = 0; i < b->n_repeats && !status; i++)
        status = take_turn(b, f, i, &found->peak_nbytes, err);
    if (!status)
        status = add_size(&found->nbytes, b, f->source, err);
    if (!status)
        status = add_size(&found->nbytes, b, f->other, err);
    if (status)
        return status;
    set_medians(found, b, f);
    if (b->emit)
        emit_figures(b, f, found);
    else
        print_figures(b, f, found);
    return FQ_OK;
}

// ---- The whole

static fq_status measure_model(bench *b, const flow flows[N_FLOWS], bool is_folder, fq_error *err) {
    char path[PATH_MAX];
    figures found;
    b->model = flows[0].source;
    b->n_files = is_folder ? b->n_shards : 1;
    fq_status status = path_of(path, b, b->model, err);
    if (!status && is_folder && mkdir(path, 0777) != 0)
        status = fq_fail_errno(err, errno, "%s: cannot be created", path);
    if (!status)
        status = fq_bench_model_write(path, is_folder, b->nbytes, b->n_files, err);
    for (size_t i = 0; i < N_FLOWS && !status; i++) {
        status = measure_flow(&found, b, &flows[i], err);
        if (i == 0)
            b->convert_seconds = found.seconds;
    }
    for (size_t i = 0; i < N_FLOWS && !status; i++)
        status = remove_output(b, flows[i].other, err);
    return status;
}

static const char *dir_of(const fq_benchmark_options *options) {
    return options->dir ? options->dir : ".";
}

static fq_status check_room(const bench *b, fq_error *err) {
    enum { COPIES = 3 }; // the model, its FP8, and what was cast back or copied; and some air
    struct statvfs fs;
    if (fstatvfs(b->folder_fd, &fs) != 0)
        return fq_fail_errno(err, errno, "%s: its file system cannot be examined", b->folder);
    const uint64_t free_nbytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (fs.f_blocks == 0 || free_nbytes / COPIES >= b->nbytes)
        return FQ_OK;
    return fq_fail(err, FQ_IO,
                   "%s: needs about %" PRIu64 " bytes, but only %" PRIu64
                   " are free there; name another --dir, or a smaller --size",
                   dir_of(b->options), b->nbytes * COPIES, free_nbytes);
}

static fq_status prepare(bench *b, fq_error *err) {
    struct statfs fs;
    const size_t n = b->n_repeats;
    b->seconds = calloc(3 * n, sizeof *b->seconds);
    if (!b->seconds)
        return fq_fail_memory(err);
    b->copy_seconds = b->seconds + n;
    b->durable_seconds = b->copy_seconds + n;
    const char *dir = dir_of(b->options);
    if (asprintf(&b->folder, "%s/fp8q-bench-XXXXXX", dir) < 0) {
        b->folder = NULL;
        return fq_fail_memory(err);
    }
    if (!mkdtemp(b->folder)) {
        const fq_status status =
            fq_fail_errno(err, errno, "%s: a folder cannot be made there", dir);
        free(b->folder);
        b->folder = NULL;
        return status;
    }
    b->folder_fd = open(b->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (b->folder_fd < 0 || fstatfs(b->folder_fd, &fs) != 0)
        return fq_fail_errno(err, errno, "%s: cannot be opened", b->folder);
    b->is_memory = fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC;
    return check_room(b, err);
}

// Removes all that was made. What stood in the way is the error, unless there is another.
static fq_status discard(bench *b, fq_status status, fq_error *err) {
    fq_error left = {0};
    if (b->folder && fq_tree_remove(AT_FDCWD, b->folder, b->folder, &left) != FQ_OK && !status) {
        *err = left;
        status = left.status;
    }
    if (b->folder_fd >= 0)
        close(b->folder_fd);
    free(b->folder);
    free(b->seconds);
    return status;
}

static void print_head(const bench *b) {
    char size[FQ_SIZE_TEXT];
    fq_print(b->printer, FQ_BOLD, "convert, verify and dequant");
    fq_print_line(b->printer, " of %s of BF16 on a %s, medians of %" PRIu32,
                  fq_format_nbytes(size, b->nbytes),
                  b->is_memory ? "file system in memory" : "disk", b->n_repeats);
    fq_print_line(b->printer, "%-8s %9s %8s %8s %9s  %-12s %8s %8s", "", "", "SECONDS", "GB/S",
                  "PEAK", "YARDSTICK", "SECONDS", "RATIO");
    fflush(b->printer->file);
}

fq_status fq_benchmark_convert(const fq_benchmark_options *options, const fq_printer *printer,
                               fq_emit *emit, fq_error *err) {
    bench b = {
        .options = options,
        .printer = printer,
        .emit = emit,
        .n_repeats = options->n_repeats ? options->n_repeats : DEFAULT_REPEATS,
        .n_shards = options->n_shards ? options->n_shards : DEFAULT_SHARDS,
        .nbytes = options->size_nbytes ? options->size_nbytes : default_size,
        .folder_fd = -1,
    };
    fq_status status = prepare(&b, err);
    if (!status && !emit)
        print_head(&b);
    if (!status)
        status = measure_model(&b, folder_flows, true, err);
    if (!status)
        status = measure_model(&b, file_flows, false, err);
    return discard(&b, status, err);
}
