"""Faults in a run with --resume: what the interrupted run had finished is never lost by it."""

import errno
import os
import shutil
import signal
import tempfile
import unittest
from pathlib import Path

import injection
import scenes
from support import tool

ARGS = ("convert", "../folder", "-o", "out", "--checksum", *scenes.PLAIN, "--quiet")
N_FINISHED = 2  # of three shards
LEFT = ["out.partial", "out.partial.journal"]
# What may fail, and how it ends then; 0 where the run can do without.
FAILING = {
    "alloc": (errno.ENOMEM, {5, 0}),
    "close": (errno.EIO, {4, 0}),
    "create": (errno.ENOSPC, {4}),
    "flock": (errno.ENOLCK, {4, 0}),
    "fstat": (errno.EIO, {4, 0}),
    "fstatat": (errno.EIO, {4, 0}),
    "fsync": (errno.EIO, {4, 0}),
    "ftruncate": (errno.ENOSPC, {4}),
    "mkdirat": (errno.ENOSPC, {4}),
    "open": (errno.EIO, {4, 0}),
    "pread": (errno.EIO, {4, 0}),
    "pwrite": (errno.ENOSPC, {4, 0}),
    "renameat": (errno.EIO, {4}),
    "renameat2": (errno.EIO, {4}),
    "scandirat": (errno.EMFILE, {4, 0}),
    "unlinkat": (errno.EIO, {4}),
}


class Resumed(unittest.TestCase):
    """Each fault strikes a run that goes on from a copy of the same interrupted one."""

    @classmethod
    def setUpClass(cls):
        cls.root = Path(tempfile.mkdtemp(prefix="fp8q-resumed-", dir=injection.scratch_parent()))
        cls.addClassCleanup(shutil.rmtree, cls.root)
        scenes.write_folder(cls.root / "folder")
        whole, cls.left = cls.root / "whole", cls.root / "left"
        whole.mkdir()
        cls.left.mkdir()
        injection.run(ARGS, whole, injection.Fault(""))
        cls.whole = injection.contents(whole / "out")
        kill = injection.Fault("renameat", at=N_FINISHED + 1, how="before", value=signal.SIGKILL)
        injection.run(ARGS, cls.left, kill)

    def test_the_stage(self):
        self.assertEqual(sorted(os.listdir(self.left)), LEFT)
        shards = [name for name in os.listdir(self.left / LEFT[0]) if name.startswith("model-")]
        self.assertEqual(len(shards), N_FINISHED)

    def resumed(self, fault):
        """A run from a copy of what is left: outcome and folder, which the caller removes."""
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=self.root))
        shutil.copytree(self.left, folder, dirs_exist_ok=True)
        return injection.run([*ARGS, "--resume"], folder, fault), folder

    def complaints(self, outcome, folder, codes):
        if outcome.code not in codes or not outcome.is_over or outcome.n_left_open:
            yield "ends in another way"
        if (folder / "out").exists() and injection.contents(folder / "out") != self.whole:
            yield "the output is torn"
        left = [name for name in LEFT if (folder / name).exists()]
        if outcome.code == 0 or (folder / "out").exists() and not left:
            if left:
                yield f"{left} is left"
            return
        again = tool.run(*ARGS, "--resume", "--json", cwd=folder)
        if again.code != 0 or injection.contents(folder / "out") != self.whole:
            yield f"cannot be resumed again: {again}"
        elif again.json()["summary"]["n_files_resumed"] < N_FINISHED:
            yield "a finished shard is lost"

    def strike(self, faults, codes):
        def strike_once(fault):
            outcome, folder = self.resumed(fault)
            try:
                found = list(self.complaints(outcome, folder, codes))
                return [f"{fault}: {text}; {outcome.brief()}" for text in found]
            finally:
                shutil.rmtree(folder)

        found = [text for texts in injection.in_parallel(strike_once, faults) for text in texts]
        self.assertFalse(found, f"{len(found)} complaints, the first: {found[:1]}")

    def count(self, calls):
        outcome, folder = self.resumed(injection.Fault(calls))
        shutil.rmtree(folder)
        return outcome.n_calls

    def test_each_call_fails(self):
        for calls, (value, codes) in FAILING.items():
            with self.subTest(calls):
                n = self.count(calls)
                self.assertGreater(n, 0)
                faults = [
                    injection.Fault(calls, at=at, every=every, value=value)
                    for every in (0, 1)
                    for at in injection.places(n, 4 if injection.SANITIZED else 25)
                ]
                self.strike(faults, codes)

    def test_short_and_interrupted_calls(self):
        faults = [
            injection.Fault("pread,pwrite", at=1, every=1, how="short"),
            injection.Fault("pread,pwrite,open,create", at=1, every=2, value=errno.EINTR),
        ]
        self.strike(faults, {0})

    def test_killed_again(self):
        for calls in ("pwrite", "fsync", "renameat", "unlinkat", "open", "close"):
            n = self.count(calls)
            kill = injection.Fault(calls, how="before", value=signal.SIGKILL)
            faults = [kill._replace(at=at) for at in injection.places(n, 20)]
            self.strike_killed(faults)

    def strike_killed(self, faults):
        def strike_once(fault):
            outcome, folder = self.resumed(fault)
            try:
                whole = outcome._replace(is_over=1, n_left_open=0)  # it had no time for that
                return [f"{fault}: {text}" for text in self.complaints(whole, folder, {-9})]
            finally:
                shutil.rmtree(folder)

        found = [text for texts in injection.in_parallel(strike_once, faults) for text in texts]
        self.assertFalse(found, f"{len(found)} complaints, the first: {found[:1]}")


if __name__ == "__main__":
    tool.main()
