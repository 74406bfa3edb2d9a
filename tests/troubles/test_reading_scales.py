"""Scales as other people's files hold them: names, dtypes, shapes and places that broke tools."""

import json

from support import codec, model, tensors, tool

E4M3_ONE = b"\x38"


def ones(rows=128, cols=128):
    return codec.filled("F8_E4M3", (rows, cols), E4M3_ONE)


class ReadingScales(tool.Case):
    """dequant on foreign checkpoints; each test names its row of the list of troubles."""

    def cast_back(self, content, *options, metadata=None):
        """The tensors that dequant makes of one file's."""
        source, output = self.dir / "in.safetensors", self.dir / "out.safetensors"
        tensors.write(source, content, metadata)
        self.result = self.fp8q("dequant", source, "-o", output, *options)
        return tensors.read(output)

    def assert_tiles(self, tensor, tiles):
        """The first element of each 128-column tile, and BF16 everywhere."""
        self.assertEqual(tensor.dtype, "BF16")
        values = codec.floats(tensor)
        cols = tensor.shape[1]
        for tile, value in enumerate(tiles):
            begin = tile // (cols // 128) * 128 * cols + tile % (cols // 128) * 128
            self.assertEqual(set(values[begin : begin + 128]), {value})

    def test_b01_missing_scale_is_an_error(self):
        source, output = self.dir / "in.safetensors", self.dir / "out.safetensors"
        tensors.write(source, {"mtp.0.e_proj.weight": ones(256, 256)})
        result = self.fp8q("dequant", source, "-o", output, code=3)
        self.assertMentions(result, "mtp.0.e_proj.weight")
        self.assertAbsent(output)

    def test_b02_scale_in_another_shard(self):
        shards = {
            "one.safetensors": {"a.weight": ones()},
            "two.safetensors": {
                "a.weight_scale_inv": codec.f32_tensor((1, 1), [2.0]),
                "b.weight": codec.bf16_tensor((4,), 3.0),
            },
        }
        source = model.write_folder(self.dir / "in", shards, config={})
        output = self.dir / "out"
        self.fp8q("dequant", source, "-o", output)
        first = tensors.read(output / "one.safetensors")
        self.assertEqual(set(codec.floats(first["a.weight"])), {2.0})
        second = tensors.read(output / "two.safetensors")
        self.assertTensors(second, {"b.weight": shards["two.safetensors"]["b.weight"]})
        self.assertEqual(model.index_faults(output), [])

    def test_b05_scales_in_bf16_and_f16(self):
        for dtype, halves in (("BF16", b"\x00\x3f\x80\x3e"), ("F16", b"\x00\x38\x00\x34")):
            scale = tensors.Tensor(dtype, (1, 2), halves)
            found = self.cast_back(
                {"a.weight": ones(128, 256), "a.weight_scale_inv": scale}, "--force"
            )
            self.assertEqual(found.keys(), {"a.weight"})
            self.assert_tiles(found["a.weight"], [0.5, 0.25])

    def test_b07_scale_named_scale_in_e8m0(self):
        name = "layers.0.attn.wo_b"
        scale = tensors.Tensor("F8_E8M0", (1, 2), bytes([120, 121]))
        found = self.cast_back({f"{name}.weight": ones(128, 256), f"{name}.scale": scale})
        self.assertEqual(found.keys(), {f"{name}.weight"})
        self.assert_tiles(found[f"{name}.weight"], [2.0**-7, 2.0**-6])

    def test_b10_e5m2_is_refused_by_name(self):
        source, output = self.dir / "in.safetensors", self.dir / "out.safetensors"
        content = {
            "a.weight": codec.filled("F8_E5M2", (128, 128), b"\x3c"),
            "a.weight_scale_inv": codec.f32_tensor((1, 1), [2.0]),
        }
        tensors.write(source, content)
        self.assertMentions(self.fp8q("dequant", source, "-o", output, code=3), "E5M2", "a.weight")
        self.assertAbsent(output)

    def test_b11_other_one_byte_types_are_no_fp8(self):
        others = {
            "i.weight": tensors.Tensor("I8", (4,), bytes([1, 255, 128, 7])),
            "u.weight": codec.filled("U8", (128, 128), E4M3_ONE),
            "b.weight": tensors.Tensor("BOOL", (8,), bytes([1, 0] * 4)),
        }
        scaled = {"a.weight": ones(), "a.weight_scale_inv": codec.f32_tensor((1, 1), [2.0])}
        found = self.cast_back({**others, **scaled})
        self.assertTensors({name: found[name] for name in others}, others)

    def test_b13_scale_of_four_dimensions(self):
        scale = codec.f32_tensor((2, 1, 2, 1), [1.0, 2.0, 4.0, 8.0])
        found = self.cast_back({"a.weight": ones(256, 256), "a.weight_scale": scale})
        self.assertEqual(found.keys(), {"a.weight"})
        self.assert_tiles(found["a.weight"], [1.0, 2.0, 4.0, 8.0])

    def test_b14_scale_named_without_inv(self):
        content = {
            "q_proj.weight": ones(),
            "q_proj.weight_scale": codec.f32_tensor((1, 1), [3.0]),
        }
        config = {"quantization_config": {"quant_method": "quark"}}
        source = model.write_folder(self.dir / "in", {"model.safetensors": content}, config)
        self.fp8q("dequant", source, "-o", self.dir / "out")
        found = tensors.read(self.dir / "out" / "model.safetensors")
        self.assertEqual(found.keys(), {"q_proj.weight"})
        self.assertEqual(set(codec.floats(found["q_proj.weight"])), {3.0})

    def test_b17_nothing_of_fp8_is_left(self):
        content = {
            "a.weight": ones(),
            "a.weight_scale_inv": codec.f32_tensor((1, 1), [2.0]),
            "a.input_scale": codec.f32_tensor((), [1.0]),
            "k_proj.k_scale": codec.f32_tensor((1,), [1.0]),
            "norm.scale": codec.f32_tensor((4,), [1.0, 2.0, 3.0, 4.0]),
        }
        found = self.cast_back(content)
        self.assertEqual(found.keys(), {"a.weight", "norm.scale"})
        self.assertEqual(found["norm.scale"], content["norm.scale"])
        for dropped in (b"a.input_scale", b"k_proj.k_scale"):
            self.assertIn(dropped, self.result.out)  # the summary names what is left out

    def test_b73_every_fp8_tensor_whatever_its_name(self):
        indexer = "model.layers.0.self_attn.indexer"
        content = {
            f"{indexer}.wk.weight": ones(),
            f"{indexer}.wk.weight_scale_inv": codec.f32_tensor((1, 1), [0.5]),
            f"{indexer}.wq_b.weight": ones(256, 128),
            f"{indexer}.wq_b.weight_scale_inv": codec.f32_tensor((2, 1), [0.5, 4.0]),
            f"{indexer}.weights_proj.weight": codec.bf16_tensor((64, 128), 1.0),
        }
        found = self.cast_back(content)
        self.assertEqual(found.keys(), {name for name in content if "scale" not in name})
        self.assertEqual({tensor.dtype for tensor in found.values()}, {"BF16"})
        self.assert_tiles(found[f"{indexer}.wq_b.weight"], [0.5, 4.0])

    def test_b74_other_kinds_of_e4m3(self):
        content = {
            "a.weight": codec.filled("F8_E4M3FNUZ", (128, 128), E4M3_ONE),
            "a.weight_scale_inv": codec.f32_tensor((1, 1), [2.0]),
        }
        source, output = self.dir / "in.safetensors", self.dir / "out.safetensors"
        tensors.write(source, content)
        self.assertMentions(self.fp8q("dequant", source, "-o", output, code=3), "F8_E4M3FNUZ")
        self.assertAbsent(output)

    def test_b74_foreign_fmt_is_not_passed_over(self):
        content = {"a.weight": ones(), "a.weight_scale_inv": codec.f32_tensor((1, 1), [2.0])}
        quantization = {"quant_method": "fp8", "fmt": "e4m3fnuz", "weight_block_size": [128, 128]}
        config = {"quantization_config": quantization}
        source = model.write_folder(self.dir / "in", {"model.safetensors": content}, config)
        result = tool.run("dequant", source, "-o", self.dir / "out")
        self.assertIn(result.code, (0, 3), str(result))
        self.assertMentions(result, "e4m3fnuz")

    def test_a4_orphan_scales_are_errors(self):
        for scale in (
            {"a.weight_scale_inv": codec.f32_tensor((1, 1), [2.0])},
            {"a.weight_scale": codec.f32_tensor((1, 1), [2.0])},
            {"a.scale": tensors.Tensor("F8_E8M0", (1, 1), b"\x7f")},
        ):
            source, output = self.dir / "in.safetensors", self.dir / "out.safetensors"
            tensors.write(source, {"b.weight": codec.bf16_tensor((4,), 1.0), **scale})
            result = self.fp8q("dequant", source, "-o", output, code=3)
            self.assertMentions(result, *scale)
            self.assertAbsent(output)


class Config(tool.Case):
    """What becomes of config.json when weights are cast back."""

    def cast_back(self, text, files=None):
        content = {"a.weight": ones(), "a.weight_scale_inv": codec.f32_tensor((1, 1), [2.0])}
        source = model.write_folder(
            self.dir / "in", {"model.safetensors": content}, text, files=files
        )
        self.result = self.fp8q("dequant", source, "-o", self.dir / "out")
        return (self.dir / "out" / "config.json").read_text(encoding="utf-8")

    def test_b15_quantization_config_goes_and_nothing_else(self):
        text = """{
  "rope_theta": 1000000.0,
  "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
  "torch_dtype": "bfloat16",
  "limit": [0.0, Infinity]
}
"""
        after = self.cast_back(text)
        self.assertNotIn("quantization_config", after)
        self.assertEqual(list(json.loads(after)), ["rope_theta", "torch_dtype", "limit"])
        gone = model.splice(after, text)
        self.assertIsNotNone(gone, after)
        self.assertIn("quantization_config", gone)

    def test_b16_nested_in_text_config(self):
        quantization = {"quant_method": "fp8", "weight_block_size": [128, 128]}
        config = {"text_config": {"hidden_size": 128, "quantization_config": quantization}, "a": 1}
        after = self.cast_back(json.dumps(config), {"hf_quant_config.json": "{}"})
        self.assertEqual(json.loads(after), {"text_config": {"hidden_size": 128}, "a": 1})
        self.assertFalse((self.dir / "out" / "hf_quant_config.json").exists())
        self.assertMentions(self.result, "hf_quant_config.json")


if __name__ == "__main__":
    tool.main()
