"""What a killed run left is changed by others before --resume: a shard that is not as it was
finished is written again, what cannot be trusted is refused, and no result is ever wrong."""

import os
import signal
import socket
import zlib
from pathlib import Path

import injection
import scenes
from support import model, tool

FOLDER = scenes.Scene("convert a folder", "convert", "folder")
LONE = scenes.Scene("convert a file", "convert", "wide.safetensors")
KILL = injection.Fault("renameat2", at=1, how="before", value=signal.SIGKILL)
FIRST, SECOND = (f"out.partial/{scenes.SHARD.format(part)}" for part in (1, 2))
JOURNAL = "out.partial.journal"
AGAIN = "is not as the interrupted run finished it, and is written again"
N_SHARDS = 3


def swap(a, b):
    os.rename(a, "third")
    os.rename(b, a)
    os.rename("third", b)


def append(path, data):
    with open(path, "ab") as file:
        file.write(data)


def overwrite(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset, os.SEEK_SET if offset >= 0 else os.SEEK_END)
        file.write(data)


def become(make, path):
    """Puts something else in the place of a file."""
    os.remove(path)
    make(path)


def become_link(path):
    os.rename(path, "elsewhere")
    os.symlink(os.path.abspath("elsewhere"), path)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path)


def edit_journal(change, sign=True):
    """Changes its text, whose checksums are made right again or not."""
    text = change(Path(JOURNAL).read_bytes())
    if sign:
        bodies = [line[:-20] for line in text.splitlines()]
        checks = [b',"check":"%08x"}\n' % zlib.crc32(body) for body in bodies]
        text = b"".join(body + check for body, check in zip(bodies, checks))
    Path(JOURNAL).write_bytes(text)


def change_crc(text):
    """Of the last shard, and so that it stays one of 32 bits."""
    at = text.rindex(b'"crc32":') + len(b'"crc32":')
    return text[:at] + b"1," + text[text.index(b",", at) + 1 :]


def replace_in_journal(old, new, sign=True):
    def change(text):
        assert old in text
        return text.replace(old, new)

    edit_journal(change, sign)


# What is done to the things that were left, and how many shards are lost by it.
TAKEN = [
    ("nothing", lambda: None, 0),
    ("swapped", lambda: swap(FIRST, SECOND), 2),
    ("cut by a byte", lambda: os.truncate(FIRST, os.stat(FIRST).st_size - 1), 1),
    ("emptied", lambda: os.truncate(FIRST, 0), 1),
    ("longer by a byte", lambda: append(FIRST, b"\0"), 1),
    ("longer by a gigabyte", lambda: os.truncate(FIRST, 1 << 30), 1),
    ("another header", lambda: overwrite(FIRST, 20, b"?"), 1),
    ("another last byte", lambda: overwrite(FIRST, -1, b"\xaa"), 1),
    ("gone", lambda: os.remove(FIRST), 1),
    ("a FIFO", lambda: become(os.mkfifo, FIRST), 1),
    ("a socket", lambda: become(make_socket, FIRST), 1),
    ("a link to the right bytes", lambda: become_link(FIRST), 1),
    ("a dangling link", lambda: become(lambda path: os.symlink("no", path), FIRST), 1),
    ("a hard link", lambda: os.link(FIRST, "elsewhere"), 1),
    ("older", lambda: os.utime(FIRST, (1, 1)), 0),
    ("journal torn", lambda: os.truncate(JOURNAL, os.stat(JOURNAL).st_size - 9), 0),
    ("journal with zeros behind", lambda: os.truncate(JOURNAL, 1 << 20), 0),
    ("journal twice", lambda: edit_journal(lambda text: text * 2, sign=False), 0),
    ("another CRC in its line", lambda: edit_journal(change_crc), 1),
]
REFUSED = [
    ("a folder", lambda: become(os.mkdir, FIRST), "is nothing that this run writes"),
    ("an extra file", lambda: append("out.partial/extra", b"x"), "is nothing that this run writes"),
    ("an extra link", lambda: os.symlink("/etc", "out.partial/etc"), "is nothing that this run"),
    ("an extra folder", lambda: os.mkdir("out.partial/extra"), "is nothing that this run writes"),
    ("no journal", lambda: os.remove(JOURNAL), "has no journal"),
    ("an empty journal", lambda: os.truncate(JOURNAL, 0), "cannot be read"),
    ("a journal with a changed line", lambda: overwrite(JOURNAL, 30, b"?"), "cannot be read"),
    ("a link to a journal", lambda: become_link(JOURNAL), "is a link"),
    ("a hard link to a journal", lambda: os.link(JOURNAL, "elsewhere"), "has another name"),
    ("a FIFO for a journal", lambda: become(os.mkfifo, JOURNAL), "is no regular file"),
    ("a folder for a journal", lambda: become(os.mkdir, JOURNAL), "is a folder"),
    ("a socket for a journal", lambda: become(make_socket, JOURNAL), "is a socket"),
    ("a huge journal", lambda: os.truncate(JOURNAL, 1 << 33), "more than any journal"),
    (
        "a journal of another version",
        lambda: replace_in_journal(b'"version":"', b'"version":"9.'),
        "was left by fp8q 9.",
    ),
    (
        "a journal of another format",
        lambda: replace_in_journal(b'{"fp8q_journal":1,', b'{"fp8q_journal":2,'),
        "cannot be read",
    ),
    (
        "a journal of another command",
        lambda: replace_in_journal(b'"command":"convert"', b'"command":"dequant"'),
        "was left by fp8q dequant",
    ),
]


class Leftovers(scenes.Case):
    scenes = (FOLDER, LONE)

    def left(self, scene, change):
        """A context: the folder of a killed run, after the change."""
        folder = self.stage.folder(scene)
        outcome = injection.run(scene.args(), folder.name, KILL)
        self.assertEqual(outcome.code, -signal.SIGKILL, outcome.brief())
        before = os.getcwd()
        os.chdir(folder.name)
        try:
            change()
        finally:
            os.chdir(before)
        return folder

    def resume(self, scene, folder, *more):
        return injection.run(scene.args("--resume", *more), folder, injection.Fault(""))

    def test_taken(self):
        for name, change, n_lost in TAKEN:
            with self.left(FOLDER, change) as folder:
                elsewhere = Path(folder) / "elsewhere"
                kept = elsewhere.read_bytes() if elsewhere.exists() else None
                outcome = self.resume(FOLDER, folder)
                self.assertEqual(outcome.code, 0, (name, outcome.brief()))
                self.assertEqual(self.stage.state_of_output(FOLDER, folder), "complete", name)
                told = outcome.err.decode().count("is written again")
                if n_lost is not None:
                    self.assertEqual(told, n_lost, (name, outcome.brief()))
                shards = list(Path(folder, "out").glob("*.safetensors"))
                self.assertEqual(len(shards), N_SHARDS)
                for shard in shards:
                    self.assertEqual((shard.is_symlink(), shard.stat().st_nlink), (False, 1), name)
                if kept is not None:
                    self.assertEqual(elsewhere.read_bytes(), kept, name)

    def test_refused(self):
        for name, change, part in REFUSED:
            with self.left(FOLDER, change) as folder:
                before = model.snapshot(folder)
                outcome = self.resume(FOLDER, folder)
                self.assertEqual(outcome.code, 2, (name, outcome.brief()))
                self.assertIn(part, outcome.lines[0], name)
                self.assertEqual(model.snapshot(folder), before, name)

    def test_lone_file(self):
        """One that is no file of its own is refused, any other that is not right is redone."""
        lone = "out.partial"
        for name, change, part in (
            ("a hard link", lambda: os.link(lone, "elsewhere"), "has another name"),
            ("a link", lambda: become_link(lone), "is a link"),
            ("a folder", lambda: become(os.mkdir, lone), "is a link, or no output"),
            ("a FIFO", lambda: become(os.mkfifo, lone), "is no regular file"),
        ):
            with self.left(LONE, change) as folder:
                outcome = self.resume(LONE, folder)
                self.assertEqual(outcome.code, 2, (name, outcome.brief()))
                self.assertIn(part, outcome.lines[0], name)
        for name, change in (
            ("cut", lambda: os.truncate(lone, 99)),
            ("longer", lambda: append(lone, b"\0")),
            ("another last byte", lambda: overwrite(lone, -1, b"\xaa")),
        ):
            with self.left(LONE, change) as folder:
                outcome = self.resume(LONE, folder)
                self.assertEqual(outcome.code, 0, outcome.brief())
                self.assertIn(AGAIN, outcome.err.decode(), name)
                self.assertEqual(self.stage.state_of_output(LONE, folder), "complete")

    def test_of_another_output(self):
        """What was left for one output does for no other input, and for none by another name."""
        with self.left(FOLDER, lambda: None) as folder:
            os.rename(f"{folder}/out.partial", f"{folder}/other.partial")
            args = ["convert", "../folder", "-o", "other", *scenes.PLAIN, "--resume"]
            outcome = injection.run(args, folder, injection.Fault(""))
            self.assertEqual(outcome.code, 2, outcome.brief())
            self.assertIn("other.partial has no journal", outcome.lines[0])
        with self.left(FOLDER, lambda: None) as folder:
            other = scenes.Scene("", "convert", "nan", options=FOLDER.options)
            outcome = self.resume(other, folder, "--on-nonfinite", "keep")
            self.assertEqual(outcome.code, 2, outcome.brief())

    def test_force(self):
        """All of it can be discarded, a folder in the journal's place aside."""
        for name, change, _ in REFUSED:
            with self.left(FOLDER, change) as folder:
                scene = FOLDER._replace(options=(*scenes.PLAIN, "--force"))
                outcome = injection.run(scene.args(), folder, injection.Fault(""))
                if os.path.isdir(f"{folder}/{JOURNAL}"):
                    self.assertEqual(outcome.code, 2, outcome.brief())
                    self.assertIn("is a folder; remove it, or name another", outcome.lines[0])
                    continue
                self.assertEqual(outcome.code, 0, (name, outcome.brief()))
                self.assertEqual(self.stage.state_of_output(FOLDER, folder), "complete", name)


if __name__ == "__main__":
    tool.main()
