"""Disks that are full at this place or that, read-only ones, and a run that may write nowhere else:
on real file systems, mounted in a name space of our own."""

import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import injection
import scenes
from support import model, tool

PAGE = os.sysconf("SC_PAGE_SIZE")  # what a tmpfs gives room in
FULL = os.strerror(errno.ENOSPC)
NEEDED = re.compile(rb"needs about (\d+) bytes, but only \d+ are free there")
N_SHARDS = 24
# Each file takes whole pages of a disk, more than the bytes that are reckoned with beforehand: so
# the disk may fill up after all.
MANY = scenes.Scene("convert many files", "convert", "many")
LONE = scenes.Scene("convert a file", "convert", "wide.safetensors")
BACK = scenes.Scene("dequant a folder", "dequant", "folder-fp8")


def write_many(folder):
    """Small shards, and smaller side files."""
    shards = {
        f"model-{part:05}-of-{N_SHARDS:05}.safetensors": {
            f"model.layers.{part}.mlp.down_proj.weight": scenes.random_tensor(128, 128)
        }
        for part in range(1, N_SHARDS + 1)
    }
    files = {f"notes/{part}.txt": "note" for part in range(30)}
    model.write_folder(folder, shards, {"model_type": "tiny"}, files=files)


@contextmanager
def mounted(folder, options):
    """A tmpfs on a folder."""
    command = ["mount", "-t", "tmpfs", "-o", options, "fp8q-test", folder]
    subprocess.run(command, check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@contextmanager
def ballast(folder, room):
    """Fills a disk with a file, but for so many bytes."""
    path = Path(folder) / "ballast"
    free = os.statvfs(folder).f_bavail * PAGE
    with open(path, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, free - room)
    try:
        yield
    finally:
        path.unlink()


class Mounts(scenes.Case):
    """Each run works in a folder that a small file system is mounted on."""

    scenes = ()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        write_many(cls.stage.root / "many")
        for scene in (MANY, LONE, BACK):
            cls.stage.undisturbed[scene.name] = cls.stage.run_undisturbed(scene)

    def check(self, scene, folder, outcome, codes, reason):
        found = list(self.stage.complaints(scene, folder, outcome, codes, [reason]))
        self.assertFalse(found, f"{scene.name}: {outcome.brief()}")

    def convert(self, scene, folder, *more):
        return injection.run(scene.args(*more), folder, injection.Fault(""))

    def test_full_at_many_places(self):
        """One page more each time, from a disk that is refused to one that is large enough."""
        n_refused, places, room, done = 0, [], PAGE, False
        while not done:
            with self.stage.folder(MANY) as folder, mounted(folder, "size=16m"):
                with ballast(folder, room):
                    outcome = self.convert(MANY, folder)
                needed = NEEDED.search(outcome.err)
                reason = needed.group().decode() if needed else FULL
                self.check(MANY, folder, outcome, {0, 4}, reason)
                done = outcome.code == 0
                if needed:
                    n_refused += 1
                    self.assertEqual(os.listdir(folder), [])
                elif not done:
                    places.append(outcome.lines[0])
                    # There is room now: the next run is complete.
                    outcome = self.convert(MANY, folder, "--force")
                    self.check(MANY, folder, outcome, {0}, "")
            room += PAGE
        print(f"{n_refused} disks were refused, {len(places)} became full")
        self.assertGreater(n_refused, 2)
        self.assertGreaterEqual(len(places), 50)
        self.assertGreater(len(set(places)), N_SHARDS)

    def test_full_where_files_are_mapped(self):
        """A page that there is no room for is an error, where an access to it would be SIGBUS."""
        with mock.patch.dict(os.environ, FP8Q_MAP_OUTPUT="always"):
            self.test_full_at_many_places()

    def test_filled_by_others(self):
        """The room that was there when the run began is taken by another process."""
        for scene in (LONE, BACK):
            n = self.stage.count(scene, "pwrite")
            for at in injection.places(n, 12):
                fault = injection.Fault("pwrite", at=at, how="before", value=signal.SIGSTOP)
                with self.stage.folder(scene) as folder, mounted(folder, "size=16m"):
                    process = injection.Process(scene.args(), folder, fault)
                    os.waitid(os.P_PID, process.popen.pid, os.WSTOPPED | os.WNOWAIT)
                    with ballast(folder, 0):
                        process.popen.send_signal(signal.SIGCONT)
                        outcome = process.result()
                    # A write into a page that is there already succeeds.
                    codes = {4} if at < n // 2 else {0, 4}
                    self.check(scene, folder, outcome, codes, FULL)

    def test_no_more_names(self):
        """A file system that has room for bytes, but not for another file."""
        n_full, n_inodes = 0, 2
        while True:
            with self.stage.folder(BACK) as folder, mounted(folder, f"nr_inodes={n_inodes}"):
                outcome = self.convert(BACK, folder)
                self.check(BACK, folder, outcome, {0, 4}, FULL)
            if outcome.code == 0:
                break
            n_full, n_inodes = n_full + 1, n_inodes + 1
        self.assertGreater(n_full, 6)

    def test_read_only(self):
        for scene in (LONE, BACK):
            with self.stage.folder(scene) as folder, mounted(folder, "ro"):
                outcome = self.convert(scene, folder)
                self.check(scene, folder, outcome, {4}, os.strerror(errno.EROFS))
                self.assertEqual(os.listdir(folder), [])

    def test_writes_nowhere_else(self):
        """All but the output's folder is read-only, there is no network and no home: it works."""
        for scene in (LONE, BACK):
            with self.stage.folder(scene) as folder, mounted(folder, "size=16m"):
                line = ["unshare", "--mount", "--net", sys.executable, __file__, "--alone", folder]
                done = subprocess.run([*line, *scene.args()], check=False, capture_output=True)
                self.assertEqual(done.returncode, 0, done)
                self.assertEqual(self.stage.state_of_output(scene, folder), "complete")
                self.assertEqual(os.listdir(folder), ["out"])


def run_alone(folder, args):
    """Makes every other file system read-only, and becomes the program."""
    with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
        places = {line.split()[1].encode().decode("unicode_escape") for line in file}
    for place in sorted(places - {folder}):
        # Some of the kernel's own cannot be; nothing can be made there anyway.
        subprocess.run(["mount", "-o", "remount,bind,ro", place], capture_output=True, check=False)
    try:
        Path(tempfile.mkdtemp(dir=Path(folder).parent)).rmdir()
        sys.exit("the folder beside is still writable")
    except OSError:
        pass
    os.chdir(folder)
    nowhere = {"HOME": "/nonexistent", "TMPDIR": "/nonexistent"}
    os.execve(tool.PROGRAM, [tool.PROGRAM, *args], nowhere)


def have_own_mounts():
    """Starts anew in a name space of mounts; exits where that is not permitted."""
    line = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "-r", "--mount"]
    with tempfile.TemporaryDirectory() as folder:
        trial = [*line, "mount", "-t", "tmpfs", "fp8q-test", folder]
        try:
            done = subprocess.run(trial, capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            done = False
    if not done:
        print("skipped: no right to mount file systems")
        sys.exit(tool.SKIPPED)
    os.environ["FP8Q_OWN_MOUNTS"] = "1"
    os.execvp(line[0], [*line, sys.executable, *sys.argv])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        run_alone(sys.argv[2], sys.argv[3:])
    if "FP8Q_OWN_MOUNTS" not in os.environ:
        have_own_mounts()
    tool.main()
