"""How fast fp8q is against `cp`, and verify against convert, on the same machine, in the same
minutes.

The runs of the program and of its yardstick alternate; what counts is the ratio of their medians.
On a disk the yardstick is `cp` and `sync` of the copy, since fp8q syncs what it writes. Where
torch is installed, a user's plain script is measured too.
"""

import argparse
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

from support import measure

TORCH_SCRIPT = Path(__file__).with_name("torch_convert.py")


def remove(path):
    """Removes an output of the run before, outside of any measurement."""
    if path.is_dir():
        shutil.rmtree(path)


def copy(source, target, sync):
    """The yardstick: a copy, on disk synced file by file."""
    command = 'cp -r "$1" "$2"' + (' && sync "$2"/*' if sync else "")
    return measure.measure("sh", "-c", command, "sh", source, target)


def alternate(repetitions, first, second, outputs):
    """Runs two flows in turns; the first turn, which warms caches, does not count."""
    runs = ([], [])
    for _ in range(repetitions + 1):
        for flow, kept in zip((first, second), runs, strict=True):
            for output in outputs:
                remove(output)
            kept.append(flow())
    for output in outputs:
        remove(output)
    return runs[0][1:], runs[1][1:]


def spread(runs):
    """Median, least and most seconds."""
    seconds = [run.seconds for run in runs]
    return f"{measure.median(runs):6.2f} s ({min(seconds):.2f}..{max(seconds):.2f})"


def compare(what, yardstick, nbytes, runs):
    """Prints a program's runs beside its yardstick's."""
    ours, theirs = runs
    ratio = measure.median(ours) / measure.median(theirs)
    peak = max(run.peak for run in ours) / measure.MIB
    print(
        f"{what:24} {spread(ours)}, {nbytes / measure.median(ours) / 1e9:5.2f} GB/s read+written,"
        f" peak {peak:4.0f} MiB\n  {yardstick:22} {spread(theirs)}, ratio {ratio:.2f}",
        flush=True,
    )


def size(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure_folder(folder, options, sync):
    """convert and dequant of a model in a folder, each against copies."""
    source, there, back = folder / "in", folder / "there", folder / "back"
    measure.write_model(source, int(options.gib * measure.GIB))
    if sync:
        subprocess.run(["sync", *source.iterdir()], check=True)
    yardstick = "cp -r, sync" if sync else "cp -r"
    more = ["--threads", options.threads] if options.threads else []

    def convert():
        return measure.fp8q("convert", source, "-o", there, *more)

    def copy_input():
        return copy(source, back, sync)

    runs = alternate(options.repetitions, convert, copy_input, (there, back))
    measure.fp8q("convert", source, "-o", there)
    moved = size(source) + size(there)
    compare("convert", f"{yardstick} of its input", moved, runs)
    if not sync and importlib.util.find_spec("torch"):
        remove(back)
        measure_torch(options, source, back, convert_again=lambda: forced(source, there))

    def verify():
        return measure.fp8q("verify", there, "--reference", source, *more)

    def convert_there():
        return measure.fp8q("convert", source, "-o", back, *more)

    runs = alternate(options.repetitions, verify, convert_there, (back,))
    compare("verify", "convert", moved, runs)

    def dequant():
        return measure.fp8q("dequant", there, "-o", back, *more)

    def copy_output():
        return copy(source, back, sync)

    runs = alternate(options.repetitions, dequant, copy_output, (back,))
    compare("dequant", f"{yardstick} of its output", moved, runs)


def forced(source, there):
    """A convert whose output, removed before, leaves the same folder again."""
    return measure.fp8q("convert", source, "-o", there, "--force")


def measure_torch(options, source, back, convert_again):
    """The plain script, against fp8q."""

    def script():
        return measure.measure(sys.executable, TORCH_SCRIPT, source, back)

    ours, theirs = alternate(options.repetitions, convert_again, script, (back,))
    ratio = measure.median(theirs) / measure.median(ours)
    print(f"{'plain torch script':24} {spread(theirs)}, {ratio:.1f} times fp8q's {spread(ours)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=2.0, help="size of the BF16 model")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--threads", type=int, help="passed on to fp8q")
    parser.add_argument("--tmpfs", default="/dev/shm", help="a folder in memory")
    parser.add_argument("--disk", default="/tmp", help="a folder on disk; '' for none")
    options = parser.parse_args()
    for name, parent in (("tmpfs", options.tmpfs), ("disk", options.disk)):
        if not parent:
            continue
        with measure.scratch(parent, needed=int(2.7 * options.gib * measure.GIB)) as folder:
            if folder is None:
                print(f"skipped: no room in {parent}")
                continue
            print(f"{name} ({parent}), {options.gib} GiB of BF16, medians of {options.repetitions}")
            measure_folder(folder, options, sync=name == "disk")


if __name__ == "__main__":
    main()
