// Activations quantized on the GPU, against the scalar codecs of lib/fp8.h: every code and scale
// bit for bit, for ragged shapes, odd strides, and values of every exponent.
#include "kernels/cuda/gemm/gemm.h"
#include "lib/fp8.h"
#include "tests/gpu/gemm_case.cuh"

#include <math.h>
#include <vector>

namespace {

struct random_source {
    uint64_t state;
    uint64_t below(uint64_t n) { return hash64(state++) % n; }
};

// Rows of BF16 whose blocks have their own magnitude, with zeros and equal values among them.
std::vector<uint16_t> draw_source(random_source *random, uint64_t m, uint64_t k, uint64_t stride) {
    std::vector<uint16_t> out(m * stride,
                              0xFFFF); // between the rows: NaN, not to be read as values
    for (uint64_t row = 0; row < m; row++)
        for (uint64_t k0 = 0; k0 < k; k0 += 128) {
            const uint32_t kind = (uint32_t)random->below(8);
            const uint32_t exponent =
                (uint32_t)random->below(kind == 0 ? 255 : 40) + (kind == 0 ? 0 : 100);
            for (uint64_t col = k0; col < k && col < k0 + 128; col++) {
                const uint32_t bits = (uint32_t)random->below(1 << 16);
                const uint32_t below = (uint32_t)random->below(12);
                const uint32_t e = exponent > below ? exponent - below : 0;
                out[row * stride + col] =
                    kind == 1
                        ? (uint16_t)(bits & 0x8000) // ±0
                        : (uint16_t)((bits & 0x8000) | e << 7 | (kind == 2 ? 0 : bits & 0x7F));
            }
        }
    return out;
}

bool try_case(random_source *random, guarded (&memory)[3]) {
    const uint64_t m = 1 + random->below(70), k = 1 + random->below(700);
    fq_cuda_activations x = {};
    x.m = m, x.k = k;
    x.source_stride = random->below(2) ? (k + 7) / 8 * 8 : k + random->below(5);
    x.codes_stride = random->below(2) ? (k + 15) / 16 * 16 : k + random->below(5);
    x.scales_stride = m + random->below(6);
    x.pow2_scales = random->below(2);
    x.amax_floor = random->below(2) ? FQ_DEFAULT_AMAX_FLOOR : 0.0f;
    const uint64_t n_k_blocks = (k + 127) / 128;
    const std::vector<uint16_t> source = draw_source(random, m, k, x.source_stride);
    std::vector<uint8_t> codes(m * x.codes_stride), expected_codes(codes.size(), 0xA5);
    std::vector<float> scales(n_k_blocks * x.scales_stride), expected_scales(scales.size());
    memset(expected_scales.data(), 0xA5, expected_scales.size() * sizeof(float));
    for (uint64_t row = 0; row < m; row++)
        for (uint64_t block = 0; block < n_k_blocks; block++) {
            const uint64_t end = block * 128 + 128 < k ? block * 128 + 128 : k;
            float amax = 0.0f;
            for (uint64_t col = block * 128; col < end; col++)
                amax = fmaxf(amax, fabsf(fq_f32_of_bf16(source[row * x.source_stride + col])));
            const float scale = fq_scale_of_amax(amax, x.amax_floor, x.pow2_scales);
            expected_scales[block * x.scales_stride + row] = scale;
            for (uint64_t col = block * 128; col < end; col++)
                expected_codes[row * x.codes_stride + col] =
                    fq_e4m3_of_f32_sat(fq_f32_of_bf16(source[row * x.source_stride + col]) / scale);
        }
    x.source = memory[0].take(source.size() * 2);
    x.codes = (uint8_t *)memory[1].take(codes.size());
    x.scales = (float *)memory[2].take(scales.size() * sizeof(float));
    CUDA_CHECK(
        cudaMemcpy((void *)x.source, source.data(), source.size() * 2, cudaMemcpyHostToDevice));
    fq_error err = {};
    if (fq_cuda_activations_enqueue(&x, 0, &err) != FQ_OK) {
        fprintf(stderr, "%s\n", err.text);
        return false;
    }
    CUDA_CHECK(cudaMemcpy(codes.data(), x.codes, codes.size(), cudaMemcpyDeviceToHost));
    CUDA_CHECK(cudaMemcpy(scales.data(), x.scales, scales.size() * 4, cudaMemcpyDeviceToHost));
    const bool same = codes == expected_codes && memcmp(scales.data(), expected_scales.data(),
                                                        scales.size() * sizeof(float)) == 0;
    const bool intact = memory[0].intact() && memory[1].intact() && memory[2].intact();
    if (!same || !intact)
        printf("m %lu k %lu strides %lu %lu pow2 %d floor %g: same %d intact %d\n", m, k,
               x.source_stride, x.codes_stride, x.pow2_scales, x.amax_floor, same, intact);
    return same && intact;
}

} // namespace

int main(int argc, char **argv) {
    random_source random = {hash64(argc > 1 ? (uint64_t)atoll(argv[1]) : 1)};
    const int count = argc > 2 ? atoi(argv[2]) : 300;
    int n_devices = 0, n_failed = 0;
    if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices == 0)
        return 77;
    static guarded memory[3];
    for (int i = 0; i < count; i++)
        n_failed += !try_case(&random, memory);
    printf("%d cases, %d failed\n", count, n_failed);
    return n_failed != 0;
}
