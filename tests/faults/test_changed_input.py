"""Another process changes or cuts the input while it is read: an error, never garbage or SIGBUS.

The program stops itself right before a read, so that each change comes at a known moment.
"""

import os
import shutil
import signal

import injection
import scenes
from support import tensors, tool

LONE = [
    scenes.Scene("convert a file", "convert", "victim", options=scenes.PLAIN),
    scenes.Scene("convert a file over another", "convert", "victim", over_old=True),
    scenes.Scene("dequant a file", "dequant", "victim-fp8"),
    scenes.Scene("inspect a file", "inspect", "victim-fp8", options=("--stats", "--json")),
    scenes.Scene("verify a file", "verify", "victim-fp8", options=(*scenes.PLAIN, "--json")),
]
FOLDER = scenes.Scene("convert a folder", "convert", "victims")
# Reads of FOLDER after which all its files have been opened: of index, headers and config.
N_OPENED = 8
MOST_LONG = 40  # reads in the long form; each is met by every change


def cut_half(path):
    os.truncate(path, os.stat(path).st_size // 2)


def cut_all(path):
    os.truncate(path, 0)


def cut_last_byte(path):
    os.truncate(path, os.stat(path).st_size - 1)


def grow(path):
    with open(path, "ab") as file:
        file.write(b"\0")


def rewrite(path):
    with open(path, "r+b") as file:
        file.seek(-2, os.SEEK_END)
        file.write(b"\x01\x3f")


def spoil_scale(path):
    """A NaN where it would be bad input, had the file been so from the beginning."""
    entries = tensors.read_header(path).entries
    name = next((name for name in entries if name.endswith("_scale_inv")), None)
    with open(path, "r+b") as file:
        file.seek(entries[name].begin if name else -4, os.SEEK_SET if name else os.SEEK_END)
        file.write(b"\xff\xff\xff\xff")


def touch(path):
    os.utime(path, (1, 1))


def replace(path):
    """As tools do that write beside and rename: the run goes on with the old file."""
    with open(f"{path}.new", "wb") as file:
        file.write(b"\xff" * os.stat(path).st_size)
    os.rename(f"{path}.new", path)


CHANGES = [cut_half, cut_all, cut_last_byte, grow, rewrite, spoil_scale, touch]
TOLD = ["the file was changed while it was read", "the file ends at byte "]


class ChangedInput(scenes.Case):
    """The victims are made anew for each run."""

    scenes = ()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for scene in (*LONE, FOLDER):
            cls.make_victims()
            cls.stage.undisturbed[scene.name] = cls.stage.run_undisturbed(scene)

    @classmethod
    def make_victims(cls):
        root = cls.stage.root
        shutil.copy(root / "wide.safetensors", root / "victim")
        shutil.copy(root / "wide-fp8.safetensors", root / "victim-fp8")
        shutil.rmtree(root / "victims", ignore_errors=True)
        shutil.copytree(root / "folder", root / "victims")

    def run_with_change(self, scene, at, change, victim):
        """Complaints about a run whose victim is changed right before its read `at`."""
        self.make_victims()
        fault = injection.Fault("pread", at=at, how="before", value=signal.SIGSTOP)
        with self.stage.folder(scene) as folder:
            process = injection.Process(scene.args(), folder, fault)
            injection.wait_for_stop(process)
            change(self.stage.root / victim)
            process.popen.send_signal(signal.SIGCONT)
            outcome = process.result()
            self.assertEqual(outcome.n_struck, 1)
            codes = {0} if change is replace else {4}
            found = list(self.stage.complaints(scene, folder, outcome, codes, TOLD))
        # What was finished of other bytes has other bytes; --resume looks at sizes and times.
        found = [text for text in found if not text.startswith("not whole in OUTPUT.partial")]
        self.assertFalse(found, f"{scene.name}: {change.__name__} at {at}: {outcome.brief()}")

    def test_lone_files(self):
        for scene in LONE:
            n = self.stage.count(scene, "pread")
            for at in injection.places(n, 4, MOST_LONG):
                for change in (*CHANGES, replace):
                    self.run_with_change(scene, at, change, scene.source)

    def test_shards(self):
        n = self.stage.count(FOLDER, "pread")
        shards = [scenes.SHARD.format(part) for part in (1, 2, 3)]
        self.assertGreater(n, N_OPENED + 4)
        first = N_OPENED + 1
        # One run for each change of each shard: reads at equal distances are enough.
        step = max((n - first) // (MOST_LONG if injection.LONG else 2), 1)
        for at in sorted({*range(first, n, step), n}):
            for change in CHANGES:
                for shard in shards:
                    self.run_with_change(FOLDER, at, change, f"victims/{shard}")


if __name__ == "__main__":
    tool.main()
