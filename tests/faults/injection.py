"""Runs fp8q with one fault: what is to go wrong (fault.h says how), and what came of it."""

import errno
import os
import random
import re
import struct
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from support import tool

SHIM = os.environ.get("FP8Q_SHIM", "")
LONG = os.environ.get("FP8Q_LONG") == "1"
SANITIZED = os.environ.get("FP8Q_SANITIZED", "")  # the sanitizers that the program is built with
SEED = 20  # of all samples, so that a run can be repeated
SECONDS = 120  # a run that takes longer hangs
REPORT = struct.Struct("=6Q")  # of fault.c
NO_ERROR = re.compile(r"fp8q: (warning: | *\d+%  )")
SANITIZER_CODE = 99  # of a run with a leak or a bad access, and of no other
SANITIZER = f"verify_asan_link_order=0:allocator_may_return_null=1:exitcode={SANITIZER_CODE}"


class Fault(NamedTuple):
    """Which call goes wrong, and how: the variables of fault.h."""

    calls: str  # comma-separated
    at: int = 0
    every: int = 0
    how: str = "fail"
    value: int = errno.EIO
    rename_flags: bool = True

    def environment(self):
        return {
            "FAULT_CALLS": self.calls,
            "FAULT_AT": str(self.at),
            "FAULT_EVERY": str(self.every),
            "FAULT_HOW": self.how,
            "FAULT_VALUE": str(self.value),
            "FAULT_NO_RENAME_FLAGS": str(int(not self.rename_flags)),
        }


class Outcome(NamedTuple):
    """What a run gave: its exit code (negative: a signal), both streams, the shim's figures."""

    code: int
    out: bytes
    err: bytes
    n_calls: int
    n_struck: int
    is_over: int
    n_left_open: int
    n_bad_closes: int
    n_resyncs: int

    @property
    def lines(self):
        """The messages that are no warnings, nor the progress of a run that takes long here."""
        lines = self.err.decode("utf-8", "replace").splitlines()
        return [line for line in lines if not NO_ERROR.match(line)]

    def brief(self):
        """A few lines for people."""
        return f"{self._replace(out=self.out[:80], err=self.err[-2000:])}"


class Process:
    """A started run; result() waits for its end. options: more of subprocess.Popen's."""

    def __init__(self, args, cwd, fault, **options):
        with tempfile.NamedTemporaryFile(dir=scratch_parent(), delete=False) as report:
            report.write(bytes(REPORT.size))
        os.chmod(report.name, 0o666)  # for runs as another user
        self.report = Path(report.name)
        sanitizer = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), SANITIZER]))
        shim = {"LD_PRELOAD": SHIM, "ASAN_OPTIONS": sanitizer, "FAULT_REPORT": report.name}
        usual = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "env": {**os.environ, **shim, **fault.environment()},
        }
        self.popen = subprocess.Popen([tool.PROGRAM, *args], cwd=cwd, **{**usual, **options})

    def result(self):
        """What the run gave; subprocess.TimeoutExpired if it hangs."""
        try:
            out, err = self.popen.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.communicate()
            raise
        finally:
            figures = REPORT.unpack(self.report.read_bytes())
            self.report.unlink()
        return Outcome(self.popen.returncode, out or b"", err or b"", *figures)


def wait_for_stop(process):
    """Waits until the run has stopped itself or ended; where it does neither, result() fails."""
    until = time.monotonic() + SECONDS
    options = os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG
    while not os.waitid(os.P_PID, process.popen.pid, options) and time.monotonic() < until:
        time.sleep(0.001)


def run(args, cwd, fault):
    """Runs the program in a folder with a fault."""
    return Process(args, cwd, fault).result()


def scratch_parent():
    """Where scratch folders go: memory, where there is some, for the thousands of fsyncs."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()


def in_parallel(function, items):
    """[function(item) for item in items], as many at a time as there are cores."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(function, items))


def places(n, most, most_long=None):
    """The calls to strike, of n: all (or so many) in the long form, else the first, the last, and a
    sample."""
    most = (most_long or n) if LONG else most
    if n <= most:
        return range(1, n + 1)
    inner = random.Random(SEED).sample(range(2, n), max(most - 2, 0))
    return sorted({1, n, *inner})


def contents(path):
    """What is at a path: the bytes of a file; of a folder {path in it: bytes, None for folders}."""
    path = Path(path)
    if not path.is_dir():
        return path.read_bytes()
    return {
        str(item.relative_to(path)): None if item.is_dir() else item.read_bytes()
        for item in sorted(path.rglob("*"))
    }
