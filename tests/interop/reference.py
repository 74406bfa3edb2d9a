"""What fp8q must compute, in numpy and ml_dtypes: codes, scales, packed words and the cast back."""

import ml_dtypes
import numpy as np

BLOCK = 128
FLOOR = np.float32(1e-4)
E4M3_MAX = np.float32(448)
DTYPES = {"BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32}


def as_float32(array):
    """BF16, F16 or F32 values as FP32, exactly."""
    return np.asarray(array).astype(np.float32)


def block_amax(values, floor=FLOOR):
    """The largest magnitude of each block of FP32 values [N, K], not under the floor."""
    rows, cols = values.shape
    grid = (-(-rows // BLOCK), -(-cols // BLOCK))
    padded = np.zeros((grid[0] * BLOCK, grid[1] * BLOCK), np.float32)
    padded[:rows, :cols] = np.abs(values)
    amax = padded.reshape(grid[0], BLOCK, grid[1], BLOCK).max(axis=(1, 3))
    return np.maximum(amax, floor)


def spread(grid, shape):
    """A value per block as a value per element."""
    return np.repeat(np.repeat(grid, BLOCK, 0), BLOCK, 1)[: shape[0], : shape[1]]


def exponents_of(scales):
    """The UE8M0 byte of each FP32 scale, rounded up."""
    bits = scales.view(np.uint32)
    up = (bits >> 23) + ((bits & 0x7FFFFF) != 0)
    return np.clip(up, 1, 254).astype(np.uint8)


def powers_of(exponents):
    """The FP32 values of UE8M0 bytes."""
    return exponents.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)


def quantize(array, pow2, floor=FLOOR):
    """Codes (uint8) [N, K] and FP32 scales [ceil(N/128), ceil(K/128)] of a matrix."""
    values = as_float32(array)
    amax = block_amax(values, floor)
    scales = amax / E4M3_MAX
    if floor == 0:
        scales = np.maximum(scales, np.float32(2.0**-149))
        scales[amax == 0] = 1
    if pow2:
        scales = powers_of(exponents_of(scales))
    with np.errstate(over="ignore"):
        scaled = values / spread(scales, values.shape)
    bounded = np.clip(scaled, -E4M3_MAX, E4M3_MAX)
    return bounded.astype(ml_dtypes.float8_e4m3fn).view(np.uint8), scales


def packed_words(exponents, rows):
    """DeepGEMM's operand: [ceil(K/512), align(N, 4)] int32 of the exponents of a weight's grid."""
    per_row = np.repeat(exponents, BLOCK, 0)[:rows]
    blocks = per_row.shape[1]
    room = np.zeros((-(-rows // 4) * 4, -(-blocks // 4) * 4), np.uint8)
    room[:rows, :blocks] = per_row
    return np.ascontiguousarray(room.view("<i4").T)


def stored_scale(scales, scale_format, rows):
    """The scale tensor that a format stores: dtype name, and the array whose bytes it holds."""
    if scale_format in ("f32", "pow2"):
        return "F32", scales
    exponents = exponents_of(scales)
    if scale_format == "e8m0":
        return "F8_E8M0", exponents
    return "I32", packed_words(exponents, rows)


def dequantize(codes, scales, dtype="BF16"):
    """codes × scales, rounded to FP32 and then to the dtype, saturating."""
    target = DTYPES[dtype]
    values = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    with np.errstate(over="ignore"):
        product = values * spread(scales, codes.shape)
        rounded = product.astype(target)
    largest = np.array(ml_dtypes.finfo(target).max, target)
    limit = np.copysign(np.broadcast_to(largest, rounded.shape).astype(np.float32), product)
    return np.where(np.isinf(as_float32(rounded)), limit.astype(target), rounded)


def error_bound(values, scales, dtype="BF16"):
    """How far the cast back of each element may be from FP32 values: half a step of E4M3, and the
    roundings of the quotient, the product and the target."""
    magnitude = np.abs(values)
    per_element = spread(scales, values.shape).astype(np.float64)
    half_step = np.maximum(2.0**-4 * magnitude, 2.0**-10 * per_element)
    relative, absolute = {
        "BF16": (2.0**-8, 2.0**-134),
        "F16": (2.0**-11, 2.0**-25),
        "F32": (2.0**-24, 2.0**-150),
    }[dtype]
    return half_step * 1.001 + magnitude * (relative + 2.0**-22) + absolute
