"""convert against numpy and ml_dtypes: random models, every source dtype, every scale format."""

from support import model, tensors, tool

try:
    import numpy as np
    from safetensors.numpy import save_file

    import reference
    from files import load_config, numpy_of, open_folder, tensor_of
    from models import Random
except ImportError:
    pass  # main() says what is absent, and skips

FORMATS = ("f32", "pow2", "e8m0", "packed")
CASES = (
    ("BF16", None, 1),
    ("BF16", "plain", 3),
    ("BF16", "transposed", 2),
    ("F16", None, 2),
    ("F32", "plain", 2),
)


class Convert(tool.Case):
    """Every tensor of every output, bit by bit."""

    def assert_quantized(self, found, name, matrix, scale_format):
        """The codes and the stored scales of one matrix."""
        codes, scales = reference.quantize(matrix, scale_format != "f32")
        dtype, stored = reference.stored_scale(scales, scale_format, matrix.shape[0])
        weight, scale = found[name], found[name + "_scale_inv"]
        self.assertEqual((weight.dtype, weight.shape), ("F8_E4M3", matrix.shape), name)
        self.assertEqual((scale.dtype, scale.shape), (dtype, stored.shape), name)
        self.assertBytes(scale.data, stored.tobytes(), f"{name}: scales")
        wrong = np.argwhere(np.frombuffer(weight.data, np.uint8).reshape(matrix.shape) != codes)
        self.assertEqual(wrong.tolist()[:3], [], f"{name}: codes")

    def experts_of(self, source, name):
        """The matrices that a fused tensor is split into, by their names in the output."""
        stacked = numpy_of(source.content[name])
        if source.fused[name]:
            stacked = stacked.transpose(0, 2, 1)
        prefix, part = name.rsplit(".", 1)
        for expert, matrix in enumerate(stacked):
            if part == "down_proj":
                yield f"{prefix}.{expert}.down_proj.weight", matrix
                continue
            half = matrix.shape[0] // 2
            yield f"{prefix}.{expert}.gate_proj.weight", matrix[:half]
            yield f"{prefix}.{expert}.up_proj.weight", matrix[half:]

    def assert_output(self, source, folder, output, scale_format):
        """All of an output folder against the model it was made from."""
        found = open_folder(output)
        expected = set()
        for name, tensor in source.content.items():
            if name in source.quantized:
                matrices = [(name, numpy_of(tensor))]
            elif name in source.fused:
                matrices = list(self.experts_of(source, name))
            else:
                expected.add(name)
                self.assertIn(name, found)
                self.assertTensor(found[name], tensor, name)
                continue
            for matrix_name, matrix in matrices:
                self.assert_quantized(found, matrix_name, matrix, scale_format)
                expected |= {matrix_name, matrix_name + "_scale_inv"}
        self.assertEqual(found.keys(), expected)
        self.assert_files(source, folder, output, scale_format)

    def assert_files(self, source, folder, output, scale_format):
        """Layout, metadata, neighbours, index and config."""
        names = {path.name for path in folder.iterdir()}
        self.assertEqual({path.name for path in output.iterdir()}, names)
        for path in output.glob("*.safetensors"):
            self.assertEqual(tensors.layout_faults(path), [])
            header = tensors.read_header(path)
            self.assertEqual(header.metadata["format"], "pt")
            self.assertEqual(header.metadata["fp8q.scale_format"], scale_format)
            self.assertEqual(header.metadata["fp8q.source_dtype"], source.dtype)
            for name in header.entries:
                if name.endswith("_scale_inv"):
                    self.assertIn(name.removesuffix("_scale_inv"), header.entries)
        if (folder / model.INDEX).exists():
            self.assertEqual(model.index_faults(output), [])
        before, after = ((path / "config.json").read_text() for path in (folder, output))
        self.assertIn('"quantization_config"', model.splice(before, after))
        quantization = load_config(output)["quantization_config"]
        self.assertEqual(quantization.get("scale_fmt"), None if scale_format == "f32" else "ue8m0")
        self.assertEqual(quantization["fp8q"]["scale_format"], scale_format)
        self.assertEqual(quantization["weight_block_size"], [128, 128])
        modules = set(quantization["modules_to_not_convert"])
        self.assertTrue({"lm_head", "model.layers.0.mlp.gate", "model.layers.1.small"} <= modules)
        self.assertFalse(modules & {name.removesuffix(".weight") for name in source.quantized})

    def test_random_models(self):
        for seed, (dtype, experts, shards) in enumerate(CASES):
            source = Random(seed, dtype, experts)
            folder = source.write(self.dir / f"in{seed}", shards)
            for scale_format in FORMATS:
                with self.subTest(dtype=dtype, experts=experts, scale_format=scale_format):
                    output = self.dir / f"out{seed}-{scale_format}"
                    before = model.snapshot(folder)
                    line = ["convert", folder, "-o", output, "--scale-format", scale_format]
                    self.fp8q(*line)
                    self.assert_output(source, folder, output, scale_format)
                    self.assertEqual(model.snapshot(folder), before)

    def test_odd_names_and_shapes_by_include(self):
        source = self.dir / "in"
        rng = np.random.default_rng(9)
        shapes = [(1, 1), (1, 129), (129, 1), (127, 127), (128, 129), (257, 511), (5, 1025)]
        content = {
            f"{name}.weight": tensor_of("BF16", rng.standard_normal(shape))
            for name, shape in zip('äöü\t"\\/', shapes, strict=True)
        }
        model.write_folder(source, {"model.safetensors": content}, {})
        for scale_format in FORMATS:
            output = self.dir / f"out-{scale_format}"
            line = ["convert", source, "-o", output, "--scale-format", scale_format]
            self.fp8q(*line, "--include", "*.weight")
            found = open_folder(output)
            for name, tensor in content.items():
                self.assert_quantized(found, name, numpy_of(tensor), scale_format)

    def test_files_written_by_the_safetensors_package(self):
        """It sorts tensors its own way. From numpy every version of it writes F16 and F32."""
        rng = np.random.default_rng(5)
        arrays = {
            "z.o_proj.weight": rng.standard_normal((256, 384)).astype(np.float16),
            "a.o_proj.weight": rng.standard_normal((384, 256)).astype(np.float32),
            "ids": rng.integers(0, 9, 7),
        }
        source, output = self.dir / "in", self.dir / "out"
        source.mkdir()
        save_file(arrays, source / "model.safetensors", {"made": "by numpy"})
        self.fp8q("convert", source, "-o", output)
        found = open_folder(output)
        for name in list(arrays)[:2]:
            self.assert_quantized(found, name, arrays[name], "f32")
        self.assertTensor(found["ids"], tensor_of("I64", arrays["ids"]), "ids")
        metadata = tensors.read_header(output / "model.safetensors").metadata
        self.assertEqual((metadata["made"], metadata["format"]), ("by numpy", "pt"))

    def test_amax_floor(self):
        rng = np.random.default_rng(3)
        values = rng.standard_normal((256, 512)) * np.repeat([1e-3, 1e-6, 1e-38, 0], 128)
        content = {"a.weight": tensor_of("F32", values)}
        source = model.write_folder(self.dir / "in", {"model.safetensors": content}, {})
        for floor in ("0", "1e-12", "0.5"):
            for pow2 in (False, True):
                output = self.dir / f"out-{floor}-{pow2}"
                scale_format = "pow2" if pow2 else "f32"
                line = ["convert", source, "-o", output, "--amax-floor", floor]
                self.fp8q(*line, "--scale-format", scale_format)
                found = open_folder(output)
                codes, scales = reference.quantize(
                    numpy_of(content["a.weight"]), pow2, np.float32(floor)
                )
                self.assertBytes(found["a.weight_scale_inv"].data, scales.tobytes(), floor)
                self.assertBytes(found["a.weight"].data, codes.tobytes(), floor)


if __name__ == "__main__":
    tool.main(needs=("numpy", "ml_dtypes", "safetensors"))
