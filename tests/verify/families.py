"""The model families of tests/data/models, made small: a few layers and experts, narrower."""

import itertools
import random
import re
from pathlib import Path

from support import codec, tensors, tool

MODELS = tool.ROOT / "tests" / "data" / "models"
# What sizes are divided by, so that experts keep a block at least, and raggedness stays.
DIVISORS = {"Qwen3-30B-A3B": 2, "Qwen3-VL-30B-A3B": 2, "Qwen3-Next-80B-A3B": 4,
            "Qwen3.5-35B-A3B": 4}  # fmt: skip
LAYERS = {"0", "3", "46", "61"}  # dense or linear, experts or full attention, multi-token
EXPERTS = {"0", "1"}


def names():
    """The families."""
    return sorted(path.stem for path in MODELS.glob("*.txt"))


def _numbers(text):
    for run in text.split(","):
        first, _, last = run.partition("..")
        yield from map(str, range(int(first), int(last or first) + 1))


def _expand(pattern):
    """The names of a folded pattern, in chosen layers and experts."""
    parts = re.split(r"\{([^}]*)\}", pattern)
    choices = []
    for before, numbers in zip(parts[::2], parts[1::2]):
        wanted = EXPERTS if before.endswith("experts.") else LAYERS
        found = list(_numbers(numbers))
        kept = [number for number in found if number in wanted] or found[:1]
        choices.append([before + number for number in kept])
    for chosen in itertools.product(*choices):
        yield "".join(chosen) + parts[-1]


def _config(text):
    config = dict(re.findall(r"(\w+)=(\S+)", re.search(r"# config: (.*)", text)[1]))
    return {key: int(value) if value.isdigit() else value for key, value in config.items()}


def _shrink(shape, divisor, rank_is_experts):
    def size(value):
        if value > 30000:  # a vocabulary
            return 256
        return value // divisor if value >= 128 else value

    if rank_is_experts:
        return (2, *map(size, shape[1:]))
    return tuple(map(size, shape))


def _values(dtype, shape, seed):
    """Gaussian values; large tensors repeat a stretch of a prime length, rows differ all the same."""
    count = 1
    for dim in shape:
        count *= dim
    source = random.Random(seed)
    part = [source.gauss(0, 0.02) for _ in range(min(count, 4099))]
    if dtype == "F32":
        data = codec.f32_tensor((len(part),), part).data
    else:
        data = codec.bf16_tensor((len(part),), part).data
    size = tensors.nbytes(dtype, shape)
    return tensors.Tensor(dtype, shape, (data * (size // len(data) + 1))[:size])


def make(name):
    """The shard and the config of a small model of that family."""
    text = (MODELS / f"{name}.txt").read_text(encoding="utf-8")
    divisor = DIVISORS.get(name, 8)
    config, content = _config(text), {}
    for pattern, dtype, dims in re.findall(r"^(\S+) (\w+) \[([\d, ]*)\]$", text, re.M):
        shape = tuple(map(int, dims.split(", "))) if dims else ()
        for tensor in _expand(pattern):
            experts = ".experts." in tensor and len(shape) == 3
            small = _shrink(shape, divisor, experts)
            content[tensor] = _values(dtype, small, len(content))
    for key in ("hidden_size", "moe_intermediate_size"):
        if key in config:
            config[key] //= divisor
    config["tie_word_embeddings"] = bool(config["tie_word_embeddings"])
    return content, config
