"""What is right must pass: fp8q's own conversions of all families, and those of other tools."""

import json
import struct

from checkpoints import Case
from families import make
from families import names as family_names
from support import codec, model, quantizer, tensors, tool

GOLDEN = tool.ROOT / "tests" / "data" / "golden"
SHAPES = ("1x1", "128x128", "130x257", "130x1100", "256x384", "262x640", "300x100")
WEIGHT, SCALE = "layer.weight", "layer.weight_scale_inv"


def awkward(seed):
    """A ragged matrix with a block of zeros, a tiny one, and one that an outlier rules."""
    values = codec.floats(quantizer.gaussian((200, 300), seed))
    for row in range(128):
        for col in range(128):
            values[row * 300 + col] *= 0.0
            values[row * 300 + 128 + col] *= 1e-6
    values[150 * 300 + 10] = 1e4
    return codec.bf16_tensor((200, 300), values)


class Honest(tool.Case):
    """Each rounding rule in a folder of its own."""

    def verify(self, output, reference, *options):
        """The report's tensors; all pass."""
        line = ("verify", output, "--reference", reference, "--json", *options)
        report = self.fp8q(*line).json()
        self.assertEqual(report["summary"]["verdict"], "pass")
        self.assertGreater(report["summary"]["n_tensors"], 0)
        return report

    def test_rounding_rules_of_other_tools(self):
        sources = {"gaussian": quantizer.gaussian((256, 256), 1), "awkward": awkward(2)}
        for rule in quantizer.HONEST:
            for name, source in sources.items():
                with self.subTest(rule=rule.__name__, source=name):
                    reference = self.dir / "x.safetensors"
                    output = self.dir / "q.safetensors"
                    weight, scale = quantizer.quantize(source, rule)
                    tensors.write(reference, {WEIGHT: source})
                    tensors.write(output, {WEIGHT: weight, SCALE: scale})
                    (found,) = self.verify(output, reference)["tensors"]
                    self.assertEqual(found["rule"], "bound")
                    self.assertEqual(found["weight"]["elements_out_of_bound"], 0)
                    if rule in (quantizer.Ieee, quantizer.Pow2):
                        self.assertEqual(found["weight"]["codes_differ"], 0)

    def test_a_floor_that_is_not_the_default(self):
        reference = self.dir / "x.safetensors"
        tensors.write(reference, {WEIGHT: awkward(3)})
        for floor in ("0", "1e-7", "0.02", "100"):
            output = self.dir / f"q{floor}.safetensors"
            self.fp8q("convert", reference, "-o", output, "--amax-floor", floor, "--quiet")
            (found,) = self.verify(output, reference)["tensors"]
            self.assertEqual(found["weight"]["scales_differ"], 0)
        self.assertEqual(found["weight"]["floored_blocks"], 4)  # not zero, not 1e4

    def test_kept_modules_whose_names_look_like_patterns(self):
        names = ("a*.weight", "re:b.weight", "c[0.weight")
        content = {name: codec.bf16_tensor((2, 2), 1.0) for name in names}
        content[WEIGHT] = awkward(4)
        reference = model.write_folder(self.dir / "in", {"model.safetensors": content}, {})
        self.fp8q("convert", reference, "-o", self.dir / "out", "--quiet")
        self.verify(self.dir / "out", reference)

    def test_golden_data(self):
        for shape in SHAPES:
            reference = self.dir / f"{shape}.safetensors"
            content = tensors.read(GOLDEN / f"{shape}.x.safetensors")["x"]
            tensors.write(reference, {WEIGHT: content}, {"format": "pt"})
            for name in ("w_fp32", "w_ue8m0"):  # PyTorch's
                self.verify(GOLDEN / f"{shape}.{name}.safetensors", reference)
            for scale_format in ("f32", "pow2", "e8m0", "packed"):
                with self.subTest(shape=shape, scale_format=scale_format):
                    output = self.dir / f"{shape}.{scale_format}.safetensors"
                    line = ("convert", reference, "-o", output, "--scale-format", scale_format)
                    self.fp8q(*line, "--include", WEIGHT, "--quiet")
                    (found,) = self.verify(output, reference)["tensors"]
                    self.assertEqual(found["rule"], "exact")
                    self.assertEqual(found["scale_format"], scale_format)

    def test_other_dtypes_of_the_reference(self):
        """F32 and F16 sources; and one that was rounded before it was converted."""
        values = codec.floats(quantizer.gaussian((256, 256), 4))
        single = codec.f32_tensor((256, 256), [value * 1.0001 for value in values])
        half = tensors.Tensor("F16", (256, 256), struct.pack(f"<{len(values)}e", *values))
        for name, source in (("single", single), ("half", half)):
            reference, output = self.dir / f"{name}.safetensors", self.dir / f"q{name}.safetensors"
            tensors.write(reference, {WEIGHT: source})
            self.fp8q("convert", reference, "-o", output, "--quiet")
            (found,) = self.verify(output, reference)["tensors"]
            self.assertEqual(found["rule"], "exact")
        rounded, output = self.dir / "rounded.safetensors", self.dir / "qrounded.safetensors"
        tensors.write(rounded, {WEIGHT: codec.bf16_tensor((256, 256), codec.floats(single))})
        self.fp8q("convert", rounded, "-o", output, "--quiet")
        (found,) = self.verify(output, self.dir / "single.safetensors")["tensors"]
        self.assertEqual(found["rule"], "bound")


    def test_other_blocks_and_stacks(self):
        """Experts that stay fused, as transformers saves them; 32×32 and 1×32 exponents."""
        source = quantizer.gaussian((512, 256), 5)
        stack = tensors.Tensor("BF16", (2, 256, 256), source.data)
        weight, scale = quantizer.quantize(source, quantizer.Ieee)
        name = "model.layers.0.mlp.experts.down_proj"
        reference, output = self.dir / "x.safetensors", self.dir / "q.safetensors"
        tensors.write(reference, {name: stack})
        scales = tensors.Tensor("F32", (2, 2, 2), scale.data)
        codes = bytearray(weight.data)
        stored = tensors.Tensor("F8_E4M3", (2, 256, 256), bytes(codes))
        tensors.write(output, {name: stored, name + "_scale_inv": scales})
        (found,) = self.verify(output, reference)["tensors"]
        self.assertEqual(found["weight"]["codes_differ"], 0)
        codes[400 * 256 + 3] ^= 0x40  # row 144 of the second expert
        stored = tensors.Tensor("F8_E4M3", (2, 256, 256), bytes(codes))
        tensors.write(output, {name: stored, name + "_scale_inv": scales})
        line = ("verify", output, "--reference", reference, "--json")
        (found,) = self.fp8q(*line, code=1).json()["tensors"]
        self.assertEqual(found["weight"]["first_out_of_bound"], [400, 3])
        self.assertEqual(found["weight"]["worst_block"], [3, 0])
        for block in ((32, 32), (1, 32)):
            weight, scale = quantizer.quantize(source, quantizer.Exponents, block=block)
            tensors.write(reference, {WEIGHT: source})
            tensors.write(output, {WEIGHT: weight, SCALE: scale})
            (found,) = self.verify(output, reference)["tensors"]
            self.assertEqual(found["weight"]["scales_differ"], 0)
            self.assertEqual(found["weight"]["codes_differ"], 0)


class Families(tool.Case):
    """The tensor lists of real models, made small."""

    def test_all(self):
        for name in family_names():
            content, config = make(name)
            reference = self.dir / name
            model.write_folder(reference, {"model.safetensors": content}, config=config)
            for scale_format in ("f32", "packed"):
                with self.subTest(family=name, scale_format=scale_format):
                    output = self.dir / "out"
                    line = ("convert", reference, "-o", output, "--scale-format", scale_format)
                    self.fp8q(*line, "--quiet", "--force")
                    result = self.fp8q("verify", output, "--reference", reference, "--json")
                    report = result.json()
                    self.assertEqual(report["problems"], [])
                    self.assertGreater(report["summary"]["n_tensors"], 3)
                    n_tensors = sum(
                        len(tensors.read_header(path).entries)
                        for path in output.glob("*.safetensors")
                    )
                    summary = report["summary"]
                    self.assertEqual(2 * summary["n_tensors"] + summary["n_copies"], n_tensors)


class Options(Case):
    """--max-weight-error, --tensor, and how the run is spread."""

    def test_threads_and_memory_change_nothing(self):
        reports = set()
        folder = self.copy("packed")
        for options in ((), ("--threads", 1), ("--threads", 7), ("--memory", "2M")):
            report = self.verify(folder, *options)
            del report["summary"]["seconds"]
            reports.add(json.dumps(report))
        self.assertEqual(len(reports), 1)

    def test_max_weight_error(self):
        folder = self.copy()
        self.verify(folder, "--max-weight-error", "0.03")
        report = self.verify(folder, "--max-weight-error", "0.02", code=1)
        self.assertEqual(report["summary"]["n_failed"], 6)
        self.assertIn("--max-weight-error", report["tensors"][0]["reasons"][0])

    def test_tensor(self):
        report = self.verify(self.copy(), "--tensor", "*.mlp.*_proj.*")
        self.assertEqual(report["summary"]["n_tensors"], 3)
        self.assertEqual(report["summary"]["n_copies"], 0)

    def test_text(self):
        result = self.fp8q("verify", self.copy(), "--reference", self.reference)
        text = result.out.decode()
        self.assertIn("passes: 6 weights, 0 failed", text)
        self.assertIn("2.65%", text)
        quiet = self.fp8q("verify", self.copy(), "--reference", self.reference, "--quiet")
        self.assertEqual(quiet.out, b"")


class Levels(tool.Case):
    """The three errors of the field, on Gaussian weights."""

    def error(self, reference, output):
        line = ("verify", output, "--reference", reference, "--json")
        (found,) = self.fp8q(*line).json()["tensors"]
        return found["weight"]["rel_l2"]

    def test_levels(self):
        source = quantizer.gaussian((512, 1024), 7)
        reference = self.dir / "x.safetensors"
        tensors.write(reference, {WEIGHT: source})
        errors = {}
        for scale_format in ("f32", "pow2"):
            output = self.dir / f"{scale_format}.safetensors"
            line = ("convert", reference, "-o", output, "--scale-format", scale_format)
            self.fp8q(*line, "--quiet")
            errors[scale_format] = self.error(reference, output)
        # As engines do on Blackwell: cast back in FP32, quantize to powers of two. Metadata say it.
        again, cast = self.dir / "again.safetensors", self.dir / "f32.back.safetensors"
        self.fp8q("dequant", self.dir / "f32.safetensors", "-o", cast, "--dtype", "f32", "--quiet")
        self.fp8q("convert", cast, "-o", again, "--scale-format", "pow2", "--quiet")
        header = tensors.read_header(again)
        metadata = {**header.metadata, "fp8q.source_dtype": "F8_E4M3"}
        tensors.write(again, tensors.read(again), metadata)
        errors["requantized"] = self.error(reference, again)
        self.assertAlmostEqual(errors["f32"], 0.0265, delta=0.0002)
        self.assertAlmostEqual(errors["pow2"], 0.0266, delta=0.0002)
        self.assertAlmostEqual(errors["requantized"], 0.0376, delta=0.0008)


if __name__ == "__main__":
    tool.main()
