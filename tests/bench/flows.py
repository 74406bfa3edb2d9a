"""fp8q against the plain scripts that people use, with torch on the CPU or a GPU, in the same run.

`fp8q bench convert` holds fp8q against cp; this needs torch and safetensors for Python besides.
Runs alternate; what counts is the ratio of the medians of whole processes.
"""

import argparse
import importlib.util
import shutil
import statistics
import sys
from pathlib import Path

from support import measure

HERE = Path(__file__).parent


def run_script(name, source, target, device):
    """Runs a script; gives its whole time and that of its loop."""
    shutil.rmtree(target, ignore_errors=True)
    run = measure.measure(sys.executable, HERE / name, source, target, device)
    return run.seconds, float((target / "loop_seconds").read_text(encoding="ascii"))


def run_fp8q(command, source, target, more):
    shutil.rmtree(target, ignore_errors=True)
    return measure.fp8q(command, source, "-o", target, *more).seconds


def compare(command, script, source, target, other, options):
    """Prints one line: the median of the script beside that of fp8q. target is left."""
    more = ["--device", options.device]
    more += ["--threads", options.threads] if options.threads else []
    theirs, ours = [], []
    for _ in range(options.repetitions + 1):  # the first turn warms caches
        theirs.append(run_script(script, source, other, options.torch_device))
        shutil.rmtree(other)
        ours.append(run_fp8q(command, source, target, more))
    whole = statistics.median(seconds for seconds, _ in theirs[1:])
    loop = statistics.median(seconds for _, seconds in theirs[1:])
    mine = statistics.median(ours[1:])
    print(
        f"{command}: {script} {whole:.2f} s, its loop {loop:.2f} s; fp8q {mine:.2f} s: "
        f"{whole / mine:.1f} times, its loop {loop / mine:.1f} times",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=2.0, help="size of the BF16 model")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--dir", default="/dev/shm", help="where the models go")
    parser.add_argument("--device", default="auto", help="passed on to fp8q")
    parser.add_argument("--threads", type=int, help="passed on to fp8q")
    parser.add_argument("--torch-device", default="cpu", help="cpu or cuda, for the scripts")
    options = parser.parse_args()
    if not importlib.util.find_spec("torch") or not importlib.util.find_spec("safetensors"):
        sys.exit("skipped: needs torch and safetensors")
    with measure.scratch(options.dir, needed=int(2.7 * options.gib * measure.GIB)) as folder:
        if folder is None:
            sys.exit(f"skipped: no room in {options.dir}")
        print(f"{options.dir}, {options.gib} GiB of BF16, medians of {options.repetitions}")
        source, there, back, other = (folder / name for name in ("in", "there", "back", "other"))
        measure.write_model(source, int(options.gib * measure.GIB))
        compare("convert", "torch_convert.py", source, there, other, options)
        shutil.rmtree(source)
        compare("dequant", "torch_dequant.py", there, back, other, options)


if __name__ == "__main__":
    main()
