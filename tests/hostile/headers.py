"""Random safetensors files, sound ones first and then with a few things changed in them."""

import json
import struct

from support import tensors

NUMBERS = ["2.0", "2e0", "-0", "-1", "02", "+2", "1e999", "1e308", "0", "1", "null", "true", '"2"',
           "18446744073709551615", "18446744073709551616", "9007199254740993", "[]", "{}", "1.",
           ".5", "1E2", "0x2", "NaN", "Infinity", "4294967296", "9223372036854775807"]  # fmt: skip
SPACES = [" ", "\t", "\n", "\r", "\0", "\f", "\v", "\ufeff", "\u00a0", "  ", "/**/", ","]
STRINGS = ['""', '"\\u0000"', '"\\ud800"', '"\\ude00\\ud83d"', '"\\ud83d\\ude00"', '"\\u00e9"',
           '"a\tb"', '"\\x41"', '"\x7f"', '"__metadata__"', '"w\\u0030"', '"\\/"', "'w'",
           '"\\u12"', '"..\\/x"', '"\u202e"', '"\udcff"']  # fmt: skip
FIELDS = ['"extra":[[{}]]', '"dtype":"F32"', '"shape":[1]', '"sh\\u0061pe":[1]', '"x":1e308',
          '"x":1e999', '"x":NaN', '"data_offsets":[0,4]', '"DTYPE":"F32"', '"x":' + "[" * 126
          + "]" * 126, '"x":' + "[" * 124 + "]" * 124, '"x":{"a":1,"a":2}']  # fmt: skip
DTYPES = [*tensors.BITS, "f32", "F8", "C128", "I4", "", "BF16 "]


def random_shape(source):
    rank = source.choice([0, 1, 1, 2, 2, 2, 3, 5])
    return [source.choice([0, 1, 1, 2, 3, 4, 5, 8]) for _ in range(rank)]


def size_of(dtype, shape):
    n_bits = tensors.BITS[dtype]
    for dim in shape:
        n_bits *= dim
    return n_bits // 8 if n_bits % 8 == 0 else None


def sound_entries(source):
    """[(name, dtype, shape, begin, end)] that tile the data, in any order; and its size."""
    entries, at = [], 0
    for i in range(source.choice([0, 1, 1, 2, 3, 6])):
        dtype, shape = source.choice(list(tensors.BITS)), random_shape(source)
        nbytes = size_of(dtype, shape)
        if nbytes is not None and nbytes < 4096:
            name = source.choice(["w", "a.b", "", "..", "/x", "é", "\u202e", "model.w.weight"])
            entries.append((f"{name}{i}", dtype, shape, at, at + nbytes))
            at += nbytes
    source.shuffle(entries)
    return entries, at


def write_entry(source, entry):
    name, dtype, shape, begin, end = entry
    if source.random() < 0.03:
        dtype = source.choice(DTYPES)
    fields = [f'"dtype":{json.dumps(dtype)}', f'"shape":{json.dumps(shape)}',
              f'"data_offsets":[{begin},{end}]']  # fmt: skip
    source.shuffle(fields)
    if source.random() < 0.1:
        fields.insert(source.randrange(len(fields) + 1), source.choice(FIELDS))
    if source.random() < 0.02:
        fields.pop()
    text = "{" + ",".join(fields) + "}"
    if source.random() < 0.02:
        text = f'["{dtype}",{json.dumps(shape)},[{begin},{end}]]'
    return f"{json.dumps(name, ensure_ascii=source.random() < 0.5)}:{text}"


def write_header(source, entries):
    parts = [write_entry(source, entry) for entry in entries]
    if parts and source.random() < 0.05:
        parts.append(source.choice(parts))
    if source.random() < 0.3:
        metadata = ['{}', 'null', '{"format":"pt"}', '{"a":"b","a":"c"}', '{"a":1}', '[]', '""']
        for _ in range(1 if source.random() < 0.9 else 2):
            place = source.randrange(len(parts) + 1)
            parts.insert(place, f'"__metadata__":{source.choice(metadata)}')
    return "{" + ",".join(parts) + "}"


def change_token(source, text):
    """Another number, string or space in the place of one, or beside it."""
    digits = [i for i, char in enumerate(text) if char.isdigit()]
    kind = source.randrange(4)
    if kind == 0 and digits:
        at = source.choice(digits)
        return text[:at] + source.choice(NUMBERS) + text[at + 1 :]
    if kind == 1:
        at = source.randrange(len(text) + 1)
        return text[:at] + source.choice(SPACES) + text[at:]
    quotes = [i for i, char in enumerate(text) if char == '"']
    if kind == 2 and len(quotes) >= 2:
        at = source.randrange(len(quotes) // 2) * 2
        return text[: quotes[at]] + source.choice(STRINGS) + text[quotes[at + 1] + 1 :]
    at = source.choice([0, len(text)])
    return text[:at] + source.choice([*SPACES, "{}", "]", "\0\0"]) + text[at:]


def change_byte(source, data):
    at = source.randrange(len(data))
    kind = source.randrange(3)
    if kind == 0:
        return data[:at] + bytes([data[at] ^ 1 << source.randrange(8)]) + data[at + 1 :]
    if kind == 1:
        return data[:at] + data[at + 1 :]
    return data[:at] + bytes([source.randrange(256)]) + data[at:]


def random_file(source):
    """The bytes of a file; about a third of them are sound."""
    entries, nbytes = sound_entries(source)
    text = write_header(source, entries)
    for _ in range(source.choice([0, 0, 0, 1, 1, 2])):
        text = change_token(source, text)
    text += " " * source.choice([0, 0, 1, 7])
    header = text.encode("utf-8", "surrogateescape")
    for _ in range(source.choice([0, 0, 0, 0, 1])):
        header = change_byte(source, header)
    length = len(header) + source.choice([0] * 30 + [1, -1, 8, 1 << 20, 1 << 63])
    nbytes += source.choice([0] * 30 + [1, -1, 8])
    return struct.pack("<Q", length % (1 << 64)) + header + source.randbytes(max(nbytes, 0))
