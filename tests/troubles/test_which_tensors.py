"""Which tensors are quantized: names that fooled substring matching, groups, experts, towers."""

import json

from support import codec, model, tensors, tool

LAYER = "model.layers.0"


def weights(*names, shape=(256, 256)):
    return {name: codec.bf16_tensor(shape, 1.0) for name in names}


class WhichTensors(tool.Case):
    """convert on tiny folders; each test names its row of the list of troubles."""

    def convert(self, content, *options, config=None):
        """Converts a folder of one shard; gives what it holds, the report and the config."""
        source = model.write_folder(self.dir / "in", {"model.safetensors": content}, config or {})
        self.result = self.fp8q("convert", source, "-o", self.dir / "out", "--json", *options)
        self.report = {tensor["name"]: tensor for tensor in self.result.json()["tensors"]}
        text = (self.dir / "out" / "config.json").read_text(encoding="utf-8")
        self.quantization = json.loads(text).get("quantization_config")
        return tensors.read(self.dir / "out" / "model.safetensors")

    def assert_kept(self, found, content, names):
        """Exactly these of content are as they were, with a reason; the others are FP8."""
        kept = {name for name, tensor in content.items() if found.get(name) == tensor}
        self.assertEqual(kept, set(names))
        for name in content.keys() - kept:
            self.assertEqual(found[name].dtype, "F8_E4M3", name)
            self.assertIn(name + "_scale_inv", found)
        for name in kept:
            self.assertEqual(self.report[name]["action"], "copy", name)
            self.assertTrue(self.report[name]["reason"], name)

    def test_b30_sensitive_matrices_are_kept(self):
        kept = weights(
            f"{LAYER}.mlp.gate.weight",
            f"{LAYER}.self_attn.indexer.weights_proj.weight",
            "lm_head.weight",
            "model.embed_tokens.weight",
            "model.layers.2.eh_proj.weight",
            f"{LAYER}.mlp.shared_expert_gate.weight",
        )
        content = {**kept, **weights(f"{LAYER}.self_attn.o_proj.weight")}
        self.assert_kept(self.convert(content), content, kept)
        listed = self.quantization["modules_to_not_convert"]
        linear = {name.removesuffix(".weight") for name in kept} - {"model.embed_tokens"}
        self.assertTrue(linear <= set(listed), listed)
        self.assertNotIn(f"{LAYER}.self_attn.o_proj", listed)

    def test_b31_gate_is_no_part_of_gate_proj(self):
        content = weights(
            *(f"{LAYER}.mlp.{name}.weight" for name in ("gate", "gate_proj", "up_proj"))
        )
        found = self.convert(content, "--exclude", "mlp.gate")
        self.assert_kept(found, content, [f"{LAYER}.mlp.gate.weight"])
        self.assertEqual(
            self.quantization["modules_to_not_convert"], ["lm_head", f"{LAYER}.mlp.gate"]
        )
        self.assertMentions(self.result, "mlp.gate")

    def test_b33_fused_names_go_by_their_own_rules(self):
        ba = f"{LAYER}.linear_attn.in_proj_ba.weight"
        content = {
            **weights(ba, shape=(64, 256)),
            **weights(f"{LAYER}.mlp.gate_up_proj.weight", shape=(512, 256)),
        }
        self.assert_kept(self.convert(content), content, [ba])
        self.assertIn(ba.removesuffix(".weight"), self.quantization["modules_to_not_convert"])

    def test_b34_a_broken_group_is_warned_of(self):
        content = weights(*(f"{LAYER}.self_attn.{name}_proj.weight" for name in "qkvo"))
        found = self.convert(content, "--exclude", "*.k_proj.weight")
        self.assert_kept(found, content, [f"{LAYER}.self_attn.k_proj.weight"])
        self.assertMentions(self.result, "k_proj")
        self.assertTrue(any("q_proj" in line for line in self.result.json()["warnings"]))

    def test_b34_the_rules_keep_whole_groups(self):
        ragged = f"{LAYER}.self_attn.q_proj.weight"
        rest = [f"{LAYER}.self_attn.{name}_proj.weight" for name in "kv"]
        content = {**weights(ragged, shape=(192, 256)), **weights(*rest)}
        self.assert_kept(self.convert(content), content, content)
        self.assertIsNone(self.quantization)

    def test_b35_fused_experts_are_split(self):
        config = {"model_type": "qwen3_moe", "hidden_size": 128, "moe_intermediate_size": 256}
        experts = f"{LAYER}.mlp.experts"
        values = [1.0 + i // (256 * 128) for i in range(2 * 512 * 128)]
        content = {
            f"{experts}.gate_up_proj": codec.bf16_tensor((2, 512, 128), values),
            f"{experts}.down_proj": codec.bf16_tensor((2, 128, 256), 8.0),
        }
        found = self.convert(content, config=config)
        matrices = ((expert, part) for expert in (0, 1) for part in ("gate", "up"))
        for value, (expert, part) in enumerate(matrices, 1):
            name = f"{experts}.{expert}.{part}_proj.weight"
            self.assertEqual((found[name].dtype, found[name].shape), ("F8_E4M3", (256, 128)))
            scales = codec.floats(found[name + "_scale_inv"])
            self.assertEqual(scales, [codec.f32(value / 448)] * 2, name)
        self.assertEqual(found[f"{experts}.1.down_proj.weight"].shape, (128, 256))
        self.assertEqual(len(found), 2 * 3 * 2)

    def test_b35_experts_of_unsure_layout_are_never_silent(self):
        name = f"{LAYER}.mlp.experts.gate_up_proj"
        fused = {name: codec.bf16_tensor((2, 256, 256), 1.0)}
        content = {**fused, **weights(f"{LAYER}.self_attn.o_proj.weight")}
        self.assert_kept(self.convert(content), content, fused)
        self.assertMentions(self.result, name)
        self.assertIn(f"{LAYER}.mlp.experts", self.quantization["modules_to_not_convert"])

    def test_b37_towers_are_kept(self):
        towers = weights(
            "model.visual.blocks.0.mlp.linear_fc1.weight",
            "vision_tower.layers.0.fc1.weight",
            "audio_tower.layers.0.fc1.weight",
            "multi_modal_projector.linear_1.weight",
        )
        content = {**towers, **weights(f"{LAYER}.self_attn.o_proj.weight")}
        self.assert_kept(self.convert(content), content, towers)

    def test_b39_layers_beyond_the_last_are_layers(self):
        config = {"num_hidden_layers": 2, "num_nextn_predict_layers": 1}
        content = weights(*(f"model.layers.{layer}.self_attn.o_proj.weight" for layer in range(3)))
        self.assert_kept(self.convert(content, config=config), content, [])

    def test_b59_tied_embeddings(self):
        content = weights("model.embed_tokens.weight", f"{LAYER}.self_attn.o_proj.weight")
        kept = ["model.embed_tokens.weight"]
        found = self.convert(content, config={"tie_word_embeddings": True})
        self.assert_kept(found, content, kept)
        self.assertEqual(found.keys(), {*content, f"{LAYER}.self_attn.o_proj.weight_scale_inv"})
        self.assertIn("lm_head", self.quantization["modules_to_not_convert"])

    def test_exact_names_that_cannot_be_quantized(self):
        content = weights("a.weight", shape=(2, 128, 128))
        source = model.write_folder(self.dir / "in", {"model.safetensors": content}, {})
        for name in ("a.weight", "no.such.weight"):
            line = ["convert", source, "-o", self.dir / "out", "--include", name]
            self.assertMentions(self.fp8q(*line, code=3), name)
            self.assertAbsent(self.dir / "out")


if __name__ == "__main__":
    tool.main()
