"""The number formats in plain Python: slow, and independent of fp8q's C."""

import array
import struct

from support.tensors import Tensor

F32_MAX = (2.0 - 2.0**-23) * 2.0**127


def f32_bits(value):
    """The bits of the FP32 nearest to a finite value, saturating."""
    bounded = max(-F32_MAX, min(F32_MAX, value))
    return struct.unpack("<I", struct.pack("<f", bounded))[0]


def f32(value):
    """The FP32 nearest to a finite value, saturating, as a float."""
    return struct.unpack("<f", struct.pack("<I", f32_bits(value)))[0]


def bf16_bits(value):
    """The bits of the BF16 nearest to a finite value, ties to even, saturating."""
    bits = f32_bits(value)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return rounded if rounded & 0x7FFF < 0x7F80 else (bits >> 31 << 15) | 0x7F7F


def _e4m3_value(code):
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return float("nan")
    if exponent == 0:
        return sign * mantissa * 2.0**-9
    return sign * (8 + mantissa) * 2.0 ** (exponent - 10)


E4M3 = [_e4m3_value(code) for code in range(256)]


def e8m0(byte):
    """The value of a UE8M0 byte."""
    return float("nan") if byte == 255 else 2.0 ** (byte - 127)


def bf16_tensor(shape, values):
    """A BF16 tensor of floats; a single float fills it."""
    if isinstance(values, (int, float)):
        count = 1
        for dim in shape:
            count *= dim
        return Tensor("BF16", tuple(shape), struct.pack("<H", bf16_bits(values)) * count)
    words = array.array("H", map(bf16_bits, values))
    return Tensor("BF16", tuple(shape), words.tobytes())


def f32_tensor(shape, values):
    """An FP32 tensor of floats."""
    return Tensor("F32", tuple(shape), struct.pack(f"<{len(values)}f", *values))


def filled(dtype, shape, pattern):
    """A tensor whose elements all have the bytes of pattern."""
    count = 1
    for dim in shape:
        count *= dim
    return Tensor(dtype, tuple(shape), bytes(pattern) * count)


def floats(tensor):
    """The elements of a BF16, F16, F32, F8_E4M3 or F8_E8M0 tensor as floats."""
    if tensor.dtype == "BF16":
        words = array.array("H", tensor.data)
        return [struct.unpack("<f", struct.pack("<I", word << 16))[0] for word in words]
    if tensor.dtype == "F8_E4M3":
        return [E4M3[code] for code in tensor.data]
    if tensor.dtype == "F8_E8M0":
        return [e8m0(byte) for byte in tensor.data]
    return list(array.array({"F16": "e", "F32": "f"}[tensor.dtype], tensor.data))


def dequantized_bf16(codes, scale, block=(128, 128)):
    """The BF16 bits that codes [N, K] and their grid of scales stand for; NaN codes give None.

    The product of a code and an FP32 scale is exact as a float, so bf16_bits rounds it twice, to
    FP32 and to BF16, as fp8q must."""
    rows, cols = codes.shape
    scales = floats(scale)
    grid_cols = -(-cols // block[1])
    bits = []
    for index, code in enumerate(codes.data):
        row, col = divmod(index, cols)
        factor = scales[row // block[0] * grid_cols + col // block[1]]
        nan = code & 0x7F == 0x7F
        bits.append(None if nan else bf16_bits(E4M3[code] * factor))
    return bits
