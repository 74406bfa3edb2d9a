"""A second reader of safetensors headers, written from the reference's rules (serde_json and
tensor.rs) and nothing of the program under test: what it refuses, fp8q must refuse."""

import json
import struct
from typing import NamedTuple

from support import tensors

MAX_HEADER = 100_000_000
MAX_DEPTH = 127
U64_END = 1 << 64

# What the reference accepts and fp8q refuses on purpose.
TWICE = "a key twice in one object"
NUL = "NUL in a name"
LIST = "an entry as a list"
WORDY = "a dtype as an object"
DEEP = "more than 64 dimensions"
LONG = "a name of more than 65535 bytes"


class Refused(Exception):
    """The reference refuses it."""


class Found(NamedTuple):
    """A tensor: where its bytes lie, from the end of the header on."""

    dtype: str
    shape: tuple
    begin: int
    end: int


class Pairs(list):
    """An object as it was written: (key, value) in order, any of them twice."""


class Number(str):
    """The text of a number."""


def require(truth, why):
    if not truth:
        raise Refused(why)


def check_depth(text):
    """Brackets outside of strings are counted, whatever they belong to."""
    depth, in_string, is_escaped = 0, False, False
    for char in text:
        if in_string:
            in_string = is_escaped or char != '"'
            is_escaped = char == "\\" and not is_escaped
        elif char == '"':
            in_string = True
        elif char in "[{":
            depth += 1
            require(depth <= MAX_DEPTH, "nested too deeply")
        elif char in "]}":
            depth -= 1


def parse_number(text):
    require(abs(float(text)) != float("inf"), "a number out of range")
    return Number(text)


def parse_constant(text):
    raise Refused(f"{text} is no JSON")


def parse_json(data):
    """The tree of a text, with the strictness of serde_json."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(str(error)) from error
    check_depth(text)
    try:
        return json.loads(
            text,
            object_pairs_hook=Pairs,
            parse_int=parse_number,
            parse_float=parse_number,
            parse_constant=parse_constant,
        )
    except ValueError as error:
        raise Refused(str(error)) from error


def strings_of(node):
    """All strings of a tree, and its keys."""
    if isinstance(node, Pairs):
        for key, value in node:
            yield key
            yield from strings_of(value)
    elif isinstance(node, list):
        for item in node:
            yield from strings_of(item)
    elif isinstance(node, str) and not isinstance(node, Number):
        yield node


def objects_of(node):
    if isinstance(node, Pairs):
        yield node
        node = [value for _, value in node]
    if isinstance(node, list):
        for item in node:
            yield from objects_of(item)


def whole(node):
    """A number of 64 bits without a sign."""
    require(isinstance(node, Number) and node.isdigit() and int(node) < U64_END, "no u64")
    return int(node)


def a_list(node):
    require(isinstance(node, list) and not isinstance(node, Pairs), "no list")
    return node


class Reader:
    """One header; exceptions are those of fp8q that it meets."""

    def __init__(self):
        self.exceptions = set()

    def dtype(self, node):
        if isinstance(node, Pairs):
            require(len(node) == 1 and node[0][1] is None, "no dtype")
            self.exceptions.add(WORDY)
            node = node[0][0]
        require(isinstance(node, str) and node in tensors.BITS, "no dtype")
        return node

    def fields(self, node):
        """dtype, shape and data_offsets of an entry."""
        if not isinstance(node, Pairs):
            require(len(a_list(node)) == 3, "an entry of other than three items")
            self.exceptions.add(LIST)
            return node
        fields = []
        for wanted in ("dtype", "shape", "data_offsets"):
            values = [value for key, value in node if key == wanted]
            require(len(values) == 1, f"{wanted} is there {len(values)} times")
            fields += values
        return fields

    def entry(self, node):
        dtype, shape, offsets = self.fields(node)
        shape = tuple(whole(item) for item in a_list(shape))
        offsets = [whole(item) for item in a_list(offsets)]
        require(len(offsets) == 2, "data_offsets are not two")
        if len(shape) > 64:
            self.exceptions.add(DEEP)
        return Found(self.dtype(dtype), shape, *offsets)

    def metadata(self, node):
        if node is None:
            return
        require(isinstance(node, Pairs), "__metadata__ is no object")
        for key, value in node:
            is_text = isinstance(value, str) and not isinstance(value, Number)
            require(is_text, "__metadata__ holds something else than text")
            if "\0" in key:
                self.exceptions.add(NUL)

    def read(self, tree):
        """{name: Found}"""
        require(isinstance(tree, Pairs), "no object")
        found, n_metadata = {}, 0
        for name, node in tree:
            if name == "__metadata__":
                n_metadata += 1
                require(n_metadata == 1, "__metadata__ twice")
                self.metadata(node)
                continue
            found[name] = self.entry(node)
            if "\0" in name:
                self.exceptions.add(NUL)
            if len(name.encode()) > 65535:
                self.exceptions.add(LONG)
        if any(len(dict(item)) != len(item) for item in objects_of(tree)):
            self.exceptions.add(TWICE)
        return found


def check_size(tensor):
    n_bits = 1
    for factor in (*tensor.shape, tensors.BITS[tensor.dtype]):
        n_bits *= factor
        require(n_bits < U64_END, "overflow")
    require(n_bits % 8 == 0, "no whole bytes")
    require(tensor.begin <= tensor.end, "ends before it begins")
    require(n_bits // 8 == tensor.end - tensor.begin, "size and data_offsets differ")


def read(data):
    """({name: Found}, exceptions, where the data begin) of the bytes of a file, or Refused."""
    require(len(data) >= 8, "shorter than 8 bytes")
    (length,) = struct.unpack("<Q", data[:8])
    require(length <= MAX_HEADER, "header too long")
    require(length <= len(data) - 8, "header ends behind the file")
    tree = parse_json(data[8 : 8 + length])
    for text in strings_of(tree):
        require(not any(0xD800 <= ord(char) < 0xE000 for char in text), "half a surrogate pair")
    reader = Reader()
    found = reader.read(tree)
    at = 0
    for tensor in sorted(found.values(), key=lambda tensor: (tensor.begin, tensor.end)):
        require(tensor.begin == at, "a hole or an overlap")
        check_size(tensor)
        at = tensor.end
    require(at == len(data) - 8 - length, "the data end elsewhere than the file")
    return found, reader.exceptions, 8 + length
