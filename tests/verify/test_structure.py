"""What headers, index and config show: problems that are named, with exit code 1 and a cure."""

import json

from checkpoints import (
    CONFIG, DOWN, LAYER, SCALE, UP, Case, edit_config, make_foreign, path_of, read, rewrite,
)  # fmt: skip
from support import codec, model, quantizer, tensors, tool

GATE = LAYER + "mlp.gate"


class Structure(Case):
    """Names, index and config of a conversion, broken in one place."""

    def test_a_dropped_tensor(self):
        for name in ("model.norm.weight", GATE + ".weight"):
            folder = self.copy()
            rewrite(folder, lambda content: content.pop(name, None))
            if name == GATE + ".weight":  # and the list is stale then
                edit_config(folder, lambda config: config["modules_to_not_convert"].remove(GATE))
            self.only_problem(folder, name, "is in the reference, but not here")

    def test_a_dropped_tensor_that_the_index_names(self):
        folder = self.copy()
        rewrite(folder, lambda content: content.pop("model.norm.weight", None), index=False)
        for reference in (False, True):
            report = self.verify(folder, code=1, reference=reference)
            self.assertIn("model.norm.weight", report["problems"][0])
            self.assertIn("the index names it", report["problems"][0])

    def test_a_dropped_weight(self):
        folder = self.copy()
        rewrite(folder, lambda content: [content.pop(UP + end, None) for end in ("", SCALE)])
        self.only_problem(folder, UP, "is in the reference, but not here")

    def experts_without(self, *missing):
        """The conversion of twelve experts, of which these are gone, from the index too."""
        weights = {
            f"{LAYER}mlp.experts.{expert}.up_proj.weight": quantizer.gaussian((128, 128), expert)
            for expert in range(12)
        }
        source = self.dir / f"moe-without-{missing}"
        model.write_folder(source, {"model.safetensors": weights}, config=CONFIG)
        folder = self.dir / f"{source.name}-fp8"
        self.fp8q("convert", source, "-o", folder, "--quiet")

        def drop(content):
            for expert in missing:
                for end in (".weight", ".weight" + SCALE):
                    content.pop(f"{LAYER}mlp.experts.{expert}.up_proj{end}")

        rewrite(folder, drop)
        return folder

    def test_experts_missing_between_others(self):
        experts = LAYER + "mlp.experts."
        for missing, named in (((1,), "1"), ((2, 10), "{2,10}"), ((5, 6, 7), "{5..7}")):
            folder = self.experts_without(*missing)
            line = f"{experts}{named}.up_proj.weight: is missing"
            self.only_problem(folder, line, reference=False)
        # Faults of the index hide none.
        folder = self.experts_without(3)
        index = folder / "model.safetensors.index.json"
        content = json.loads(index.read_text(encoding="utf-8"))
        del content["metadata"]["total_size"]
        index.write_text(json.dumps(content), encoding="utf-8")
        problems = " ".join(self.verify(folder, code=1, reference=False)["problems"])
        self.assertIn("total_size", problems)
        self.assertIn(f"{experts}3.up_proj.weight: is missing", problems)
        # The first or the last may be all that a machine has, or all that there are.
        for missing in ((0, 1, 2), (11,), ()):
            self.verify(self.experts_without(*missing), reference=False)

    def test_a_dropped_scale(self):
        folder = self.copy()
        rewrite(folder, lambda content: content.pop(UP + SCALE, None))
        for reference in (False, True):
            failed = self.only_failure(folder, UP, problems=1, reference=reference)
            self.assertIsNone(failed["weight"])

    def test_an_orphaned_scale_and_an_extra_tensor(self):
        folder = self.copy()
        rewrite(folder, lambda content: content.pop(UP, None))
        report = self.verify(folder, code=1)
        self.assertIn("whose weight no file holds", " ".join(report["problems"]))
        folder = self.copy()

        def add(content):
            if "model.norm.weight" in content:
                content["model.extra.bias"] = content["model.norm.weight"]

        rewrite(folder, add)
        self.only_problem(folder, "model.extra.bias", "is not in the reference")

    def test_a_missing_shard(self):
        folder = self.copy()
        path_of(folder, UP).unlink()
        report = self.verify(folder, code=1, reference=False)
        self.assertIn("model-00002-of-00002.safetensors", report["problems"][0])

    def test_a_tensor_twice(self):
        folder = self.copy()

        def add(content):
            if "model.norm.weight" not in content:
                content["model.norm.weight"] = codec.f32_tensor((256,), [1.0] * 256)

        rewrite(folder, add)
        report = self.verify(folder, code=1)
        self.assertIn("model.norm.weight", " ".join(report["problems"]))
        content = tensors.read(path_of(folder, UP))

        def add_weight(shard):
            shard.update({name: content[name] for name in (UP, UP + SCALE)})

        folder = self.copy()
        rewrite(folder, add_weight)
        report = self.verify(folder, code=1)
        self.assertIn(UP, " ".join(report["problems"]))

    def test_total_size(self):
        folder = self.copy()
        path = folder / model.INDEX
        index = json.loads(path.read_text(encoding="utf-8"))
        index["metadata"]["total_size"] += 1
        path.write_text(json.dumps(index), encoding="utf-8")
        self.only_problem(folder, "total_size", reference=False)

    def test_a_tensor_that_the_index_does_not_name(self):
        folder = self.copy()
        path = folder / model.INDEX
        index = json.loads(path.read_text(encoding="utf-8"))
        del index["weight_map"][UP]
        path.write_text(json.dumps(index), encoding="utf-8")
        self.assertIn(UP, " ".join(self.verify(folder, code=1)["problems"]))

    def test_files_that_cannot_be_parsed_are_bad_input(self):
        folder = self.copy()
        path = path_of(folder, UP)
        path.write_bytes(path.read_bytes()[:-1])
        self.fp8q("verify", folder, code=3)
        folder = self.copy()
        (folder / "config.json").write_text("{", encoding="utf-8")
        self.fp8q("verify", folder, code=3)
        self.fp8q("verify", self.dir / "nowhere", code=4)
        self.fp8q("verify", self.copy(), "--reference", self.dir / "nowhere", code=4)
        self.fp8q("verify", self.copy(), "--reference", self.copy(), code=2)
        self.fp8q("verify", self.copy(), "--tensor", "nothing", code=2)

    def test_a_model_without_fp8(self):
        report = self.verify(self.reference, code=1, reference=False)
        self.assertIn("no FP8 weight", report["problems"][0])


class Config(Case):
    """quantization_config against the tensors."""

    def changed(self, change, scale_format="f32"):
        folder = self.copy(scale_format)
        edit_config(folder, change)
        return folder

    def test_a_module_that_the_list_lacks(self):
        folder = self.changed(lambda config: config["modules_to_not_convert"].remove(GATE))
        self.only_problem(folder, GATE, "does not list it", reference=False)
        folder = self.changed(lambda config: config.pop("modules_to_not_convert"))
        report = self.verify(folder, code=1, reference=False)
        self.assertEqual(len(report["problems"]), 2)  # and lm_head

    def test_an_entry_for_an_fp8_weight(self):
        module = UP.removesuffix(".weight")
        for foreign in (False, True):
            folder = self.changed(lambda config: config["modules_to_not_convert"].append(module))
            if foreign:
                make_foreign(folder)
            self.only_problem(folder, module, "is FP8, but", reference=False)

    def test_an_entry_for_nothing(self):
        stale = LAYER + "mlp.router"
        folder = self.changed(lambda config: config["modules_to_not_convert"].append(stale))
        self.only_problem(folder, stale, "is no module of the model", reference=False)

    def test_keys_that_engines_need(self):
        for key in ("activation_scheme", "quant_method", "weight_block_size"):
            self.only_problem(self.changed(lambda config: config.pop(key)), key, reference=False)
        folder = self.changed(lambda config: config.update(activation_scheme="static"))
        self.only_problem(folder, "activation_scheme", reference=False)
        folder = self.changed(lambda config: config.pop("scale_fmt"), "pow2")
        self.only_problem(folder, "scale_fmt", reference=False)

    def test_no_config(self):
        folder = self.copy()
        path = folder / "config.json"
        path.write_text(json.dumps(CONFIG), encoding="utf-8")
        self.only_problem(folder, "has no quantization_config", reference=False)
        path.unlink()
        report = self.verify(folder, reference=False)
        self.assertIn("no config.json", " ".join(report["notes"]))

    def test_scale_fmt_of_scales_that_are_no_powers(self):
        folder = self.changed(lambda config: config.update(scale_fmt="ue8m0"))
        report = self.verify(folder, code=1, reference=False)
        self.assertEqual(report["summary"]["n_failed"], 6)

    def test_another_block_size_and_format(self):
        folder = self.changed(lambda config: config.update(weight_block_size=[64, 64]))
        report = self.verify(folder, code=1, reference=False)
        self.assertEqual(report["summary"]["n_failed"], 6)
        folder = self.changed(lambda config: config.update(fp8q={"scale_format": "e8m0"}))
        self.only_problem(folder, "format e8m0", "6 of 6", reference=False)

    def test_keys_that_fp8q_writes_otherwise(self):
        """A name that no engine knows, and a block that fits the shapes by chance."""
        for key, value in (("quant_method", "vp8"), ("weight_block_size", [128, 129])):
            folder = self.changed(lambda config: config.update({key: value}))
            self.only_problem(folder, key, reference=False)

    def test_a_group_that_is_fp8_in_part(self):
        folder = self.dir / "part"
        line = ("convert", self.reference, "-o", folder, "--exclude", "*k_proj*", "--quiet")
        self.fp8q(*line)
        problem = self.only_problem(folder, LAYER + "self_attn", "kept are k_proj")
        self.assertIn("engines fuse", problem)
        self.assertTrue(problem.endswith("; quantize the model again, and treat them alike"))

    def test_lists_of_other_makers(self):
        """DeepSeek's releases have none, MiniMax's short names; norms and routers need no entry."""
        folder = make_foreign(self.copy())
        edit_config(folder, lambda config: config.pop("modules_to_not_convert"))
        self.verify(folder)
        for entries in (["gate", "lm_head"], ["lm_head"], [LAYER + "mlp.gate"]):
            edit_config(folder, lambda config: config.update(modules_to_not_convert=entries))
            self.verify(folder)
        edit_config(folder, lambda config: config.update(modules_to_not_convert=["mlp"]))
        self.assertIn("is FP8, but", self.verify(folder, code=1)["problems"][0])


class Stacks(tool.Case):
    """Experts that stay fused, with a scale grid for each."""

    def problems(self, content):
        """The problems of a file with these tensors."""
        path = self.dir / "q.safetensors"
        tensors.write(path, content)
        result = tool.run("verify", path, "--json", "--no-gemm")
        return result.json()["problems"]

    def stack(self):
        """The experts of a layer, and their scales."""
        experts = "model.layers.0.mlp.experts."
        content = {}
        for name, shape in (("gate_up_proj", (2, 512, 256)), ("down_proj", (2, 256, 256))):
            grid = (2, shape[1] // 128, shape[2] // 128)
            content[experts + name] = codec.filled("F8_E4M3", shape, b"\x38")
            scales = codec.f32_tensor(grid, [1.0] * (grid[0] * grid[1] * grid[2]))
            content[experts + name + "_scale_inv"] = scales
        return experts, content

    def test_scales_are_no_stacks(self):
        experts, content = self.stack()
        self.assertEqual(self.problems(content), [])
        content[experts + "down_proj"] = codec.bf16_tensor((2, 256, 256), 1.0)
        del content[experts + "down_proj_scale_inv"]
        (found,) = self.problems(content)
        self.assertIn("quantized are experts.gate_up_proj, kept are experts.down_proj;", found)

    def test_without_a_counterpart(self):
        """What the reference lacks is no matter of limits."""
        name = "model.layers.0.mlp.experts.7.up_proj.weight"
        codes = codec.filled("F8_E4M3", (128, 128), b"\x38")
        scales = codec.f32_tensor((1, 1), [1.0])
        tensors.write(self.dir / "q.safetensors", {name: codes, name + "_scale_inv": scales})
        tensors.write(self.dir / "r.safetensors", {"other": codec.bf16_tensor((4,), 1.0)})
        line = ("verify", self.dir / "q.safetensors", "--reference", self.dir / "r.safetensors")
        (tensor,) = self.fp8q(*line, "--json", code=1).json()["tensors"]
        self.assertEqual(tensor["reasons"], ["has no counterpart in the reference"])
        self.assertIn("check that --reference is the original", tensor["cure"])

    def test_scales_are_no_modules_to_list(self):
        """Of FP8 stacks nothing stays unquantized, whatever the list says of other modules."""
        quant = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
                 "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]}  # fmt: skip
        config = {"model_type": "tiny", "quantization_config": quant}
        model.write_folder(self.dir / "m", {"model.safetensors": self.stack()[1]}, config=config)
        self.fp8q("verify", self.dir / "m", "--no-gemm")


class TensorParallel(tool.Case):
    """--tp: what vLLM and SGLang refuse to cut."""

    def problems(self, shapes, degree, **config):
        """The problems of a model of FP8 weights of these shapes."""
        content = {}
        for name, shape in shapes.items():
            grid = (-(-shape[0] // 128), -(-shape[1] // 128))
            content[f"model.layers.0.{name}.weight"] = codec.filled("F8_E4M3", shape, b"\x38")
            content[f"model.layers.0.{name}.weight_scale_inv"] = codec.f32_tensor(
                grid, [1.0] * (grid[0] * grid[1])
            )
        quant = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
                 "weight_block_size": [128, 128]}  # fmt: skip
        config = {"model_type": "tiny", "quantization_config": quant, **config}
        folder = self.dir / f"tp{degree}-{len(list(self.dir.iterdir()))}"
        model.write_folder(folder, {"model.safetensors": content}, config=config)
        result = tool.run("verify", folder, "--json", "--tp", degree)
        self.assertEqual(result.code, 1 if result.json()["problems"] else 0, str(result))
        self.notes = result.json()["notes"]
        return result.json()["problems"]

    def test_rows_and_columns(self):
        shapes = {"mlp.gate_proj": (768, 256), "mlp.up_proj": (768, 256),
                  "mlp.down_proj": (256, 768)}  # fmt: skip
        self.assertEqual(self.problems(shapes, 1), [])
        self.assertEqual(self.problems(shapes, 2), [])
        found = self.problems(shapes, 4)
        self.assertEqual(len(found), 3)
        for line in found:
            self.assertIn("192 in each", line)
            self.assertIn("the whole model loads at --tp 3", line)

    def test_the_degree_that_is_named_suits_all_weights(self):
        shapes = {"mlp.up_proj": (768, 256), "mlp.down_proj": (256, 768),
                  "self_attn.o_proj": (256, 512)}  # fmt: skip
        found = self.problems(shapes, 8)
        self.assertEqual(len(found), 3)
        for line in found:
            self.assertIn("the whole model loads at --tp 2", line)

    def test_heads_are_shared(self):
        shapes = {"self_attn.q_proj": (2048, 256), "self_attn.k_proj": (256, 256),
                  "self_attn.v_proj": (256, 256), "self_attn.o_proj": (256, 2048)}  # fmt: skip
        self.assertEqual(self.problems(shapes, 8, num_key_value_heads=2), [])
        self.assertEqual(len(self.problems(shapes, 8, num_key_value_heads=4)), 2)
        self.assertEqual(len(self.problems(shapes, 8)), 2)

    def test_whole_matrices_are_not_cut(self):
        shapes = {"self_attn.q_a_proj": (256, 256), "self_attn.kv_a_proj_with_mqa": (576, 256)}
        self.assertEqual(self.problems(shapes, 8), [])

    def test_experts(self):
        shapes = {f"mlp.experts.{i}.{name}": shape for i in range(4) for name, shape in (
            ("gate_proj", (256, 128)), ("up_proj", (256, 128)), ("down_proj", (128, 256)))}  # fmt: skip
        self.assertEqual(self.problems(shapes, 2), [])
        found = self.problems(shapes, 4)
        self.assertEqual(len(found), 3)
        self.assertIn("experts.{0..3}.down_proj", found[0])
        self.assertIn("expert parallelism", found[0])

    def test_what_is_not_checked_is_noted(self):
        shapes = {"mlp.gate_up_proj": (512, 256), "mlp.down_proj": (256, 256),
                  "self_attn.q_a_proj": (256, 256)}  # fmt: skip
        self.assertEqual(self.problems(shapes, 2), [])
        (found,) = (line for line in self.notes if "--tp" in line)
        self.assertIn("mlp.gate_up_proj.weight: not checked", found)
        self.problems(shapes, 1)
        self.assertFalse([line for line in self.notes if "--tp" in line])

    def test_a_ragged_gate_at_any_degree(self):
        shapes = {"mlp.gate_proj": (192, 128), "mlp.up_proj": (192, 128)}
        (found,) = self.problems(shapes, 1)
        self.assertIn("192 rows", found)
        self.assertTrue(found.endswith("; quantize the model again, and keep them as they are"))


if __name__ == "__main__":
    tool.main()
