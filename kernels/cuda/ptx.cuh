// Every line of inline PTX: single instructions that CUDA C++ has no name for, or only in headers
// that take longer to compile than the kernels.
#ifndef FQ_KERNELS_CUDA_PTX_CUH
#define FQ_KERNELS_CUDA_PTX_CUH

#include <stdint.h>

// The greater of each pair of BF16; NaN if one is NaN.
static __device__ __forceinline__ uint32_t ptx_max_bf16x2(uint32_t a, uint32_t b) {
    uint32_t out;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}

static __device__ __forceinline__ uint32_t ptx_max_f16x2(uint32_t a, uint32_t b) {
    uint32_t out;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}

// The lesser of each pair; NaN only if both are NaN.
static __device__ __forceinline__ uint32_t ptx_min_bf16x2(uint32_t a, uint32_t b) {
    uint32_t out;
    asm("min.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}

static __device__ __forceinline__ uint32_t ptx_min_f16x2(uint32_t a, uint32_t b) {
    uint32_t out;
    asm("min.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}

// The greater value; NaN if one is NaN.
static __device__ __forceinline__ float ptx_max_nan_f32(float a, float b) {
    float out;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
    return out;
}

// The value of an F16, widened: exact.
static __device__ __forceinline__ float ptx_f32_of_f16(uint16_t half) {
    float out;
    asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(half));
    return out;
}

// Two values rounded to nearest, ties to even; low in the lower half.
static __device__ __forceinline__ uint32_t ptx_bf16x2_of_f32(float low, float high) {
    uint32_t out;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}

static __device__ __forceinline__ uint32_t ptx_f16x2_of_f32(float low, float high) {
    uint32_t out;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}

#if __CUDA_ARCH__ >= 890
// Two E4M3 codes, to nearest, ties to even, cut at ±448; low in the lower byte.
static __device__ __forceinline__ uint32_t ptx_e4m3x2_of_f32(float low, float high) {
    uint16_t out;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(out) : "f"(high), "f"(low));
    return out;
}
#endif

// For the GEMM kernels. A wrapper's comment begins with the section of the PTX ISA that defines it.
namespace ptx {

// The address of shared memory as instructions take it, in this block's window.
static __device__ __forceinline__ uint32_t shared_address(const void *pointer) {
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

// ---- Threads and clusters ----

// elect.sync: true in one lane of a converged warp.
static __device__ __forceinline__ bool elect_one() {
    uint32_t elected;
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "elect.sync _|p, 0xFFFFFFFF;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}\n"
                 : "=r"(elected));
    return elected != 0;
}

// %laneid. Volatile: read anew where it is asked for, instead of kept in a register.
static __device__ __forceinline__ uint32_t lane_id() {
    uint32_t lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

// %cluster_ctarank: this block's number in its cluster.
static __device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// %clusterid: this block's cluster along x.
static __device__ __forceinline__ uint32_t cluster_index() {
    uint32_t index;
    asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(index));
    return index;
}

// barrier.cluster: all threads of all blocks of the cluster meet; memory is ordered. Those that
// have ended have arrived.
static __device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

// The same in two steps, for a thread whose writes the others do not read, but for barriers that it
// initialized.
static __device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
static __device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// mapa: the address that a shared variable has in another block of the cluster.
static __device__ __forceinline__ uint32_t map_to_rank(uint32_t address, uint32_t rank) {
    uint32_t mapped;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
    return mapped;
}

// st.async: 16 bytes into another block's shared memory, counted by a barrier there (addresses from
// map_to_rank).
static __device__ __forceinline__ void store_async(uint32_t address, float4 v, uint32_t barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
                 "[%0], {%1, %2, %3, %4}, [%5];" ::"r"(address),
                 "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier)
                 : "memory");
}

// bar.sync: `threads` threads meet at a barrier of this block (0 is __syncthreads').
static __device__ __forceinline__ void barrier_sync(uint32_t barrier, uint32_t threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// bar.arrive: the same for threads that do not wait for the others.
static __device__ __forceinline__ void barrier_arrive(uint32_t barrier, uint32_t threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// setmaxnreg: a warpgroup takes registers from the block's pool, or gives some back.
template <int REGISTERS> static __device__ __forceinline__ void registers_raise() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS> static __device__ __forceinline__ void registers_lower() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// ---- mbarrier ----

// mbarrier.init: a phase ends after `arrivals` arrivals and all announced bytes.
static __device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

// fence.mbarrier_init: initialized barriers become visible to the cluster and to TMA.
static __device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// mbarrier.arrive
static __device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// The same at a barrier of any block of the cluster (address from map_to_rank). It orders what this
// block's threads did before, but not what they wrote for other blocks: that would be
// .release.cluster, which waits for all their stores.
static __device__ __forceinline__ void mbarrier_arrive_cluster(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// mbarrier.arrive.expect_tx: arrives and announces bytes that TMA will deliver.
static __device__ __forceinline__ void mbarrier_arrive_expect(uint32_t barrier, uint32_t nbytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "r"(nbytes)
                 : "memory");
}

// mbarrier.try_wait.parity: until the phase of that parity has ended. The hint lets the hardware
// suspend the thread for long, instead of giving it back to this loop, which would take issue slots
// and power from those that work. What other threads of the block wrote before is visible then;
// with mbarrier_wait_cluster, also what other blocks sent.
#define FQ_MBARRIER_WAIT(NAME, ORDER)                                                              \
    static __device__ __forceinline__ void NAME(uint32_t barrier, uint32_t parity) {               \
        const uint32_t suspend_ns = 10000000;                                                      \
        asm volatile("{\n"                                                                         \
                     ".reg .pred done;\n"                                                          \
                     "again:\n"                                                                    \
                     "mbarrier.try_wait.parity" ORDER ".shared::cta.b64 done, [%0], %1, %2;\n"     \
                     "@!done bra again;\n"                                                         \
                     "}\n" ::"r"(barrier),                                                         \
                     "r"(parity), "r"(suspend_ns)                                                  \
                     : "memory");                                                                  \
    }
FQ_MBARRIER_WAIT(mbarrier_wait, ".acquire.cta")
FQ_MBARRIER_WAIT(mbarrier_wait_cluster, ".acquire.cluster")
#undef FQ_MBARRIER_WAIT

// mbarrier.try_wait.parity: whether the phase of that parity has ended, or ends within the moment
// that the hardware waits. The warp goes on until it uses the answer.
static __device__ __forceinline__ bool mbarrier_try_wait(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, done;\n"
                 "}\n"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return done != 0;
}

// ---- TMA: tiles between global and shared memory ----

// prefetch.tensormap
static __device__ __forceinline__ void prefetch_map(const void *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// How long L2 keeps what is loaded: the encodings that createpolicy.fractional gives for all of an
// access.
enum : uint64_t {
    L2_NORMAL = 0x1000000000000000,
    L2_EVICT_FIRST = 0x12F0000000000000,
    L2_EVICT_LAST = 0x14F0000000000000,
};

// cp.async.bulk.tensor: the box at (column, row) into this block; bytes count at
// `barrier`. What lies outside the tensor becomes zero.
static __device__ __forceinline__ void tma_load(uint32_t shared, const void *map, uint32_t barrier,
                                                int32_t column, int32_t row, uint64_t l2_policy) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared),
                 "l"(map), "r"(barrier), "r"(column), "r"(row), "l"(l2_policy)
                 : "memory");
}

// The same into all blocks of the mask, at the same addresses and barriers of each.
static __device__ __forceinline__ void tma_load_multicast(uint32_t shared, const void *map,
                                                          uint32_t barrier, int32_t column,
                                                          int32_t row, uint16_t mask,
                                                          uint64_t l2_policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(shared),
        "l"(map), "r"(barrier), "r"(column), "r"(row), "h"(mask), "l"(l2_policy)
        : "memory");
}

// cp.async.bulk.tensor: a box from shared memory; what lies outside is not written.
static __device__ __forceinline__ void tma_store(const void *map, uint32_t shared, int32_t column,
                                                 int32_t row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
        "r"(shared), "r"(column), "r"(row)
        : "memory");
}

// cp.async.bulk.commit_group
static __device__ __forceinline__ void tma_store_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// cp.async.bulk.wait_group.read: this thread's stores have read their shared memory.
static __device__ __forceinline__ void tma_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// fence.proxy.async: what this thread wrote to shared memory becomes visible to TMA.
static __device__ __forceinline__ void fence_shared_for_tma() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- Small copies and matrix fragments ----

// cp.async: 16 bytes, of which nbytes are read and the rest zero.
static __device__ __forceinline__ void copy_async_16(uint32_t shared, const void *global,
                                                     uint32_t nbytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
                 "r"(nbytes)
                 : "memory");
}

// cp.async.commit_group
static __device__ __forceinline__ void copy_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// cp.async.wait_group: all but the latest PENDING groups have arrived.
template <int PENDING> static __device__ __forceinline__ void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// ldmatrix: four 8×16-byte matrices; lane l gives the address of row l % 8 of matrix
// l / 8, and gets bytes 4 · (l % 4) .. + 3 of row l / 4 of each.
static __device__ __forceinline__ void load_matrices(uint32_t (&out)[4], uint32_t shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(shared)
                 : "memory");
}

// stmatrix: the reverse.
static __device__ __forceinline__ void store_matrices(uint32_t shared, uint32_t m0, uint32_t m1,
                                                      uint32_t m2, uint32_t m3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared),
                 "r"(m0), "r"(m1), "r"(m2), "r"(m3)
                 : "memory");
}

// mma.sync: a 16×8 tile += (16×32 of A) · (32×8 of B), E4M3, sums in FP32.
static __device__ __forceinline__ void mma_e4m3(float (&sum)[4], const uint32_t (&a)[4],
                                                uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---- WGMMA: a warpgroup's asynchronous matrix products ----

// The descriptor of a K-major operand in shared memory: rows of 128 bytes, in the 128-byte swizzle
// that TMA writes; groups of 8 rows are 1024 bytes apart and so aligned. Address and distance count
// in 16 bytes. Its upper half is always the same; adding to the lower moves the operand: 2 is 32
// columns on, 64 is 8 rows.
constexpr uint32_t DESCRIPTOR_HIGH = 1u << 30 | 1024 >> 4; // swizzle; distance of groups of 8 rows
static __device__ __forceinline__ uint32_t descriptor_low(uint32_t shared) {
    const uint32_t unused_distance = 1 << 16;
    return unused_distance | shared >> 4;
}

// wgmma.fence: registers written before may be used by the wgmma that follow.
static __device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// wgmma.commit_group
static __device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// wgmma.wait_group: all but the latest PENDING groups are done.
template <int PENDING> static __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// No instruction: keeps the compiler from moving uses of the registers across this place.
template <int N> static __device__ __forceinline__ void wgmma_hold(float (&sum)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(sum[i])::"memory");
}

// The pieces of an instruction with N/2 accumulators: their names in the text, and the operands.
#define FQ_NAMES_0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define FQ_NAMES_1 "%8, %9, %10, %11, %12, %13, %14, %15"
#define FQ_NAMES_2 "%16, %17, %18, %19, %20, %21, %22, %23"
#define FQ_NAMES_3 "%24, %25, %26, %27, %28, %29, %30, %31"
#define FQ_NAMES_4 "%32, %33, %34, %35, %36, %37, %38, %39"
#define FQ_NAMES_5 "%40, %41, %42, %43, %44, %45, %46, %47"
#define FQ_NAMES_6 "%48, %49, %50, %51, %52, %53, %54, %55"
#define FQ_NAMES_7 "%56, %57, %58, %59, %60, %61, %62, %63"
#define FQ_NAMES_8 "%64, %65, %66, %67, %68, %69, %70, %71"
#define FQ_NAMES_9 "%72, %73, %74, %75, %76, %77, %78, %79"
#define FQ_NAMES_10 "%80, %81, %82, %83, %84, %85, %86, %87"
#define FQ_NAMES_11 "%88, %89, %90, %91, %92, %93, %94, %95"
#define FQ_SUMS_8(i)                                                                               \
    "+f"(sum[i]), "+f"(sum[(i) + 1]), "+f"(sum[(i) + 2]), "+f"(sum[(i) + 3]), "+f"(sum[(i) + 4]),  \
        "+f"(sum[(i) + 5]), "+f"(sum[(i) + 6]), "+f"(sum[(i) + 7])

// wgmma.mma_async: sum (64×N, FP32) = or += (64×32 of A) · (N×32 of B)ᵀ, both E4M3 in shared
// memory. Lane l of warp w holds of rows r = 16·w + l/4 and r + 8 the columns 8·j + 2·(l%4) + {0,
// 1}, as sum[4·j + {0, 1}] and sum[4·j + {2, 3}].
template <int N> struct wgmma;

#define FQ_WGMMA(N, NAMES, A, B, ADD, ...)                                                         \
    template <> struct wgmma<N> {                                                                  \
        static __device__ __forceinline__ void multiply(float (&sum)[N / 2], uint32_t a,           \
                                                        uint32_t b, bool add) {                    \
            const uint64_t high = (uint64_t)DESCRIPTOR_HIGH << 32;                                 \
            asm volatile("{\n"                                                                     \
                         ".reg .pred add;\n"                                                       \
                         "setp.ne.b32 add, " ADD ", 0;\n"                                          \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" NAMES        \
                         "}, " A ", " B ", add, 1, 1;\n"                                           \
                         "}\n"                                                                     \
                         : __VA_ARGS__                                                             \
                         : "l"(high | a), "l"(high | b), "r"((int)add));                           \
        }                                                                                          \
    };

FQ_WGMMA(8, "%0, %1, %2, %3", "%4", "%5", "%6", "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]),
         "+f"(sum[3]))
FQ_WGMMA(16, FQ_NAMES_0, "%8", "%9", "%10", FQ_SUMS_8(0))
FQ_WGMMA(32, FQ_NAMES_0 ", " FQ_NAMES_1, "%16", "%17", "%18", FQ_SUMS_8(0), FQ_SUMS_8(8))
FQ_WGMMA(64, FQ_NAMES_0 ", " FQ_NAMES_1 ", " FQ_NAMES_2 ", " FQ_NAMES_3, "%32", "%33", "%34",
         FQ_SUMS_8(0), FQ_SUMS_8(8), FQ_SUMS_8(16), FQ_SUMS_8(24))
FQ_WGMMA(96,
         FQ_NAMES_0 ", " FQ_NAMES_1 ", " FQ_NAMES_2 ", " FQ_NAMES_3 ", " FQ_NAMES_4 ", " FQ_NAMES_5,
         "%48", "%49", "%50", FQ_SUMS_8(0), FQ_SUMS_8(8), FQ_SUMS_8(16), FQ_SUMS_8(24),
         FQ_SUMS_8(32), FQ_SUMS_8(40))
FQ_WGMMA(128,
         FQ_NAMES_0 ", " FQ_NAMES_1 ", " FQ_NAMES_2 ", " FQ_NAMES_3 ", " FQ_NAMES_4 ", " FQ_NAMES_5
                    ", " FQ_NAMES_6 ", " FQ_NAMES_7,
         "%64", "%65", "%66", FQ_SUMS_8(0), FQ_SUMS_8(8), FQ_SUMS_8(16), FQ_SUMS_8(24),
         FQ_SUMS_8(32), FQ_SUMS_8(40), FQ_SUMS_8(48), FQ_SUMS_8(56))
FQ_WGMMA(160,
         FQ_NAMES_0 ", " FQ_NAMES_1 ", " FQ_NAMES_2 ", " FQ_NAMES_3 ", " FQ_NAMES_4 ", " FQ_NAMES_5
                    ", " FQ_NAMES_6 ", " FQ_NAMES_7 ", " FQ_NAMES_8 ", " FQ_NAMES_9,
         "%80", "%81", "%82", FQ_SUMS_8(0), FQ_SUMS_8(8), FQ_SUMS_8(16), FQ_SUMS_8(24),
         FQ_SUMS_8(32), FQ_SUMS_8(40), FQ_SUMS_8(48), FQ_SUMS_8(56), FQ_SUMS_8(64), FQ_SUMS_8(72))
FQ_WGMMA(192,
         FQ_NAMES_0 ", " FQ_NAMES_1 ", " FQ_NAMES_2 ", " FQ_NAMES_3 ", " FQ_NAMES_4 ", " FQ_NAMES_5
                    ", " FQ_NAMES_6 ", " FQ_NAMES_7 ", " FQ_NAMES_8 ", " FQ_NAMES_9 ", " FQ_NAMES_10
                    ", " FQ_NAMES_11,
         "%96", "%97", "%98", FQ_SUMS_8(0), FQ_SUMS_8(8), FQ_SUMS_8(16), FQ_SUMS_8(24),
         FQ_SUMS_8(32), FQ_SUMS_8(40), FQ_SUMS_8(48), FQ_SUMS_8(56), FQ_SUMS_8(64), FQ_SUMS_8(72),
         FQ_SUMS_8(80), FQ_SUMS_8(88))

#undef FQ_WGMMA
#undef FQ_SUMS_8

} // namespace ptx

#endif
