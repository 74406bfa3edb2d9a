"""The lists of modules that stay unquantized, as other tools write them: names, globs, patterns."""

from checkpoints import CONFIG, LAYER
from support import codec, model, quantizer, tensors, tool

GATE, UP, DOWN = (LAYER + f"mlp.{name}" for name in ("gate", "up_proj", "down_proj"))
EXTRA = LAYER + "mlp.shared.proj"  # a linear weight that no built-in rule keeps


def group(targets):
    """A group of compressed-tensors' block form."""
    weights = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128],
               "symmetric": True, "dynamic": False}  # fmt: skip
    inputs = {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 128,
              "symmetric": True, "dynamic": True}  # fmt: skip
    return {"targets": targets, "weights": weights, "input_activations": inputs,
            "format": "float-quantized"}  # fmt: skip


def compressed(ignore, targets=("Linear",)):
    """A quantization_config of llm-compressor's FP8_BLOCK."""
    return {"quant_method": "compressed-tensors", "format": "float-quantized",
            "quantization_status": "compressed", "ignore": ignore,
            "config_groups": {"group_0": group(list(targets))}}  # fmt: skip


def native(entries, key="modules_to_not_convert"):
    """A quantization_config of DeepSeek's form."""
    return {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
            "weight_block_size": [128, 128], key: entries}  # fmt: skip


class Lists(tool.Case):
    """One small model with a router and one odd linear weight unquantized, under many lists."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sources = {name + ".weight": quantizer.gaussian((128, 128), seed)
                       for seed, name in enumerate((UP, DOWN))}  # fmt: skip
        cls.kept = {GATE + ".weight": quantizer.gaussian((8, 128), 3),
                    EXTRA + ".weight": quantizer.gaussian((128, 128), 4),
                    "model.norm.weight": codec.f32_tensor((128,), [1.0] * 128),
                    "lm_head.weight": quantizer.gaussian((256, 128), 5)}  # fmt: skip
        cls.rules = {"weight_scale": quantizer.CompressedTensors, "weight_scale_inv": quantizer.Ieee}
        cls.quantized = {
            (name, suffix): quantizer.quantize(source, rule)
            for name, source in cls.sources.items()
            for suffix, rule in cls.rules.items()
        }

    def report(self, quantization, code=0):
        """verify's report on the model with that quantization_config."""
        is_native = quantization["quant_method"] == "fp8"
        suffix = "weight_scale_inv" if is_native else "weight_scale"
        content = dict(self.kept)
        for name in self.sources:
            weight, scale = self.quantized[name, suffix]
            content[name] = weight
            content[name.removesuffix("weight") + suffix] = scale
        folder = self.dir / f"model-{len(list(self.dir.iterdir()))}"
        config = {**CONFIG, "quantization_config": quantization}
        model.write_folder(folder, {"model.safetensors": content}, config=config)
        reference = self.dir / f"{folder.name}.safetensors"
        tensors.write(reference, {**self.sources, **self.kept})
        line = ("verify", folder, "--reference", reference, "--json")
        report = self.fp8q(*line, code=code).json()
        self.assertEqual(report["summary"]["n_tensors"], 2)
        self.assertEqual(report["summary"]["n_failed"], 0)
        return report

    def problems(self, quantization):
        """Its problems, of which there are some."""
        return self.report(quantization, code=1)["problems"]

    def test_honest_lists_pass(self):
        for ignore in (
            ["lm_head", GATE, EXTRA],
            ["lm_head", "re:.*mlp.gate$", "re:.*shared.*"],
            ["re:lm_head", "re:.*\\.mlp\\.gate$", "re:model\\.layers\\.\\d+\\.mlp\\.shared\\.proj$"],
            ["re:^(?:lm_head|model\\.layers\\.[0-9]+\\.mlp\\.(gate|shared\\.proj))$"],
        ):
            with self.subTest(ignore=ignore):
                self.assertEqual(self.report(compressed(ignore))["notes"], [])
        for entries in (
            [GATE, EXTRA, "lm_head"],
            ["model.layers.*.mlp.shared", "lm_head"],
            ["*shared*", "*.gate"],
            ["re:.*shared"],
        ):
            for key in ("modules_to_not_convert", "ignored_layers"):
                with self.subTest(entries=entries, key=key):
                    self.assertEqual(self.report(native(entries, key))["notes"], [])

    def test_patterns_that_take_in_fp8_weights(self):
        for ignore, entry in (
            (["re:.*mlp", EXTRA], "re:.*mlp"),
            (["re:.*mlp\\.(shared|up).*"], "re:.*mlp\\.(shared|up).*"),
            (["lm_head", "re:.*gate$", EXTRA, "re:model.*up"], "re:model.*up"),
        ):
            with self.subTest(ignore=ignore):
                lines = self.problems(compressed(ignore))
                self.assertIn(UP, " ".join(lines))
                for line in lines:
                    self.assertIn(f'is FP8, but "{entry}" in ignore takes it in', line)
        (line,) = self.problems(native(["*up*", EXTRA]))
        self.assertIn(f'{UP}: is FP8, but "*up*" in modules_to_not_convert takes it in', line)

    def test_modules_that_no_entry_takes_in(self):
        for quantization in (
            compressed(["lm_head", "re:.*gate$"]),
            compressed(["lm_head", "re:mlp.shared"]),  # from the start
            native(["*.gate", "lm_head"]),
            native(["shared*"]),
            native(["re:shared.*"]),
        ):
            with self.subTest(quantization=quantization):
                (line,) = self.problems(quantization)
                self.assertIn(EXTRA + ": is not FP8, but", line)

    def test_targets_by_name_need_no_list(self):
        """Groups of named modules are about these alone."""
        self.report(compressed(["lm_head"], ["re:.*(up|down)_proj$"]))

    def test_names_of_compressed_tensors_take_in_no_parts(self):
        self.report(compressed(["mlp", EXTRA]))
        lines = self.problems(native(["mlp"]))
        self.assertEqual(len(lines), 2)
        for line in lines:
            self.assertIn("is FP8, but modules_to_not_convert lists it", line)

    def test_entries_that_are_not_read_are_noted(self):
        for quantization in (
            compressed(["re:(?!.*up_proj).*"]),
            compressed(["re:.*up_proj{1}"]),
            native(["lm_head$", "mlp\\.shared"]),
            native([".*up_proj"]),
        ):
            with self.subTest(quantization=quantization):
                (note,) = self.report(quantization)["notes"]
                self.assertIn("of a kind that is not read", note)
                self.assertIn("is not checked", note)
        report = self.report(compressed(["re:(?!a)b", "re:.*up_proj"]), code=1)
        self.assertEqual(len(report["problems"]), 1)  # others count all the same
        self.assertEqual(len(report["notes"]), 1)


if __name__ == "__main__":
    tool.main()
