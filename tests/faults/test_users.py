"""What a user may not read, write or replace is refused before any work, and nothing changes.

Root may do anything: as root the program runs as another user."""

import errno
import os
import shutil
import signal
import stat
import unittest
from pathlib import Path

import injection
import scenes
from support import model, tool

FOLDER = scenes.Scene("convert a folder", "convert", "theirs")
LONE = scenes.Scene("convert a file", "convert", "their.safetensors")
OVER = FOLDER._replace(over_old=True)
LONE_OVER = LONE._replace(over_old=True)
NOBODY = 65534
IS_ROOT = os.geteuid() == 0
DENIED = os.strerror(errno.EACCES)
AS_USER = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if IS_ROOT else {}


class Users(scenes.Case):
    """Inputs belong to the one who runs this script, as do the folders that runs work in."""

    scenes = ()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        root = cls.stage.root
        os.chmod(root, 0o755)
        # Where it was built, another user may have no way to.
        shutil.copy(tool.PROGRAM, root / "fp8q")
        shutil.copy(injection.SHIM, root / "shim.so")
        tool.PROGRAM, injection.SHIM = root / "fp8q", str(root / "shim.so")
        scenes.write_folder(root / "theirs")
        scenes.write_small(root / "their.safetensors")

    def refuse(self, scene, code, *parts, mode=0o777, prepare=None):
        """The program ends with that code and all parts in its message; the folder that it works
        in, which has that mode and what prepare put into it, stays as it was."""
        with self.stage.folder(scene) as folder:
            if prepare:
                prepare(Path(folder))
            os.chmod(folder, mode)
            before = model.snapshot(folder)
            process = injection.Process(scene.args(), folder, injection.Fault(""), **AS_USER)
            outcome = process.result()
            self.assertEqual(model.snapshot(folder), before, outcome.brief())
            os.chmod(folder, 0o700)
        self.assertEqual(outcome.code, code, outcome.brief())
        for part in parts:
            self.assertIn(part, outcome.lines[0])
        self.assertEqual((len(outcome.lines), outcome.n_left_open), (1, 0), outcome.brief())

    def refuse_unreadable(self, scene, path, *parts):
        """The input is refused while this of it may not be read."""
        path = self.stage.root / path
        mode = stat.S_IMODE(path.stat().st_mode)
        os.chmod(path, 0)
        try:
            self.refuse(scene, 4, path.name, DENIED, *parts)
        finally:
            os.chmod(path, mode)

    def test_input(self):
        self.refuse_unreadable(LONE, "their.safetensors")
        self.refuse_unreadable(FOLDER, "theirs")
        for name in (scenes.SHARD.format(2), "config.json", "model.safetensors.index.json"):
            self.refuse_unreadable(FOLDER, f"theirs/{name}")

    def test_side_files(self):
        self.refuse_unreadable(FOLDER, "theirs/tokenizer.json", "is to be copied")
        self.refuse_unreadable(FOLDER, "theirs/sub/deep/notes.txt", "is to be copied")
        self.refuse_unreadable(FOLDER, "theirs/sub/deep")

    def test_output_folder(self):
        for scene in (FOLDER, LONE, LONE_OVER):
            self.refuse(scene, 4, "out.partial: cannot be created", DENIED, mode=0o555)
        self.refuse(OVER, 4, "could not be removed in the end", DENIED, mode=0o555)

    def test_old_output(self):
        """An old one that could not be removed in the end, as a folder in it is read-only: some
        protect what they have so."""

        def protect(name):
            def prepare(folder):
                if AS_USER:
                    for path in (folder / "out", *(folder / "out").rglob("*")):
                        os.chown(path, NOBODY, NOBODY)
                os.chmod(folder / name, 0o555)

            return prepare

        for name in ("out", "out/sub"):
            self.refuse(OVER, 4, "could not be removed in the end", DENIED, prepare=protect(name))

    def test_journal_stays(self):
        """Work that cannot be discarded can still be gone on with."""
        fault = injection.Fault("unlinkat", at=1, every=1)
        kill = injection.Fault("renameat2", at=1, how="before", value=signal.SIGKILL)
        with self.stage.folder(FOLDER) as folder:
            injection.run(FOLDER.args(), folder, kill)
            outcome = injection.run(FOLDER.args("--force"), folder, fault)
            self.assertEqual(outcome.code, 4, outcome.brief())
            self.assertEqual(sorted(os.listdir(folder)), ["out.partial", "out.partial.journal"])
            outcome = injection.run(FOLDER.args("--resume"), folder, injection.Fault(""))
            self.assertEqual((outcome.code, os.listdir(folder)), (0, ["out"]), outcome.brief())

    @unittest.skipUnless(IS_ROOT, "takes root and another user")
    def test_sticky_folder(self):
        """Where only owners may replace things, an older output of another user stays."""
        for scene in (OVER, LONE_OVER):
            self.refuse(scene, 2, "belongs to another user", mode=0o1777)

    @unittest.skipUnless(IS_ROOT, "takes root and another user")
    def test_planted(self):
        """What others put in the places that will be written is neither followed nor replaced."""

        def plant_link(name):
            return lambda folder: (folder / name).symlink_to("../their.safetensors")

        def plant_file(folder):
            (folder / "out.partial").write_bytes(scenes.OLD)

        def plant_dangling(folder):
            (folder / "out.partial").symlink_to("elsewhere")

        for scene in (FOLDER, LONE):
            self.refuse(scene, 2, "out.partial", mode=0o1777, prepare=plant_file)
            self.refuse(scene, 2, "out.partial", mode=0o1777, prepare=plant_dangling)
            self.refuse(scene, 2, "out.partial", mode=0o1777, prepare=plant_link("out.partial"))
            self.refuse(scene, 2, "out", mode=0o1777, prepare=plant_link("out"))
        for scene in (FOLDER, LONE):
            force = scene._replace(options=(*scene.options, "--force"))
            self.refuse(force, 2, "out.partial", mode=0o1777, prepare=plant_file)
            self.refuse(force, 2, "out.partial", mode=0o1777, prepare=plant_dangling)


if __name__ == "__main__":
    tool.main()
