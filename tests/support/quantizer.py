"""Block quantizers as other tools write them, in plain Python: the files that verify must accept."""

import math
import random
import struct

from support import codec
from support.tensors import Tensor

BLOCK = 128
MAX = 448.0


def gaussian(shape, seed, scale=0.02):
    """A BF16 matrix of normal values."""
    source = random.Random(seed)
    return codec.bf16_tensor(shape, [source.gauss(0, scale) for _ in range(shape[0] * shape[1])])


def bf16(value):
    """The BF16 nearest to a value."""
    return struct.unpack("<f", struct.pack("<I", codec.bf16_bits(value) << 16))[0]


def pow2_up(value):
    """The least power of two that is not under a value."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent)


def encode(value):
    """The E4M3 code nearest to a value: ties to even, subnormals kept, cut at 448."""
    sign = 0x80 if math.copysign(1.0, value) < 0 else 0
    magnitude = abs(value)
    if magnitude >= MAX:
        return sign | 0x7E
    if magnitude < 2.0**-6:
        return sign | round(magnitude * 512)
    mantissa, exponent = math.frexp(magnitude)
    return sign | ((exponent + 6) << 3) + round(mantissa * 16) - 8


class Ieee:
    """amax / 448 and w / scale, in FP32: PyTorch on the CPU, and fp8q."""

    dtype = "F32"

    @staticmethod
    def scale(amax):
        return codec.f32(amax / MAX)

    @staticmethod
    def scaled(weight, scale, amax):
        return codec.f32(weight / scale)


class Pow2(Ieee):
    """Scales rounded up to powers of two before quantizing."""

    @staticmethod
    def scale(amax):
        return pow2_up(codec.f32(amax / MAX))


class Exponents(Pow2):
    """The same, stored as UE8M0 bytes."""

    dtype = "F8_E8M0"


class Reciprocal(Ieee):
    """Products with rounded reciprocals, as GPU frameworks form them."""

    @staticmethod
    def scale(amax):
        return codec.f32(amax * codec.f32(1 / MAX))

    @staticmethod
    def scaled(weight, scale, amax):
        return codec.f32(weight * codec.f32(1 / scale))


class AmaxReciprocal(Ieee):
    """w · (448 / amax)."""

    @staticmethod
    def scaled(weight, scale, amax):
        return codec.f32(weight * codec.f32(MAX / amax))


class CompressedTensors(Ieee):
    """Scale and quotient rounded to BF16, and then to E4M3."""

    dtype = "BF16"

    @staticmethod
    def scale(amax):
        return bf16(codec.f32(amax / MAX))

    @staticmethod
    def scaled(weight, scale, amax):
        return bf16(codec.f32(weight / scale))


class CompressedTensorsTriton(CompressedTensors):
    """The same with the quotient in FP32."""

    @staticmethod
    def scaled(weight, scale, amax):
        return codec.f32(weight / scale)


class Transformers4(CompressedTensors):
    """The multiplier rounded to BF16, its reciprocal stored: Qwen3's FP8 releases."""

    @staticmethod
    def scale(amax):
        return bf16(1 / bf16(MAX / amax))

    @staticmethod
    def scaled(weight, scale, amax):
        return bf16(weight * bf16(MAX / amax))


HONEST = (Ieee, Pow2, Reciprocal, AmaxReciprocal, CompressedTensors, CompressedTensorsTriton,
          Transformers4)  # fmt: skip


def quantize(tensor, rule, floor=1e-4, block=(BLOCK, BLOCK)):
    """Codes and scales of a BF16 or F32 matrix: (weight, scale), as Tensors."""
    rows, cols = tensor.shape
    values = codec.floats(tensor)
    grid = -(-rows // block[0]), -(-cols // block[1])
    amax = [floor] * (grid[0] * grid[1])
    place = [
        row // block[0] * grid[1] + col // block[1] for row in range(rows) for col in range(cols)
    ]
    for value, k in zip(values, place):
        amax[k] = max(amax[k], abs(value))
    scales = [rule.scale(value) for value in amax]
    codes = bytes(
        encode(rule.scaled(value, scales[k], amax[k])) for value, k in zip(values, place)
    )
    weight = Tensor("F8_E4M3", tensor.shape, codes)
    if rule.dtype == "F8_E8M0":
        exponents = bytes(int(math.log2(scale)) + 127 for scale in scales)
        return weight, Tensor("F8_E8M0", grid, exponents)
    make = codec.bf16_tensor if rule.dtype == "BF16" else codec.f32_tensor
    return weight, make(grid, scales)
