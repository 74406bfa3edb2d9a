"""Odd things in the place of files: FIFOs, sockets, devices, loops, names too long, too many files.
Each is refused at once with a line that names it, or left out with a warning; nothing hangs."""

import json
import os
import resource
import socket
from pathlib import Path

from support import codec, model, tensors, tool

INDEX = "model.safetensors.index.json"
WEIGHT = codec.bf16_tensor((128, 128), [0.01 * (i % 7) for i in range(128 * 128)])
SECONDS = 20


def make_socket(path):
    """Bound by a short name: paths of sockets are."""
    before = os.getcwd()
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(before)


# What may lie in the place of a file, and what a message says of it.
KINDS = {
    "a FIFO": os.mkfifo,
    "is a socket": make_socket,
    "a folder": os.mkdir,
    "a loop of links": lambda path: path.symlink_to(path.name),
    "a link to nowhere": lambda path: path.symlink_to("nowhere"),
    "leads out of the model folder": lambda path: path.symlink_to("/dev/zero"),
}


class Places(tool.Case):
    def refused(self, *args, code, says):
        before = model.snapshot(self.dir)
        result = self.fp8q(*args, code=code, cwd=self.dir, timeout=SECONDS)
        self.assertMentions(result, *says)
        self.assertEqual(model.snapshot(self.dir), before)

    def folder(self, name, n_shards=2):
        names = [f"model-{i + 1:05}-of-{n_shards:05}.safetensors" for i in range(n_shards)]
        shards = {shard: {f"{shard}.o_proj.weight": WEIGHT} for shard in names}
        files = {"tokenizer.json": "{}"}
        return model.write_folder(self.dir / name, shards, {"a": 1}, files=files)


class Inputs(Places):
    def test_of_a_folder(self):
        shard = "model-00001-of-00002.safetensors"
        for i, (says, make) in enumerate(KINDS.items()):
            for name in (shard, INDEX, "config.json"):
                folder = self.folder(f"{i}-{name}")
                (folder / name).unlink()
                make(folder / name)
                code = 3
                self.refused("convert", folder, "-o", "out", code=code, says=[name, says])
                self.refused("inspect", folder, code=code, says=[name, says])

    def test_side_files(self):
        """They are left out with a warning; a folder is a folder."""
        for i, (says, make) in enumerate(KINDS.items()):
            folder = self.folder(f"in{i}")
            (folder / "tokenizer.json").unlink()
            make(folder / "tokenizer.json")
            out = self.dir / f"out{i}"
            result = self.fp8q("convert", folder, "-o", out, timeout=SECONDS)
            self.assertEqual("tokenizer.json" in result.text, says != "a folder", str(result))
            self.assertFalse((out / "tokenizer.json").exists())

    def test_alone(self):
        for i, (says, make) in enumerate(KINDS.items()):
            path = self.dir / f"{i}.safetensors"
            make(path)
            if says == "a folder":
                says = "holds no .safetensors file"
            code = 4 if says == "a loop of links" or "nowhere" in says else 3
            parts = [path.name] if "leads" in says else [path.name, says]
            self.refused("inspect", path, code=code, says=parts)
        for path in ("/dev/null", "/dev/zero", "/dev/full"):
            self.refused("convert", path, "-o", "out", code=3, says=[path, "is a device"])
        for path, code in (("", 4), ("-", 4), ("/", 3), ("nothing/", 4)):
            self.refused("inspect", path, code=code, says=["fp8q: "])

    def test_index_names_no_file(self):
        for name in ("", ".", "..", "/", "/etc/passwd", "../x.safetensors", "a/../x.safetensors",
                     "config.json", INDEX, "x" * 300 + ".safetensors", "sub", "a\\0b"):  # fmt: skip
            folder = self.folder("in")
            index = json.loads((folder / INDEX).read_text())
            index["weight_map"]["more"] = name
            (folder / INDEX).write_text(json.dumps(index))
            self.refused("convert", folder, "-o", "out", code=3, says=[INDEX, "more"])
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()

    def test_flood(self):
        """An index that names 100,000 files that are not there does not fill the screen."""
        folder = self.folder("in")
        index = json.loads((folder / INDEX).read_text())
        index["weight_map"].update({f"t{i}": f"s{i}.safetensors" for i in range(100_000)})
        (folder / INDEX).write_text(json.dumps(index))
        result = self.fp8q("inspect", folder, code=3)
        self.assertLess(len(result.text.splitlines()), 300)
        self.assertMentions(result, "99800 more files that the index names are not there")


class Outputs(Places):
    def setUp(self):
        super().setUp()
        tensors.write(self.dir / "f.safetensors", {"a.o_proj.weight": WEIGHT})
        self.folder("in")
        self.inputs = ("f.safetensors", "in")

    def test_odd(self):
        os.mkfifo(self.dir / "fifo")
        make_socket(self.dir / "socket")
        for source in self.inputs:
            for output in ("fifo", "socket", "/dev/null", "/dev/full"):
                for more in ([], ["--force"]):
                    says = [output, "-o"]
                    self.refused("convert", source, "-o", output, *more, code=2, says=says)
            for output in ("", "/", ".", "in", "in/."):
                self.refused("convert", source, "-o", output, "--force", code=2, says=["-o"])
            self.refused("convert", source, "-o", "no/out", code=4, says=["does not exist"])

    def test_dangling_link(self):
        for source in self.inputs:
            link = self.dir / f"link-{source}"
            link.symlink_to("nowhere")
            self.refused("convert", source, "-o", link, code=2, says=["--force"])
            self.fp8q("convert", source, "-o", link, "--force", cwd=self.dir)
            self.assertFalse(link.is_symlink() or (self.dir / "nowhere").exists())

    def test_hard_link(self):
        """Another name of an output that is replaced keeps what it was."""
        (self.dir / "old").write_text("old")
        os.link(self.dir / "old", self.dir / "other")
        self.fp8q("convert", "f.safetensors", "-o", "old", "--force", cwd=self.dir)
        self.assertEqual((self.dir / "other").read_text(), "old")
        self.assertEqual((self.dir / "old").stat().st_nlink, 1)
        os.link(self.dir / "f.safetensors", self.dir / "same")
        self.refused("convert", "f.safetensors", "-o", "same", "--force", code=2, says=["is the"])

    def test_long_names(self):
        longest = os.pathconf(self.dir, "PC_NAME_MAX") - len(".partial.journal")
        for source in self.inputs:
            self.fp8q("convert", source, "-o", source[0] + "o" * (longest - 1), cwd=self.dir)
            for n in (longest + 1, longest + 8, longest + 16):
                says = [f"at most {longest} leave room"]
                self.refused("convert", source, "-o", "o" * n, code=2, says=says)

    def test_long_side_names(self):
        name = "n" * os.pathconf(self.dir, "PC_NAME_MAX")
        (self.dir / "in" / name).write_text("x")
        self.fp8q("convert", "in", "-o", "out", cwd=self.dir)
        self.assertEqual((self.dir / "out" / name).read_text(), "x")


class ManyFiles(Places):
    """More shards than may be open at a time."""

    N = 300

    def limited(self, soft, hard):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

        return limit

    def test_limits(self):
        folder = self.folder("in", self.N)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard < 4 * self.N:
            self.skipTest("so many files cannot be opened here")
        out = self.dir / "out"
        result = self.fp8q("convert", folder, "-o", out, code=4, preexec=self.limited(64, 64))
        self.assertMentions(result, "Too many open files; raise the limit (ulimit -n)")
        self.assertAbsent(out)
        self.fp8q("convert", folder, "-o", out, preexec=self.limited(64, hard))
        self.fp8q("verify", out, "--reference", folder, preexec=self.limited(64, hard))
        self.assertEqual(len(list(out.glob("*.safetensors"))), self.N)

    def test_deep_folders(self):
        folder = self.folder("in")
        deep = Path(folder)
        for _ in range(60):
            deep /= "d"
        deep.mkdir(parents=True)
        (deep / "x").write_text("x")
        self.fp8q("convert", folder, "-o", self.dir / "out")
        (deep / "d/d/d/d/d").mkdir(parents=True)
        result = self.fp8q("convert", folder, "-o", self.dir / "out2", code=4)
        self.assertMentions(result, "nested deeper than 64")
        result = self.fp8q(
            "convert", folder, "-o", self.dir / "out2", code=4, preexec=self.limited(40, 40)
        )
        self.assertMentions(result, "Too many open files")
        self.assertAbsent(self.dir / "out2")


if __name__ == "__main__":
    tool.main()
