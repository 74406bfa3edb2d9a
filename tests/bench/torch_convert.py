"""What users have now: BF16 to block-scaled FP8 with torch and safetensors, for comparison only.

Usage: torch_convert.py INPUT OUTPUT [DEVICE]

The seconds of its loop, without the start of Python and torch, go to OUTPUT/loop_seconds.
"""

import sys
import time
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def quantize(weight):
    """The per-block cast of DeepGEMM's utilities."""
    rows, cols = weight.shape
    padded = torch.zeros(
        ((rows + 127) // 128 * 128, (cols + 127) // 128 * 128),
        dtype=weight.dtype,
        device=weight.device,
    )
    padded[:rows, :cols] = weight
    blocks = padded.view(padded.size(0) // 128, 128, padded.size(1) // 128, 128)
    amax = blocks.abs().float().amax(dim=(1, 3), keepdim=True).clamp(1e-4)
    scale = amax / 448.0
    codes = (blocks.float() / scale).to(torch.float8_e4m3fn).view_as(padded)
    return codes[:rows, :cols].contiguous(), scale.view(blocks.size(0), blocks.size(2))


def main():
    source, target = map(Path, sys.argv[1:3])
    device = sys.argv[3] if len(sys.argv) > 3 else "cpu"
    target.mkdir(parents=True)
    start = time.monotonic()
    for path in sorted(source.glob("*.safetensors")):
        result = {}
        for name, weight in load_file(path, device=device).items():
            if name.endswith(".weight") and weight.dim() == 2:
                result[name], result[name + "_scale_inv"] = quantize(weight)
            else:
                result[name] = weight
        save_file(result, target / path.name, metadata={"format": "pt"})
    (target / "loop_seconds").write_text(str(time.monotonic() - start), encoding="ascii")


if __name__ == "__main__":
    main()
