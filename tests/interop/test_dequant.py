"""dequant against numpy and ml_dtypes: own outputs and foreign ones, bounds, and round trips."""

from support import model, tensors, tool

try:
    import ml_dtypes
    import numpy as np

    import reference
    from files import load_config, numpy_of, open_folder, tensor_of
    from models import Random
except ImportError:
    pass  # main() says what is absent, and skips

UE8M0 = ("pow2", "e8m0", "packed")


class RoundTrip(tool.Case):
    """convert, dequant, and again."""

    def there_and_back(self, source, tag, scale_format, dtype="bf16"):
        """Folders: quantized, and cast back."""
        there, back = self.dir / f"there-{tag}", self.dir / f"back-{tag}-{dtype}"
        self.fp8q("convert", source, "-o", there, "--scale-format", scale_format, "--force")
        self.fp8q("dequant", there, "-o", back, "--dtype", dtype)
        return there, back

    def assert_cast_back(self, source, there, back, dtype):
        """Every bit of the weights, the bound of the error, and what else is in the folder."""
        quantized, found = open_folder(there), open_folder(back)
        self.assertEqual(found.keys(), source.content.keys())
        for name, tensor in source.content.items():
            if name not in source.quantized:
                self.assertTensor(found[name], tensor, name)
                continue
            original = reference.as_float32(numpy_of(tensor))
            pow2 = quantized[name + "_scale_inv"].dtype != "F32" or "pow2" in there.name
            codes, scales = reference.quantize(numpy_of(tensor), pow2)
            expected = reference.dequantize(codes, scales, dtype)
            self.assertEqual((found[name].dtype, found[name].shape), (dtype, tensor.shape))
            self.assertBytes(found[name].data, expected.tobytes(), name)
            largest = float(ml_dtypes.finfo(reference.DTYPES[dtype]).max)
            error = np.abs(reference.as_float32(expected) - original.astype(np.float64))
            within = error <= reference.error_bound(original, scales, dtype)
            self.assertTrue((within | (np.abs(original) > largest * 0.96)).all(), name)
        self.assertNotIn("quantization_config", load_config(back))
        for path in back.glob("*.safetensors"):
            self.assertEqual(tensors.layout_faults(path), [])
        if (back / model.INDEX).exists():
            self.assertEqual(model.index_faults(back), [])

    def test_cast_back_to_every_dtype(self):
        source = Random(11, "BF16")
        folder = source.write(self.dir / "in", 3)
        for dtype in ("BF16", "F16", "F32"):
            for scale_format in ("f32", *UE8M0):
                with self.subTest(dtype=dtype, scale_format=scale_format):
                    tag = f"{scale_format}-{dtype}"
                    there, back = self.there_and_back(folder, tag, scale_format, dtype.lower())
                    self.assert_cast_back(source, there, back, dtype)

    def test_sources_in_f16_and_f32(self):
        for dtype in ("F16", "F32"):
            source = Random(12, dtype)
            folder = source.write(self.dir / dtype, 2)
            there, back = self.there_and_back(folder, dtype, "f32")
            self.assert_cast_back(source, there, back, "BF16")

    def test_again_gives_the_same(self):
        """UE8M0 loses nothing after the first time; FP32 scales of BF16 weights are found again."""
        source = Random(13, "BF16")
        folder = source.write(self.dir / "in", 2)
        for scale_format in ("f32", *UE8M0):
            with self.subTest(scale_format=scale_format):
                tag = f"1-{scale_format}"
                there, back = self.there_and_back(folder, tag, scale_format)
                again, back_again = self.there_and_back(back, f"2-{scale_format}", scale_format)
                if scale_format == "f32":
                    self.assertTensors(open_folder(again), open_folder(there))
                self.assertTensors(open_folder(back_again), open_folder(back))

    def test_scales_in_other_shards(self):
        """The same tensors dealt out anew, weights apart from their scales, cast back the same."""
        source = Random(15, "BF16")
        folder = source.write(self.dir / "in", 2)
        for scale_format in ("f32", *UE8M0):
            with self.subTest(scale_format=scale_format):
                there, back = self.there_and_back(folder, scale_format, scale_format)
                shards = {"1.safetensors": {}, "2.safetensors": {}, "3.safetensors": {}}
                for place, (name, tensor) in enumerate(open_folder(there).items()):
                    part = 3 if name.endswith("_scale_inv") else place % 2 + 1
                    shards[f"{part}.safetensors"][name] = tensor
                dealt = self.dir / f"dealt-{scale_format}"
                model.write_folder(dealt, shards, load_config(there))
                output = self.dir / f"out-{scale_format}"
                self.fp8q("dequant", dealt, "-o", output)
                self.assertTensors(open_folder(output), open_folder(back))
                self.assertEqual(model.index_faults(output), [])
                self.assertFalse((output / "3.safetensors").exists())

    def test_config_comes_back_byte_for_byte(self):
        source = Random(14, "BF16")
        folder = source.write(self.dir / "in", 1)
        _, back = self.there_and_back(folder, "x", "pow2")
        before, after = ((path / "config.json").read_bytes() for path in (folder, back))
        self.assertEqual(after, before)


class Foreign(tool.Case):
    """Checkpoints of other makers: names, dtypes and shapes of scales, sizes of blocks."""

    ROWS, COLS = 300, 520

    def cast_back(
        self, block, scale, name="a.weight_scale_inv", quantization=None, weight="a.weight"
    ):
        """dequant of a folder with one weight; its scale is an array with a dtype name."""
        rng = np.random.default_rng(21)
        codes = rng.integers(0, 256, (self.ROWS, self.COLS), np.uint8)
        codes[(codes & 0x7F) == 0x7F] = 0
        content = {
            weight: tensors.Tensor("F8_E4M3", codes.shape, codes.tobytes()),
            name: tensor_of(*scale),
        }
        quantization = {
            "quant_method": "fp8",
            "weight_block_size": list(block),
            **(quantization or {}),
        }
        source = self.dir / f"in{len(list(self.dir.iterdir()))}"
        shards = {"model.safetensors": content}
        model.write_folder(source, shards, {"quantization_config": quantization})
        output = self.dir / f"{source.name}-out"
        self.fp8q("dequant", source, "-o", output)
        found = open_folder(output)
        self.assertEqual(found.keys(), {weight})
        return codes, found[weight]

    def expected(self, codes, scales, block):
        grid = np.repeat(np.repeat(scales, block[0], 0), block[1], 1)[: self.ROWS, : self.COLS]
        values = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
        return (values * grid).astype(ml_dtypes.bfloat16).tobytes()

    def random_scales(self, block):
        rng = np.random.default_rng(22)
        shape = (-(-self.ROWS // block[0]), -(-self.COLS // block[1]))
        return np.exp(rng.standard_normal(shape)).astype(np.float32)

    def test_names_and_dtypes(self):
        scales = self.random_scales((128, 128))
        for suffix in ("weight_scale_inv", "weight_scale", "scale"):
            for dtype in ("F32", "BF16", "F16"):
                with self.subTest(suffix=suffix, dtype=dtype):
                    stored = scales.astype(reference.DTYPES[dtype])
                    codes, found = self.cast_back((128, 128), (dtype, stored), f"a.{suffix}")
                    expected = self.expected(codes, stored.astype(np.float32), (128, 128))
                    self.assertBytes(found.data, expected, "weight")

    def test_block_sizes(self):
        for block in ((32, 32), (1, 128), (64, 128), (128, 64)):
            with self.subTest(block=block):
                scales = self.random_scales(block)
                codes, found = self.cast_back(block, ("F32", scales))
                self.assertBytes(found.data, self.expected(codes, scales, block), "weight")

    def test_exponents(self):
        """F8_E8M0 scales, the lowest (2^-127, an FP32 subnormal) among them."""
        rng = np.random.default_rng(23)
        for block in ((128, 128), (32, 32)):
            shape = self.random_scales(block).shape
            bytes_ = rng.integers(100, 140, shape).astype(np.uint8)
            bytes_[0, 0] = 0
            stored = bytes_.view(ml_dtypes.float8_e8m0fnu)
            config = {"scale_fmt": "ue8m0"}
            codes, found = self.cast_back(block, ("F8_E8M0", stored), "a.scale", config)
            expected = self.expected(codes, stored.astype(np.float32), block)
            self.assertBytes(found.data, expected, "weight")

    def test_other_granularities_are_never_guessed(self):
        """One scale for a tensor or for each row is no grid of blocks."""
        codes = tensors.Tensor("F8_E4M3", (300, 520), bytes(300 * 520))
        for shape in ((), (1,), (1, 1), (300, 1)):
            with self.subTest(shape=shape):
                scale = tensor_of("F32", np.ones(shape))
                source, output = self.dir / "in.safetensors", self.dir / "out.safetensors"
                tensors.write(source, {"a.weight": codes, "a.weight_scale": scale})
                result = self.fp8q("dequant", source, "-o", output, code=3)
                self.assertMentions(result, "a.weight_scale")
                self.assertAbsent(output)

    def test_tensor_glob_takes_only_those(self):
        source = Random(24, "BF16")
        folder = source.write(self.dir / "plain", 2)
        self.fp8q("convert", folder, "-o", self.dir / "fp8")
        glob = "*.q_proj.weight"
        self.fp8q("dequant", self.dir / "fp8", "-o", self.dir / "some", "--tensor", glob)
        names = open_folder(self.dir / "some").keys()
        self.assertEqual(names, {n for n in source.content if n.endswith(".q_proj.weight")})


if __name__ == "__main__":
    tool.main(needs=("numpy", "ml_dtypes", "safetensors"))
