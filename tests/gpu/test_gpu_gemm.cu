// Every rung and every instance of the GEMM against FP64: random shapes, the bounds of
// docs/numerics.md, poisoned output, guard zones, the same bytes when run again, from a CUDA graph
// too, and in every row of D where all rows of A are equal.
//
//   test_gpu_gemm [SUBJECT [SEED [COUNT [MAX_SIZE]]]]
//
// SUBJECT: simple, mma, auto (what users get), the number of an instance, large (beyond 2^32
// elements); all of them by default. COUNT: cases, of each subject where all are meant.
#include "kernels/cuda/gemm/gemm_launch.h"
#include "tests/gpu/gemm_case.cuh"
#include "tests/gpu/gemm_instances.h"

#include <math.h>
#include <string.h>
#include <vector>

namespace {

// Tensor cores: 4 steps of 33 addends each cut off below 2^-13 of the greatest (docs/numerics.md).
const double TENSOR_CORE_C = 4 * 33 * 0x1p-13;
// What the whole result may be off, where its elements are many and their values as a model's.
const double NORM_BF16 = 1.7e-3, NORM_F32 = 2e-4, CALC_DIFF = 2e-6, ROUNDING = 1.01;
enum { NORM_MIN_ELEMENTS = 4096 };

struct buffers {
    guarded a, b, d, a_scales, b_scales, group_rows, before, y, magnitude, verdicts;

    void release() {
        for (guarded *one :
             {&a, &b, &d, &a_scales, &b_scales, &group_rows, &before, &y, &magnitude, &verdicts})
            one->release();
    }
};

// What is run: a rung, or one instance of the Hopper kernels.
struct subject {
    char name[16];
    fq_cuda_gemm_rung rung;
    bool is_instance;
    fq_cuda_gemm_choice choice;
    bool any_alignment, f32; // takes rows that begin anywhere; has FP32 output
};

const uint64_t DEFAULT_LIMIT = 1100; // of M, N and mostly K

struct random_source {
    uint64_t state;
    uint64_t below(uint64_t n) { return hash64(state++) % n; }
};

// A case: the operands, and what is random about it besides.
struct test_case {
    fq_cuda_gemm gemm;
    std::vector<uint32_t> group_rows;
    bool any_code;   // all codes alike, in place of a model's distribution
    bool equal_rows; // of A
};

uint64_t random_size(random_source *random, uint64_t limit) {
    static const uint64_t corners[] = {1,   2,   3,   7,   8,   15,  16,   17,   31,   32,  63,
                                       64,  65,  96,  97,  127, 128, 129,  131,  160,  191, 192,
                                       193, 255, 256, 257, 383, 384, 385,  509,  511,  512, 513,
                                       640, 769, 895, 896, 897, 997, 1023, 1024, 1025, 1087};
    const uint64_t n_corners = sizeof corners / sizeof *corners;
    const uint64_t value =
        random->below(3) != 0 ? corners[random->below(n_corners)] : 1 + random->below(limit);
    return value < limit ? value : limit;
}

// Every second case has so many blocks of K that a tile goes through all stages of a kernel once or
// twice, whatever the limit: those laps are other code than what comes before and after them.
uint64_t random_k(random_source *random, uint64_t limit, uint64_t i_case) {
    enum { MAX_BLOCKS = 30 };
    if (i_case % 2 == 0)
        return random_size(random, limit);
    const uint64_t n_blocks = 1 + random->below(MAX_BLOCKS);
    return n_blocks * FQ_CUDA_GEMM_BLOCK - (random->below(2) ? random->below(128) : 0);
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
        g.a_is_shared = random->below(2);
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
    g->a_scales_stride =
        round_up(gemm::count_a_rows(g), scale_step) + scale_step * random->below(2);
}

// Takes memory for the operands and fills it.
void draw_contents(test_case *c, buffers *buf, random_source *random, bool any_alignment) {
    fq_cuda_gemm &g = c->gemm;
    const uint64_t n_k_blocks = (g.k + 127) / 128, element = g.d_is_f32 ? 4 : 2;
    const uint64_t words = round_up(g.n, 4), lines = g.n_groups * ((g.k + 511) / 512);
    const uint64_t n_b_scales =
        g.b_scales_packed ? lines * words : g.n_groups * ((g.n + 127) / 128) * n_k_blocks;
    const uint64_t n_a = gemm::count_a_rows(&g) * g.a_stride, n_b = g.n_groups * g.n * g.b_stride;
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
    if (c->equal_rows) {
        repeat_row<<<256, 256>>>(a, n_a, g.a_stride);
        repeat_scale<<<64, 256>>>(a_scales, n_a_scales, g.a_scales_stride);
    }
    CUDA_CHECK(cudaMemcpy(rows, c->group_rows.data(), g.n_groups * 4, cudaMemcpyHostToDevice));
    g.a = a, g.b = b, g.a_scales = (float *)a_scales, g.b_scales = b_scales;
    g.group_rows = g.grouping == FQ_CUDA_GEMM_DENSE ? nullptr : rows;
    g.d =
        buf->d.take(g.m * g.d_stride * element, random->below(2) ? element * random->below(8) : 0);
}

// Some cases of an instance have so many tiles that each block takes several, with some left for a
// last round: it then begins tiles at any stage, and those of the last round may be cut. K is up to
// twice what the longest lap through all stages takes.
void draw_sizes(fq_cuda_gemm *g, random_source *random, bool is_instance, uint64_t limit,
                uint64_t i_case) {
    enum { OF_MANY_TILES = 16, MAX_M = 4500, MAX_N = 4000, MAX_K = 3800 };
    if (is_instance && limit >= DEFAULT_LIMIT && i_case % OF_MANY_TILES == 9) {
        g->m = MAX_M - random->below(MAX_M - 1000);
        g->n = MAX_N - random->below(MAX_N - 500);
        g->k = MAX_K - random->below(MAX_K);
        return;
    }
    g->m = random_size(random, limit);
    g->n = random_size(random, limit);
    g->k = random_k(random, limit, i_case);
}

test_case draw(buffers *buf, random_source *random, const subject &s, uint64_t limit,
               uint64_t i_case) {
    test_case c = {};
    draw_sizes(&c.gemm, random, s.is_instance, limit, i_case);
    draw_groups(&c, random);
    draw_strides(&c.gemm, random, s.any_alignment);
    c.gemm.d_is_f32 = s.f32 && random->below(3) == 0;
    c.gemm.b_scales_packed = random->below(2);
    c.any_code = random->below(2);
    c.equal_rows = c.gemm.grouping == FQ_CUDA_GEMM_DENSE && random->below(4) == 0;
    draw_contents(&c, buf, random, s.any_alignment);
    return c;
}

void print_case(const char *name, const test_case &c) {
    const fq_cuda_gemm &g = c.gemm;
    printf("%s: m %lu n %lu k %lu grouping %d shared %d strides %lu %lu %lu %lu f32 %d packed %d "
           "rows",
           name, g.m, g.n, g.k, (int)g.grouping, g.a_is_shared, g.a_stride, g.b_stride, g.d_stride,
           g.a_scales_stride, g.d_is_f32, g.b_scales_packed);
    for (uint32_t rows : c.group_rows)
        printf(" %u", rows);
    printf("\n");
}

void enqueue(const fq_cuda_gemm &g, const subject &s, cudaStream_t stream) {
    fq_error err = {};
    const fq_status status = s.is_instance ? fq_cuda_gemm_sm90_launch(&g, &s.choice, stream, &err)
                                           : fq_cuda_gemm_enqueue(&g, s.rung, stream, &err);
    if (status != FQ_OK) {
        fprintf(stderr, "%s: %s\n", s.name, err.text);
        exit(3);
    }
}

void enqueue_by_graph(const fq_cuda_gemm &g, const subject &s, cudaStream_t stream) {
    cudaGraph_t graph;
    cudaGraphExec_t instance;
    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    enqueue(g, s, stream);
    CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&instance, graph, 0));
    CUDA_CHECK(cudaGraphLaunch(instance, stream));
    CUDA_CHECK(cudaStreamSynchronize(stream));
    CUDA_CHECK(cudaGraphExecDestroy(instance));
    CUDA_CHECK(cudaGraphDestroy(graph));
}

// Multiplies over poison, twice. True if D came out the same.
bool run_twice(buffers *buf, const fq_cuda_gemm &g, const subject &s, bool by_graph) {
    static cudaStream_t stream = nullptr;
    const size_t nbytes = g.m * g.d_stride * (g.d_is_f32 ? 4 : 2);
    if (!stream)
        CUDA_CHECK(cudaStreamCreate(&stream));
    uint8_t *before = (uint8_t *)buf->before.take(nbytes);
    unsigned long long n = 0, *n_different = (unsigned long long *)buf->verdicts.take(sizeof n);
    CUDA_CHECK(cudaMemset(g.d, 0xFF, nbytes));
    CUDA_CHECK(cudaDeviceSynchronize());
    by_graph ? enqueue_by_graph(g, s, stream) : enqueue(g, s, stream);
    CUDA_CHECK(cudaMemcpyAsync(before, g.d, nbytes, cudaMemcpyDeviceToDevice, stream));
    CUDA_CHECK(cudaMemsetAsync(g.d, 0xFF, nbytes, stream));
    enqueue(g, s, stream);
    CUDA_CHECK(cudaMemsetAsync(n_different, 0, sizeof n, stream));
    count_different<<<512, 256, 0, stream>>>(before, (const uint8_t *)g.d, nbytes, n_different);
    CUDA_CHECK(cudaStreamSynchronize(stream));
    CUDA_CHECK(cudaMemcpy(&n, n_different, sizeof n, cudaMemcpyDeviceToHost));
    return n == 0;
}

// Whether all rows of D are the first one, to the bit.
bool has_equal_rows(buffers *buf, const fq_cuda_gemm &g) {
    const size_t element = g.d_is_f32 ? 4 : 2;
    unsigned long long n = 0, *n_unlike = (unsigned long long *)buf->verdicts.take(sizeof n);
    CUDA_CHECK(cudaMemset(n_unlike, 0, sizeof n));
    count_unlike<<<512, 256>>>((const uint8_t *)g.d, g.m, g.n * element, g.d_stride * element,
                               n_unlike);
    CUDA_CHECK(cudaMemcpy(&n, n_unlike, sizeof n, cudaMemcpyDeviceToHost));
    return n == 0;
}

verdict judge(buffers *buf, const fq_cuda_gemm &g, bool tensor_cores) {
    const double promotions = (double)((g.k + 127) / 128 + 3) * 0x1p-24;
    const double c = promotions + (tensor_cores ? TENSOR_CORE_C : 128 * 0x1p-24);
    double *y = (double *)buf->y.take(g.m * g.n * 8);
    double *magnitude = (double *)buf->magnitude.take(g.m * g.n * 8);
    multiply_fp64<<<2048, 256>>>(g, y, magnitude);
    verdict out = {0, ~0ull};
    verdict *v = (verdict *)buf->verdicts.take(sizeof out);
    CUDA_CHECK(cudaMemcpy(v, &out, sizeof out, cudaMemcpyHostToDevice));
    compare<<<512, 256>>>(g, y, magnitude, c, v);
    CUDA_CHECK(cudaMemcpy(&out, v, sizeof out, cudaMemcpyDeviceToHost));
    return out;
}

// The greatest of all cases of a subject.
struct extremes {
    double c, bf16, f32, calc_diff;
};

// What is asked of the whole, where it is large enough for errors to cancel as they should.
bool is_near(const verdict &v, const test_case &c, extremes *worst) {
    const double error = v.norm > 0 ? sqrt(v.error / v.norm) : 0;
    const double diff = v.norm > 0 ? v.error / (v.norm + v.norm_d) : 0;
    const bool f32 = c.gemm.d_is_f32;
    if (c.any_code || c.equal_rows || v.n < NORM_MIN_ELEMENTS)
        return true;
    double *greatest = f32 ? &worst->f32 : &worst->bf16;
    *greatest = fmax(*greatest, error);
    worst->calc_diff = fmax(worst->calc_diff, diff);
    // Few elements may round worse than that, all by themselves.
    const bool is_rounding = !f32 && v.error <= ROUNDING * ROUNDING * v.rounding;
    return (error <= (f32 ? NORM_F32 : NORM_BF16) && diff <= CALC_DIFF) || is_rounding;
}

bool try_case(buffers *buf, const test_case &c, const subject &s, bool by_graph, extremes *worst) {
    const fq_cuda_gemm &g = c.gemm;
    const bool same = run_twice(buf, g, s, by_graph);
    const bool equal = !c.equal_rows || has_equal_rows(buf, g);
    const verdict v = judge(buf, g, s.rung != FQ_CUDA_GEMM_SIMPLE);
    const bool intact = buf->a.intact() && buf->b.intact() && buf->d.intact() &&
                        buf->a_scales.intact() && buf->b_scales.intact() &&
                        buf->group_rows.intact();
    const bool near = is_near(v, c, worst);
    worst->c = fmax(worst->c, v.worst);
    if (v.n_bad == 0 && same && equal && intact && near)
        return true;
    print_case(s.name, c);
    printf("    %llu bad, first at row %llu col %llu; c %.3g; same %d equal %d intact %d near %d, "
           "error %.3g\n",
           v.n_bad, v.first / g.d_stride, v.first % g.d_stride, v.worst, same, equal, intact, near,
           v.norm > 0 ? sqrt(v.error / v.norm) : 0);
    return false;
}

subject make_subject(const char *name) {
    subject s = {};
    snprintf(s.name, sizeof s.name, "%s", name);
    s.rung = strcmp(name, "simple") == 0 ? FQ_CUDA_GEMM_SIMPLE
             : strcmp(name, "mma") == 0  ? FQ_CUDA_GEMM_MMA
                                         : FQ_CUDA_GEMM_AUTO;
    s.any_alignment = s.rung != FQ_CUDA_GEMM_AUTO;
    s.f32 = true;
    return s;
}

// The number of an instance: false past the last.
bool make_instance(subject *out, uint32_t i) {
    *out = make_subject("");
    snprintf(out->name, sizeof out->name, "%u", i);
    out->is_instance = gemm_instance(&out->choice, i);
    out->f32 = out->is_instance && gemm_instance_has_f32(&out->choice);
    return out->is_instance;
}

// ---- Runs of many cases

// What was asked for.
struct request {
    const char *subject; // or all
    uint64_t seed, count, limit;
    int n_failed; // of all
};

void try_many(request *r, const subject &s, uint64_t seed, uint64_t usual_count) {
    enum { MAX_PRINTED = 5, ONE_BY_GRAPH = 4 };
    static buffers buf;
    random_source random = {hash64(seed)};
    const uint64_t count = r->count ? r->count : usual_count;
    extremes worst = {};
    int n_failed = 0;
    for (uint64_t i = 0; i < count && n_failed < MAX_PRINTED; i++) {
        subject one = s;
        // What is chosen for any operands falls back to mma for some of them.
        one.any_alignment |= s.rung == FQ_CUDA_GEMM_AUTO && !s.is_instance && i % 4 == 3;
        const test_case c = draw(&buf, &random, one, r->limit, i);
        n_failed += !try_case(&buf, c, one, i % ONE_BY_GRAPH == 0, &worst);
    }
    printf("%-10s %5lu cases, %d failed; c %.3g, error bf16 %.3g f32 %.3g, calc_diff %.3g\n",
           s.name, count, n_failed, worst.c, worst.bf16, worst.f32, worst.calc_diff);
    fflush(stdout);
    r->n_failed += n_failed;
}

// A, B and D of more than 2^32 elements each, where the GPU has the room.
void try_large(request *r) {
    static const uint64_t shapes[][4] = {
        // m, n, k, d_stride
        {3000017, 17, 1536, 17},
        {17, 3000017, 1536, 3000017},
        {70001, 40, 96, 65536},
        {3, 8400001, 512, 8400001}, // more tiles than a grid's y has room for
    };
    const size_t headroom = (size_t)4 << 30;
    for (const uint64_t(&shape)[4] : shapes) {
        buffers buf;
        random_source random = {r->seed};
        test_case c = {};
        fq_cuda_gemm &g = c.gemm;
        size_t free_bytes = 0, all_bytes = 0;
        extremes worst = {};
        g.m = shape[0], g.n = shape[1], g.k = shape[2], g.d_stride = shape[3], g.n_groups = 1;
        g.a_stride = g.b_stride = g.k, g.a_scales_stride = round_up(g.m, 4);
        c.group_rows.assign(1, 0);
        // Buffers take half as much again, and D is there twice.
        const size_t nbytes = 3 * (g.m * g.k + g.n * g.k + g.m * g.d_stride * 4) / 2;
        CUDA_CHECK(cudaMemGetInfo(&free_bytes, &all_bytes));
        if (nbytes + headroom > free_bytes) {
            printf("large: m %lu n %lu k %lu: no room\n", g.m, g.n, g.k);
            continue;
        }
        draw_contents(&c, &buf, &random, false);
        for (const char *name : {"auto", "simple"})
            r->n_failed += !try_case(&buf, c, make_subject(name), false, &worst);
        printf("large: m %lu n %lu k %lu: c %.3g, error %.3g\n", g.m, g.n, g.k, worst.c,
               worst.bf16);
        buf.release();
    }
}

void try_instances(request *r) {
    subject s;
    for (uint32_t i = 0; make_instance(&s, i); i++)
        try_many(r, s, r->seed + 100 + i, 150);
}

// False if there is no such subject.
bool try_subjects(request *r, int capability) {
    const bool all = strcmp(r->subject, "all") == 0;
    const char first = r->subject[0];
    subject s;
    if (first >= '0' && first <= '9') {
        if (!make_instance(&s, (uint32_t)atoi(r->subject)))
            return false;
        try_many(r, s, r->seed, 150);
        return true;
    }
    bool known = all || strcmp(r->subject, "large") == 0;
    for (const char *name : {"simple", "mma", "auto"}) {
        if (!all && strcmp(r->subject, name) != 0)
            continue;
        known = true;
        if (strcmp(name, "mma") != 0 || capability >= 89)
            try_many(r, make_subject(name), r->seed, strcmp(name, "auto") == 0 ? 5000 : 500);
    }
    if (all && capability == 90)
        try_instances(r);
    // A count is asked for where time is short.
    if (strcmp(r->subject, "large") == 0 || (all && r->count == 0))
        try_large(r);
    return known;
}

} // namespace

int main(int argc, char **argv) {
    enum { SKIPPED = 77 };
    request r = {argc > 1 ? argv[1] : "all", argc > 2 ? (uint64_t)atoll(argv[2]) : 1,
                 argc > 3 ? (uint64_t)atoll(argv[3]) : 0,
                 argc > 4 ? (uint64_t)atoll(argv[4]) : DEFAULT_LIMIT, 0};
    int n_devices = 0, major = 0, minor = 0;
    if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices == 0) {
        printf("skipped: no GPU\n");
        return SKIPPED;
    }
    CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    if (!try_subjects(&r, 10 * major + minor))
        return 2;
    return r.n_failed != 0;
}
