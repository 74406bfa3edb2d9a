"""The GEMM check: its figures are right, the same everywhere, and it finds what it is for."""

import struct

from checkpoints import DOWN, LAYER, Q, SCALE, UP, Case, read, write
from support import codec, quantizer, tensors, tool

COLS = {DOWN: 384, UP: 640, Q: 256}


def blocks(cols):
    """Where the blocks of a row begin and end."""
    return [(begin, min(begin + 128, cols)) for begin in range(0, cols, 128)]


def multiply(x, codes, scales, reference):
    """rel_l2 and kernel_rel_l2 of a weight, in plain Python: x a list of rows, codes and reference
    likewise; scales of its blocks. Python's floats are FP64."""
    cols = len(codes[0])
    sums = {"error": 0.0, "reference": 0.0, "kernel": 0.0, "exact": 0.0}
    for row in x:
        row_scales = [codec.f32(max(1e-4, *map(abs, row[b:e])) / 448) for b, e in blocks(cols)]
        row_codes = [codec.E4M3[quantizer.encode(codec.f32(value / row_scales[i // 128]))]
                     for i, value in enumerate(row)]  # fmt: skip
        for n, weights in enumerate(codes):
            product = exact = expected = 0.0
            for k, (begin, end) in enumerate(blocks(cols)):
                partial = partial_exact = 0.0
                for i in range(begin, end):
                    partial = codec.f32(partial + row_codes[i] * weights[i])
                    partial_exact += row_codes[i] * weights[i]
                    expected += row[i] * reference[n][i]
                scale = scales[n // 128 * len(blocks(cols)) + k]
                both = codec.f32(row_scales[k] * scale)
                product = codec.f32(product + codec.f32(partial * both))
                exact += partial_exact * (row_scales[k] * scale)
            sums["error"] += (product - expected) ** 2
            sums["reference"] += expected**2
            sums["kernel"] += (product - exact) ** 2
            sums["exact"] += exact**2
    return ((sums["error"] / sums["reference"]) ** 0.5, (sums["kernel"] / sums["exact"]) ** 0.5)


def rows_of(tensor):
    """A matrix as a list of rows."""
    values, cols = codec.floats(tensor), tensor.shape[1]
    return [values[i : i + cols] for i in range(0, len(values), cols)]


class GemmCase(Case):
    """What the tests below share."""

    def gemms(self, folder, *options, **more):
        """The GEMM figures by weight."""
        report = self.verify(folder, *options, **more)
        return {tensor["name"]: tensor["gemm"] for tensor in report["tensors"]}

    def captured(self, **kinds):
        """A file of activations, by name."""
        path = self.dir / "x.safetensors"
        tensors.write(path, kinds)
        return path


class Figures(GemmCase):
    """Of good conversions."""

    def test_every_scale_format(self):
        figures = {}
        for scale_format in ("f32", "pow2", "e8m0", "packed"):
            figures[scale_format] = self.gemms(self.copy(scale_format))
            for gemm in figures[scale_format].values():
                self.assertEqual(gemm["tokens"], 128)
                self.assertTrue(0.036 < gemm["rel_l2"] < 0.039, gemm)
                self.assertTrue(0 < gemm["kernel_rel_l2"] < 1e-6, gemm)
        self.assertEqual(figures["e8m0"], figures["pow2"])
        self.assertEqual(figures["packed"], figures["pow2"])
        self.assertNotEqual(figures["f32"], figures["pow2"])

    def test_the_summary_is_the_root_of_the_mean_square(self):
        report = self.verify(self.copy())
        errors = [tensor["gemm"]["rel_l2"] for tensor in report["tensors"]]
        mean = sum(error * error for error in errors) / len(errors)
        self.assertAlmostEqual(report["summary"]["gemm_rel_l2"], mean**0.5, delta=1e-9)

    def test_against_plain_python(self):
        folder = self.copy()
        x = quantizer.gaussian((2, COLS[DOWN]), 9, scale=3.0)
        gemm = self.gemms(folder, "--activations", self.captured(down=x))[DOWN]
        weight, scale = (tensors.Tensor(kind, shape, bytes(read(folder, name))) for kind, shape, name
                         in (("F8_E4M3", (258, 384), DOWN), ("F32", (3, 3), DOWN + SCALE)))  # fmt: skip
        reference = tensors.Tensor("BF16", (258, 384), bytes(read(self.reference, DOWN)))
        rel_l2, kernel = multiply(rows_of(x), rows_of(weight), codec.floats(scale),
                                  rows_of(reference))  # fmt: skip
        self.assertEqual(gemm["tokens"], 2)
        self.assertAlmostEqual(gemm["rel_l2"] / rel_l2, 1, delta=1e-7)
        self.assertAlmostEqual(gemm["kernel_rel_l2"] / kernel, 1, delta=1e-7)

    def test_the_same_for_any_threads_memory_and_variant(self):
        folder = self.copy("packed")
        first = self.gemms(folder)
        for options in (("--threads", "1"), ("--threads", "7", "--memory", "14M")):
            self.assertEqual(self.gemms(folder, *options), first)
        line = ("verify", folder, "--reference", self.reference, "--json")
        plain = self.fp8q(*line, env={"FP8Q_CPU": "plain"}).json()
        self.assertEqual({tensor["name"]: tensor["gemm"] for tensor in plain["tensors"]}, first)

    def test_tokens_and_seed(self):
        folder = self.copy()
        by_default = self.gemms(folder)
        self.assertEqual(self.gemms(folder, "--seed", "0", "--tokens", "128"), by_default)
        other = self.gemms(folder, "--seed", "18446744073709551615")
        self.assertNotEqual(other[UP]["rel_l2"], by_default[UP]["rel_l2"])
        for tokens in (1, 33, 300):
            gemm = self.gemms(folder, "--tokens", str(tokens))[UP]
            self.assertEqual(gemm["tokens"], tokens)
            self.assertTrue(0.03 < gemm["rel_l2"] < 0.045, gemm)

    def test_a_matrix_wider_than_a_band(self):
        path, output = self.dir / "wide.safetensors", self.dir / "wide-fp8.safetensors"
        tensors.write(path, {"a.weight": codec.bf16_tensor((130, 4736), 0.02)})
        self.fp8q("convert", path, "-o", output, "--scale-format", "packed", "--quiet")
        found = [
            self.fp8q("verify", output, "--reference", path, "--json", *options).json()["tensors"]
            for options in ((), ("--memory", "2M"))
        ]
        self.assertEqual(found[0], found[1])
        self.assertGreater(found[0][0]["gemm"]["rel_l2"], 0.02)

    def test_a_matrix_higher_than_what_is_multiplied_at_once(self):
        path, output = self.dir / "high.safetensors", self.dir / "high-fp8.safetensors"
        values = codec.floats(quantizer.gaussian((1100, 200), 11))
        values = [value * 2 ** (i // 200 // 128) for i, value in enumerate(values)]
        tensors.write(path, {"a.weight": codec.bf16_tensor((1100, 200), values)})
        for scale_format in ("f32", "packed"):
            line = ("convert", path, "-o", output, "--scale-format", scale_format, "--force")
            self.fp8q(*line, "--quiet")
            found = self.fp8q("verify", output, "--reference", path, "--json").json()["tensors"]
            self.assertTrue(0.036 < found[0]["gemm"]["rel_l2"] < 0.039, found)
            self.assertLess(found[0]["gemm"]["kernel_rel_l2"], 1e-6)

    def test_what_is_not_multiplied(self):
        path = self.dir / "odd.safetensors"
        tensors.write(path, {
            "wide.weight": tensors.Tensor("F8_E4M3", (4, 40000), bytes(160000)),
            "wide.weight_scale_inv": codec.f32_tensor((1, 313), [1.0] * 313),
            "small.weight": tensors.Tensor("F8_E4M3", (64, 64), bytes(4096)),
            "small.weight_scale_inv": tensors.Tensor("U8", (64, 2), bytes([127] * 128)),
        })  # fmt: skip
        report = self.fp8q("verify", path, "--json", "--tokens", "1024").json()
        self.assertEqual([tensor["gemm"] for tensor in report["tensors"]], [None, None])
        self.assertIn("wide.weight: not multiplied: too wide for so many tokens", report["notes"])
        self.assertIn("small.weight: not multiplied: blocks that are not 128 x 128", report["notes"])

    def error_of(self, values, scale_format="f32"):
        """rel_l2 of a square weight; what fp8q makes of it passes."""
        path, output = self.dir / "far.safetensors", self.dir / "far-fp8.safetensors"
        tensors.write(path, {"a.weight": codec.bf16_tensor((128, 128), values)})
        self.fp8q("convert", path, "-o", output, "--amax-floor", "0", "--quiet", "--force",
                  "--scale-format", scale_format)  # fmt: skip
        report = self.fp8q("verify", output, "--reference", path, "--json").json()
        return report["tensors"][0]["gemm"]["rel_l2"]

    def test_values_that_fp32_cannot_hold_are_no_fault_of_the_weights(self):
        gaussian = codec.floats(quantizer.gaussian((128, 128), 12))
        for factor, finite in ((1e39, False), (1e-36, False), (1e-20, True), (1e20, True)):
            for scale_format in ("f32", "pow2"):
                error = self.error_of([value * factor for value in gaussian], scale_format)
                self.assertEqual(error is not None, finite)

    def test_rows_that_fp32_holds_in_part_are_left_out_whole(self):
        gaussian = codec.floats(quantizer.gaussian((128, 128), 12))
        # Products are about 16 times 2^100: one in 20 cancels to less, and is all error.
        self.assertIsNone(self.error_of([value * 1e32 for value in gaussian]))
        # In some rows, all are under 2^100, or one is over 2^-100.
        for factor in (2e30, 1e-30):
            error = self.error_of([value * factor for value in gaussian])
            self.assertTrue(0.034 < error < 0.04, error)

    def test_a_great_row_that_is_left_out_is_no_fault_of_those_beside_it(self):
        values = codec.floats(quantizer.gaussian((128, 128), 12))
        values[:128] = [value * 1e33 for value in values[:128]]
        self.assertEqual(self.error_of(values), 1.0)  # all other codes are 0

    def test_without_a_reference(self):
        for gemm in self.gemms(self.copy("packed"), reference=False).values():
            self.assertIsNone(gemm["rel_l2"])
            self.assertTrue(0 < gemm["kernel_rel_l2"] < 1e-6)

    def test_no_gemm(self):
        for gemm in self.gemms(self.copy(), "--no-gemm").values():
            self.assertIsNone(gemm)


class Activations(GemmCase):
    """Where they come from."""

    def test_outliers(self):
        folder = self.copy()
        normal = self.gemms(folder)[UP]["rel_l2"]
        for magnitude, low, high in (("1e1", 0.99, 1.05), ("1e5", 1.4, 2.0)):
            gemm = self.gemms(folder, "--activations", "outlier:" + magnitude)[UP]
            self.assertTrue(low < gemm["rel_l2"] / normal < high, gemm)
        self.assertEqual(self.gemms(folder, "--activations", "outlier"),
                         self.gemms(folder, "--activations", "outlier:1000"))  # fmt: skip

    def test_outliers_that_drown_the_others_are_no_fault_of_the_weights(self):
        gemm = self.gemms(self.copy(), "--activations", "outlier:1e9")[UP]
        self.assertGreater(gemm["rel_l2"], 0.3)

    def test_captured_by_name_and_by_width(self):
        folder = self.copy()
        gaussian = quantizer.gaussian
        path = self.captured(**{
            UP: gaussian((40, 640), 1),
            LAYER + "mlp.gate_proj": gaussian((50, 640), 2),
            "anything": gaussian((60, 256), 3),
        })  # fmt: skip
        report = self.verify(folder, "--activations", path)
        gemms = {tensor["name"]: tensor["gemm"] for tensor in report["tensors"]}
        self.assertEqual(report["activations"]["kind"], "captured")
        self.assertEqual(gemms[UP]["tokens"], 40)
        self.assertEqual(gemms[LAYER + "mlp.gate_proj.weight"]["tokens"], 50)
        self.assertEqual(gemms[Q]["tokens"], 60)
        self.assertIsNone(gemms[DOWN])
        self.assertIn(DOWN + ": not multiplied: no activations of that width", report["notes"])
        line = ("verify", folder, "--reference", self.reference, "--activations", path)
        shown = self.fp8q(*line).out
        self.assertIn(b"the product with 40 to 60 tokens of captured activations", shown)
        shown = self.fp8q(*line, "--tensor", UP).out
        self.assertIn(b"the product with 40 tokens of captured activations", shown)

    def test_files_that_are_no_use(self):
        folder = self.copy()
        scalar = self.captured(a=codec.f32_tensor((), [1.0]))
        line = ("verify", folder, "--activations")
        self.assertMentions(self.fp8q(*line, scalar, code=2), "no tensor [tokens, columns]")
        self.assertMentions(self.fp8q(*line, self.dir / "gone.safetensors", code=4), "gone")
        for word in ("", "norm", "outlier:", "outlier:0", "outlier:-1", "outlier:nan", "outlier:1x"):
            self.assertMentions(self.fp8q(*line, word, code=2), "takes normal, outlier")
        values = [1.0] * (3 * 256)
        values[2 * 256 + 7] = float("inf")
        path = self.captured(q=codec.f32_tensor((3, 256), values))
        self.assertMentions(self.fp8q(*line, path, code=3), "row 2, column 7 is not finite")


class Limits(Case):
    """What fails."""

    def test_a_limit_that_is_given(self):
        folder = self.copy()
        self.verify(folder, "--max-gemm-error", "0.04")
        report = self.verify(folder, "--max-gemm-error", "0.01", code=1)
        self.assertEqual(report["summary"]["n_failed"], len(report["tensors"]))
        self.assertIn("--max-gemm-error", report["tensors"][0]["reasons"][0])
        self.verify(folder, "--max-gemm-error", "0.01", "--no-gemm")

    def test_a_scale_that_is_wrong_fails_the_product_too(self):
        folder = self.copy()
        data = read(folder, UP + SCALE)
        write(folder, UP + SCALE, struct.pack("<5f", *(4 * s for s in struct.unpack("<5f", data))))
        failed = self.only_failure(folder, UP)
        self.assertAlmostEqual(failed["gemm"]["rel_l2"], 3.0, delta=0.1)
        self.assertLess(failed["gemm"]["kernel_rel_l2"], 1e-6)
        self.assertIn("--max-gemm-error", " ".join(failed["reasons"]))

    def test_packed_words_in_row_major_order_show_in_the_product(self):
        for reference in (True, False):
            folder = self.copy("packed")
            words = struct.unpack("<256I", read(folder, UP + SCALE))
            rows = [words[kp * 128 + row] for row in range(128) for kp in range(2)]
            write(folder, UP + SCALE, struct.pack("<256I", *rows))
            failed = self.only_failure(folder, UP, reference=reference)
            self.assertGreater(failed["gemm"]["kernel_rel_l2"], 0.1)
            self.assertIn("layout of the scales", " ".join(failed["reasons"]))

    def test_a_nan_code_leaves_its_row_out(self):
        folder = self.copy()
        data = read(folder, UP)
        data[3 * 640 + 600] = 0x7F
        write(folder, UP, data)
        gemm = self.only_failure(folder, UP)["gemm"]
        self.assertTrue(0.036 < gemm["rel_l2"] < 0.039, gemm)


if __name__ == "__main__":
    tool.main()
