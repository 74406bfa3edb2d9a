"""Holes in files read as zeros: an input or a side file with holes gives the bytes that a dense one
gives, and a hole where there were bytes is noticed."""

import os

import test_resume
from support import codec, model, tensors, tool

N = 4 << 20  # bytes of a hole, more than a file system's block

SHAPES = {
    "zeros.o_proj.weight": ("BF16", (1024, 2048)),
    "island.o_proj.weight": ("BF16", (1024, 2048)),
    "norm.weight": ("F32", (N // 4,)),
    "mask": ("F32", (N // 4,)),
}
ISLAND = [
    ("island.o_proj.weight", 2 * (512 * 2048 + 1000), b"\x80\x3c\x10\xbd" * 8),
    ("mask", N - 4, b"\0\0\x80\x7f"),
]


def copy_dense(source, target):
    """A copy without holes; none of its zeros is left out."""
    with open(source, "rb") as read, open(target, "wb") as written:
        while chunk := read.read(1 << 20):
            written.write(chunk)


def allocated(path):
    return os.stat(path).st_blocks * 512


class Sparse(tool.Case):
    def setUp(self):
        super().setUp()
        self.sparse, self.dense = self.dir / "s.safetensors", self.dir / "d.safetensors"
        tensors.write_sparse(self.sparse, SHAPES, ISLAND)
        copy_dense(self.sparse, self.dense)
        if allocated(self.sparse) > N or allocated(self.dense) < 2 * N:
            self.skipTest("this file system has no holes")

    def assertSameFile(self, found, expected):
        self.assertBytes(found.read_bytes(), expected.read_bytes(), found.name)

    def make_both(self, command, *options):
        """The outputs of a command on the sparse file and on the dense one: they are the same."""
        made = []
        for source in (self.sparse, self.dense):
            made.append(source.with_suffix(f".{command}.safetensors"))
            self.fp8q(command, source, "-o", made[-1], *options)
        self.assertSameFile(*made)
        return made

    def test_input(self):
        self.make_both("convert")
        for scale_format in ("pow2", "e8m0"):
            self.make_both("convert", "--force", "--scale-format", scale_format)
        out = tensors.read(self.sparse.with_suffix(".convert.safetensors"))
        self.assertEqual(out["mask"].data, b"\0" * (N - 4) + b"\0\0\x80\x7f")
        self.assertEqual(set(out["zeros.o_proj.weight"].data), {0})
        self.assertEqual(sum(map(bool, out["island.o_proj.weight"].data)), 16)

    def test_there_and_back(self):
        self.sparse, self.dense = self.make_both("convert")
        with open(self.sparse, "rb") as read, open(self.dir / "holes", "wb") as written:
            while chunk := read.read(4096):
                if chunk.strip(b"\0"):
                    written.write(chunk)
                else:
                    written.seek(len(chunk), os.SEEK_CUR)
            written.truncate(self.sparse.stat().st_size)
        self.assertLess(allocated(self.dir / "holes"), allocated(self.sparse))
        os.replace(self.dir / "holes", self.sparse)
        self.make_both("dequant")
        self.fp8q("verify", self.sparse, "--reference", self.dir / "d.safetensors")

    def test_side_file(self):
        weight = codec.bf16_tensor((128, 128), [1.0] * 16384)
        shards = {"model.safetensors": {"a.o_proj.weight": weight}}
        folder = model.write_folder(self.dir / "in", shards, {"a": 1})
        with open(folder / "tokenizer.model", "wb") as file:
            file.truncate(N)
            file.write(b"start")
            file.seek(N + 5)
            file.write(b"end")
        self.fp8q("convert", folder, "-o", self.dir / "out")
        self.assertSameFile(self.dir / "out/tokenizer.model", folder / "tokenizer.model")


class Resumed(test_resume.Interrupted):
    def test_hole_for_bytes(self):
        """A finished shard that has its size, and a hole in the place of its second half."""
        args = ("convert", self.source())
        n_done = self.interrupted(*args)
        shard = next(path for path in sorted(self.partial.glob("*.safetensors")))
        size = shard.stat().st_size
        os.truncate(shard, size // 2)
        os.truncate(shard, size)
        whole, _ = self.undisturbed(*args)
        result = self.assertResumes(*args, whole=whole, n_resumed=n_done - 1)
        self.assertMentions(result, f"{shard.name}: is not as the interrupted run finished it")


if __name__ == "__main__":
    tool.main()
