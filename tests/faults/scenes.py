"""The runs that faults are put into: small inputs, arguments, and what must hold after each."""

import functools
import os
import random
import re
import shutil
import tempfile
import unittest
from pathlib import Path
from typing import NamedTuple

import injection
from support import codec, model, tensors, tool

LAYER = "model.layers.0."
SHARD = "model-{:05}-of-00003.safetensors"
SNAPSHOT = "cache/models--someone--small/snapshots/0123abcd"
INPUTS = ("folder", "cache", "nan", "wide.safetensors", "small.safetensors", "long.safetensors")
CONVERTED = ("folder-fp8", "wide-fp8.safetensors")
OLD = b"an older output"
# One lane: calls come in the same order each time.
PLAIN = ("--device", os.environ.get("FP8Q_FAULTS_DEVICE", "cpu"), "--threads", "1")
VERIFY = ("--device", "cpu", "--threads", "1")  # products on a GPU that is not there take long

# What a run may leave beside OUTPUT.
BESIDE = {"out.partial", "out.partial.journal"}

# What differs from run to run in what is printed, and on pages.
SECONDS = re.compile(rb'"seconds": [0-9.e-]+|[0-9.]+ s\b|[0-9-]+ [0-9:]+ UTC, in [0-9.]+&nbsp;s')

# The first line of a failure: the file or GPU, then what is wrong with it; memory and signals have
# none.
ERROR = re.compile(r"^fp8q: (out of memory; |interrupted$|cuda:0: |[^:]*[^:\s]: )")
# What messages say: that something is left in OUTPUT.partial; that OUTPUT is complete, but a thing
# beside it is left; that this or that would not go; that a message found no memory.
LEFT = re.compile(r"out\.partial: is left behind|the finished files stay in out\.partial")
COMPLETE = re.compile(r"fp8q: out: is complete[,;] .*(could not|cannot) be removed")
STUCK = re.compile(r"(could not|cannot) be removed[;:] ")
LOST = re.compile(r"^fp8q: \d+ more messages? found no memory$")


class Scene(NamedTuple):
    """One command on one input of a Stage."""

    name: str
    command: str
    source: str
    over_old: bool = False  # with --force, over an older output
    options: tuple = PLAIN

    @property
    def writes(self):
        """Whether it makes an output, not only text."""
        return self.command in ("convert", "dequant") or "--html" in self.options

    def args(self, *more):
        source = os.path.join("..", self.source)
        if self.command in ("inspect", "verify"):
            return [self.command, source, *self.options, *more]
        force = ["--force"] if self.over_old else []
        return [self.command, source, "-o", "out", *self.options, *force, *more]


SCENES = [
    Scene("convert a folder", "convert", "folder", options=(*PLAIN, "--json")),
    Scene("convert a folder over another", "convert", "folder", over_old=True),
    Scene("convert a file", "convert", "wide.safetensors", options=(*PLAIN, "--arch", "sm100")),
    Scene("convert a file over another", "convert", "small.safetensors", over_old=True),
    Scene("convert a snapshot", "convert", SNAPSHOT),
    Scene("convert and keep NaN", "convert", "nan", options=(*PLAIN, "--on-nonfinite", "keep")),
    Scene("convert with checksums", "convert", "folder", options=(*PLAIN, "--checksum")),
    Scene("dequant a folder", "dequant", "folder-fp8"),
    Scene("dequant a file over another", "dequant", "wide-fp8.safetensors", over_old=True),
    Scene("inspect a folder", "inspect", "folder-fp8", options=("--json", "--stats")),
    Scene("inspect a file", "inspect", "wide-fp8.safetensors", options=()),
    Scene("inspect long names", "inspect", "long.safetensors", options=()),
    Scene("verify a folder", "verify", "folder-fp8", options=(*VERIFY, "--reference", "../folder")),
    Scene("verify a file", "verify", "wide-fp8.safetensors", options=(*VERIFY, "--json")),
    Scene("write a page", "verify", "wide-fp8.safetensors", options=(*VERIFY, "--html", "out")),
]


@functools.cache
def random_tensor(*shape):
    source = random.Random(repr(shape))
    n = functools.reduce(lambda a, b: a * b, shape)
    few = [source.gauss(0, 0.02) for _ in range(min(n, 4099))]
    return codec.bf16_tensor(shape, [few[i % len(few)] for i in range(n)])


def write_folder(folder):
    """Three shards: attention, fused experts stored transposed, and tensors that are kept."""
    shards = {
        SHARD.format(1): {
            f"{LAYER}self_attn.{part}_proj.weight": random_tensor(128, 128) for part in "qkv"
        },
        SHARD.format(2): {
            f"{LAYER}mlp.experts.gate_up_proj": random_tensor(2, 128, 256),
            f"{LAYER}mlp.experts.down_proj": random_tensor(2, 128, 128),
        },
        SHARD.format(3): {
            f"{LAYER}mlp.shared.down_proj.weight": random_tensor(200, 136),
            f"{LAYER}input_layernorm.weight": codec.f32_tensor((128,), [1.0] * 128),
            "lm_head.weight": random_tensor(64, 128),
        },
    }
    config = {"model_type": "tiny", "hidden_size": 128}
    files = {"tokenizer.json": "{}", "sub/deep/notes.txt": "notes\n" * 1000}
    model.write_folder(folder, shards, config, files=files)


def write_wide(path):
    """A matrix so wide that its bands are read and written row by row, and a ragged one."""
    content = {
        "a.down_proj.weight": random_tensor(128, 2304),
        "b.o_proj.weight": random_tensor(200, 136),
        "norm.weight": codec.f32_tensor((128,), [1.0] * 128),
    }
    tensors.write(path, content)


def write_small(path):
    tensors.write(path, {"a.o_proj.weight": random_tensor(128, 256)})


def write_long(path):
    """Names that no usual buffer holds."""
    tensors.write(path, {"n" * n: codec.f32_tensor((1,), [1.0]) for n in (1500, 5000)})


def write_nan(folder):
    """Two shards, of which one has to be written anew when its NaN is met."""
    nan = codec.filled("BF16", (128, 128), b"\xc0\x7f")
    shards = {
        "model-00001-of-00002.safetensors": {"a.o_proj.weight": random_tensor(128, 128)},
        "model-00002-of-00002.safetensors": {
            "b.down_proj.weight": random_tensor(128, 256),
            "c.down_proj.weight": nan,
        },
    }
    model.write_folder(folder, shards, {"model_type": "tiny"})


def write_snapshot(folder):
    """A snapshot as the hub's tools leave it: links into the cache's blobs."""
    blobs = folder.parent.parent / "blobs"
    blobs.mkdir(parents=True)
    folder.mkdir(parents=True)
    write_small(blobs / "0a")
    (blobs / "0b").write_text("{}")
    (folder / "model.safetensors").symlink_to("../../blobs/0a")
    (folder / "config.json").symlink_to("../../blobs/0b")


class Stage:
    """A folder with the inputs of scenes, and what each scene gives undisturbed."""

    def __init__(self, scenes):
        self.root = Path(tempfile.mkdtemp(prefix="fp8q-faults-", dir=injection.scratch_parent()))
        write_folder(self.root / "folder")
        write_wide(self.root / "wide.safetensors")
        write_small(self.root / "small.safetensors")
        write_long(self.root / "long.safetensors")
        write_nan(self.root / "nan")
        write_snapshot(self.root / SNAPSHOT)
        for source, target in zip(("folder", "wide.safetensors"), CONVERTED):
            options = (*PLAIN, "--scale-format", "f32" if source == "folder" else "pow2")
            result = tool.run("convert", source, "-o", target, *options, cwd=self.root)
            if result.code != 0:
                raise RuntimeError(str(result))
        self.undisturbed = {scene.name: self.run_undisturbed(scene) for scene in scenes}

    def run_undisturbed(self, scene):
        with self.folder(scene) as folder:
            outcome = injection.run(scene.args(), folder, injection.Fault(""))
            if outcome.code != 0 or not outcome.is_over:
                raise RuntimeError(f"{scene.name}, undisturbed: {outcome.brief()}")
            return self.product(scene, folder, outcome)

    def count(self, scene, calls):
        """How many calls of these kinds a whole run makes."""
        with self.folder(scene) as folder:
            return injection.run(scene.args(), folder, injection.Fault(calls)).n_calls

    @staticmethod
    def product(scene, folder, outcome):
        """What a run made: its output, or what it printed."""
        if scene.writes:
            return contents_of_output(f"{folder}/out")
        return SECONDS.sub(b"", outcome.out)

    def folder(self, scene):
        """A context: a folder for a run, empty but for the older output; gone afterwards."""
        folder = tempfile.TemporaryDirectory(prefix="run-", dir=self.root)
        out = Path(folder.name) / "out"
        if scene.over_old and (self.root / scene.source).is_dir():
            (out / "sub").mkdir(parents=True)
            (out / "old.safetensors").write_bytes(OLD)
            (out / "sub/notes").write_bytes(OLD)
        elif scene.over_old:
            out.write_bytes(OLD)
        return folder

    def snapshot(self):
        """Modes, times and bytes of all inputs."""
        found = {}
        for name in (*INPUTS, *CONVERTED):
            found.update(model.snapshot(self.root / name))
        return found

    def is_result(self, scene, product):
        """Whether that is what an undisturbed run makes, or a report that tells what it lacks."""
        is_told = isinstance(product, bytes) and b" more found no memory" in product
        return product == self.undisturbed[scene.name] or is_told

    def state_of_output(self, scene, folder):
        """Of OUTPUT after a run: absent, old, complete, or what must never be: torn."""
        out = Path(folder) / "out"
        if not os.path.lexists(out):
            return "absent"
        found = contents_of_output(out)
        if self.is_result(scene, found):
            return "complete"
        if scene.over_old:
            with self.folder(scene) as fresh:
                if found == injection.contents(f"{fresh}/out"):
                    return "old"
        return "torn"

    def torn_files(self, scene, folder):
        """What is in OUTPUT.partial and is not as an undisturbed run makes it."""
        done = self.undisturbed[scene.name]
        if not os.path.lexists(f"{folder}/out.partial"):
            return []
        if not isinstance(done, dict):
            return [] if injection.contents(f"{folder}/out.partial") == done else ["itself"]
        kept = injection.contents(f"{folder}/out.partial")
        return [name for name in kept if name not in done or kept[name] != done[name]]

    def complaints(self, scene, folder, outcome, codes, reasons):
        """What is wrong with the outcome of a run that may end with these codes.

        Code 0 means that all came out as if nothing had happened; any other that the first line
        tells one of the reasons.
        """
        if outcome.code not in codes:
            yield f"exit {outcome.code}"
        if tool.unsafe(outcome.err):
            yield "bytes that are not fit for a terminal"
        if not outcome.is_over or outcome.n_left_open or outcome.n_bad_closes:
            yield "descriptors are left open, or closed twice"
        if outcome.n_resyncs:
            yield "fsync was called again for a file for which it had failed"
        if outcome.code == 0:
            if outcome.lines:
                yield "a success with an error message"
            if not self.is_result(scene, self.product(scene, folder, outcome)):
                yield "the result differs"
        else:
            yield from complaints_of_messages(outcome, reasons)
        if scene.writes:
            yield from self.complaints_of_places(scene, folder, outcome)

    def complaints_of_places(self, scene, folder, outcome):
        """OUTPUT is as before or complete, and what is left beside it is told, and whole."""
        state = self.state_of_output(scene, folder)
        before = "old" if scene.over_old else "absent"
        if state not in (before, "complete"):
            yield f"the output is {state}"
        left = set(os.listdir(folder)) - {"out"}
        if left - BESIDE:
            yield f"left outside OUTPUT.partial: {left}"
        if not left:
            return
        if any(map(LOST.search, outcome.lines)):
            return  # the message about it is counted, at least
        if left == {"out.partial.journal"} and outcome.n_struck > 1:
            return  # its removal was struck, too; alone it is in nobody's way
        if state == "complete" and any(map(COMPLETE.match, outcome.lines)):
            return  # and the line says what else is there
        if not any(map(LEFT.search, outcome.lines)):
            yield "OUTPUT.partial is left, and no message says so"
        if not any(map(STUCK.search, outcome.lines)) and self.torn_files(scene, folder):
            yield f"not whole in OUTPUT.partial: {self.torn_files(scene, folder)}"


def contents_of_output(out):
    """What is at OUTPUT; of a page what is the same each time."""
    found = injection.contents(out)
    return SECONDS.sub(b"", found) if isinstance(found, bytes) and found[:1] == b"<" else found


def complaints_of_messages(outcome, reasons):
    """The first line says what is wrong, with the file; notes on what is left may follow."""
    first = outcome.lines[0] if outcome.lines else ""
    if not ERROR.match(first) or not any(reason in first for reason in reasons):
        yield f"the error is not told first, with one of {reasons}"
    for line in outcome.lines[1:]:
        if not LEFT.search(line) and not LOST.search(line):
            yield "more lines than the error and what is left behind"


class Case(unittest.TestCase):
    """A test on a stage that is set up once, and whose inputs must stay as they are."""

    scenes = SCENES

    @classmethod
    def setUpClass(cls):
        cls.stage = Stage(cls.scenes)
        cls.addClassCleanup(shutil.rmtree, cls.stage.root)

    def setUp(self):
        self.before = self.stage.snapshot()

    def tearDown(self):
        self.assertEqual(self.stage.snapshot(), self.before, "an input was touched")

    def strike(self, scene, faults, judge, args=None):
        """One run for each fault; judge(fault, folder, outcome) yields what is wrong with it.

        args: other than the scene's own.
        """

        def strike_once(fault):
            with self.stage.folder(scene) as folder:
                outcome = injection.run(args or scene.args(), folder, fault)
                found = list(judge(fault, folder, outcome))
                if fault.at and not outcome.n_struck:
                    found.append("the call did not come")
                return [f"{scene.name}: {fault}: {text}; {outcome.brief()}" for text in found]

        found = [text for texts in injection.in_parallel(strike_once, faults) for text in texts]
        if found:
            self.fail(f"{len(found)} complaints, the first:\n" + "\n".join(found[:3]))
        return len(faults)
