"""One thing broken in a good conversion: verify must fail, and name the place."""

import struct

from checkpoints import DOWN, LAYER, Q, SCALE, UP, Case, make_foreign, read, rewrite, write
from support import codec, quantizer, tensors, tool


class BrokenWeights(Case):
    """Bytes of weights and scales of files that fp8q made."""

    def test_a_flipped_bit_of_any_code_is_found(self):
        for scale_format, bit in (("f32", 0), ("pow2", 3), ("e8m0", 6), ("packed", 7)):
            folder = self.copy(scale_format)
            data = read(folder, DOWN)
            data[200 * 384 + 301] ^= 1 << bit
            write(folder, DOWN, data)
            failed = self.only_failure(folder, DOWN)
            self.assertEqual(failed["weight"]["codes_differ"], 1)
            self.assertEqual(failed["weight"]["first_code_differ"], [200, 301])
            self.assertEqual(failed["weight"]["scales_differ"], 0)
            self.assertIn("row 200, column 301", failed["reasons"][0])

    def test_a_scale_one_ulp_off(self):
        folder = self.copy()
        data = read(folder, DOWN + SCALE)
        data[4 * 4] ^= 1
        write(folder, DOWN + SCALE, data)
        failed = self.only_failure(folder, DOWN)
        self.assertEqual(failed["weight"]["scales_differ"], 1)
        self.assertEqual(failed["weight"]["first_scale_differ"], [1, 1])
        self.assertIn("block [1, 1]", " ".join(failed["reasons"]))

    def scale_doubled(self, folder):
        data = read(folder, DOWN + SCALE)
        scales = list(struct.unpack("<9f", data))
        scales[5] *= 2
        write(folder, DOWN + SCALE, struct.pack("<9f", *scales))
        return self.only_failure(folder, DOWN)["weight"]

    def test_a_scale_twice_as_large(self):
        weight = self.scale_doubled(self.copy())
        self.assertEqual((weight["scales_differ"], weight["first_scale_differ"]), (1, [1, 2]))
        self.assertEqual(weight["worst_block"], [1, 2])
        self.assertGreater(weight["worst_block_rel_l2"], 0.9)
        weight = self.scale_doubled(make_foreign(self.copy()))
        self.assertGreater(weight["elements_out_of_bound"], 10000)
        row, col = weight["first_out_of_bound"]
        self.assertEqual((row // 128, col // 128), (1, 2))

    def test_scales_transposed(self):
        for folder in (self.copy(), make_foreign(self.copy())):
            data = read(folder, Q + SCALE)
            data[4:8], data[8:12] = data[8:12], data[4:8]
            write(folder, Q + SCALE, data)
            failed = self.only_failure(folder, Q)
            self.assertEqual(failed["weight"]["scales_differ"], 2)
            self.assertEqual(failed["weight"]["first_scale_differ"], [0, 1])

    def test_scales_of_another_tensor(self):
        for folder in (self.copy(), make_foreign(self.copy())):
            write(folder, UP + SCALE, read(folder, LAYER + "mlp.gate_proj.weight" + SCALE))
            failed = self.only_failure(folder, UP)
            self.assertEqual(failed["weight"]["scales_differ"], 5)

    def test_powers_of_two_rounded_after_quantizing(self):
        for foreign in (False, True):
            folder = self.copy("pow2")
            if foreign:
                make_foreign(folder)
            write(folder, UP, read(self.shared / "f32", UP))
            failed = self.only_failure(folder, UP)
            self.assertGreater(failed["weight"]["codes_differ"], 10000)
            self.assertGreater(failed["weight"]["elements_out_of_bound"], 10000)
            self.assertGreater(failed["weight"]["rel_l2"], 0.1)

    def test_packed_words_in_row_major_order(self):
        folder = self.copy("packed")
        words = struct.unpack("<256I", read(folder, UP + SCALE))
        rows = [words[kp * 128 + row] for row in range(128) for kp in range(2)]
        write(folder, UP + SCALE, struct.pack("<256I", *rows))
        failed = self.only_failure(folder, UP)
        self.assertGreater(failed["weight"]["bad_scales"], 0)
        self.assertIn("packed words", failed["reasons"][0])

    def test_a_byte_of_packed_padding(self):
        for place in (4 * 258 + 1, 4 * 260 - 1):  # words of rows 258 and 259, which there are not
            folder = self.copy("packed")
            data = read(folder, DOWN + SCALE)
            data[place] = 1
            write(folder, DOWN + SCALE, data)
            self.assertIn("not 0", self.only_failure(folder, DOWN)["reasons"][0])
        folder = self.copy("packed")
        data = read(folder, DOWN + SCALE)
        data[3] = 1  # the byte of a fourth block, of three
        write(folder, DOWN + SCALE, data)
        self.assertIn("not 0", self.only_failure(folder, DOWN)["reasons"][0])

    def test_a_nan_code(self):
        for reference in (True, False):
            for code in (0x7F, 0xFF):
                folder = self.copy()
                data = read(folder, UP)
                data[3 * 640 + 600] = code
                write(folder, UP, data)
                failed = self.only_failure(folder, UP, reference=reference)
                self.assertEqual(failed["weight"]["nan"], 1)
                self.assertEqual(failed["weight"]["first_nan"], [3, 600])

    def test_two_rows_swapped(self):
        for folder in (self.copy(), make_foreign(self.copy())):
            data = read(folder, UP)
            data[640:1280], data[1280:1920] = data[1280:1920], data[640:1280]
            write(folder, UP, data)
            failed = self.only_failure(folder, UP)
            self.assertEqual(failed["weight"]["first_code_differ"][0], 1)
            self.assertGreater(failed["weight"]["codes_differ"], 1000)

    def test_codes_cut_instead_of_rounded(self):
        """Twice E4M3's error, on files that nothing tells the maker of."""
        folder = make_foreign(self.copy())
        content = tensors.read(self.reference / "model-00002-of-00002.safetensors")[UP]
        weight, _ = quantizer.quantize(content, Truncated)
        write(folder, UP, weight.data)
        self.assertGreater(self.only_failure(folder, UP)["weight"]["elements_out_of_bound"], 10000)

    def test_bad_scales_are_found_without_the_reference(self):
        flaws = {"nan": "NaN", "inf": "infinite", "-1.0": "negative", "0.0": "zero"}
        for value, word in flaws.items():
            folder = self.copy()
            data = read(folder, DOWN + SCALE)
            data[20:24] = struct.pack("<f", float(value))
            write(folder, DOWN + SCALE, data)
            for reference in (False, True):
                failed = self.only_failure(folder, DOWN, reference=reference)
                self.assertEqual(failed["weight"]["first_bad_scale"], [1, 2])
                self.assertIn(f"block [1, 2] is {word}", failed["reasons"][0])

    def test_a_scale_that_is_no_power_of_two(self):
        for folder in (self.copy("pow2"), make_foreign(self.copy("pow2"))):
            data = read(folder, DOWN + SCALE)
            data[16] = 1
            write(folder, DOWN + SCALE, data)
            failed = self.only_failure(folder, DOWN, reference=False)
            self.assertIn("block [1, 1] is no power of two", failed["reasons"][0])

    def test_a_reference_that_is_not_finite(self):
        other = self.dir / "in"
        content = tensors.read(self.reference / "model-00002-of-00002.safetensors")
        data = bytearray(content[UP].data)
        data[2 * 700 : 2 * 701] = b"\x80\x7f"
        content[UP] = tensors.Tensor("BF16", content[UP].shape, bytes(data))
        other.mkdir()
        tensors.write(other / "model.safetensors", content, {"format": "pt"})
        folder = self.copy()
        line = ("verify", folder, "--reference", other, "--json", "--tensor", UP)
        (failed,) = self.fp8q(*line, code=1).json()["tensors"]
        self.assertIn("row 1, column 60", " ".join(failed["reasons"]))


class Many(tool.Case):
    """What is wrong as a whole does not fill the terminal: the worst are listed, JSON has all."""

    def test_text_and_json(self):
        content = {}
        for layer in range(130):
            name = f"model.layers.{layer}.mlp.up_proj.weight"
            content[name] = codec.filled("F8_E4M3", (128, 128), b"\x38")
            content[name + SCALE] = codec.f32_tensor((1, 1), [0.0 if layer < 120 else 1.0])
        path = self.dir / "q.safetensors"
        tensors.write(path, content)
        text = self.fp8q("verify", path, "--no-gemm", code=1).out.decode()
        self.assertEqual(text.count("FAIL  "), 100)
        self.assertIn("and 20 more that fail; --json lists all", text)
        self.assertEqual(text.count("An engine would compute garbage"), 1)
        report = self.fp8q("verify", path, "--no-gemm", "--json", code=1).json()
        self.assertEqual(report["summary"]["n_failed"], 120)
        cures = {tensor["verdict"]: tensor["cure"] for tensor in report["tensors"]}
        self.assertIsNone(cures["pass"])
        self.assertIn("Get the file again", cures["fail"])

    def test_copies_that_differ(self):
        weight = quantizer.gaussian((128, 128), 1)
        codes, scale = quantizer.quantize(weight, quantizer.Ieee)
        original, content = {UP: weight}, {UP: codes, UP + SCALE: scale}
        for layer in range(130):
            name = f"model.layers.{layer}.norm.weight"
            original[name] = codec.f32_tensor((1,), [1.0])
            content[name] = codec.f32_tensor((1,), [2.0])
        tensors.write(self.dir / "x.safetensors", original)
        tensors.write(self.dir / "q.safetensors", content)
        line = ("verify", self.dir / "q.safetensors", "--reference", self.dir / "x.safetensors")
        text = self.fp8q(*line, code=1).out.decode()
        self.assertEqual(text.count("problem: "), 100)
        self.assertIn("and 30 more problems; --json lists all", text)
        self.assertEqual(len(self.fp8q(*line, "--json", code=1).json()["problems"]), 130)


class Truncated(quantizer.Ieee):
    """Towards zero."""

    @staticmethod
    def scaled(weight, scale, amax):
        value = quantizer.codec.f32(weight / scale)
        code = quantizer.encode(value)
        nearest = quantizer.codec.E4M3[code]
        return quantizer.codec.E4M3[code - 1] if abs(nearest) > abs(value) else nearest


class BrokenCopies(Case):
    """Tensors that are not quantized."""

    def test_a_flipped_bit_is_found(self):
        for name, byte, place in (
            ("model.norm.weight", 4 * 77 + 2, "row 0, column 77"),
            (LAYER + "mlp.gate.weight", 2 * (5 * 256 + 9), "row 5, column 9"),
        ):
            folder = self.copy()
            data = read(folder, name)
            data[byte] ^= 0x10
            write(folder, name, data)
            self.only_problem(folder, name, "1 byte differs", place)

    def test_another_dtype(self):
        def cast(content):
            if LAYER + "mlp.gate.weight" in content:
                shape = content[LAYER + "mlp.gate.weight"].shape
                content[LAYER + "mlp.gate.weight"] = tensors.Tensor("F32", shape, bytes(4 * 16 * 256))

        folder = self.copy()
        rewrite(folder, cast)
        self.only_problem(folder, "mlp.gate.weight", "is F32 [16, 256], but BF16 [16, 256]")


if __name__ == "__main__":
    tool.main()
