"""On a real terminal: the bar is drawn, fits, says nothing raw and goes away; without one, or where
it is not wanted, no byte of it is written. Ctrl-C and a closed terminal end the run."""

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest
from pathlib import Path

from support import interrupt, tensors, tool

FRAME = re.compile(r"\r\x1b\[K([^\r\x1b]*(?:\x1b\[2m[^\r\x1b]*\x1b\[0m)?[^\r\x1b]*)")
STYLE = re.compile(r"\x1b\[[0-9;]*m")
BAR = re.compile(r"^\[#* *\] +\d+%  [0-9.]+ [kMG]?B of [0-9.]+ GB  [0-9.]+ GB/s  ETA ")
SECONDS = 120
INTERVAL = 0.15  # of frames
ROWS, COLS = 20480, 10240  # 419 MB of holes: long enough to be met at work
NAMES = ["model.layers.0.mlp.down_proj.weight", "a\x1b]0;\x07\x9b\u202eb\nc.o_proj.weight"]


class Terminal:
    """A run on a pseudo terminal of that size, whose bytes are gathered."""

    def __init__(self, args, columns, streams=(0, 1, 2), cwd=None, **environment):
        self.master, slave = pty.openpty()
        size = struct.pack("HHHH", 24, columns, 0, 0)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
        self.text = b""
        variables = {"TERM": "xterm", **environment}
        usual = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
        given = [slave if fd in streams else subprocess.PIPE for fd in (0, 1, 2)]
        self.popen = subprocess.Popen(
            [str(tool.PROGRAM), *map(str, args)],
            stdin=given[0] if 0 in streams else subprocess.DEVNULL,
            stdout=given[1],
            stderr=given[2],
            cwd=cwd,
            env={**usual, **variables},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0),
        )
        os.close(slave)

    def gather(self, seconds):
        """Takes what comes within that time. False at the end."""
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            found = os.read(self.master, 65536)
        except OSError:  # the last one who had the terminal is gone
            found = b""
        self.text += found
        return bool(found)

    def wait_for(self, text):
        until = time.monotonic() + SECONDS
        while text not in self.text and time.monotonic() < until and self.gather(0.1):
            pass

    def let_frames_pass(self, partial, n):
        """Stops the run for the time of a frame, which is drawn when it goes on, n times."""
        until = time.monotonic() + SECONDS
        while not partial.exists() and self.popen.poll() is None and time.monotonic() < until:
            self.gather(0.001)
        for _ in range(n):
            self.popen.send_signal(signal.SIGSTOP)
            time.sleep(1.1 * INTERVAL)
            self.popen.send_signal(signal.SIGCONT)
            self.gather(INTERVAL / 10)

    def end(self):
        """The exit code, once all is read."""
        until = time.monotonic() + SECONDS
        while self.gather(0.1) and time.monotonic() < until:
            pass
        os.close(self.master)
        return self.popen.wait(SECONDS)


def frames_of(text):
    """What stood in the line of the bar, one time after the other, without colours."""
    return [STYLE.sub("", frame) for frame in FRAME.findall(text)]


class OnTerminal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        cls.dir = Path(tempfile.mkdtemp(prefix="fp8q-test-", dir=parent))
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        cls.folder = cls.dir / "in"
        cls.folder.mkdir()
        for i, name in enumerate(NAMES):
            path = cls.folder / f"model-{i + 1:05}-of-{len(NAMES):05}.safetensors"
            tensors.write_sparse(path, {name: ("BF16", (ROWS, COLS))})
        (cls.folder / "config.json").write_text("{}")

    def setUp(self):
        self.out = self.dir / "out"
        self.args = ["convert", self.folder, "-o", self.out, "--threads", "1", "--force"]

    def run_to_end(self, args, columns=100, **options):
        terminal = Terminal(args, columns, **options)
        terminal.let_frames_pass(interrupt.partial_of(self.out), 3)
        code = terminal.end()
        text = terminal.text.decode("utf-8")
        self.assertEqual(code, 0, text)
        return text

    def assertFit(self, text, columns):
        """No frame is wider than the terminal, and nothing but the bar's own controls is raw."""
        for frame in frames_of(text):
            self.assertLess(len(frame), columns, frame)
        rest = STYLE.sub("", text).replace("\r\x1b[K", "").replace("\r\n", "\n")
        self.assertIsNone(tool.unsafe(rest.encode()), text)

    def test_bar(self):
        text = self.run_to_end(self.args)
        frames = frames_of(text)
        self.assertGreater(len(frames), 1, text)
        self.assertRegex(frames[0], BAR)
        self.assertTrue(any("o_proj.weight" in frame or "down_proj" in frame for frame in frames))
        self.assertGreater(text.rindex("\r\x1b[K"), text.rindex("ETA"), "the bar is left")
        self.assertFit(text.partition("Quantized: ")[0], 100)

    def test_widths(self):
        for columns in (0, 1, 47, 300):
            text = self.run_to_end(self.args, columns)
            self.assertGreater(len(frames_of(text)), 1)
            # Of no size: as if it had 80 columns. Narrower than any: as if it had 20.
            self.assertFit(text.partition("Quantized: ")[0], max(columns or 80, 20))

    def test_not_wanted(self):
        for option in ("--quiet", "--no-progress"):
            text = self.run_to_end([*self.args, option])
            self.assertNotIn("\x1b[K", text)
            self.assertNotIn("ETA", text)

    def test_colors(self):
        self.assertIn("\x1b[", self.run_to_end([*self.args, "--no-progress"]))
        for options, environment in (
            (["--color", "never"], {}),
            ([], {"NO_COLOR": "1"}),
            ([], {"TERM": "dumb"}),
        ):
            text = self.run_to_end([*self.args, "--no-progress", *options], **environment)
            self.assertNotIn("\x1b", text)

    def test_streams_apart(self):
        """The bar is on stderr alone, and stdout is as it is without a terminal."""
        terminal = Terminal([*self.args, "--json"], 100, streams=(0, 2))
        terminal.let_frames_pass(interrupt.partial_of(self.out), 2)
        self.assertEqual(terminal.end(), 0, terminal.text)
        out = terminal.popen.stdout.read()
        terminal.popen.stdout.close()
        self.assertIn(b"ETA", terminal.text)
        self.assertNotIn(b"\x1b", out)
        self.assertTrue(out.startswith(b"{\n"))
        terminal = Terminal([*self.args, "--json"], 100, streams=(0, 1))
        self.assertEqual(terminal.end(), 0, terminal.text)
        err = terminal.popen.stderr.read()
        terminal.popen.stderr.close()
        self.assertNotIn(b"\x1b", err + terminal.text)
        self.assertNotIn(b"\r\x1b[K", err)

    def test_interrupted(self):
        """Ctrl-C, as the terminal sends it: 130, and the line of the bar is free again."""
        terminal = Terminal(self.args, 100)
        terminal.let_frames_pass(interrupt.partial_of(self.out), 1)
        terminal.wait_for(b"ETA")
        os.write(terminal.master, b"\x03")
        self.assertEqual(terminal.end(), 128 + signal.SIGINT, terminal.text)
        self.assertIn(b"\r\x1b[K", terminal.text[terminal.text.rindex(b"ETA") :])
        self.assert_resumes()

    def test_hung_up(self):
        """The window is closed."""
        terminal = Terminal(self.args, 100)
        terminal.let_frames_pass(interrupt.partial_of(self.out), 1)
        terminal.wait_for(b"ETA")
        os.close(terminal.master)
        self.assertEqual(terminal.popen.wait(SECONDS), 128 + signal.SIGHUP)
        self.assert_resumes()

    def assert_resumes(self):
        """What was finished, if anything was, is there to go on with."""
        result = tool.run(*self.args, "--resume", "--quiet")
        self.assertEqual(result.code, 0, str(result))

    def test_keys_are_left(self):
        """What is typed meanwhile is for the shell."""
        terminal = Terminal([*self.args, "--quiet"], 100)
        os.write(terminal.master, b"y\nls\n")
        self.assertEqual(terminal.end(), 0)
        self.assertNotIn(b"[", terminal.text)


if __name__ == "__main__":
    tool.main()
