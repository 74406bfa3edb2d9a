// Measures the GEMM: alone with L2 flushed before it, and back to back in a CUDA graph over buffers
// that together exceed L2; beside cuBLASLt in the same graph, where it is there and takes the
// shape.
//
//   bench_gemm [--json] [M,N,K ...]     without shapes: those of DeepSeek-V3's layers
#include "tests/gpu/cublaslt.h"
#include "tests/gpu/gemm_case.cuh"

#include <algorithm>
#include <string.h>
#include <unistd.h>
#include <vector>

namespace {

struct shape {
    uint64_t m, n, k;
};

const uint64_t DEFAULT_M[] = {1, 64, 128, 512, 2048, 4096, 8192};
const uint64_t DEFAULT_NK[][2] = {{2112, 7168}, {24576, 1536}, {32768, 512}, {7168, 16384},
                                  {4096, 7168}, {7168, 2048},  {8192, 8192}};

constexpr size_t FOOTPRINT = (size_t)400 << 20; // of all buffers: several times L2
constexpr size_t FLUSH_BYTES = (size_t)1 << 30;
constexpr int MAX_SETS = 24, ROUNDS = 7;
constexpr double GRAPH_US = 2000,
                 PAUSE_US = 2000; // of one graph; between two, to keep the GPU cool
constexpr uint64_t CHECKED_ROWS = 16;

// Operands of one shape, several times over.
struct operands {
    std::vector<fq_cuda_gemm> sets;
    std::vector<void *> memory;
};

void *take(operands *o, size_t nbytes) {
    void *memory = nullptr;
    CUDA_CHECK(cudaMalloc(&memory, nbytes));
    o->memory.push_back(memory);
    return memory;
}

void release(operands *o) {
    for (void *memory : o->memory)
        CUDA_CHECK(cudaFree(memory));
    *o = {};
}

fq_cuda_gemm make_set(operands *o, const shape &s, uint64_t seed) {
    const uint64_t n_k_blocks = (s.k + 127) / 128, stride = (s.k + 15) / 16 * 16;
    const uint64_t n_b_scales = ((s.n + 127) / 128) * ((n_k_blocks + 3) / 4 * 4);
    fq_cuda_gemm g = {};
    g.m = s.m, g.n = s.n, g.k = s.k, g.n_groups = 1;
    g.a_stride = g.b_stride = stride, g.d_stride = s.n;
    g.a_scales_stride = (s.m + 3) / 4 * 4;
    uint8_t *a = (uint8_t *)take(o, s.m * stride), *b = (uint8_t *)take(o, s.n * stride);
    uint32_t *a_scales = (uint32_t *)take(o, n_k_blocks * g.a_scales_stride * 4);
    uint32_t *b_scales = (uint32_t *)take(o, n_b_scales * 4); // room for cuBLASLt's padding
    fill_codes<<<2048, 256>>>(a, s.m * stride, seed, false);
    fill_codes<<<2048, 256>>>(b, s.n * stride, seed + 1, false);
    fill_scales<<<256, 256>>>(a_scales, n_k_blocks * g.a_scales_stride, seed + 2, false);
    fill_scales<<<256, 256>>>(b_scales, n_b_scales, seed + 3, false);
    g.a = a, g.b = b, g.a_scales = (float *)a_scales, g.b_scales = b_scales;
    g.d = take(o, s.m * s.n * 2);
    return g;
}

operands make_operands(const shape &s) {
    const size_t nbytes = s.m * s.k + s.n * s.k + s.m * s.n * 2;
    const int n = (int)std::min<size_t>(MAX_SETS, std::max<size_t>(2, FOOTPRINT / nbytes));
    operands o;
    for (int i = 0; i < n; i++)
        o.sets.push_back(make_set(&o, s, 1000 + 10 * i));
    CUDA_CHECK(cudaDeviceSynchronize());
    return o;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

struct timer {
    cudaStream_t stream;
    cudaEvent_t start, end;
    void *flush;

    double elapsed_us() const {
        float ms = 0;
        CUDA_CHECK(cudaEventSynchronize(end));
        CUDA_CHECK(cudaEventElapsedTime(&ms, start, end));
        return ms * 1e3;
    }
};

// Microseconds of one product in a graph of n. enqueue(set) says whether it could.
template <class F> double time_graph(const timer &t, const operands &o, int n, const F &enqueue) {
    cudaGraph_t graph;
    cudaGraphExec_t run;
    bool good = enqueue(o.sets[0]);
    CUDA_CHECK(cudaStreamSynchronize(t.stream));
    CUDA_CHECK(cudaStreamBeginCapture(t.stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < n; i++)
        good = good && enqueue(o.sets[i % o.sets.size()]);
    CUDA_CHECK(cudaStreamEndCapture(t.stream, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&run, graph, 0));
    std::vector<double> times;
    for (int round = 0; round < ROUNDS + 1 && good; round++) {
        usleep((useconds_t)PAUSE_US);
        CUDA_CHECK(cudaEventRecord(t.start, t.stream));
        CUDA_CHECK(cudaGraphLaunch(run, t.stream));
        CUDA_CHECK(cudaEventRecord(t.end, t.stream));
        const double us = t.elapsed_us() / n;
        if (round > 0) // the first uploads the graph
            times.push_back(us);
    }
    CUDA_CHECK(cudaGraphExecDestroy(run));
    CUDA_CHECK(cudaGraphDestroy(graph));
    return good ? median(times) : 0;
}

// Microseconds of one product alone, after a write over more than L2.
template <class F> double time_single(const timer &t, const operands &o, const F &enqueue) {
    std::vector<double> times;
    for (int round = 0; round < ROUNDS; round++) {
        CUDA_CHECK(cudaMemsetAsync(t.flush, round, FLUSH_BYTES, t.stream));
        CUDA_CHECK(cudaEventRecord(t.start, t.stream));
        if (!enqueue(o.sets[round % o.sets.size()]))
            return 0;
        CUDA_CHECK(cudaEventRecord(t.end, t.stream));
        times.push_back(t.elapsed_us());
    }
    return median(times);
}

// The relative error in the norm of the first rows, against FP64.
double measure_error(const fq_cuda_gemm &set) {
    fq_cuda_gemm g = set;
    g.m = std::min(g.m, CHECKED_ROWS);
    double *y = nullptr, *magnitude = nullptr;
    verdict host = {0, ~0ull}, *v = nullptr;
    CUDA_CHECK(cudaMalloc(&y, g.m * g.n * 8));
    CUDA_CHECK(cudaMalloc(&magnitude, g.m * g.n * 8));
    CUDA_CHECK(cudaMalloc(&v, sizeof *v));
    CUDA_CHECK(cudaMemcpy(v, &host, sizeof *v, cudaMemcpyHostToDevice));
    multiply_fp64<<<2048, 256>>>(g, y, magnitude);
    compare<<<512, 256>>>(g, y, magnitude, 1, v);
    CUDA_CHECK(cudaMemcpy(&host, v, sizeof *v, cudaMemcpyDeviceToHost));
    CUDA_CHECK(cudaFree(y));
    CUDA_CHECK(cudaFree(magnitude));
    CUDA_CHECK(cudaFree(v));
    return sqrt(host.error / host.norm);
}

struct result {
    shape s;
    char kernel[64];
    double single_us, graph_us, cublaslt_us; // 0: cuBLASLt does not take it
    double tflops, gb_per_s, error;
};

result measure(const timer &t, const shape &s, cublaslt *lt) {
    operands o = make_operands(s);
    result r = {};
    fq_error err = {};
    const auto enqueue = [&](const fq_cuda_gemm &g) {
        return fq_cuda_gemm_enqueue(&g, FQ_CUDA_GEMM_AUTO, t.stream, &err) == FQ_OK;
    };
    const auto enqueue_lt = [&](const fq_cuda_gemm &g) {
        return cublaslt_enqueue(lt, &g, t.stream);
    };
    r.s = s;
    if (fq_cuda_gemm_describe(r.kernel, sizeof r.kernel, &o.sets[0], FQ_CUDA_GEMM_AUTO, &err) ==
        FQ_OK)
        r.single_us = time_single(t, o, enqueue);
    if (r.single_us == 0) {
        fprintf(stderr, "bench_gemm: %s\n", err.text);
        exit(1);
    }
    const int n =
        (int)std::max<double>((double)o.sets.size(), std::min(200.0, GRAPH_US / r.single_us));
    r.graph_us = time_graph(t, o, n, enqueue);
    r.error = measure_error(o.sets[0]);
    if (lt && cublaslt_plan(lt, &o.sets[0]))
        r.cublaslt_us = time_graph(t, o, n, enqueue_lt);
    r.tflops = 2.0 * s.m * s.n * s.k / r.graph_us / 1e6;
    r.gb_per_s = (double)(s.m * s.k + s.n * s.k + s.m * s.n * 2) / r.graph_us / 1e3;
    release(&o);
    return r;
}

void print(const result &r, bool json) {
    if (json)
        printf("{\"m\": %lu, \"n\": %lu, \"k\": %lu, \"kernel\": \"%s\", \"single_us\": %.2f, "
               "\"graph_us\": %.2f, \"cublaslt_us\": %.2f, \"tflops\": %.1f, \"gb_per_s\": %.0f, "
               "\"error\": %.3e}\n",
               r.s.m, r.s.n, r.s.k, r.kernel, r.single_us, r.graph_us, r.cublaslt_us, r.tflops,
               r.gb_per_s, r.error);
    else
        printf("%6lu %6lu %6lu  %-28s %9.1f %9.1f %8.0f %7.0f %9.1f %6.2f  %.2e\n", r.s.m, r.s.n,
               r.s.k, r.kernel, r.single_us, r.graph_us, r.tflops, r.gb_per_s, r.cublaslt_us,
               r.cublaslt_us / r.graph_us, r.error);
    fflush(stdout);
}

} // namespace

int main(int argc, char **argv) {
    bool json = false;
    std::vector<shape> shapes;
    for (int i = 1; i < argc; i++) {
        shape s;
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else if (sscanf(argv[i], "%lu,%lu,%lu", &s.m, &s.n, &s.k) == 3 && s.m && s.n && s.k) {
            shapes.push_back(s);
        } else {
            fprintf(stderr, "usage: bench_gemm [--json] [M,N,K ...]\n");
            return 2;
        }
    }
    if (shapes.empty())
        for (uint64_t m : DEFAULT_M)
            for (const uint64_t(&nk)[2] : DEFAULT_NK)
                shapes.push_back({m, nk[0], nk[1]});
    timer t;
    CUDA_CHECK(cudaStreamCreate(&t.stream));
    CUDA_CHECK(cudaEventCreate(&t.start));
    CUDA_CHECK(cudaEventCreate(&t.end));
    CUDA_CHECK(cudaMalloc(&t.flush, FLUSH_BYTES));
    cublaslt *lt = cublaslt_open();
    if (!json)
        printf("     m      n      k  kernel                       single us  graph us   TFLOPS"
               "    GB/s  cublasLt  ratio  error\n");
    for (const shape &s : shapes)
        print(measure(t, s, lt), json);
    cublaslt_close(lt);
    return 0;
}
