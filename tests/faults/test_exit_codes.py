"""The exit codes as one table: each documented one is reached by a command for each of its reasons,
and no other is documented."""

import errno
import os
import re
import shutil
import signal

import injection
import scenes
from support import codec, model, tensors, tool

WEIGHT = "a.o_proj.weight"
CONVERT = ["convert", "good.safetensors", "-o", "out.safetensors", "--device", "cpu"]
STOPPED = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}
PIPE = 128 + signal.SIGPIPE


def run(args, folder, fault=injection.Fault(""), **options):
    return injection.Process(args, folder, fault, **options).result()


def make_inputs(folder):
    """The files that the rows name, in a folder."""
    good = scenes.random_tensor(128, 256)
    tensors.write(folder / "good.safetensors", {WEIGHT: good})
    tensors.write(folder / "other.safetensors", {WEIGHT: scenes.random_tensor(256, 128)})
    for name, bits in (("nan", b"\xc0\x7f"), ("inf", b"\x80\xff")):
        bad = codec.filled("BF16", (128, 256), bits)
        tensors.write(folder / f"{name}.safetensors", {WEIGHT: bad})
    (folder / "cut.safetensors").write_bytes((folder / "good.safetensors").read_bytes()[:-1])
    shards = [f"model-0000{part}-of-00002.safetensors" for part in (1, 2)]
    model.write_folder(folder / "missing", {shard: {f"{shard}.w": good} for shard in shards}, {})
    (folder / "missing" / shards[1]).unlink()
    model.write_folder(folder / "folder", {"model.safetensors": {WEIGHT: good}}, {})
    for output in ("fp8.safetensors", "flipped.safetensors"):
        run(["convert", "good.safetensors", "-o", output], folder)
    with open(folder / "flipped.safetensors", "r+b") as file:
        file.seek(-1000, os.SEEK_END)
        byte = file.read(1)
        file.seek(-1000, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))
    (folder / "exists.safetensors").write_bytes(scenes.OLD)


# Reason in the documentation's words, command line.
ROWS = {
    0: [
        ("done", CONVERT),
        ("done", ["dequant", "fp8.safetensors", "-o", "back.safetensors"]),
        ("done", ["verify", "fp8.safetensors", "--reference", "good.safetensors"]),
        ("done", ["inspect", "nan.safetensors"]),
        ("done", ["help"]),
        ("done", ["convert", "--help"]),
        ("done", ["--version"]),
    ],
    1: [
        (
            "verification failed",
            ["verify", "flipped.safetensors", "--reference", "good.safetensors"],
        )
    ],
    2: [
        ("usage", []),
        ("usage", ["convert"]),
        ("unknown option", ["convert", "good.safetensors", "--nonsense"]),
        ("output exists", ["convert", "good.safetensors", "-o", "exists.safetensors"]),
        ("output is", ["convert", "good.safetensors", "-o", "good.safetensors", "--force"]),
        ("or lies in the input", ["convert", "folder", "-o", "folder/out"]),
    ],
    3: [
        ("wrong bytes", ["inspect", "cut.safetensors"]),
        ("missing shard", ["inspect", "missing"]),
        ("already quantized", ["convert", "fp8.safetensors", "-o", "out.safetensors"]),
        ("NaN", ["convert", "nan.safetensors", "-o", "out.safetensors"]),
        ("Inf", ["convert", "inf.safetensors", "-o", "out.safetensors"]),
    ],
    4: [("no such file", ["convert", "nothing.safetensors"])],
    5: [("no usable device", ["convert", "good.safetensors", "--device", "cuda:99"])],
}
# What takes a fault: reason, kind of call, how it fails.
FAULTS = {
    4: [
        ("permission", injection.Fault("open", at=1, every=1, value=errno.EACCES)),
        ("read", injection.Fault("pread", at=1)),
        ("or write error", injection.Fault("pwrite", at=1)),
        ("full disk", injection.Fault("pwrite", at=1, value=errno.ENOSPC)),
    ],
    5: [("out of memory", injection.Fault("alloc", at=40, every=1, value=errno.ENOMEM))],
}


def documented(path, pattern):
    """{code: meaning} of a table in a text."""
    text = (tool.ROOT / path).read_text(encoding="utf-8")
    return dict(re.findall(pattern, text.replace("\\-", "-"), re.MULTILINE))


class ExitCodes(tool.Case):
    def setUp(self):
        super().setUp()
        make_inputs(self.dir)
        self.manual = documented("docs/fp8q.1", r'^\.B (\d|128\+N)\n(.*)$')
        self.readme = documented("README.md", r"^\| (\d|128 \+ N) \| (.*) \|$")

    def assert_told(self, code, reason):
        """Both tables have the code, with that reason."""
        for table in (self.manual, self.readme):
            self.assertIn(reason, table[str(code)])

    def test_no_other(self):
        self.assertEqual(list(self.manual), ["0", "1", "2", "3", "4", "5", "128+N"])
        self.assertEqual(list(self.readme), ["0", "1", "2", "3", "4", "5", "128 + N"])
        self.assertEqual(sorted(ROWS), [0, 1, 2, 3, 4, 5])
        words = {word for code in "12345" for word in re.split(r"[:,] ", self.manual[code])}
        told = {reason for table in (ROWS, FAULTS) for rows in table.values() for reason, _ in rows}
        untold = {word for word in words if not any(reason in word for reason in told)}
        self.assertEqual(untold, {"bad input", "I/O", "input changed", "--resume does not match"})

    def test_commands(self):
        for code, rows in ROWS.items():
            for reason, args in rows:
                outcome = run(args, self.dir)
                self.clear()
                self.assertEqual(outcome.code, code, (args, outcome.brief()))
                self.assertEqual(code == 0, not outcome.lines, args)
                self.assert_told(code, reason)

    def test_faults(self):
        for code, rows in FAULTS.items():
            for reason, fault in rows:
                outcome = run(CONVERT, self.dir, fault)
                self.assertEqual((outcome.code, len(outcome.lines) > 0), (code, True), reason)
                self.assert_told(code, reason)
                self.clear()

    def clear(self):
        for end in ("", ".partial", ".partial.journal"):
            (self.dir / f"out.safetensors{end}").unlink(missing_ok=True)

    def test_input_changed(self):
        shutil.copy(self.dir / "good.safetensors", self.dir / "victim.safetensors")
        fault = injection.Fault("pread", at=2, how="before", value=signal.SIGSTOP)
        line = ["convert", "victim.safetensors", "-o", "out.safetensors", "--device", "cpu"]
        process = injection.Process(line, self.dir, fault)
        injection.wait_for_stop(process)
        os.utime(self.dir / "victim.safetensors", (1, 1))
        process.popen.send_signal(signal.SIGCONT)
        self.assertEqual(process.result().code, 4)
        self.assert_told(4, "input changed")

    def test_resume(self):
        """`--resume` does not match."""
        kill = injection.Fault("renameat2", at=1, how="before", value=signal.SIGKILL)
        self.assertEqual(run(CONVERT, self.dir, kill).code, -signal.SIGKILL)
        outcome = run([*CONVERT, "--resume", "--arch", "sm100"], self.dir)
        self.assertEqual(outcome.code, 2, outcome.brief())
        self.assertIn("`--resume` does not match", self.readme["2"])
        self.assertIn("--resume does not match", self.manual["2"])
        self.assertEqual(run([*CONVERT, "--resume"], self.dir).code, 0)

    def test_signals(self):
        for name, code in STOPPED.items():
            number = getattr(signal, name)
            fault = injection.Fault("pread", at=2, how="before", value=number)
            outcome = run(CONVERT, self.dir, fault)
            self.assertEqual((outcome.code, code), (128 + number, 128 + number), outcome.brief())
            told = f"{code} for {name}"
            self.assertTrue(told in self.manual["128+N"] or name == "SIGHUP", told)
            self.clear()
        reader, writer = os.pipe()
        os.close(reader)
        outcome = run(["inspect", "good.safetensors"], self.dir, stdout=writer)
        os.close(writer)
        self.assertEqual((outcome.code, outcome.lines), (PIPE, []))


if __name__ == "__main__":
    for stopping in STOPPED:
        signal.signal(getattr(signal, stopping), signal.SIG_DFL)
    tool.main()
