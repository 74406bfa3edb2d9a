"""fp8q against the plain scripts that people use, with torch on the CPU or a GPU, in the same run.

`fp8q bench convert` holds fp8q against cp; this needs torch and safetensors for Python besides.
Runs take turns; what counts is the ratio of the medians of whole processes. Ends within --seconds:
where those do not suffice for all turns there are fewer, and the table says how many.
"""

import argparse
import importlib.util
import shutil
import statistics
import sys
import time
from pathlib import Path

from support import measure

HERE = Path(__file__).parent
FLOWS = {"convert": "torch_convert.py", "dequant": "torch_dequant.py"}


class Turns:
    """The runs of one flow: the script's and, after each, fp8q's on every device."""

    def __init__(self, command, folder, options):
        self.command, self.options = command, options
        self.source = folder / ("in" if command == "convert" else "there")
        self.target = folder / ("there" if command == "convert" else "back")
        self.other = folder / "other"
        self.whole, self.loop = [], []
        self.fp8q = {device: [] for device in options.device}

    def run_script(self, deadline):
        """The script, whose loop tells its own time."""
        script = HERE / FLOWS[self.command]
        line = [sys.executable, script, self.source, self.other, self.options.torch_device]
        run = measure.measure(*line, limit=deadline - time.monotonic())
        self.whole.append(run.seconds)
        self.loop.append(float((self.other / "loop_seconds").read_text(encoding="ascii")))
        shutil.rmtree(self.other)

    def run_fp8q(self, device, deadline):
        """fp8q, whose output is left for the next flow."""
        shutil.rmtree(self.target, ignore_errors=True)
        line = [self.command, self.source, "-o", self.target, "--device", device]
        line += ["--threads", self.options.threads] if self.options.threads else []
        run = measure.fp8q(*line, limit=deadline - time.monotonic())
        self.fp8q[device].append(run.seconds)

    def take(self, share, deadline):
        """Takes turns while they fit into so many seconds, two at least; the first warms caches."""
        begin, longest = time.monotonic(), 0.0
        for turn in range(self.options.repetitions + 1):
            start = time.monotonic()
            if turn > 1 and start + longest > begin + share:
                break
            self.run_script(deadline)
            for device in self.options.device:
                self.run_fp8q(device, deadline)
            longest = time.monotonic() - start  # of a warm turn, from the second on

    def print(self):
        """The script's line, and below it one for each device."""
        whole, loop = (statistics.median(times[1:]) for times in (self.whole, self.loop))
        print(
            f"{self.command:8} {FLOWS[self.command]:26} {whole:7.2f} s, its loop {loop:.2f} s,"
            f" medians of {len(self.whole) - 1}"
        )
        for device, times in self.fp8q.items():
            mine = statistics.median(times[1:])
            print(
                f"{'':8} fp8q --device {device:12} {mine:7.2f} s: {whole / mine:.1f} times as fast,"
                f" {loop / mine:.1f} times its loop",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=2.0, help="size of the BF16 model")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=300.0, help="for all of it")
    parser.add_argument("--dir", default="/dev/shm", help="where the models go")
    parser.add_argument("--device", nargs="+", default=["auto"], help="passed on to fp8q")
    parser.add_argument("--threads", type=int, help="passed on to fp8q")
    parser.add_argument("--torch-device", default="cpu", help="cpu or cuda, for the scripts")
    options = parser.parse_args()
    if not importlib.util.find_spec("torch") or not importlib.util.find_spec("safetensors"):
        sys.exit("skipped: needs torch and safetensors")
    deadline = time.monotonic() + options.seconds
    with measure.scratch(options.dir, needed=int(2.7 * options.gib * measure.GIB)) as folder:
        if folder is None:
            sys.exit(f"skipped: no room in {options.dir}")
        print(
            f"{options.gib:g} GiB of BF16 in {options.dir}, whole processes;"
            f" torch on {options.torch_device}"
        )
        measure.write_model(folder / "in", int(options.gib * measure.GIB))
        try:
            for n_left, command in zip((2, 1), FLOWS):
                turns = Turns(command, folder, options)
                turns.take((deadline - time.monotonic()) / n_left, deadline)
                turns.print()
                shutil.rmtree(turns.source)
        except TimeoutError as error:
            sys.exit(f"stopped: {error}")


if __name__ == "__main__":
    main()
