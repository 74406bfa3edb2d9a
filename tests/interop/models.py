"""Random models with what real ones have, and what must become of each tensor."""

import ml_dtypes
import numpy as np

from files import tensor_of
from support import model

# Values whose amax, quotients or products are at an end of some range.
EXTREMES = {
    "zero": 0.0,
    "tiny": 2.0**-126,
    "subnormal": 2.0**-133,
    "under_floor": 5e-5,
    "large": 1e30,
    "bf16_max": float(ml_dtypes.finfo(ml_dtypes.bfloat16).max),
}
ODD_NAMES = ("α.β.weight", "x.\U0001f600.weight", 'quo"te\\.weight', "a b.weight", "..weight")


def random_matrix(rng, dtype, shape):
    """Gaussian values under a random magnitude per matrix, some of them exact zeros."""
    values = rng.standard_normal(shape).astype(np.float32) * np.float32(2.0 ** rng.integers(-12, 4))
    values[rng.random(shape) < 0.01] = 0
    return tensor_of(dtype, values)


def extreme_matrix(rng, dtype, shape):
    """Blocks of 128 columns, each under one of the extremes."""
    values = rng.uniform(-1, 1, shape)
    names = list(EXTREMES)
    for begin in range(0, shape[1], 128):
        bound = EXTREMES[names[begin // 128 % len(names)]]
        if dtype == "F16":
            bound = min(bound, 65504.0)
        values[:, begin : begin + 128] *= bound
    return tensor_of(dtype, values)


class Random:
    """A model: its shards, its config, and the names that the built-in rules quantize.

    With `experts`, fused 3-D expert tensors are in it: `fused` holds {name: transposed}.
    """

    def __init__(self, seed, dtype, experts=None):
        self.rng = np.random.default_rng(seed)
        self.dtype = dtype
        self.hidden = int(self.rng.choice([128, 192, 256, 320]))
        self.inner = int(self.rng.choice([128, 256, 384]))
        if experts and self.hidden in (self.inner, 2 * self.inner):
            self.hidden += 64  # else the layout of the experts could be read both ways
        self.quantized, self.fused, self.content = set(), {}, {}
        self.config = {
            "model_type": "qwen3_moe" if experts != "transposed" else "qwen3_vl_moe",
            "hidden_size": self.hidden,
            "moe_intermediate_size": self.inner,
            "num_hidden_layers": 2,
            "eps": 1e-06,
        }
        for layer in range(2):
            self.add_layer(f"model.layers.{layer}")
        if experts:
            self.add_experts("model.layers.1.mlp.experts", experts == "transposed")
        self.add_kept()

    def add(self, name, shape, quantized=False):
        self.content[name] = random_matrix(self.rng, self.dtype, shape)
        if quantized:
            self.quantized.add(name)

    def add_layer(self, prefix):
        """Attention and a dense MLP, with ragged last members."""
        hidden, inner = self.hidden, self.inner
        ragged = int(self.rng.integers(129, 300))
        for part in ("q", "k", "v"):
            self.add(f"{prefix}.self_attn.{part}_proj.weight", (256, hidden), True)
        self.add(f"{prefix}.self_attn.o_proj.weight", (ragged, 256), True)
        for part in ("gate", "up"):
            self.add(f"{prefix}.mlp.{part}_proj.weight", (inner, hidden), True)
        self.add(f"{prefix}.mlp.down_proj.weight", (hidden, inner), True)
        name = f"{prefix}.cross.extreme_proj.weight"
        self.content[name] = extreme_matrix(self.rng, self.dtype, (200, 800))
        self.quantized.add(name)
        self.add(f"{prefix}.self_attn.q_proj.bias", (256,))
        self.add(f"{prefix}.input_layernorm.weight", (hidden,))

    def add_experts(self, prefix, transposed):
        """Three fused experts: gate and up rows in one tensor, down in another."""
        for name, rows, cols in (
            ("gate_up_proj", 2 * self.inner, self.hidden),
            ("down_proj", self.hidden, self.inner),
        ):
            shape = (3, cols, rows) if transposed else (3, rows, cols)
            self.content[f"{prefix}.{name}"] = random_matrix(self.rng, self.dtype, shape)
            self.fused[f"{prefix}.{name}"] = transposed

    def add_kept(self):
        """What no rule quantizes, in every dtype."""
        rng = self.rng
        self.add("model.embed_tokens.weight", (300, self.hidden))
        self.add("lm_head.weight", (300, self.hidden))
        self.add("model.layers.0.mlp.gate.weight", (256, self.hidden))
        self.add("model.layers.1.small.weight", (100, self.hidden))
        for name in ODD_NAMES:
            self.add(name, (3, 5))
        self.content["bias_f32"] = tensor_of("F32", rng.standard_normal(7))
        self.content["ids"] = tensor_of("I64", rng.integers(0, 9, (3, 3)))
        self.content["mask"] = tensor_of("BOOL", rng.integers(0, 2, (5,)))
        self.content["bytes.weight"] = tensor_of("U8", rng.integers(0, 256, (128, 128)))
        self.content["scalar"] = tensor_of("F32", np.float32(1.5).reshape(()))
        self.content["nothing.weight"] = tensor_of(self.dtype, np.zeros((0, 128)))

    def shards(self, count):
        """The tensors in a random order, dealt out to `count` shards."""
        names = [str(name) for name in self.rng.permutation(list(self.content))]
        dealt = {f"model-{i + 1:05}-of-{count:05}.safetensors": {} for i in range(count)}
        if count == 1:
            dealt = {"model.safetensors": {}}
        for place, name in enumerate(names):
            dealt[list(dealt)[place % count]][name] = self.content[name]
        return dealt

    def write(self, folder, count):
        """Writes the model as a folder of `count` shards."""
        return model.write_folder(folder, self.shards(count), self.config)
