"""Opens what fp8q wrote with the safetensors package, as users do."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors import deserialize, safe_open

from support import tensors

NUMPY = {
    "BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32, "F64": np.float64,
    "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E8M0": ml_dtypes.float8_e8m0fnu, "BOOL": np.bool_,
    "I8": np.int8, "U8": np.uint8, "I16": np.int16, "I32": np.int32, "I64": np.int64,
}  # fmt: skip


def numpy_of(tensor):
    """A support.tensors.Tensor as a numpy array."""
    return np.frombuffer(tensor.data, NUMPY[tensor.dtype]).reshape(tensor.shape)


def tensor_of(dtype, array):
    """A numpy array as a support.tensors.Tensor of that dtype name."""
    array = np.asarray(array, NUMPY[dtype])
    return tensors.Tensor(dtype, array.shape, array.tobytes())


def open_folder(folder):
    """All tensors of an output folder, as the safetensors package gives them.

    Fails where the package refuses a file, or sees it otherwise than the strict reader of these
    tests.
    """
    found = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        theirs = {
            name: tensors.Tensor(field["dtype"], tuple(field["shape"]), bytes(field["data"]))
            for name, field in deserialize(path.read_bytes())
        }
        if theirs != tensors.read(path):
            raise AssertionError(f"{path}: the safetensors package sees something else in it")
        with safe_open(path, framework="numpy") as file:
            if file.metadata() != tensors.read_header(path).metadata:
                raise AssertionError(f"{path}: metadata {file.metadata()}")
        found.update(theirs)
    return found


def load_config(folder):
    """The object in an output's config.json."""
    return json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
