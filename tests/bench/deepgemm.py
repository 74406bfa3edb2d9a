"""The FP8 GEMM against DeepGEMM's: both in this process, on the same operands, timed alike.

    python3 tests/bench/deepgemm.py build/release/tests/gpu/libtest_gemm_library.so --deepgemm PATH

PATH is where DeepGEMM can be imported from; needs torch and a Hopper GPU. Two times for each row:
of the kernel alone by torch's profiler, with the L2 flushed before each launch, and in a CUDA graph
whose launches take turns on so many operands that L2 does not keep them. Means of two medians. The
rows are those of docs/performance.md. Results are compared, too.
"""

import argparse
import ctypes
import json
import math
import statistics
import sys
import time

BLOCK = 128
WEIGHTS = [(2112, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048)]
WEIGHTS += [(8192, 8192)]
LAYERS = [(4096, 7168), (7168, 2048), (6144, 7168), (7168, 3072)]
ROWS = {
    "dense": [(1, m, n, k) for m in (1, 64, 128, 512, 2048, 4096, 8192) for n, k in WEIGHTS],
    "contiguous": [(*groups, n, k) for groups in ((4, 8192), (8, 4096)) for n, k in LAYERS],
    "masked": [(*groups, n, k) for groups in ((1, 1024), (2, 512), (4, 256)) for n, k in LAYERS[:2]]
    + [(32, 192, n, k) for n, k in LAYERS[2:]],
}
GROUPING = {"dense": 0, "contiguous": 1, "masked": 2}  # fq_cuda_gemm_grouping
KERNELS = {"deepgemm": "fp8_gemm", "fp8q": "multiply_"}  # in the names that the profiler gives
FLUSH_BYTES = 1 << 30
ROTATED_BYTES = 400 << 20  # of operands, several times what L2 holds


class Library:
    """Ours, behind tests/gpu/gemm_library.c."""

    def __init__(self, torch, path):
        self.torch = torch
        self.multiply_ = ctypes.CDLL(path).fq_test_multiply
        u64, u32, pointer = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p
        self.multiply_.argtypes = [u64, u64, u64, pointer, pointer, pointer, pointer, u64, pointer]
        self.multiply_.argtypes += [ctypes.c_int, u32, u64, pointer, pointer, pointer, u64]

    def multiply(self, product):
        """Enqueues it into torch's stream."""
        p, why = product, ctypes.create_string_buffer(256)
        status = self.multiply_(
            *(p.a_rows, p.n, p.k, p.a.data_ptr(), p.b.data_ptr(), p.ours.data_ptr()),
            *(p.a_scales.data_ptr(), p.a_scales.stride(0), p.b_scales.data_ptr()),
            *(GROUPING[p.kind], p.groups, p.slot),
            None if p.kind == "dense" else p.group_rows.data_ptr(),
            *(self.torch.cuda.current_stream().cuda_stream, why, len(why)),
        )
        if status != 0:
            sys.exit(f"fp8q: {why.value.decode()}")


class Product:
    """Operands as both take them: groups times rows of A, each group with a B of its own."""

    def __init__(self, torch, kind, shape):
        self.kind, (self.groups, self.rows, self.n, self.k) = kind, shape
        self.slot = -(-self.rows // 256) * 256 if kind == "masked" else 0
        self.a_rows = self.groups * (self.slot or self.rows)
        self.a = self.codes(torch, self.a_rows, self.k)
        self.b = self.codes(torch, self.groups, self.n, self.k)
        blocks, aligned = -(-self.k // BLOCK), -(-self.a_rows // 4) * 4
        self.a_scales = (torch.rand(blocks, aligned, device="cuda") + 0.5) / 100
        b_scales = torch.rand(self.groups, -(-self.n // BLOCK), blocks, device="cuda")
        self.b_scales = (b_scales + 0.5) / 100
        self.theirs, self.ours = (
            torch.zeros(self.a_rows, self.n, device="cuda", dtype=torch.bfloat16) for _ in "12"
        )
        counts = torch.full((self.groups,), self.rows, device="cuda", dtype=torch.int32)
        self.group_rows = counts.cumsum(0, dtype=torch.int32) if kind == "contiguous" else counts
        self.group_of_row = torch.arange(self.groups, device="cuda", dtype=torch.int32)
        self.group_of_row = self.group_of_row.repeat_interleave(self.rows)
        if kind == "masked":  # theirs lie group by group
            by_group = self.a_scales.view(blocks, self.groups, self.slot).permute(1, 0, 2)
            # A view of one group would have strides for which DeepGEMM copies them in each launch.
            by_group = by_group.clone(memory_format=torch.contiguous_format)
            self.grouped_scales = by_group.permute(0, 2, 1)

    @staticmethod
    def codes(torch, *shape):
        """Values as weights and activations have them: random bytes would cost other power."""
        values = torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * 140
        return values.clamp(-448, 448).to(torch.float8_e4m3fn)

    def nbytes(self):
        """Of what a launch reads and writes."""
        return self.a.numel() + self.b.numel() + 2 * self.ours.numel()

    def operations(self):
        """Of the product, a multiplication and an addition each."""
        return 2 * self.groups * self.rows * self.n * self.k

    def deepgemm(self, deep_gemm):
        """Their launch."""
        a = self.a, self.a_scales.t()[: self.a_rows]
        if self.kind == "dense":
            deep_gemm.fp8_gemm_nt(a, (self.b[0], self.b_scales[0]), self.theirs)
        elif self.kind == "contiguous":
            b = self.b, self.b_scales
            deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, self.theirs, self.group_of_row)
        else:
            self.deepgemm_masked(deep_gemm)

    def deepgemm_masked(self, deep_gemm):
        """Their groups are a dimension."""
        a = self.a.view(self.groups, self.slot, self.k), self.grouped_scales
        d = self.theirs.view(self.groups, self.slot, self.n)
        b = self.b, self.b_scales
        deep_gemm.m_grouped_fp8_gemm_nt_masked(a, b, d, self.group_rows, self.rows)


def flushed_us(torch, launch, kernel, flush):
    """Microseconds of the kernel whose name holds this, L2 full of something else."""
    launch()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(12):
            flush.zero_()
            launch()
        torch.cuda.synchronize()
    times = [event.device_time for event in profile.events() if kernel in event.name]
    if not times:
        sys.exit(f"the profiler saw no kernel with {kernel} in its name")
    return statistics.median(times)


def graphed_us(torch, launches, estimate_us):
    """Microseconds from one launch to the next, each on the next one of the sets of operands."""
    n_nodes = max(len(launches), min(100, int(2000 / estimate_us)))  # 2 ms of them, or so
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for node in range(n_nodes):
            launches[node % len(launches)]()
    graph.replay()
    replays, times = max(1, int(3000 / (estimate_us * n_nodes))), []  # 3 ms
    for _ in range(5):
        torch.cuda.synchronize()
        time.sleep(0.002)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in "12")
        begin.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / replays / n_nodes)
    return statistics.median(times)


def measure(torch, deep_gemm, library, flush, kind, shape):
    """One row: times of both, and how many elements of D differ."""
    products = [Product(torch, kind, shape)]
    n_sets = max(2, min(16, ROTATED_BYTES // products[0].nbytes()))
    products += [Product(torch, kind, shape) for _ in range(n_sets - 1)]
    launch_of = {"deepgemm": lambda p: p.deepgemm(deep_gemm), "fp8q": library.multiply}
    row = {"kind": kind, "shape": shape, "operations": products[0].operations()}
    estimate_us = max(8, row["operations"] / 1.2e9)
    # Who comes later finds a warmer GPU: so one comes first and last, and the other twice between.
    for name in ("deepgemm", "fp8q", "fp8q", "deepgemm"):
        launches = [lambda p=p, launch=launch_of[name]: launch(p) for p in products]
        for each in launches:
            each()
        times = row.setdefault(name, {"flushed_us": 0, "graphed_us": 0})
        times["flushed_us"] += flushed_us(torch, launches[0], KERNELS[name], flush) / 2
        times["graphed_us"] += graphed_us(torch, launches, estimate_us) / 2
    bits = [d.view(torch.int16) for d in (products[0].theirs, products[0].ours)]
    row["differing"] = int((bits[0] != bits[1]).sum())
    return row


def ratio(row, how):
    """Our speed as a multiple of theirs."""
    return row["deepgemm"][how] / row["fp8q"][how]


def print_row(row):
    """Both times, TFLOPS and ratios."""
    text = f"{row['kind']:10} {'x'.join(map(str, row['shape'])):20}"
    for how in ("flushed_us", "graphed_us"):
        ours = row["fp8q"][how]
        text += f" | {row['deepgemm'][how]:7.1f} {ours:7.1f} us"
        text += f" {row['operations'] / ours / 1e6:5.0f} TFLOPS {ratio(row, how):.3f}"
    print(text + f" | differ {row['differing']}", flush=True)


def print_means(rows):
    """The geometric mean and the least ratio of each kind."""
    for kind in ROWS:
        for how in ("flushed_us", "graphed_us"):
            ratios = [ratio(row, how) for row in rows if row["kind"] == kind]
            if ratios:
                mean = math.exp(statistics.fmean(map(math.log, ratios)))
                print(f"{kind:10} {how:10} {len(ratios):2} rows: {mean:.3f}, least", end=" ")
                print(f"{min(ratios):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", help="libtest_gemm_library.so of a build")
    parser.add_argument("--deepgemm", required=True, help="folder that holds the package deep_gemm")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--seconds", type=float, default=300.0, help="no row begins after that")
    parser.add_argument("--json", help="write the rows there")
    options = parser.parse_args()
    try:
        sys.path.insert(0, options.deepgemm)
        import deep_gemm
        import torch
        import torch.profiler
    except (ImportError, AssertionError) as error:  # deep_gemm asserts that there is an nvcc
        sys.exit(f"skipped: {error}")
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9:
        sys.exit("skipped: needs a Hopper GPU")
    torch.manual_seed(0)
    library, rows = Library(torch, options.library), []
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    deadline = time.monotonic() + options.seconds
    print("kind, groups x rows x N x K     | L2 flushed: DeepGEMM, fp8q, ratio | in a graph: alike")
    for kind in options.rows:
        for shape in ROWS[kind]:
            if time.monotonic() < deadline:
                rows.append(measure(torch, deep_gemm, library, flush, kind, shape))
                print_row(rows[-1])
    print_means(rows)
    if options.json:
        with open(options.json, "w", encoding="ascii") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
