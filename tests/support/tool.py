"""Runs fp8q from tests: where the program is, what a run gave, and what must hold for every run."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("FP8Q", ROOT / "build/release/fp8q")).resolve()
SKIPPED = 77  # what CTest takes for "skipped"

BIDI = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}


class Result:
    """What a finished run gave: exit code (negative: a signal) and the bytes of both streams."""

    def __init__(self, args, code, out, err):
        self.args, self.code, self.out, self.err = args, code, out, err

    @property
    def text(self):
        """Messages, as text."""
        return self.err.decode("utf-8", "replace")

    def json(self):
        """The one JSON value on stdout."""
        return json.loads(self.out)

    def __str__(self):
        line = " ".join(map(str, self.args))
        return f"{line}\nexit {self.code}\n{self.out[-2000:]!r}\n{self.text[-2000:]}"


def unsafe(stream):
    """The first thing in a stream that must not reach a terminal, or None."""
    try:
        text = stream.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"invalid UTF-8 at {error.start}"
    for place, char in enumerate(text):
        code = ord(char)
        control = code < 0x20 and char not in "\n\t" or 0x7F <= code < 0xA0
        if control or code in BIDI:
            return f"U+{code:04X} at {place}"
    return None


def run(*args, cwd=None, env=None, timeout=120, preexec=None):
    """Runs fp8q with args and no terminal; env is added to the environment."""
    line = [str(PROGRAM), *map(str, args)]
    done = subprocess.run(
        line,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        timeout=timeout,
        preexec_fn=preexec,
        check=False,
    )
    return Result(line, done.returncode, done.stdout, done.stderr)


class Case(unittest.TestCase):
    """A test with a folder of its own, self.dir, that is gone afterwards."""

    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="fp8q-test-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def fp8q(self, *args, code=0, **options):
        """Runs fp8q, expects this exit code, and that both streams are fit for a terminal."""
        result = run(*args, **options)
        self.assertEqual(result.code, code, str(result))
        for stream in (result.out, result.err):
            self.assertIsNone(unsafe(stream), str(result))
        if code != 0:
            self.assertRegex(result.text, r"(?m)^fp8q: ", str(result))
        return result

    def assertMentions(self, result, *parts):
        """Every part occurs in the messages."""
        for part in parts:
            self.assertIn(part, result.text, str(result))

    def assertTensors(self, found, expected):
        """Two {name: Tensor} are the same; a difference is told in a line, not as megabytes."""
        self.assertEqual(found.keys(), expected.keys())
        for name, tensor in expected.items():
            self.assertTensor(found[name], tensor, name)

    def assertTensor(self, found, expected, name):
        """Dtype, shape and every byte."""
        self.assertEqual((found.dtype, found.shape), (expected.dtype, expected.shape), name)
        self.assertBytes(found.data, expected.data, name)

    def assertBytes(self, found, expected, name):
        """The first byte that differs is told."""
        if found != expected:
            self.assertEqual(len(found), len(expected), name)
            place = next(i for i, byte in enumerate(found) if byte != expected[i])
            self.fail(f"{name}: byte {place} is {found[place]:#04x}, not {expected[place]:#04x}")

    def assertAbsent(self, *paths):
        """None of these outputs, nor its partial form or its journal, is there."""
        for path in paths:
            for name in (path, Path(f"{path}.partial"), Path(f"{path}.partial.journal")):
                self.assertFalse(os.path.lexists(name), f"{name} is left")


def main(needs=()):
    """Runs the tests of a script; exits 77 where one of the modules it needs is absent."""
    for module in needs:
        try:
            __import__(module)
        except ImportError:
            print(f"skipped: python module {module} is not installed")
            sys.exit(SKIPPED)
    if not PROGRAM.is_file():
        sys.exit(f"no program at {PROGRAM}: build it, or name it in FP8Q")
    unittest.main(module="__main__", verbosity=2)
