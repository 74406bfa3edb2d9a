"""Holds the outputs of accepted cases against the facts of the manifest."""

import hashlib
import json
import math
from pathlib import Path

from support import codec, model, tensors

CONFIG = "config.json"


def check_read(facts, report):
    """Faults of `inspect --json` against the manifest's tensors."""
    faults = []
    found = {tensor["name"]: tensor for tensor in report["tensors"]}
    if len(found) != len(report["tensors"]):
        faults.append("a name twice in the report")
    if report["summary"]["n_tensors"] != len(report["tensors"]):
        faults.append(f"n_tensors is {report['summary']['n_tensors']}")
    if len(found) != facts.get("tensor_count", len(found)):
        faults.append(f"{len(found)} tensors, not {facts['tensor_count']}")
    if "tensors" in facts:
        expected = {tensor["name"]: tensor for tensor in facts["tensors"]}
        whole = "tensor_count" not in facts  # else the manifest lists some of them
        if expected.keys() - found.keys() or whole and found.keys() - expected.keys():
            faults.append(f"names {sorted(found)[:9]} are not {sorted(expected)[:9]}")
        for name in found.keys() & expected.keys():
            for key in ("dtype", "shape", "nbytes"):
                if found[name][key] != expected[name][key]:
                    faults.append(f"{name!r}: {key} {found[name][key]}, not {expected[name][key]}")
    return faults


def read_output(path):
    return model.read_folder(path) if Path(path).is_dir() else tensors.read(path)


def check_outputs(source, output, facts):
    """Faults of an output's layout, of its copied tensors and of the files around them."""
    output = Path(output)
    faults = []
    files = sorted(output.glob("*.safetensors")) if output.is_dir() else [output]
    for path in files:
        faults += [f"{path.name}: {fault}" for fault in tensors.layout_faults(path)]
        metadata = tensors.read_header(path).metadata
        if "format" not in metadata:
            faults.append(f"{path.name}: no format in the metadata")
        for key, value in facts.get("metadata", {}).items():
            if metadata.get(key) != value:
                faults.append(f"{path.name}: metadata {key!r} is {metadata.get(key)!r}")
    if (output / model.INDEX).exists():
        faults += model.index_faults(output)
    found = read_output(output)
    for expected in facts.get("tensors", []):
        faults += check_tensor(found, expected)
    for name in facts.get("present_after", []):
        if name not in found:
            faults.append(f"{name!r} is lost")
    for name in facts.get("copied_unchanged", []):
        if (output / name).read_bytes() != (Path(source) / name).read_bytes():
            faults.append(f"{name} is not copied unchanged")
    if (Path(source) / CONFIG).exists():
        any_quantized = any(tensor.dtype == "F8_E4M3" for tensor in found.values())
        faults += check_config(Path(source) / CONFIG, output / CONFIG, any_quantized)
    return faults


def check_tensor(found, expected):
    """A tensor that was not quantized is there with its dtype, shape and bytes."""
    name = expected["name"]
    if name not in found:
        return [f"{name!r} is lost"]
    tensor = found[name]
    if tensor.dtype == "F8_E4M3":
        return [] if list(tensor.shape) == expected["shape"] else [f"{name!r}: {tensor.shape}"]
    if (tensor.dtype, list(tensor.shape)) != (expected["dtype"], expected["shape"]):
        return [f"{name!r}: {tensor.dtype} {tensor.shape}"]
    if hashlib.sha256(tensor.data).hexdigest() != expected["sha256"]:
        return [f"{name!r}: other bytes"]
    return []


def check_config(before, after, any_quantized):
    """config.json is the old text with one key spliced in (or put in the place of a null)."""
    old, new = before.read_bytes(), after.read_bytes()
    if not any_quantized:
        return [] if new == old else ["config.json: changed, though nothing is FP8"]
    key = b'"quantization_config"'
    if key in old:
        head = old[: old.index(key)]
        return [] if new.startswith(head) else ["config.json: changed before quantization_config"]
    extra = model.splice(old, new)
    if extra is None:
        return ["config.json: more than one place changed"]
    quantization = json.loads(new)["quantization_config"]
    if key not in extra or quantization["quant_method"] != "fp8":
        return [f"config.json: spliced {extra!r}"]
    return []


def check_quantized(output, facts):
    """Faults of quantized tensors: shapes of scales, their values, codes."""
    facts = facts.get("quantize", {})
    found = read_output(output)
    faults = []
    for name, shape in facts.get("scale_shape", {}).items():
        codes, scale = found[name], found[name + "_scale_inv"]
        if codes.dtype != "F8_E4M3" or scale.dtype != "F32":
            faults.append(f"{name}: {codes.dtype} with {scale.dtype} scales")
        if list(scale.shape) != shape:
            faults.append(f"{name}: scales {scale.shape}, not {shape}")
        if not all(math.isfinite(value) and value > 0 for value in codec.floats(scale)):
            faults.append(f"{name}: a scale that is not finite and positive")
        if any(code & 0x7F == 0x7F for code in set(codes.data)):
            faults.append(f"{name}: a NaN code")
        if facts.get("codes_all_zero") and any(code & 0x7F for code in codes.data):
            faults.append(f"{name}: a code that is not zero")
        for index, code in facts.get("codes_if_scale_is_amax_over_448", {}).items():
            if codes.data[int(index)] != int(code, 16):
                faults.append(f"{name}[{index}]: {codes.data[int(index)]:#x}, not {code}")
    return faults


def check_dequantized(source, output, facts):
    """Faults of a cast back: every bit of the weights, and that the scales are gone."""
    facts = facts["dequantize"] | {"nan_at": facts.get("nan_at", [])}
    before, after = read_output(source), read_output(output)
    faults = []
    if facts["scale_gone"] in after:
        faults.append(f"{facts['scale_gone']} is left")
    for name, shape in facts["shape"].items():
        weight = after[name]
        if (weight.dtype, list(weight.shape)) != (facts["dtype"], shape):
            faults.append(f"{name}: {weight.dtype} {weight.shape}")
            continue
        expected = codec.dequantized_bf16(before[name], before[facts["scale_gone"]])
        bits = memoryview(weight.data).cast("H").tolist()
        nan_at = [index for index, word in enumerate(bits) if word & 0x7FFF > 0x7F80]
        if nan_at != facts["nan_at"]:
            faults.append(f"{name}: NaN at {nan_at[:8]}, not at {facts['nan_at']}")
        wrong = [i for i, word in enumerate(expected) if word is not None and word != bits[i]]
        if wrong:
            faults.append(f"{name}: {len(wrong)} wrong elements, the first at {wrong[0]}")
    if "quantization_config" in json.loads((Path(output) / CONFIG).read_text(encoding="utf-8")):
        faults.append("config.json: quantization_config is left")
    return faults
