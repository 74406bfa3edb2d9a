"""The shim is seen by the program, and no call that may fail slips past it: else the other tests of
this folder would prove nothing."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import injection
import scenes
from support import tensors, tool

SYMBOL = re.compile(r"^\s*U (\w+)", re.MULTILINE)
# Calls of libc that may fail on account of the system and that shim.c does not stand in for. Who
# begins to use one of them has to put it there.
UNKNOWN = set(
    """__vasprintf_chk copy_file_range creat dup dup2 dup3 fallocate fchmod fchmodat fchown
    fdatasync fdopendir fopen64 freopen fstatat64 futimes getdelim getline
    lchown link linkat lseek lstat memalign mkdir mknod mkostemp mkstemp mremap msync
    open64 open_memstream openat64 opendir pipe pipe2 posix_fallocate pread64 preadv preadv2
    pvalloc pwrite64 pwritev pwritev2 read readdir readlinkat readv reallocarray remove rename
    rmdir scandir sendfile splice statfs statvfs symlink symlinkat sync syncfs tmpfile truncate
    unlink utimensat utimes valloc vasprintf write writev""".split()
)


class Shim(unittest.TestCase):
    def test_knows_every_call(self):
        if not shutil.which("nm"):
            self.skipTest("nm is not installed")
        objects = os.environ["FP8Q_OBJECTS"].split(":")
        listing = subprocess.run(["nm", *objects], capture_output=True, text=True, check=True)
        called = set(SYMBOL.findall(listing.stdout))
        self.assertIn("pwrite", called)
        self.assertFalse(called & UNKNOWN, "calls that shim.c does not know")

    def test_is_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            scenes.write_small(f"{folder}/in.safetensors")
            args = ["convert", "in.safetensors", "-o", "out.safetensors", *scenes.PLAIN]
            outcome = injection.run(args, folder, injection.Fault("pread,pwrite"))
            self.assertEqual((outcome.code, outcome.is_over, outcome.n_struck), (0, 1, 0))
            self.assertGreater(outcome.n_calls, 3)
            tensors.read(f"{folder}/out.safetensors")

    def test_sees_fsync_again(self):
        """Of a file for which it failed, in a program that does what fp8q must not."""
        script = """if True:
            import os
            def sync(fd):
                try:
                    os.fsync(fd)
                except OSError:
                    pass
            files = [os.open(name, os.O_CREAT | os.O_RDWR) for name in "ab"]
            for fd in files * 2:
                sync(fd)
            """
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(
            tool, "PROGRAM", sys.executable
        ):
            # Interrupted, Python makes the call again, as fp8q does.
            for value, n_calls, n_resyncs in ((errno.EIO, 4, 1), (errno.EINTR, 5, 0)):
                fault = injection.Fault("fsync", at=1, value=value)
                outcome = injection.run(["-c", script], folder, fault)
                found = (outcome.n_calls, outcome.n_resyncs)
                self.assertEqual(found, (n_calls, n_resyncs), outcome.brief())

    def test_strikes(self):
        """Each way to strike is seen to do what it says, on the first call of inspect."""
        with tempfile.TemporaryDirectory() as folder:
            scenes.write_small(f"{folder}/in.safetensors")
            fail = injection.Fault("pread", at=1)
            kill = injection.Fault("pread", at=1, value=signal.SIGKILL)
            for fault, code, n_calls in (
                (fail, 4, 1),
                (fail._replace(at=2), 4, 2),
                (fail._replace(at=99), 0, 2),
                (kill._replace(how="before"), -signal.SIGKILL, 1),
                (kill._replace(how="after"), -signal.SIGKILL, 1),
            ):
                outcome = injection.run(["inspect", "in.safetensors"], folder, fault)
                self.assertEqual((outcome.code, outcome.n_calls), (code, n_calls), fault)
            short = injection.Fault("pread", at=1, every=1, how="short")
            outcome = injection.run(["inspect", "in.safetensors"], folder, short)
            self.assertEqual(outcome.code, 0)
            self.assertGreater(outcome.n_calls, 2)


if __name__ == "__main__":
    tool.main()
