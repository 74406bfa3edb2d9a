// The proof by exhaustion that docs/numerics.md speaks of: for every pair of a BF16 amax and a BF16
// magnitude up to it, 532,701,120 of them, each variant gives the code of the IEEE division.
//
// test_pairs [STEP]: only every STEP-th amax.
#include "tests/kernels/matrix.h"
#include "tests/kernels/reference.h"

enum { N_MAGNITUDES = 0x7F80 }; // finite BF16 without the sign

typedef struct pairs {
    devices all;
    uint16_t *source; // every magnitude, signs alternating
    uint8_t *expected, *codes;
} pairs;

// All magnitudes up to amax (its bits) as one block.
static void test_amax(pairs *p, uint32_t amax, bool pow2, float floor) {
    const uint64_t n = amax + 1;
    const float scale = fq_scale_of_amax(fq_f32_of_bf16((uint16_t)amax), floor, pow2);
    for (uint64_t i = 0; i < n; i++)
        p->expected[i] = fq_e4m3_of_f32_sat(fq_f32_of_bf16(p->source[i]) / scale);
    for (size_t k = 0; k < p->all.n; k++) {
        float found_scale = 0.0f;
        fq_quantize_counts counts;
        const fq_quantize_job job = {
            .source = p->source,
            .source_dtype = FQ_BF16,
            .rows = 1,
            .cols = n,
            .block = {1, n},
            .pow2_scales = pow2,
            .amax_floor = floor,
            .codes = p->codes,
            .scales = &found_scale,
            .counts = &counts,
        };
        devices_quantize(&p->all, k, &job);
        const bool same =
            CHECK(found_scale == scale) &
            CHECK(same_matrix(p->all.variants[k]->name, "code", p->codes, p->expected, 1, n, 1));
        if (!same)
            CHECK_NOTE("amax 0x%X, floor %g, %s\n", amax, (double)floor, pow2 ? "pow2" : "f32");
    }
}

int main(int argc, char **argv) {
    const uint32_t step = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1;
    const uint32_t floor_bits = fq_bits_of_f32(FQ_DEFAULT_AMAX_FLOOR) >> 16;
    pairs p = {
        .all = devices_open(),
        .source = exact_alloc(N_MAGNITUDES * sizeof *p.source),
        .expected = exact_alloc(N_MAGNITUDES),
        .codes = exact_alloc(N_MAGNITUDES),
    };
    for (uint32_t i = 0; i < N_MAGNITUDES; i++)
        p.source[i] = (uint16_t)(i | (i & 1) << 15);
    for (uint32_t amax = 0; amax < N_MAGNITUDES; amax += step) {
        for (int pow2 = 0; pow2 < 2; pow2++) {
            test_amax(&p, amax, pow2, 0.0f);
            if (amax <= floor_bits) // above, the floor does nothing
                test_amax(&p, amax, pow2, FQ_DEFAULT_AMAX_FLOOR);
        }
    }
    free(p.source);
    free(p.expected);
    free(p.codes);
    devices_close(&p.all);
    return check_result();
}
