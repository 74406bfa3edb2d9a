"""Reads and writes safetensors files with the standard library alone, so that nothing is shared
with the program under test."""

import json
import struct
from pathlib import Path
from typing import NamedTuple

BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip


class Tensor(NamedTuple):
    """A tensor's dtype by its name in the format, its shape, and its bytes as the file has them."""

    dtype: str
    shape: tuple
    data: bytes


class Entry(NamedTuple):
    """One tensor of a header: where its bytes lie in the file."""

    dtype: str
    shape: tuple
    begin: int
    end: int


class Header(NamedTuple):
    """A file's header: entries by name in file order, metadata (None if absent), data start."""

    entries: dict
    metadata: dict
    data_start: int


def nbytes(dtype, shape):
    """Bytes of a tensor."""
    elements = 1
    for dim in shape:
        elements *= dim
    return elements * BITS[dtype] // 8


def _pairs_once(pairs):
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key twice in one object")
    return result


def read_header(path):
    """The header of a file."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        fields = json.loads(file.read(length), object_pairs_hook=_pairs_once)
    metadata = fields.pop("__metadata__", None)
    start = 8 + length
    entries = {
        name: Entry(
            field["dtype"],
            tuple(field["shape"]),
            start + field["data_offsets"][0],
            start + field["data_offsets"][1],
        )
        for name, field in fields.items()
    }
    return Header(entries, metadata, start)


def read(path):
    """All tensors of a file, by name."""
    tensors = {}
    with open(path, "rb") as file:
        for name, entry in read_header(path).entries.items():
            file.seek(entry.begin)
            data = file.read(entry.end - entry.begin)
            tensors[name] = Tensor(entry.dtype, entry.shape, data)
    return tensors


def header_bytes(shapes, metadata=None):
    """The bytes before the data of a file whose tensors are {name: (dtype, shape)}."""
    fields = {} if metadata is None else {"__metadata__": metadata}
    offset = 0
    for name, (dtype, shape) in shapes.items():
        end = offset + nbytes(dtype, shape)
        fields[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def write(path, tensors, metadata=None):
    """Writes {name: Tensor} in the order given, without padding between tensors."""
    shapes = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
    with open(path, "wb") as file:
        file.write(header_bytes(shapes, metadata))
        for name, tensor in tensors.items():
            if len(tensor.data) != nbytes(tensor.dtype, tensor.shape):
                raise ValueError(f"{name}: {len(tensor.data)} bytes do not fit its shape")
            file.write(tensor.data)


def write_sparse(path, shapes, patches=()):
    """Writes a file of zeros that takes no room on disk; patches are (name, offset, bytes)."""
    head = header_bytes(shapes)
    with open(path, "wb") as file:
        file.write(head)
        file.truncate(len(head) + sum(nbytes(*shape) for shape in shapes.values()))
    entries = read_header(path).entries
    with open(path, "r+b") as file:
        for name, offset, data in patches:
            file.seek(entries[name].begin + offset)
            file.write(data)


def layout_faults(path):
    """What is wrong with the layout of a file that fp8q wrote: alignment, holes, padding."""
    faults = []
    header = read_header(path)
    if header.data_start % 8:
        faults.append(f"data start at {header.data_start}, no multiple of 8")
    end = header.data_start
    for name, entry in sorted(header.entries.items(), key=lambda item: (item[1][2], item[1][3])):
        if entry.begin != end:
            faults.append(f"{name}: begins at {entry.begin}, not at {end}")
        if entry.begin % max(BITS[entry.dtype] // 8, 1):
            faults.append(f"{name}: {entry.dtype} at {entry.begin} is not aligned")
        if entry.end - entry.begin != nbytes(entry.dtype, entry.shape):
            faults.append(f"{name}: {entry.end - entry.begin} bytes do not fit its shape")
        end = entry.end
    if end != Path(path).stat().st_size:
        faults.append(f"data ends at {end}, the file at {Path(path).stat().st_size}")
    return faults
