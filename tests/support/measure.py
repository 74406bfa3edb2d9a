"""Measures processes, and makes large models quickly: for the benchmarks and the memory tests."""

import math
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from support import codec, tensors, tool

GIB = 1 << 30
MIB = 1 << 20
SAMPLE_SECONDS = 0.002
TILE_COLS = 8192  # of the random matrix that every tensor repeats: 1 MiB in 64 rows


class Run(NamedTuple):
    """What one process took: wall seconds and its peak resident bytes."""

    seconds: float
    peak: int


def high_water(pid):
    """The peak resident bytes so far of a process that lives; 0 once it has ended.

    wait4 would tell it at the end, but counts the interpreter that the process was forked from.
    """
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            line = next((line for line in file if line.startswith("VmHWM:")), "VmHWM: 0")
    except OSError:
        return 0
    return int(line.split()[1]) * 1024


def measure(*args, codes=(0,), limit=math.inf):
    """Runs a command that must end with one of these exit codes, within so many seconds."""
    start, peak = time.monotonic(), 0
    with tempfile.TemporaryFile() as messages:
        process = subprocess.Popen(
            list(map(str, args)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=messages,
        )
        while process.poll() is None:
            peak = max(peak, high_water(process.pid))
            time.sleep(SAMPLE_SECONDS)
            if time.monotonic() - start > limit:
                process.kill()
                process.wait()
                raise TimeoutError(f"over {limit:.0f} s: {' '.join(map(str, args))}")
        seconds = time.monotonic() - start
        if process.returncode not in codes:
            messages.seek(0)
            text = messages.read().decode("utf-8", "replace")
            raise RuntimeError(f"exit {process.returncode}: {' '.join(map(str, args))}\n{text}")
    return Run(seconds, peak)


def fp8q(*args, codes=(0,), limit=math.inf):
    """Runs the program with these arguments, quietly."""
    return measure(tool.PROGRAM, *args, "--quiet", codes=codes, limit=limit)


def median(runs):
    """The median seconds of several runs."""
    return statistics.median(run.seconds for run in runs)


def random_rows():
    """64 rows of Gaussian BF16 weights, as bytes."""
    source = random.Random(1)
    values = (source.gauss(0, 0.02) for _ in range(64 * TILE_COLS))
    return b"".join(codec.bf16_bits(value).to_bytes(2, "little") for value in values)


def write_model(folder, nbytes, n_shards=4):
    """Writes a folder of about nbytes of random BF16 weights [4096, 8192] in n_shards files."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    rows = random_rows()
    per_shard = max(nbytes // n_shards // (64 * MIB), 1)
    for shard in range(n_shards):
        names = [f"model.layers.{shard}.mlp.experts.{i}.down_proj.weight" for i in range(per_shard)]
        shapes = dict.fromkeys(names, ("BF16", (4096, TILE_COLS)))
        name = f"model-{shard + 1:05}-of-{n_shards:05}.safetensors"
        with open(folder / name, "wb") as file:
            file.write(tensors.header_bytes(shapes))
            for _ in range(64 * per_shard):
                file.write(rows)
    (folder / "config.json").write_text("{}\n", encoding="ascii")
    return folder


def room(folder):
    """Bytes that may be written to a folder: free space, and for memory file systems memory."""
    free = shutil.disk_usage(folder).free
    if str(folder).startswith("/dev/shm"):
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":") for line in file)
        free = min(free, int(fields["MemAvailable"].split()[0]) * 1024 - GIB)
    return free


@contextmanager
def scratch(*candidates, needed):
    """A folder in the first of candidates that has room for `needed` bytes; gone afterwards.

    Gives None where none has. SIGTERM removes it too.
    """
    parent = next(
        (path for path in candidates if os.path.isdir(path) and room(path) > needed), None
    )
    if parent is None:
        yield None
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="fp8q-bench-", dir=parent) as folder:
        yield Path(folder)
