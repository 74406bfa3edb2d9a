"""The golden data through the program: the bytes of PyTorch and DeepGEMM, however it is run."""

import hashlib
from pathlib import Path

from support import tensors, tool

GOLDEN = tool.ROOT / "tests" / "data" / "golden"
SHAPES = ("1x1", "128x128", "130x257", "130x1100", "256x384", "262x640", "300x100")
REFERENCES = {"f32": "w_fp32", "pow2": "w_ue8m0", "e8m0": "w_ue8m0.e8m0"}
WEIGHT, SCALE = "layer.weight", "layer.weight_scale_inv"
CPU_FLAGS = {"plain": (), "avx2": ("avx2",), "avx512": ("avx512f", "avx512bw")}


def load(name):
    return tensors.read(GOLDEN / f"{name}.safetensors")


def cpu_variants():
    """The names for FP8Q_CPU that this machine can run."""
    try:
        flags = set(Path("/proc/cpuinfo").read_text(encoding="ascii").split())
    except OSError:
        flags = set()
    return [name for name, needed in CPU_FLAGS.items() if flags.issuperset(needed)]


class Golden(tool.Case):
    """Bits of single matrices, and that no way of running changes them."""

    def setUp(self):
        super().setUp()
        self.source = self.dir / "x.safetensors"
        self.output = self.dir / "out.safetensors"

    def write_input(self, shape):
        tensors.write(self.source, {WEIGHT: load(f"{shape}.x")["x"]}, {"format": "pt"})

    def convert(self, scale_format, *options, **run_options):
        line = ["convert", self.source, "-o", self.output, "--scale-format", scale_format]
        self.fp8q(*line, "--include", WEIGHT, "--force", *options, **run_options)
        return tensors.read(self.output)

    def expected(self, shape, scale_format):
        """The reference's codes and scale tensor."""
        codes = load(f"{shape}.{'w_fp32' if scale_format == 'f32' else 'w_ue8m0'}")[WEIGHT]
        if scale_format == "packed":
            return {WEIGHT: codes, SCALE: load(f"{shape}.sf")["w_sf_packed"]}
        return {WEIGHT: codes, SCALE: load(f"{shape}.{REFERENCES[scale_format]}")[SCALE]}

    def test_quantize(self):
        for shape in SHAPES:
            self.write_input(shape)
            for scale_format in (*REFERENCES, "packed"):
                with self.subTest(shape=shape, scale_format=scale_format):
                    found = self.convert(scale_format)
                    self.assertTensors(found, self.expected(shape, scale_format))

    def test_packed_is_deepgemms_own(self):
        for shape in ("1x1", "128x128", "130x257", "256x384", "300x100"):
            self.write_input(shape)
            operand = load(f"{shape}.sf_deepgemm")["w_sf_packed"]
            self.assertTensor(self.convert("packed")[SCALE], operand, shape)

    def test_dequantize(self):
        for shape in SHAPES:
            for scale_format, name in REFERENCES.items():
                with self.subTest(shape=shape, scale_format=scale_format):
                    content = self.expected(shape, scale_format)
                    tensors.write(self.source, content)
                    self.fp8q("dequant", self.source, "-o", self.output, "--force")
                    wanted = load(f"{shape}.{name.removesuffix('.e8m0')}.deq")[WEIGHT]
                    self.assertTensors(tensors.read(self.output), {WEIGHT: wanted})

    def assert_same_file(self, scale_format, digests, *options, **run_options):
        self.convert(scale_format, *options, **run_options)
        digest = hashlib.sha256(self.output.read_bytes()).hexdigest()
        digests.setdefault(scale_format, digest)
        self.assertEqual(digest, digests[scale_format], (options, run_options))

    def test_threads_memory_and_instructions_change_no_bit(self):
        digests = {}
        self.write_input("262x640")
        for scale_format in (*REFERENCES, "packed"):
            for threads in range(1, 9):
                self.assert_same_file(scale_format, digests, "--threads", threads)
            for memory in ("4M", "16M", "100M", "1G"):
                self.assert_same_file(scale_format, digests, "--memory", memory)
            for variant in cpu_variants():
                self.assert_same_file(scale_format, digests, env={"FP8Q_CPU": variant})
        self.assertEqual(len(set(digests.values())), 4)

    def test_every_variant_reaches_every_shape(self):
        for variant in cpu_variants():
            for shape in SHAPES:
                self.write_input(shape)
                for scale_format in ("f32", "pow2"):
                    with self.subTest(variant=variant, shape=shape, scale_format=scale_format):
                        found = self.convert(scale_format, env={"FP8Q_CPU": variant})
                        self.assertTensors(found, self.expected(shape, scale_format))

    def test_finite_blocks_of_the_edge_case(self):
        """NaN and Inf are refused; the finite blocks beside them have PyTorch's bits."""
        edge = load("edge256x256.x")["x"]
        finite = 0
        for row in (0, 128):
            for col in (0, 128):
                block = cut(edge, row, col)
                tensors.write(self.source, {WEIGHT: block})
                if any(word & 0x7F80 == 0x7F80 for word in memoryview(block.data).cast("H")):
                    self.output.unlink(missing_ok=True)
                    line = ["convert", self.source, "-o", self.output]
                    self.assertMentions(self.fp8q(*line, code=3), WEIGHT)
                    self.assertAbsent(self.output)
                    continue
                finite += 1
                for scale_format in ("f32", "pow2"):
                    expected = self.expected("edge256x256", scale_format)
                    found = self.convert(scale_format)
                    place = row // 128 * 2 + col // 128
                    self.assertTensor(found[WEIGHT], cut(expected[WEIGHT], row, col), WEIGHT)
                    scale = expected[SCALE].data[4 * place : 4 * place + 4]
                    self.assertEqual(found[SCALE].data, scale)
        self.assertGreater(finite, 0)


def cut(tensor, row, col):
    """The 128×128 block of a [256, 256] tensor that begins at row, col."""
    size = len(tensor.data) // (256 * 256)
    rows = (tensor.data[size * (256 * r + col) :][: size * 128] for r in range(row, row + 128))
    return tensors.Tensor(tensor.dtype, (128, 128), b"".join(rows))


if __name__ == "__main__":
    tool.main()
