"""Models saved by transformers: converted, judged by its own FP8 config, loaded, cast back.

Needs torch and transformers, of whatever version; where a version cannot do a step, that step says
so and is skipped.
"""

import inspect

from support import tool

try:
    import numpy as np
    import torch
    import transformers

    import reference
    from files import load_config, numpy_of, open_folder
except ImportError:
    pass  # main() says what is absent, and skips

SMALL = {
    "vocab_size": 256,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 128,
}
MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 128}
MODELS = {
    "Llama": {},
    "Qwen3": {},
    "Mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "Qwen3Moe": {"num_experts": 4, **MOE},
    "DeepseekV3": {
        **MOE,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "num_key_value_heads": 4,
        "q_lora_rank": 128,
        "kv_lora_rank": 128,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 64,
        "v_head_dim": 64,
    },
}
WEIGHT = "model.layers.1.self_attn.o_proj.weight"


def stored_dtype():
    """The argument that asks for the dtype of the file; version 5 renamed it."""
    major = int(transformers.__version__.split(".")[0])
    return {"dtype" if major >= 5 else "torch_dtype": "auto"}


class Transformers(tool.Case):
    """One tiny random model per architecture."""

    def save(self, name):
        """Saves a BF16 model in several shards; gives its folder."""
        config_class = getattr(transformers, f"{name}Config", None)
        model_class = getattr(transformers, f"{name}ForCausalLM", None)
        if config_class is None or model_class is None:
            self.skipTest(f"transformers {transformers.__version__} has no {name}")
        torch.manual_seed(5)
        config = config_class(**{**SMALL, **MODELS[name]})
        network = model_class(config).to(torch.bfloat16)
        folder = self.dir / name
        network.save_pretrained(folder, max_shard_size="1MB")
        return folder

    def convert(self, folder, scale_format):
        output = self.dir / f"{folder.name}-{scale_format}"
        self.fp8q("convert", folder, "-o", output, "--scale-format", scale_format)
        return output

    def check_config(self, output, scale_format):
        """transformers' own class takes every key that it knows, and keeps its meaning."""
        quantization = load_config(output)["quantization_config"]
        config_class = getattr(transformers, "FineGrainedFP8Config", None)
        if config_class is not None:
            known = inspect.signature(config_class.__init__).parameters
            arguments = {key: value for key, value in quantization.items() if key in known}
            made = config_class(**arguments)
            self.assertEqual(tuple(made.weight_block_size), (128, 128))
            self.assertEqual(made.activation_scheme, "dynamic")
            self.assertEqual(made.modules_to_not_convert, quantization["modules_to_not_convert"])
        loaded = transformers.AutoConfig.from_pretrained(output)
        self.assertTrue(loaded.quantization_config)
        self.assertEqual("scale_fmt" in quantization, scale_format != "f32")

    def check_lists(self, output):
        """Every 2-D weight left in BF16 is listed, but for embeddings; no FP8 one is."""
        listed = set(load_config(output)["quantization_config"]["modules_to_not_convert"])
        for name, tensor in open_folder(output).items():
            module, _, last = name.rpartition(".")
            if last != "weight":
                continue
            if tensor.dtype == "F8_E4M3":
                self.assertNotIn(module, listed)
            elif len(tensor.shape) == 2 and "embed" not in name:
                self.assertIn(module, listed)

    def check_cast_back(self, folder, output):
        """Names, shapes and values of the source, per-expert where it was fused."""
        back = self.dir / f"{output.name}-back"
        self.fp8q("dequant", output, "-o", back)
        source, quantized, found = open_folder(folder), open_folder(output), open_folder(back)
        self.assertNotIn("quantization_config", load_config(back))
        n_compared = 0
        for name, tensor in source.items():
            if name not in found:
                self.assertIn(".experts.", name)
                self.assertEqual(len(tensor.shape), 3, name)
                continue
            scale = quantized.get(name + "_scale_inv")
            if scale is None:
                self.assertTensor(found[name], tensor, name)
                continue
            values = numpy_of(tensor).astype(np.float32)
            _, scales = reference.quantize(numpy_of(tensor), "f32" not in output.name)
            error = np.abs(numpy_of(found[name]).astype(np.float64) - values)
            self.assertTrue((error <= reference.error_bound(values, scales)).all(), name)
            n_compared += 1
        self.assertGreater(n_compared, 0)
        return back

    def check_experts(self, folder, output):
        """Fused experts of newer versions come out as the per-expert tensors of the older ones."""
        source, found = open_folder(folder), open_folder(output)
        for name, tensor in source.items():
            if ".experts." not in name or len(tensor.shape) != 3:
                continue
            prefix, part = name.rsplit(".", 1)
            stacked = numpy_of(tensor)
            for expert, matrix in enumerate(stacked):
                parts = {"down_proj": matrix}
                if part == "gate_up_proj":
                    parts = dict(zip(("gate_proj", "up_proj"), np.split(matrix, 2), strict=True))
                for target, rows in parts.items():
                    codes, _ = reference.quantize(rows, "f32" not in output.name)
                    weight = found[f"{prefix}.{expert}.{target}.weight"]
                    self.assertBytes(weight.data, codes.tobytes(), f"{name} {expert} {target}")

    def check_loads_plain(self, back):
        """The folder cast back is an ordinary model again: loaded, run, finite."""
        network = transformers.AutoModelForCausalLM.from_pretrained(back, **stored_dtype())
        self.assertEqual(next(network.parameters()).dtype, torch.bfloat16)
        with torch.no_grad():
            logits = network(torch.arange(16).reshape(1, 16)).logits
        self.assertTrue(bool(torch.isfinite(logits.float()).all()))

    def check_loads_fp8(self, output):
        """The FP8 folder loaded as FP8: its codes and scales arrive, none is missing."""
        if not torch.cuda.is_available():
            self.skipTest("loading as FP8 needs a GPU")
        network, info = transformers.AutoModelForCausalLM.from_pretrained(
            output, device_map="cuda:0", output_loading_info=True, **stored_dtype()
        )
        self.assertEqual(list(info["missing_keys"]), [])
        self.assertEqual(list(info["unexpected_keys"]), [])
        loaded, stored = dict(network.named_parameters()), open_folder(output)
        weight, scale = loaded[WEIGHT].detach(), loaded[WEIGHT + "_scale_inv"].detach()
        self.assertEqual(weight.dtype, torch.float8_e4m3fn)
        codes = weight.view(torch.uint8).cpu().numpy().tobytes()
        self.assertBytes(codes, stored[WEIGHT].data, WEIGHT)
        scales = scale.float().cpu().numpy()
        self.assertTrue(np.array_equal(scales, numpy_of(stored[WEIGHT + "_scale_inv"])))

    def run_model(self, name):
        folder = self.save(name)
        for scale_format in ("f32", "pow2", "e8m0", "packed"):
            with self.subTest(scale_format=scale_format):
                output = self.convert(folder, scale_format)
                self.check_config(output, scale_format)
                self.check_lists(output)
                self.check_experts(folder, output)
                back = self.check_cast_back(folder, output)
                if scale_format == "f32":
                    self.check_loads_plain(back)
        for scale_format in ("f32", "pow2"):
            with self.subTest(scale_format=scale_format, loads="as FP8"):
                self.check_loads_fp8(self.dir / f"{folder.name}-{scale_format}")


def add_tests():
    """One test method per architecture."""
    for name in MODELS:
        setattr(Transformers, f"test_{name.lower()}", lambda self, n=name: self.run_model(n))


if __name__ == "__main__":
    add_tests()
    tool.main(needs=("numpy", "ml_dtypes", "safetensors", "torch", "transformers"))
