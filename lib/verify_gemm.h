// The GEMM check: every weight is multiplied with activations as its bands go by.
#ifndef FQ_VERIFY_GEMM_H
#define FQ_VERIFY_GEMM_H

#include "band.h"
#include "sum.h"
#include "verify.h"

// What the rows of one tensor came to. Zeroed is nothing.
typedef struct fq_verify_products {
    fq_sum kernel_error2, exact2, error2, reference2; // as in fq_gemm_sums
    uint64_t n;
    uint64_t n_rows_left_out;
    uint64_t tokens;
} fq_verify_products;

// A band that was read: its buffers in the lane. Nothing is owned.
typedef struct fq_verify_operands {
    const fq_band *band;
    const uint8_t *codes;
    const float *scales;   // of its blocks; 0 where they have a flaw
    const void *source;    // the reference; NULL without one
    fq_dtype source_dtype; // of it
} fq_verify_operands;

// Tensors, by their number. Nothing is owned.
typedef struct fq_verify_numbers {
    const size_t *all; // [n]
    size_t n;
} fq_verify_numbers;

typedef struct fq_verify_gemms fq_verify_gemms;

// Decides what each tensor is multiplied with, and notes in verify->notes what is not multiplied.
// *out is NULL where options ask for no GEMM check. Borrowed are verify and options.
fq_status fq_verify_gemms_open(fq_verify_gemms **out, fq_verify *verify,
                               const fq_verify_run_options *options, fq_error *err);

// Multiplies a band of tensor number `tensor` in a lane, which has its bands of the same rows one
// after the other, from left to right. The products of rows that are complete are added to
// products, from whatever lane; those of experts when the last of their layer are there, where they
// share a launch. Nothing is done for gemms NULL, or a tensor that is not multiplied.
fq_status fq_verify_gemms_multiply(fq_verify_gemms *gemms, uint32_t lane, size_t tensor,
                                   const fq_verify_operands *operands, fq_verify_products *products,
                                   fq_error *err);

// Is told of each tensor when all its bands are done, by one thread at a time. Gives those whose
// products are complete now: it alone; or none, and with the last expert of a layer all of these.
fq_verify_numbers fq_verify_gemms_done(fq_verify_gemms *gemms, const size_t *tensor);

// Works out the tensor's figures when its products and the weight's figures are there. Nothing is
// done for a tensor that was not multiplied.
void fq_verify_finish_gemm(const fq_verify_gemms *gemms, fq_verify_tensor *tensor,
                           const fq_verify_products *products);

// Says why the tensor fails, if its products are why.
void fq_verify_judge_gemm(const fq_verify *verify, fq_verify_tensor *tensor);

// NULL is taken.
void fq_verify_gemms_close(fq_verify_gemms *gemms);

#endif
