"""Kills runs at random moments, goes on with --resume, and compares the bytes with those of a run
that nobody disturbed.

A kill comes after a random time, after a random number of bytes on disk, or at a random line of the
journal. No hook in the program is needed: bytes and lines are looked up from outside. What stands
under the final name is complete or absent at every moment.
"""

import argparse
import filecmp
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from support import codec, interrupt, model, tensors, tool

N_SHARDS = 6


def write_model(folder, rows):
    """Shards of different sizes; one holds a NaN, one tensors that are copied."""
    shards = {}
    for part in range(N_SHARDS):
        row = b"".join(bytes((col * (part + 3) % 251, 0x3C)) for col in range(2048))
        data = row * (rows * (1 + part % 3))
        if part == 4:
            data = data[:-2] + b"\xc0\x7f"
        shards[f"model-{part + 1:05}-of-{N_SHARDS:05}.safetensors"] = {
            f"model.layers.{part}.self_attn.o_proj.weight": tensors.Tensor(
                "BF16", (len(data) // 4096, 2048), data
            ),
            f"model.layers.{part}.norm.weight": codec.bf16_tensor((2048,), 1.0),
        }
    return model.write_folder(folder, shards, {"a": 1}, files={"t.json": "{}", "s/n.txt": "n"})


class Flow:
    """A command with its undisturbed output, and how long that took."""

    def __init__(self, folder, name, *line, over_old=False):
        self.name, self.line, self.over_old = name, line, over_old
        self.whole = folder / f"whole-{name}"
        self.output = folder / f"out-{name}"
        begin = time.monotonic()
        self.run("-o", self.whole)
        self.seconds = time.monotonic() - begin
        self.nbytes = sum(path.stat().st_size for path in self.files(self.whole))

    def run(self, *more):
        result = tool.run(*self.line, *more)
        if result.code != 0:
            raise RuntimeError(str(result))

    @staticmethod
    def files(root):
        return [path for path in [root, *root.rglob("*")] if path.is_file()]

    def differs(self, found):
        """What of an output is not as it should be; None if it is complete."""
        for path in self.files(self.whole):
            other = found / path.relative_to(self.whole)
            if not other.is_file() or not filecmp.cmp(path, other, shallow=False):
                return f"{other} is not {path}"
        if len(self.files(found)) != len(self.files(self.whole)):
            return f"{found} holds more than {self.whole}"
        return None

    def make_old(self):
        """What --force replaces."""
        if self.over_old:
            self.output.mkdir()
            (self.output / "old").write_text("o", encoding="ascii")

    def is_old(self):
        return self.over_old and [path.name for path in self.output.iterdir()] == ["old"]

    def remove(self):
        """Everything that the last round left."""
        for path in (self.output, interrupt.partial_of(self.output)):
            if path.is_dir():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)
        interrupt.journal_of(self.output).unlink(missing_ok=True)

    def check(self, ended, when):
        """The final name is as it was, or complete. True if nothing is left to do."""
        has_result = self.output.exists() and not self.is_old()
        problem = self.differs(self.output) if has_result else ended and "no output"
        left = [interrupt.partial_of(self.output), interrupt.journal_of(self.output)]
        is_left = any(path.exists() for path in left)
        if ended and is_left:
            problem = "something is left"
        if problem:
            raise RuntimeError(f"{self.name}, {when}: {problem}")
        return has_result and not is_left

    def moment(self, source):
        """A random moment, and what it is."""
        kind = source.choice(("time", "bytes", "lines"))
        if kind == "time":
            until = time.monotonic() + source.uniform(0, 1.1 * self.seconds)
            return "time", lambda: time.monotonic() >= until
        if kind == "bytes":
            least = source.randrange(self.nbytes)
            return f"{least} bytes", lambda: interrupt.n_written(self.output) >= least
        n = source.randrange(1, N_SHARDS + 2)
        return f"line {n}", lambda: interrupt.n_lines(self.output) >= n


def round_of(flow, source):
    """Kills a run one to four times, and lets the last one end. Returns how many kills met it."""
    n_killed, most = 0, source.randint(1, 4)
    flow.remove()
    flow.make_old()
    for turn in range(most + 1):
        what, is_time = flow.moment(source) if turn < most else ("never", lambda: False)
        line = [*flow.line, "-o", flow.output, "--threads", source.randint(1, 4), "--quiet"]
        line += ["--force"] * flow.over_old + ["--resume"] * (turn > 0)
        code, messages = interrupt.end(interrupt.start(*line), signal.SIGKILL, is_time)
        n_killed += code == -signal.SIGKILL
        if code not in (0, -signal.SIGKILL):
            raise RuntimeError(f"{flow.name}: exit {code}: {messages}")
        if flow.check(code == 0, f"turn {turn}, killed at {what}"):
            break
    return n_killed


def flows_of(folder, rows):
    """Folders and a lone file, there and back, with plans that change, and over an old output."""
    source = write_model(folder / "in", rows)
    lone = folder / "lone.safetensors"
    shutil.copy(source / f"model-00003-of-{N_SHARDS:05}.safetensors", lone)
    keep = ("--on-nonfinite", "keep")
    convert = Flow(folder, "convert", "convert", source, *keep)
    return [
        convert,
        Flow(folder, "dequant", "dequant", convert.whole),
        Flow(folder, "force", "convert", source, *keep, "--arch", "sm100", over_old=True),
        Flow(folder, "checksum", "convert", source, *keep, "--checksum"),
        Flow(folder, "lone", "convert", lone),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="runs killed at work, in all")
    parser.add_argument("--rows", type=int, default=1024, help="of the smallest weight")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    if not tool.PROGRAM.is_file():
        sys.exit(f"no program at {tool.PROGRAM}: build it, or name it in FP8Q")
    print(f"seed {options.seed}", flush=True)
    source = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="fp8q-kills-") as folder:
        flows = flows_of(Path(folder), options.rows)
        counts = dict.fromkeys((flow.name for flow in flows), 0)
        n_rounds = 0
        while sum(counts.values()) < options.kills:
            flow = flows[n_rounds % len(flows)]
            counts[flow.name] += round_of(flow, source)
            n_rounds += 1
    print(f"{sum(counts.values())} kills in {n_rounds} runs, every output complete: {counts}")


if __name__ == "__main__":
    main()
