// verify: a quantized checkpoint held against its own rules, and against the weights that it was
// made from. Results are the same for any number of lanes, size of bands, and device, but for the
// products of a GPU: those stay within the bound of docs/numerics.md.
#ifndef FQ_VERIFY_H
#define FQ_VERIFY_H

#include "activations.h"
#include "checker.h"
#include "pairing.h"
#include "plan.h"
#include "run.h"

// Above which a tensor fails. A negative one is the default, which docs/numerics.md derives, that
// of kernel_rel_l2 being the GEMM's max_error. Blocks under the amax floor, whose error may be
// anything, do not count for that of the weights, and weights that have some, few tokens, and
// activations that are not normal not for that of the GEMM.
typedef struct fq_verify_limits {
    double weight_rel_l2;
    double gemm_rel_l2;
    double kernel_rel_l2;
} fq_verify_limits;

#define FQ_VERIFY_MAX_WEIGHT_ERROR 0.07
#define FQ_VERIFY_MAX_GEMM_ERROR 0.1

typedef struct fq_verify_options {
    const char *const *globs; // [n_globs]: only tensors of these names
    size_t n_globs;           // 0: all
    uint32_t tensor_parallel; // would it load at this --tp; 0: not asked
    fq_verify_limits limits;
} fq_verify_options;

// What the bytes of a weight are held to.
typedef enum fq_verify_rule {
    FQ_RULE_NONE,       // nothing: there is no reference
    FQ_RULE_EXACT,      // fp8q made it of this reference: every code and scale is known
    FQ_RULE_BOUND,      // of another maker: each element within its rounding bound
    FQ_RULE_REQUANTIZED // fp8q made it of FP8 weights: the error of the whole
} fq_verify_rule;

// One weight, all matrices of a stack together: their rows follow each other, and so do the rows of
// their grids.
typedef struct fq_verify_weight {
    uint64_t n_blocks;
    fq_finding bad_scales; // places of blocks
    fq_scale_flaw first_flaw;
    fq_finding nan_codes;

    // The rest with a reference only.
    bool has_errors;
    double error2, weight2; // Σ (ŵ − w)², Σ w²
    double rel_l2;  // ‖Ŵ−W‖₂ / ‖W‖₂; 0 where both are 0, infinite where W alone is
    double sqnr_db; // −20·log10(rel_l2); infinite where rel_l2 is 0
    double judged_rel_l2; // rel_l2 of the blocks that do not lie under the amax floor
    float max_abs;
    uint64_t saturated, flushed_to_zero;
    uint64_t zero_blocks, floored_blocks; // as in fq_quantize_counts
    fq_finding out_of_bound, codes_differ;
    fq_finding scales_differ; // places of blocks
    fq_finding nonfinite;     // of the reference
    fq_place worst_block;     // the first with the greatest error
    double worst_block_rel_l2;
} fq_verify_weight;

// The GEMM check of one weight.
typedef struct fq_verify_gemm {
    uint64_t tokens;
    double rel_l2;        // infinite or NaN where it means nothing, so without a reference
    double kernel_rel_l2; // against the exact product of the dequantized operands
    double max_kernel_rel_l2;
    bool is_default_limited; // rel_l2 is held to the default limit too
} fq_verify_gemm;

enum { FQ_VERIFY_MAP_SIZE = 64 };

// Errors of a weight's blocks, for a picture: each cell is the greatest rel_l2 of its blocks. Block
// (i, j) of the grid is in cell (i · rows / grid_rows, j · cols / grid_cols), rounded down.
typedef struct fq_verify_map {
    uint64_t grid_rows, grid_cols;
    uint32_t rows, cols;                                  // FQ_VERIFY_MAP_SIZE at most
    float cells[FQ_VERIFY_MAP_SIZE * FQ_VERIFY_MAP_SIZE]; // [rows, cols]
} fq_verify_map;

// An FP8 weight of the checkpoint.
typedef struct fq_verify_tensor {
    const fq_tensor *tensor;
    const fq_pair *pair;        // NULL: no scale that fits; its values are not looked at
    const char *scale_format;   // "f32", "pow2", "e8m0", "packed", "bf16", "f16", "u8"; NULL
    const char *kind;           // of layer: "q_proj", "experts.down_proj"
    const fq_tensor *reference; // or NULL
    fq_verify_rule rule;
    bool pow2_scales;  // scales expected of the reference: powers of two,
    float amax_floor;  // with this floor
    bool must_be_pow2; // by what config or metadata say
    bool is_said_f32;  // by the same: F32 scales are no powers of two but by chance
    bool has_weight;   // its values were looked at
    fq_verify_weight weight;
    bool has_gemm;
    fq_verify_gemm gemm;
    const fq_verify_map *map; // of the FQ_VERIFY_N_MAPS worst; NULL for others
    fq_messages reasons;      // why it fails, without its name; none: it passes
} fq_verify_tensor;

enum {
    FQ_VERIFY_N_MAPS = 8,
    FQ_VERIFY_ERROR_BINS = 161, // of block errors: bin i holds i/2000 up to (i + 1)/2000; the last
                                // one 0.08 and more
    FQ_VERIFY_SCALE_BINS = 256, // of scales: by their biased FP32 exponent
};

typedef struct fq_verify_summary {
    uint64_t n_tensors, n_failed;       // FP8 weights
    uint64_t n_copies, n_copies_differ; // other tensors, compared byte for byte
    double weight_rel_l2;               // of all weights together; NaN without a reference
    double gemm_rel_l2; // root of the mean square over the weights; NaN without a check
    double worst_block_rel_l2;
    uint64_t block_errors[FQ_VERIFY_ERROR_BINS];
    uint64_t scales[FQ_VERIFY_SCALE_BINS];
    bool passed; // no tensor failed, and no problems
} fq_verify_summary;

// The result. Zeroed before; borrowed are the two checkpoints.
typedef struct fq_verify {
    const fq_checkpoint *checkpoint, *reference; // reference: or NULL
    fq_verify_options options;
    fq_pairing pairing;
    fq_verify_tensor *tensors; // [n_tensors], sorted by name
    size_t n_tensors;
    fq_messages problems; // of the checkpoint as a whole: "FILE: TENSOR: what is wrong; cure"
    fq_messages notes;    // what was not checked, and why
    fq_verify_summary summary;
    struct fq_verify_work *work; // what fq_verify_run goes through
    fq_arena arena;              // owns the above, but for the messages
} fq_verify;

// Decides what is to be compared with what, and checks all that headers and config show: problems
// are findings, FQ_OK all the same. reference: NULL without one. FQ_USAGE if a glob matches
// nothing or the reference is FP8 itself. After any outcome fq_verify_free it.
fq_status fq_verify_plan(fq_verify *out, const fq_checkpoint *checkpoint, const fq_model *model,
                         const fq_checkpoint *reference, const fq_model *reference_model,
                         const fq_verify_options *options, fq_error *err);

typedef struct fq_verify_run_options {
    const fq_backend *backend;
    const fq_checker *checker;
    fq_device *device;                         // opened for checks, with n_lanes and band_elements
    const fq_gemm *gemm;                       // NULL: no GEMM check
    const fq_activations_options *activations; // with gemm
    uint32_t n_lanes;                          // at least 1
    size_t band_elements;                      // of the largest band, FQ_MIN_BAND_ELEMENTS at least
    fq_progress *progress;                     // bytes_read is counted; or NULL
    const int *cancelled;                      // as in fq_run_options
} fq_verify_run_options;

// Bytes that fq_verify_run will read.
uint64_t fq_verify_nbytes(const fq_verify *verify);

// Reads both checkpoints once, and fills in tensors, problems and the summary. Bad values are
// findings; any other status means that reading or computing failed.
fq_status fq_verify_run(fq_verify *verify, const fq_verify_run_options *options, fq_error *err);

// True if a comes before b where the worst comes first: what fails, then the greatest error, or
// without a reference that of the kernel, then by name.
bool fq_verify_is_worse(const fq_verify_tensor *a, const fq_verify_tensor *b);

void fq_verify_free(fq_verify *verify);

#endif
