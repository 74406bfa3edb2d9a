"""Standard streams that are full, closed, slow, or whose reader has gone."""

import errno
import fcntl
import os
import signal

import injection
import scenes
from support import tool

INSPECT = scenes.Scene("inspect a folder", "inspect", "folder-fp8", options=())
CONVERT = scenes.Scene("convert a file", "convert", "small.safetensors")
# What prints on standard output, and whether its text is the same each time.
PRINTERS = [
    (INSPECT, ["inspect", "../folder-fp8"], True),
    (INSPECT, ["inspect", "../folder-fp8", "--stats"], True),
    (INSPECT, ["inspect", "../folder-fp8", "--stats", "--json"], True),
    (INSPECT, ["verify", "../folder-fp8", "--reference", "../folder"], False),
    (INSPECT, ["verify", "../folder-fp8", "--json"], False),
    (CONVERT, CONVERT.args(), False),
    (CONVERT, CONVERT.args("--json"), False),
    (CONVERT, CONVERT.args("--json", "--quiet"), False),
    (None, CONVERT.args("--dry-run"), True),
    (None, CONVERT.args("--dry-run", "--json"), True),
    (None, ["convert", "--list-rules"], True),
    (None, ["convert", "--list-rules", "--json"], True),
    (None, ["help"], True),
    (None, ["help", "convert"], True),
    (None, ["help", "--man"], True),
    (None, ["help", "--completion"], True),
    (None, ["dequant", "--help"], True),
    (None, ["--help"], True),
    (None, ["--version"], True),
]
SMALL_PIPE = 4096


def read_slowly(fd):
    """All that comes, in small bites."""
    text = b""
    while bite := os.read(fd, 7):
        text += bite
    return text


class Streams(scenes.Case):
    scenes = (INSPECT, CONVERT)

    def run_printer(self, args, scene, **options):
        """The outcome, and whether the output (if there is to be one) is complete."""
        with self.stage.folder(CONVERT) as folder:
            outcome = injection.Process(args, folder, injection.Fault(""), **options).result()
            self.assertEqual((outcome.is_over, outcome.n_left_open), (1, 0), outcome.brief())
            if scene is CONVERT:
                self.assertEqual(self.stage.state_of_output(scene, folder), "complete")
                self.assertEqual(os.listdir(folder), ["out"])
            else:
                self.assertEqual(os.listdir(folder), [])
        return outcome

    def assertTold(self, outcome, number, args):
        self.assertEqual(outcome.code, 4, args)
        self.assertEqual(outcome.lines, [f"fp8q: standard output: {os.strerror(number)}"], args)

    def test_full(self):
        with open("/dev/full", "wb") as full:
            for scene, args, _ in PRINTERS:
                outcome = self.run_printer(args, scene, stdout=full)
                self.assertTold(outcome, errno.ENOSPC, args)

    def test_closed(self):
        for scene, args, _ in PRINTERS:
            outcome = self.run_printer(args, scene, preexec_fn=lambda: os.close(1))
            self.assertTold(outcome, errno.EBADF, args)

    def test_reader_gone(self):
        """Quiet, as a pipe into head needs it."""
        for scene, args, _ in PRINTERS:
            reader, writer = os.pipe()
            os.close(reader)
            outcome = self.run_printer(args, scene, stdout=writer)
            os.close(writer)
            self.assertEqual(outcome.code, 128 + signal.SIGPIPE, args)
            self.assertEqual(outcome.lines, [], args)

    def test_slow_reader(self):
        """Short writes on the way out: the text is whole."""
        for _, args, is_same in PRINTERS:
            with self.stage.folder(CONVERT) as folder:
                fault = injection.Fault("")
                usual = injection.run(args, folder, fault)
                reader, writer = os.pipe()
                fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, SMALL_PIPE)
                again = [*args, "--force"] if os.path.lexists(f"{folder}/out") else args
                process = injection.Process(again, folder, fault, stdout=writer)
                os.close(writer)
                text = read_slowly(reader)
                os.close(reader)
                outcome = process.result()
            self.assertEqual((usual.code, outcome.code), (0, 0), args)
            self.assertTrue(text == usual.out if is_same else len(text) > 50, args)

    def test_messages_lost(self):
        """Where messages cannot be written, the exit code still tells."""
        for args, code in ((["inspect", "nothing"], 4), (["inspect"], 2), (["--nonsense"], 2)):
            with open("/dev/full", "wb") as full:
                self.assertEqual(self.run_printer(args, None, stderr=full).code, code)
            closed = self.run_printer(args, None, preexec_fn=lambda: os.close(2))
            self.assertEqual(closed.code, code)

    def test_all_closed(self):
        """No file is opened in the place of a stream and written to."""

        def close_all():
            for fd in (0, 1, 2):
                os.close(fd)

        outcome = self.run_printer(CONVERT.args(), CONVERT, preexec_fn=close_all)
        self.assertEqual(outcome.code, 4)


if __name__ == "__main__":
    tool.main()
