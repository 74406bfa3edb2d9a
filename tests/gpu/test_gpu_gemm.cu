// Every rung and every instance of the GEMM against FP64: random shapes, the bound of
// docs/numerics.md for each element, poisoned output, guard zones, the same bytes when run again.
//
//   test_gpu_gemm count                          prints how many instances there are
//   test_gpu_gemm RUNG SEED COUNT [MAX_SIZE]     RUNG: simple, mma, auto, or the number of an
//   instance
#include "kernels/cuda/gemm_launch.h"
#include "tests/gpu/gemm_case.cuh"
#include "tests/gpu/gemm_instances.h"

#include <math.h>
#include <string.h>
#include <vector>

namespace {

// Tensor cores: 4 steps of 33 addends each cut off below 2^-13 of the greatest (docs/numerics.md).
const double TENSOR_CORE_C = 4 * 33 * 0x1p-13;
// What the whole result may be off, where its elements are many and their values as a model's.
const double NORM_BF16 = 1.7e-3, NORM_F32 = 2e-4;
enum { NORM_MIN_ELEMENTS = 4096 };

struct buffers {
    guarded a, b, d, a_scales, b_scales, group_rows, y, magnitude, verdicts;
};

// What is run: a rung, or one instance of the Hopper kernels.
struct subject {
    const char *name;
    fq_cuda_gemm_rung rung;
    bool is_instance;
    fq_cuda_gemm_choice choice;
    bool any_alignment, f32; // takes rows that begin anywhere; has FP32 output
};

struct random_source {
    uint64_t state;
    uint64_t below(uint64_t n) { return hash64(state++) % n; }
};

// A case: the operands, and what is random about it besides.
struct test_case {
    fq_cuda_gemm gemm;
    std::vector<uint32_t> group_rows;
    bool any_code; // all codes alike, in place of a model's distribution
};

uint64_t random_size(random_source *random, uint64_t limit) {
    static const uint64_t corners[] = {1,   2,   3,   7,   8,   15,   16,   17,  31,  32,
                                       63,  64,  65,  96,  97,  127,  128,  129, 131, 160,
                                       191, 192, 193, 255, 256, 257,  383,  384, 385, 509,
                                       511, 512, 513, 640, 769, 1023, 1024, 1025};
    const uint64_t n_corners = sizeof corners / sizeof *corners;
    const uint64_t value =
        random->below(3) != 0 ? corners[random->below(n_corners)] : 1 + random->below(limit);
    return value < limit ? value : limit;
}

uint64_t round_up(uint64_t n, uint64_t step) { return (n + step - 1) / step * step; }

void draw_groups(test_case *c, random_source *random) {
    fq_cuda_gemm &g = c->gemm;
    g.grouping = (fq_cuda_gemm_grouping)(random->below(4) < 2 ? 0 : 1 + random->below(2));
    g.n_groups = g.grouping == FQ_CUDA_GEMM_DENSE ? 1 : 1 + (uint32_t)random->below(5);
    c->group_rows.assign(g.n_groups, 0);
    if (g.grouping == FQ_CUDA_GEMM_MASKED) {
        g.slot_rows = g.m;
        g.m *= g.n_groups;
        for (uint32_t &rows : c->group_rows)
            rows = random->below(3) == 0 ? 0 : (uint32_t)random->below(g.slot_rows + 1);
    } else if (g.grouping ==
               FQ_CUDA_GEMM_CONTIGUOUS) { // ends in order; the last may leave rows over
        uint64_t end = 0;
        for (uint32_t &rows : c->group_rows) {
            end += random->below((g.m - end) / 2 + 2) % (g.m - end + 1);
            rows = (uint32_t)end;
        }
    }
}

void draw_strides(fq_cuda_gemm *g, random_source *random, bool any_alignment) {
    const uint64_t step = any_alignment ? 1 : 16, scale_step = any_alignment ? 1 : 4;
    g->a_stride = round_up(g->k, step) + step * random->below(3);
    g->b_stride = round_up(g->k, step) + step * random->below(3);
    g->d_stride = g->n + (random->below(2) ? random->below(40) : 0);
    if (random->below(2))
        g->d_stride = round_up(g->d_stride, 8);
    g->a_scales_stride = round_up(g->m, scale_step) + scale_step * random->below(2);
}

// Takes memory for the operands and fills it.
void draw_contents(test_case *c, buffers *buf, random_source *random, bool any_alignment) {
    fq_cuda_gemm &g = c->gemm;
    const uint64_t n_k_blocks = (g.k + 127) / 128, element = g.d_is_f32 ? 4 : 2;
    const uint64_t words = round_up(g.n, 4), lines = g.n_groups * ((g.k + 511) / 512);
    const uint64_t n_b_scales =
        g.b_scales_packed ? lines * words : g.n_groups * ((g.n + 127) / 128) * n_k_blocks;
    const uint64_t n_a = g.m * g.a_stride, n_b = g.n_groups * g.n * g.b_stride;
    const uint64_t n_a_scales = n_k_blocks * g.a_scales_stride;
    const size_t shift = any_alignment ? random->below(64) : 16 * random->below(4);
    uint8_t *a = (uint8_t *)buf->a.take(n_a, shift), *b = (uint8_t *)buf->b.take(n_b, shift);
    uint32_t *a_scales = (uint32_t *)buf->a_scales.take(n_a_scales * 4);
    uint32_t *b_scales = (uint32_t *)buf->b_scales.take(n_b_scales * 4);
    uint32_t *rows = (uint32_t *)buf->group_rows.take(g.n_groups * 4);
    fill_codes<<<256, 256>>>(a, n_a, random->state++, c->any_code);
    fill_codes<<<256, 256>>>(b, n_b, random->state++, c->any_code);
    fill_scales<<<64, 256>>>(a_scales, n_a_scales, random->state++, false);
    fill_scales<<<64, 256>>>(b_scales, n_b_scales, random->state++, g.b_scales_packed);
    if (g.b_scales_packed)
        repeat_words<<<64, 256>>>(b_scales, g.n, words, lines);
    CUDA_CHECK(cudaMemcpy(rows, c->group_rows.data(), g.n_groups * 4, cudaMemcpyHostToDevice));
    g.a = a, g.b = b, g.a_scales = (float *)a_scales, g.b_scales = b_scales;
    g.group_rows = g.grouping == FQ_CUDA_GEMM_DENSE ? nullptr : rows;
    g.d =
        buf->d.take(g.m * g.d_stride * element, random->below(2) ? element * random->below(8) : 0);
}

test_case draw(buffers *buf, random_source *random, const subject &s, uint64_t limit) {
    test_case c = {};
    c.gemm.m = random_size(random, limit);
    c.gemm.n = random_size(random, limit);
    c.gemm.k = random_size(random, limit);
    draw_groups(&c, random);
    draw_strides(&c.gemm, random, s.any_alignment);
    c.gemm.d_is_f32 = s.f32 && random->below(3) == 0;
    c.gemm.b_scales_packed = random->below(2);
    c.any_code = random->below(2);
    draw_contents(&c, buf, random, s.any_alignment);
    return c;
}

void print_case(const char *name, const test_case &c) {
    const fq_cuda_gemm &g = c.gemm;
    printf("%s: m %lu n %lu k %lu grouping %d strides %lu %lu %lu %lu f32 %d packed %d rows", name,
           g.m, g.n, g.k, (int)g.grouping, g.a_stride, g.b_stride, g.d_stride, g.a_scales_stride,
           g.d_is_f32, g.b_scales_packed);
    for (uint32_t rows : c.group_rows)
        printf(" %u", rows);
    printf("\n");
}

// A copy of D's bytes after one run over poison.
std::vector<uint8_t> run(const fq_cuda_gemm &g, const subject &s) {
    std::vector<uint8_t> out(g.m * g.d_stride * (g.d_is_f32 ? 4 : 2));
    CUDA_CHECK(cudaMemset(g.d, 0xFF, out.size()));
    fq_error err = {};
    const fq_status status = s.is_instance ? fq_cuda_gemm_sm90_launch(&g, &s.choice, 0, &err)
                                           : fq_cuda_gemm_enqueue(&g, s.rung, 0, &err);
    if (status != FQ_OK) {
        fprintf(stderr, "%s: %s\n", s.name, err.text);
        exit(3);
    }
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaMemcpy(out.data(), g.d, out.size(), cudaMemcpyDeviceToHost));
    return out;
}

verdict judge(buffers *buf, const fq_cuda_gemm &g, bool tensor_cores) {
    const double promotions = (double)((g.k + 127) / 128 + 3) * 0x1p-24;
    const double c = promotions + (tensor_cores ? TENSOR_CORE_C : 128 * 0x1p-24);
    double *y = (double *)buf->y.take(g.m * g.n * 8);
    double *magnitude = (double *)buf->magnitude.take(g.m * g.n * 8);
    multiply_fp64<<<2048, 256>>>(g, y, magnitude);
    verdict out = {0, ~0ull, 0, 0, 0, 0};
    verdict *v = (verdict *)buf->verdicts.take(sizeof out);
    CUDA_CHECK(cudaMemcpy(v, &out, sizeof out, cudaMemcpyHostToDevice));
    compare<<<512, 256>>>(g, y, magnitude, c, v);
    CUDA_CHECK(cudaMemcpy(&out, v, sizeof out, cudaMemcpyDeviceToHost));
    return out;
}

// The greatest of all cases.
struct extremes {
    double c, bf16, f32;
};

bool try_case(buffers *buf, const test_case &c, const subject &s, extremes *worst) {
    const fq_cuda_gemm &g = c.gemm;
    const std::vector<uint8_t> first = run(g, s), second = run(g, s);
    const verdict v = judge(buf, g, s.rung != FQ_CUDA_GEMM_SIMPLE);
    const bool same = first == second;
    const bool intact = buf->a.intact() && buf->b.intact() && buf->d.intact() &&
                        buf->a_scales.intact() && buf->b_scales.intact() &&
                        buf->group_rows.intact();
    const double error = v.norm > 0 ? sqrt(v.error / v.norm) : 0;
    const bool is_typical = !c.any_code && v.n >= NORM_MIN_ELEMENTS;
    const bool near = !is_typical || error <= (g.d_is_f32 ? NORM_F32 : NORM_BF16);
    worst->c = fmax(worst->c, v.worst);
    if (is_typical)
        (g.d_is_f32 ? worst->f32 : worst->bf16) =
            fmax(g.d_is_f32 ? worst->f32 : worst->bf16, error);
    if (v.n_bad == 0 && same && intact && near)
        return true;
    print_case(s.name, c);
    printf("    %llu bad, first at row %llu col %llu; c %.3g; same %d intact %d error %.3g\n",
           v.n_bad, v.first / g.d_stride, v.first % g.d_stride, v.worst, same, intact, error);
    return false;
}

bool find_subject(subject *out, const char *name) {
    *out = {name, FQ_CUDA_GEMM_AUTO, false, {}, false, true};
    if (strcmp(name, "auto") == 0)
        return true;
    if (strcmp(name, "simple") == 0 || strcmp(name, "mma") == 0) {
        out->rung = name[0] == 's' ? FQ_CUDA_GEMM_SIMPLE : FQ_CUDA_GEMM_MMA;
        out->any_alignment = true;
        return true;
    }
    out->is_instance = true;
    out->f32 =
        gemm_instance(&out->choice, (uint32_t)atoi(name)) && gemm_instance_has_f32(&out->choice);
    return gemm_instance(&out->choice, (uint32_t)atoi(name));
}

} // namespace

int main(int argc, char **argv) {
    enum { MAX_PRINTED = 5, DEFAULT_LIMIT = 1100 };
    if (argc == 2 && strcmp(argv[1], "count") == 0) {
        uint32_t n = 0;
        for (fq_cuda_gemm_choice choice; gemm_instance(&choice, n);)
            n++;
        printf("%u\n", n);
        return 0;
    }
    subject s;
    if (argc < 4 || !find_subject(&s, argv[1]))
        return 2;
    int n_devices = 0;
    if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices == 0)
        return 77;
    random_source random = {hash64((uint64_t)atoll(argv[2]))};
    const int count = atoi(argv[3]);
    const uint64_t limit = argc > 4 ? (uint64_t)atoll(argv[4]) : DEFAULT_LIMIT;
    static buffers buf;
    extremes worst = {};
    int n_failed = 0;
    for (int i = 0; i < count && n_failed < MAX_PRINTED; i++)
        n_failed += !try_case(&buf, draw(&buf, &random, s, limit), s, &worst);
    printf("%-10s %d cases, %d failed; c %.3g, error bf16 %.3g f32 %.3g\n", s.name, count, n_failed,
           worst.c, worst.bf16, worst.f32);
    return n_failed != 0;
}
