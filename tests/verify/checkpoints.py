"""A small model, its conversions, and ways to break a folder in one place."""

import json
import shutil
import tempfile
from pathlib import Path

from support import codec, model, quantizer, tensors, tool

LAYER = "model.layers.0."
CONFIG = {"model_type": "tiny", "hidden_size": 256, "num_key_value_heads": 2}
FILE = "model-00002-of-00002.safetensors"


def reference_shards():
    """Attention in one file, the MLP in another. up_proj has five blocks in a row: two packed
    words."""
    gaussian = quantizer.gaussian
    return {
        "model-00001-of-00002.safetensors": {
            "model.embed_tokens.weight": gaussian((256, 256), 1),
            LAYER + "input_layernorm.weight": codec.f32_tensor((256,), [1.0] * 256),
            LAYER + "self_attn.q_proj.weight": gaussian((256, 256), 2),
            LAYER + "self_attn.k_proj.weight": gaussian((128, 256), 3),
            LAYER + "self_attn.v_proj.weight": gaussian((128, 256), 4),
        },
        FILE: {
            LAYER + "mlp.gate.weight": gaussian((16, 256), 5),
            LAYER + "mlp.gate_proj.weight": gaussian((128, 640), 6),
            LAYER + "mlp.up_proj.weight": gaussian((128, 640), 7),
            LAYER + "mlp.down_proj.weight": gaussian((258, 384), 8),
            "model.norm.weight": codec.f32_tensor((256,), [1.0] * 256),
        },
    }


UP, DOWN, Q = (LAYER + f"{name}.weight" for name in ("mlp.up_proj", "mlp.down_proj",
                                                     "self_attn.q_proj"))  # fmt: skip
SCALE = "_scale_inv"


class Case(tool.Case):
    """Tests on copies of one converted model; the originals are made once."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.shared = Path(tempfile.mkdtemp(prefix="fp8q-verify-"))
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        cls.reference = model.write_folder(cls.shared / "in", reference_shards(), config=CONFIG)
        for scale_format in ("f32", "pow2", "e8m0", "packed"):
            line = ("convert", cls.reference, "-o", cls.shared / scale_format)
            result = tool.run(*line, "--scale-format", scale_format, "--quiet")
            assert result.code == 0, str(result)

    def copy(self, scale_format="f32"):
        """A copy of the conversion that may be broken."""
        folder = self.dir / f"{scale_format}-{len(list(self.dir.iterdir()))}"
        shutil.copytree(self.shared / scale_format, folder)
        return folder

    def verify(self, folder, *options, code=0, reference=True):
        """The report on a folder."""
        line = ["verify", folder, "--json", *options]
        if reference:
            line += ["--reference", self.reference]
        self.result = self.fp8q(*line, code=code)
        report = self.result.json()
        self.assertEqual(report["summary"]["verdict"], "fail" if code else "pass")
        failed = [tensor for tensor in report["tensors"] if tensor["verdict"] == "fail"]
        self.assertEqual(report["summary"]["n_failed"], len(failed))
        self.assertEqual(bool(code), bool(failed or report["problems"]), str(self.result))
        for tensor in report["tensors"]:
            self.assertEqual(tensor["verdict"] == "fail", bool(tensor["reasons"]))
        return report

    def only_failure(self, folder, name, *options, problems=0, **more):
        """The one tensor that fails."""
        report = self.verify(folder, *options, code=1, **more)
        failed = [tensor for tensor in report["tensors"] if tensor["verdict"] == "fail"]
        self.assertEqual([tensor["name"] for tensor in failed], [name], str(self.result))
        self.assertEqual(len(report["problems"]), problems, str(self.result))
        return failed[0]

    def only_problem(self, folder, *parts, **options):
        """The one problem, in which every part occurs."""
        report = self.verify(folder, code=1, **options)
        self.assertEqual(report["summary"]["n_failed"], 0, str(self.result))
        self.assertEqual(len(report["problems"]), 1, str(self.result))
        for part in parts:
            self.assertIn(part, report["problems"][0])
        return report["problems"][0]


def path_of(folder, name):
    """The file of a folder that holds a tensor."""
    return next(
        path
        for path in sorted(Path(folder).glob("*.safetensors"))
        if name in tensors.read_header(path).entries
    )


def read(folder, name):
    """A tensor's bytes."""
    return bytearray(tensors.read(path_of(folder, name))[name].data)


def write(folder, name, data):
    """Puts other bytes in the place of a tensor's."""
    path = path_of(folder, name)
    entry = tensors.read_header(path).entries[name]
    assert len(data) == entry.end - entry.begin
    with open(path, "r+b") as file:
        file.seek(entry.begin)
        file.write(data)


def rewrite(folder, change, keep_metadata=True, index=True):
    """Writes every file anew with what change(content) left in {name: Tensor}."""
    weight_map = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        metadata = tensors.read_header(path).metadata if keep_metadata else {"format": "pt"}
        content = tensors.read(path)
        change(content)
        tensors.write(path, content, metadata)
        weight_map.update(dict.fromkeys(content, path.name))
    if index:
        model.write_index(folder, weight_map)


def make_foreign(folder):
    """Takes away what tells that fp8q made the files."""
    rewrite(folder, lambda content: None, keep_metadata=False)
    edit_config(folder, lambda config: config.pop("fp8q"))
    return folder


def edit_config(folder, change):
    """Changes the quantization_config."""
    path = Path(folder) / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    change(config["quantization_config"])
    path.write_text(json.dumps(config), encoding="utf-8")
