"""Folders as people have them: indices, metadata, side files, links, broken and missing files."""

import json
import os

from support import codec, model, tensors, tool

WEIGHT = "model.layers.0.self_attn.o_proj.weight"
LFS_POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    "size 12345\n"
)


def shards(count):
    """Shards of one quantized and one kept tensor each."""
    return {
        f"model-{part:05}-of-{count:05}.safetensors": {
            f"model.layers.{part}.self_attn.o_proj.weight": codec.bf16_tensor((128, 128), 1.0),
            f"model.layers.{part}.input_layernorm.weight": codec.bf16_tensor((128,), 2.0),
        }
        for part in range(1, count + 1)
    }


class Folders(tool.Case):
    """convert on folders; each test names its row of the list of troubles."""

    def folder(self, count=2, **options):
        return model.write_folder(self.dir / "in", shards(count), {"a": 1}, **options)

    def convert(self, source, *options, code=0):
        return self.fp8q("convert", source, "-o", self.dir / "out", *options, code=code)

    def test_b41_the_index_is_the_authority(self):
        source = self.folder()
        extra = {"consolidated.weight": codec.bf16_tensor((128, 128), 1.0)}
        tensors.write(source / "consolidated.safetensors", extra)
        self.assertMentions(self.convert(source), "consolidated.safetensors")
        names = {path.name for path in (self.dir / "out").iterdir()}
        self.assertEqual(names, {*shards(2), model.INDEX, "config.json"})

    def test_b42_b43_the_index_is_of_the_output(self):
        source = self.folder()
        content = json.loads((source / model.INDEX).read_text(encoding="utf-8"))
        content["metadata"] = {"total_size": 1, "kept": "as it was"}
        (source / model.INDEX).write_text(json.dumps(content), encoding="utf-8")
        self.assertMentions(self.convert(source), "total_size")
        self.assertEqual(model.index_faults(self.dir / "out"), [])
        content = json.loads((self.dir / "out" / model.INDEX).read_text(encoding="utf-8"))
        self.assertEqual(content["metadata"]["kept"], "as it was")

    def test_b44_b45_metadata(self):
        content = {"a.weight": codec.bf16_tensor((128, 128), 1.0)}
        source, output = self.dir / "in.safetensors", self.dir / "out.safetensors"
        for metadata in ({"format": "pt", "foo": "bar"}, {"format": "np"}, {}, None):
            tensors.write(source, content, metadata)
            self.fp8q("convert", source, "-o", output, "--force")
            found = tensors.read_header(output).metadata
            for key, value in {"format": "pt", **(metadata or {})}.items():
                self.assertEqual(found[key], value)
            self.assertEqual(found["fp8q.scale_format"], "f32")
            self.assertEqual(found["fp8q.source_dtype"], "BF16")

    def test_b47_alignment(self):
        content = {
            "m.a": codec.bf16_tensor((3,), 1.0),
            "m.b": codec.filled("U8", (5, 1), b"\x01"),
            "m.c": codec.f32_tensor((1,), [1.0]),
            "m.d": codec.filled("I64", (2,), bytes(8)),
            WEIGHT: codec.bf16_tensor((129, 131), 1.0),
        }
        source, output = self.dir / "in.safetensors", self.dir / "out.safetensors"
        tensors.write(source, content)
        self.assertTrue(tensors.layout_faults(source))
        self.fp8q("convert", source, "-o", output)
        self.assertEqual(tensors.layout_faults(output), [])
        found = tensors.read(output)
        del content[WEIGHT]
        self.assertTensors({name: found[name] for name in content}, content)

    def test_b49_lfs_pointer(self):
        source = self.dir / "model.safetensors"
        source.write_text(LFS_POINTER, encoding="ascii")
        result = self.fp8q("convert", source, "-o", self.dir / "out.safetensors", code=3)
        self.assertMentions(result, "LFS", "model.safetensors")
        self.assertAbsent(self.dir / "out.safetensors")

    def test_b50_all_broken_shards_are_listed_together(self):
        source = self.folder(5)
        names = sorted(shards(5))
        (source / names[0]).unlink()
        (source / names[1]).write_bytes((source / names[1]).read_bytes()[:-1])
        (source / names[2]).write_bytes((source / names[2]).read_bytes() + b"\0")
        (source / names[3]).write_bytes(b"")
        result = self.convert(source, code=3)
        self.assertMentions(result, *names[:4])
        self.assertNotIn(names[4], result.text)
        self.assertAbsent(self.dir / "out")

    def test_b51_faults_are_found_before_the_work(self):
        content = shards(2)
        content[max(content)]["bad.weight"] = codec.bf16_tensor((2, 2, 2), 1.0)
        source = model.write_folder(self.dir / "in", content, {})
        result = self.convert(source, "--include", "bad.weight", code=3)
        self.assertMentions(result, "bad.weight")
        self.assertAbsent(self.dir / "out")

    def test_b57_side_files_come_along(self):
        files = {
            "chat_template.jinja": "{{ x }}",
            "tokenizer.model": b"\0\1\2",
            "generation_config.json": '{"a": 1.0}',
            "modeling_x.py": "pass\n",
            "inference/model.py": "pass\n",
            "inference/deep/er.txt": "x",
            ".dot": "file",
            "README.md": "# x\n",
        }
        left_out = {"pytorch_model.bin": b"x", "sub/other.gguf": b"x", "recipe.yaml": "x"}
        hidden = {".git/config": "x", ".cache/x": "x"}
        source = self.folder(files={**files, **left_out, **hidden})
        result = self.convert(source)
        output = self.dir / "out"
        for name in files:
            self.assertEqual((output / name).read_bytes(), (source / name).read_bytes(), name)
        for name in (*left_out, *hidden):
            self.assertFalse((output / name).exists(), name)
        self.assertMentions(result, *left_out)

    def test_folder_without_index_gets_one(self):
        source = self.folder(index=False)
        self.convert(source)
        self.assertEqual(model.index_faults(self.dir / "out"), [])

    def test_folder_without_tensors_gets_no_index(self):
        content = {name: {} for name in shards(2)}
        source = model.write_folder(self.dir / "in", content, {}, index=False)
        self.convert(source)
        self.assertAbsent(self.dir / "out" / model.INDEX)
        self.fp8q("inspect", self.dir / "out")

    def test_numbered_set_that_loses_a_shard_of_scales_is_whole(self):
        weights, scales = shards(2)
        content = {
            weights: {"a.weight": codec.filled("F8_E4M3", (128, 128), b"\x38")},
            scales: {"a.weight_scale_inv": codec.f32_tensor((1, 1), [1.0])},
        }
        source = model.write_folder(self.dir / "in", content, {}, index=False)
        self.fp8q("dequant", source, "-o", self.dir / "out")
        self.assertEqual(model.index_faults(self.dir / "out"), [])
        self.fp8q("inspect", self.dir / "out")

    def test_numbered_set_must_be_complete(self):
        source = self.folder(3, index=False)
        gap = sorted(shards(3))[1]
        (source / gap).unlink()
        self.assertMentions(self.convert(source, code=3), gap)
        self.assertAbsent(self.dir / "out")

    def test_b62_quantized_input_is_refused(self):
        source = self.folder(1)
        self.convert(source)
        result = self.fp8q("convert", self.dir / "out", "-o", self.dir / "again", code=3)
        self.assertMentions(result, "quantization_config", WEIGHT.replace("0", "1"), "already")
        self.assertAbsent(self.dir / "again")

    def test_b62_mixed_folder_is_refused(self):
        content = shards(1)
        (name,) = content
        content[name]["x.weight"] = codec.filled("F8_E4M3", (128, 128), b"\x38")
        content[name]["x.weight_scale_inv"] = codec.f32_tensor((1, 1), [1.0])
        source = model.write_folder(self.dir / "in", content, {})
        self.assertMentions(self.convert(source, code=3), "x.weight")
        self.assertAbsent(self.dir / "out")


class HubCache(tool.Case):
    """Snapshots of a Hugging Face cache are links to blobs."""

    def snapshot(self):
        repo = self.dir / "hub" / "models--org--Tiny"
        (repo / "blobs").mkdir(parents=True)
        tensors.write(repo / "blobs" / "abc", {WEIGHT: codec.bf16_tensor((128, 128), 1.0)})
        (repo / "blobs" / "def").write_text("{}", encoding="ascii")
        folder = repo / "snapshots" / "0123456789abcdef"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").symlink_to("../../blobs/abc")
        (folder / "config.json").symlink_to("../../blobs/def")
        (folder / "tokenizer.json").symlink_to("../../blobs/def")
        return folder

    def test_b56_outputs_are_regular_files(self):
        source = self.snapshot()
        before = model.snapshot(self.dir / "hub")
        self.fp8q("convert", source, cwd=self.dir)
        output = self.dir / "Tiny-fp8-sm90"
        names = {"model.safetensors", "config.json", "tokenizer.json"}
        self.assertEqual({path.name for path in output.iterdir()}, names)
        self.assertFalse([path for path in output.iterdir() if path.is_symlink()])
        self.assertEqual(model.snapshot(self.dir / "hub"), before)

    def test_b56_dangling_links_are_named(self):
        source = self.snapshot()
        os.unlink(self.dir / "hub/models--org--Tiny/blobs/abc")
        result = tool.run("convert", source, "-o", self.dir / "out")
        self.assertIn(result.code, (3, 4), str(result))
        self.assertMentions(result, "model.safetensors")
        self.assertAbsent(self.dir / "out")

    def test_b56_links_at_the_output_are_not_followed(self):
        source = self.snapshot()
        victim = self.dir / "victim"
        victim.mkdir()
        (victim / "model.safetensors").write_text("precious", encoding="ascii")
        (self.dir / "out").symlink_to(victim)
        for options, code in (((), 2), (("--force",), None)):
            result = tool.run("convert", source, "-o", self.dir / "out", *options)
            if code is not None:
                self.assertEqual(result.code, code, str(result))
            self.assertEqual((victim / "model.safetensors").read_text(), "precious", str(result))


if __name__ == "__main__":
    tool.main()
