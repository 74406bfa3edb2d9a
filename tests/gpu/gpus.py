"""Several GPUs: they write and find what the CPU does, and how long one, two and all of them take.

Whole processes on a model in a memory file system, where files are no limit; runs of the devices
take turns. Exits with 77 where there is only one GPU, with 1 where bytes or reports differ.
"""

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import threading
import time

from support import measure, tool

FLOWS = ("convert", "verify", "dequant")
SMALL = 10 << 20
ROUNDS = 5  # of what takes less than a second


def count_gpus(folder):
    """How many GPUs fp8q finds."""
    probe = measure.write_model(folder / "probe", measure.MIB, n_shards=1)
    n_gpus = 0
    while tool.run("convert", probe, "-n", "--device", f"cuda:{n_gpus}").code == 0:
        n_gpus += 1
    return n_gpus


class Bench:
    """The model, what the CPU makes of it, and the runs of fp8q."""

    def __init__(self, folder, options):
        self.folder, self.options = folder, options
        self.failed = False
        self.report = None  # of verify on the CPU

    def path(self, name):
        return self.folder / name

    def run(self, flow, device, threads):
        """Seconds of one run."""
        line = {
            "convert": ("in", "--output", self.path("fp8.new")),
            "verify": ("fp8", "--reference", self.path("in"), "--no-gemm"),
            "dequant": ("fp8", "--output", self.path("bf16.new")),
        }[flow]
        line = [flow, self.path(line[0]), *line[1:], "--device", device]
        line += ["--threads", threads] if threads else []
        return measure.fp8q(*line).seconds

    def verdict(self, device):
        """The report of verify, but for what is the device's own."""
        line = ("verify", self.path("fp8"), "--reference", self.path("in"), "--no-gemm", "--json")
        report = tool.run(*line, "--device", device).json()
        for mine in ("device", "device_name"):
            del report[mine]
        del report["summary"]["seconds"]
        return report

    def remove_outputs(self):
        for name in ("fp8.new", "bf16.new"):
            subprocess.run(["rm", "-rf", self.path(name)], check=True)

    def make_reference(self):
        """The model, and the CPU's outputs, which all others must equal."""
        size = int(self.options.gib * measure.GIB)
        measure.write_model(self.path("in"), size, n_shards=self.options.shards)
        for flow, name in (("convert", "fp8"), ("dequant", "bf16")):
            self.run(flow, "cpu", None)
            self.path(f"{name}.new").rename(self.path(name))
        self.report = self.verdict("cpu")

    def compare(self, device):
        """A line on whether the device's bytes and report are the CPU's."""
        wrong = [] if self.verdict(device) == self.report else ["verify"]
        for flow, name in (("convert", "fp8"), ("dequant", "bf16")):
            self.run(flow, device, None)
            line = ["diff", "-r", self.path(name), self.path(f"{name}.new")]
            if subprocess.run(line, check=False).returncode != 0:
                wrong.append(flow)
            self.remove_outputs()
        self.failed |= bool(wrong)
        print(f"{device:12} {'DIFFERS: ' + ', '.join(wrong) if wrong else 'as the CPU'}", flush=True)

    def time(self, devices, threads):
        """Lines of medians, one for each device."""
        seconds = {(device, flow): [] for device in devices for flow in FLOWS}
        for _ in range(self.options.repetitions):
            for device in devices:
                for flow in FLOWS:
                    seconds[device, flow].append(self.run(flow, device, threads))
                    self.remove_outputs()
        for device in devices:
            cells = []
            for flow in FLOWS:
                cells.append(f"{statistics.median(seconds[device, flow]):9.3f}")
            print(f"{device:12} {threads or 'default':>8} {''.join(cells)}", flush=True)

    def time_small(self, device):
        """What the start of a device costs: a small model."""
        runs = []
        for _ in range(ROUNDS):
            line = ["convert", self.path("small"), "-o", self.path("fp8.new"), "--device", device]
            runs.append(measure.fp8q(*line))
            self.remove_outputs()
        print(f"{device:12} {measure.median(runs):9.3f}", flush=True)


def context_seconds(ordinals, in_threads):
    """Makes contexts by the driver alone, in this process; gives the seconds that took."""
    start = time.monotonic()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return float("nan")
    if driver.cuInit(0) != 0:
        return float("nan")

    def retain(ordinal):
        context = ctypes.c_void_p()
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal)

    threads = [threading.Thread(target=retain, args=(ordinal,)) for ordinal in ordinals]
    for thread in threads:
        thread.start()
        if not in_threads:
            thread.join()
    for thread in threads:
        thread.join()
    return time.monotonic() - start


def print_contexts(n_gpus):
    """Contexts of one GPU and of all, in turn and side by side, each in processes of their own."""
    everyone = ",".join(map(str, range(n_gpus)))
    for ordinals, visible, how in (
        ("0", "0", "turn"),
        ("0", everyone, "turn"),
        (everyone, everyone, "turn"),
        (everyone, everyone, "threads"),
    ):
        line = [sys.executable, "-B", __file__, "--contexts", ordinals, "--how", how]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": visible}
        seconds = []
        for _ in range(ROUNDS):
            done = subprocess.run(
                line, capture_output=True, text=True, check=True, env=environment
            )
            seconds.append(float(done.stdout))
        print(
            f"GPUs {ordinals:8} of {visible:8} in {how:8} {statistics.median(seconds):9.3f}",
            flush=True,
        )


def report(folder, options):
    """All of it; True if every byte was right."""
    n_gpus = count_gpus(folder)
    if n_gpus < 2:
        print(f"SKIPPED: {n_gpus} GPU, two are needed")
        sys.exit(tool.SKIPPED)
    single = [f"cuda:{i}" for i in range(n_gpus)]
    every = ",".join(map(str, range(n_gpus)))
    bench = Bench(folder, options)
    measure.write_model(bench.path("small"), SMALL, n_shards=1)
    bench.make_reference()
    print(f"-- bytes, {n_gpus} GPUs, {options.gib:g} GiB in {options.shards} files")
    for device in (*single, f"cuda:{every}", "auto"):
        bench.compare(device)
    print(f"-- seconds, medians of {options.repetitions}: device, threads, {', '.join(FLOWS)}")
    for threads in options.threads:
        bench.time(("cpu", "cuda:0", f"cuda:{every}"), threads)
    bench.time(("auto",), None)
    print("-- seconds of convert, a model of 10 MB")
    for device in ("cpu", "cuda:0", f"cuda:{every}"):
        bench.time_small(device)
    print("-- seconds of contexts, by the driver alone")
    print_contexts(n_gpus)
    return not bench.failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=8.0, help="size of the BF16 model")
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[8, 16, os.cpu_count()])
    parser.add_argument("--dir", default="/dev/shm", help="where the models go")
    parser.add_argument("--contexts", help=argparse.SUPPRESS)  # the ordinals, in a child
    parser.add_argument("--how", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contexts:
        ordinals = [int(ordinal) for ordinal in options.contexts.split(",")]
        print(context_seconds(ordinals, options.how == "threads"))
        return
    options.threads = sorted(set(options.threads))
    with measure.scratch(options.dir, needed=int(5 * options.gib * measure.GIB)) as folder:
        if folder is None:
            print(f"SKIPPED: no room in {options.dir}")
            sys.exit(tool.SKIPPED)
        sys.exit(0 if report(folder, options) else 1)


if __name__ == "__main__":
    main()
