"""Values that were written wrong: ragged edges, zeros, outliers, rounding of scales, packing."""

import json
import struct

from support import codec, model, tensors, tool

FORMATS = ("f32", "pow2", "e8m0", "packed")


class Values(tool.Case):
    """convert on single tensors; each test names its row of the list of troubles."""

    def quantize(self, content, *options):
        """The tensors that convert makes of one file's, every `.weight` included."""
        source, output = self.dir / "in.safetensors", self.dir / "out.safetensors"
        tensors.write(source, content)
        line = ["convert", source, "-o", output, "--include", "*.weight", "--force", "--json"]
        self.report = self.fp8q(*line, *options).json()
        return tensors.read(output)

    def tile(self, *values, rest=0.0):
        return codec.bf16_tensor((128, 128), list(values) + [rest] * (128 * 128 - len(values)))

    def test_b03_ragged_edges_keep_their_tiles(self):
        rows, cols = 192, 320
        tile = [[2.0 ** (3 * row + col) for col in range(3)] for row in range(2)]
        values = [tile[i // 128][j // 128] for i in range(rows) for j in range(cols)]
        content = {"a.weight": codec.bf16_tensor((rows, cols), values)}
        found = self.quantize(content)
        scale = found["a.weight_scale_inv"]
        self.assertEqual(scale.shape, (2, 3))
        expected = [codec.f32(tile[row][col] / 448) for row in range(2) for col in range(3)]
        self.assertEqual(codec.floats(scale), expected)
        self.assertEqual(set(found["a.weight"].data), {0x7E})
        self.fp8q("dequant", self.dir / "out.safetensors", "-o", self.dir / "back.safetensors")
        self.assertTensors(tensors.read(self.dir / "back.safetensors"), content)

    def test_b03_grids_are_rounded_up(self):
        for shape, grid in (((576, 256), (5, 2)), ((1, 1), (1, 1)), ((129, 1), (2, 1))):
            found = self.quantize({"a.weight": codec.bf16_tensor(shape, 1.0)})
            self.assertEqual(found["a.weight"].shape, shape)
            self.assertEqual(found["a.weight_scale_inv"].shape, grid)

    def test_b21_zero_tiles_have_sound_scales(self):
        values = [1.0] + [0.0] * (256 * 256 - 1)
        content = {"a.weight": codec.bf16_tensor((256, 256), values)}
        for scale_format in FORMATS:
            found = self.quantize(content, "--scale-format", scale_format)
            self.assertNotIn(0x7F, {code & 0x7F for code in found["a.weight"].data})
            scale = found["a.weight_scale_inv"]
            if scale.dtype != "I32":
                self.assertTrue(all(0 < value < 1 for value in codec.floats(scale)), scale)
            self.fp8q("dequant", self.dir / "out.safetensors", "-o", self.dir / "b", "--force")
            self.assertTensors(tensors.read(self.dir / "b"), content)
            self.assertEqual(self.report["tensors"][0]["zero_blocks"], 3)

    def test_b24_codes_follow_the_rounded_scale(self):
        found = self.quantize({"a.weight": self.tile(1.0)}, "--scale-format", "pow2")
        self.assertEqual(codec.floats(found["a.weight_scale_inv"]), [2.0**-8])
        self.assertEqual(found["a.weight"].data[0], 0x78)

    def test_b25_pow2_means_powers_of_two(self):
        amaxes = [0.001 * 1.37**step for step in range(40)]
        values = [amaxes[column // 128] for column in range(40 * 128)]
        content = {"a.weight": codec.bf16_tensor((1, 40 * 128), values)}
        source = model.write_folder(self.dir / "in", {"model.safetensors": content}, {})
        output = self.dir / "out"
        self.fp8q("convert", source, "-o", output, "--include", "*", "--scale-format", "pow2")
        scale = tensors.read(output / "model.safetensors")["a.weight_scale_inv"]
        words = struct.unpack(f"<{len(amaxes)}I", scale.data)
        self.assertEqual([word & 0x807FFFFF for word in words], [0] * len(amaxes))
        config = json.loads((output / "config.json").read_text(encoding="utf-8"))
        self.assertEqual(config["quantization_config"]["scale_fmt"], "ue8m0")

    def test_b25_f32_promises_no_ue8m0(self):
        content = {"a.weight": self.tile(1.0)}
        source = model.write_folder(self.dir / "in", {"model.safetensors": content}, {})
        self.fp8q("convert", source, "-o", self.dir / "out")
        config = json.loads((self.dir / "out" / "config.json").read_text(encoding="utf-8"))
        self.assertNotIn("scale_fmt", config["quantization_config"])

    def test_b29_flushed_values_are_counted(self):
        self.quantize({"a.weight": self.tile(10000.0, rest=0.01)})
        (tensor,) = self.report["tensors"]
        self.assertEqual(tensor["flushed_to_zero"], 128 * 128 - 1)
        self.assertEqual(tensor["saturated"], 0)

    def test_b67_packed_words_lie_as_the_kernel_takes_them(self):
        rows, cols = 6, 640  # five groups of K: two words, the second with one byte used
        values = [2.0 ** (j // 128 - 3) for _ in range(rows) for j in range(cols)]
        content = {"a.weight": codec.bf16_tensor((rows, cols), values)}
        scale = self.quantize(content, "--scale-format", "packed")["a.weight_scale_inv"]
        # 2^k / 448 rounds up to 2^(k-8): its exponent byte is 127 + k - 8.
        first = sum((127 - 8 + group - 3) << 8 * group for group in range(4))
        words = [first] * rows + [0, 0] + [127 - 8 + 4 - 3] * rows + [0, 0]
        self.assertEqual((scale.dtype, scale.shape), ("I32", (2, 8)))
        self.assertEqual(list(struct.unpack("<16i", scale.data)), words)

    def test_b68_scales_are_fp32(self):
        found = self.quantize({"a.weight": self.tile(1.0)})
        self.assertEqual(found["a.weight_scale_inv"].data, struct.pack("<I", 0x3B124925))

    def test_b68_small_tiles_and_the_floor(self):
        content = {"a.weight": self.tile(1e-5)}
        amax = codec.floats(content["a.weight"])[0]
        floor = codec.f32(1e-4)
        for options, bound in (((), floor), (("--amax-floor", "0"), amax)):
            found = self.quantize(content, *options)
            self.assertEqual(codec.floats(found["a.weight_scale_inv"]), [codec.f32(bound / 448)])
            self.assertEqual(self.report["tensors"][0]["floored_blocks"], int(bound == floor))

    def test_b75_there_and_back_and_there_again(self):
        values = [((i * 7919) % 2003 - 1001) / 777.0 for i in range(256 * 256)]
        for scale_format in FORMATS:
            option = ("--scale-format", scale_format)
            once = self.quantize({"a.weight": codec.bf16_tensor((256, 256), values)}, *option)
            back = self.dir / "back.safetensors"
            self.fp8q("dequant", self.dir / "out.safetensors", "-o", back, "--force")
            twice = self.quantize(tensors.read(back), *option)
            self.assertTensors(twice, once)


class OtherDtypes(tool.Case):
    """Tensors that are not quantized keep their dtype and every bit."""

    def test_b60_fp32_tensors_stay_fp32(self):
        low_bits = [codec.f32(1 + i * 2.0**-23) for i in range(256)]
        kept = {
            "model.layers.0.mlp.gate.e_score_correction_bias": codec.f32_tensor((256,), low_bits),
            "model.layers.0.linear_attn.A_log": codec.f32_tensor((256,), low_bits),
            "model.norm.weight": codec.f32_tensor((256,), low_bits),
        }
        source = self.dir / "in.safetensors"
        tensors.write(source, {"a.weight": codec.bf16_tensor((128, 128), 1.0), **kept})
        there, back = self.dir / "there.safetensors", self.dir / "back.safetensors"
        self.fp8q("convert", source, "-o", there)
        self.fp8q("dequant", there, "-o", back)
        for path in (there, back):
            found = tensors.read(path)
            self.assertTensors({name: found[name] for name in kept}, kept)


if __name__ == "__main__":
    tool.main()
