"""A file alone has its quantization_config in its metadata: it is read, and checked like a folder's."""

import json

from checkpoints import LAYER
from support import codec, quantizer, tensors, tool

UP, GATE = LAYER + "mlp.up_proj", LAYER + "mlp.gate"
KEY = "quantization_config"


class LoneFile(tool.Case):
    """One converted file whose metadata are changed."""

    def setUp(self):
        super().setUp()
        self.reference = self.dir / "x.safetensors"
        self.file = self.dir / "q.safetensors"
        self.source = {
            UP + ".weight": quantizer.gaussian((128, 256), 1),
            GATE + ".weight": quantizer.gaussian((8, 256), 2),
        }
        tensors.write(self.reference, self.source)
        self.convert()

    def convert(self, scale_format="f32"):
        line = ("convert", self.reference, "-o", self.file, "--scale-format", scale_format)
        self.fp8q(*line, "--quiet", "--force")
        self.metadata = tensors.read_header(self.file).metadata

    def change(self, **changes):
        """Changes keys of the config; None takes one away."""
        config = json.loads(self.metadata[KEY])
        config.update(changes)
        kept = {key: value for key, value in config.items() if value is not None}
        self.put(json.dumps(kept))

    def put(self, text, **metadata):
        """Puts a text in the place of the config."""
        metadata = {**self.metadata, KEY: text, **metadata}
        kept = {key: value for key, value in metadata.items() if value is not None}
        tensors.write(self.file, tensors.read(self.file), kept)

    def verify(self, code=0, reference=True):
        line = ["verify", self.file, "--json"]
        if reference:
            line += ["--reference", self.reference]
        return self.fp8q(*line, code=code).json()

    def only_problem(self, *parts):
        """The one problem, with and without the original."""
        for reference in (True, False):
            report = self.verify(code=1, reference=reference)
            self.assertEqual(report["summary"]["n_failed"], 0, report)
            (line,) = report["problems"]
            self.assertIn(self.file.name, line)
            for part in parts:
                self.assertIn(part, line)

    def test_what_fp8q_wrote_passes(self):
        for scale_format in ("f32", "pow2", "e8m0", "packed"):
            self.convert(scale_format)
            self.assertEqual(self.verify()["notes"], [])

    def test_keys(self):
        for key in ("activation_scheme", "quant_method", "weight_block_size"):
            self.change(**{key: None})
            self.only_problem("metadata: quantization_config: ", key)
        self.convert("pow2")
        self.change(scale_fmt=None)
        self.only_problem("metadata: quantization_config: ", "scale_fmt")

    def test_list(self):
        self.change(modules_to_not_convert=["lm_head"])
        self.only_problem(GATE, "does not list it")
        self.change(modules_to_not_convert=["lm_head", GATE, UP])
        self.only_problem(UP, "is FP8, but modules_to_not_convert lists it")
        self.change(modules_to_not_convert=["lm_head", GATE, "gone"])
        self.only_problem("gone", "is no module of the model")

    def test_scale_format(self):
        self.change(fp8q={"scale_format": "e8m0"})
        self.only_problem("format e8m0", "metadata say")
        self.change(scale_fmt="ue8m0")
        report = self.verify(code=1, reference=False)
        self.assertEqual(report["summary"]["n_failed"], 1)

    def test_what_cannot_be_read(self):
        for text in ("", "{", "null", "{'quant_method': 'fp8'}", '{"weight_block_size": 128}'):
            self.put(text)
            (line,) = self.verify(code=1)["problems"]
            self.assertIn("metadata: ", line)
            for command in ("inspect", "dequant"):  # a warning: the weights are what they are
                result = self.fp8q(command, self.file, *(["--dry-run"] * (command == "dequant")))
                self.assertIn("warning: ", result.err.decode())

    def test_none(self):
        """As shards of a model are, which may be looked at alone."""
        self.put(None)
        (note,) = self.verify()["notes"]
        self.assertIn("no quantization_config in the metadata", note)

    def test_other_makers(self):
        own = {key: None for key in self.metadata if key.startswith("fp8q.")}
        config = {"quant_method": "fp8", "activation_scheme": "dynamic",
                  "weight_block_size": [128, 128], "ignored_layers": ["*.gate"]}  # fmt: skip
        self.put(json.dumps(config), **own)
        self.verify()
        self.put(json.dumps({**config, "ignored_layers": ["re:.*up"]}), **own)
        self.only_problem(UP, 'is FP8, but "re:.*up" in ignored_layers takes it in')

    def test_dequant_and_inspect_go_by_its_block(self):
        source = quantizer.gaussian((64, 128), 3)
        weight, scale = quantizer.quantize(source, quantizer.Ieee, block=(64, 64))
        content = {"a.weight": weight, "a.weight_scale_inv": scale}
        config = {"quant_method": "fp8", "activation_scheme": "dynamic",
                  "weight_block_size": [64, 64]}  # fmt: skip
        tensors.write(self.file, content, {KEY: json.dumps(config)})
        self.fp8q("dequant", self.file, "-o", self.dir / "back.safetensors", "--quiet")
        back = tensors.read(self.dir / "back.safetensors")["a.weight"]
        error = sum((a - b) ** 2 for a, b in zip(codec.floats(back), codec.floats(source)))
        self.assertLess(error / sum(a * a for a in codec.floats(source)), 0.04**2)
        self.assertNotIn(KEY, tensors.read_header(self.dir / "back.safetensors").metadata or {})
        text = self.fp8q("inspect", self.file).out.decode()
        self.assertIn("weight_block_size 64 x 64", text)

    def test_a_stale_one_does_not_stop_convert(self):
        config = json.dumps({"quant_method": "fp8", "modules_to_not_convert": ["stale"]})
        tensors.write(self.reference, self.source, {KEY: config})
        self.convert()
        self.assertNotIn("stale", self.metadata[KEY])
        self.verify()


if __name__ == "__main__":
    tool.main()
