"""What users have now: block-scaled FP8 to BF16 with torch and safetensors, for comparison only.

Usage: torch_dequant.py INPUT OUTPUT [DEVICE]

Like DeepSeek's script, with the scale of each weight in the same file. The seconds of its loop go
to OUTPUT/loop_seconds.
"""

import sys
import time
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

SCALE = "_scale_inv"


def dequantize(weight, scale):
    rows, cols = weight.shape
    wide = scale.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :cols]
    return (weight.float() * wide).to(torch.bfloat16)


def main():
    source, target = map(Path, sys.argv[1:3])
    device = sys.argv[3] if len(sys.argv) > 3 else "cpu"
    target.mkdir(parents=True)
    start = time.monotonic()
    for path in sorted(source.glob("*.safetensors")):
        loaded = load_file(path, device=device)
        result = {}
        for name, weight in loaded.items():
            if name + SCALE in loaded:
                result[name] = dequantize(weight, loaded[name + SCALE])
            elif not name.endswith(SCALE):
                result[name] = weight
        save_file(result, target / path.name, metadata={"format": "pt"})
    (target / "loop_seconds").write_text(str(time.monotonic() - start), encoding="ascii")


if __name__ == "__main__":
    main()
