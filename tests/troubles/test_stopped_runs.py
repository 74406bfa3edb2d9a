"""Runs that are stopped in the middle, where a test can look at them and change their input."""

import os
import signal
import subprocess
import time

from support import codec, model, tensors, tool

NAN = b"\xc0\x7f"
ELEMENTS = 1 << 27  # 256 MiB of BF16, as holes: long enough to be met at work


class StoppedRuns(tool.Case):
    """Each test stops a run at a file of its OUTPUT.partial, acts, and lets it go on."""

    def start(self, source, output, is_time, too_late):
        """A run that is stopped once it is time, and before the path too_late is there."""
        line = [tool.PROGRAM, "convert", source, "-o", output, "--threads", "1", "--quiet"]
        process = subprocess.Popen(line, stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        while process.poll() is None and not is_time():
            time.sleep(0.001)
        if process.returncode is None:
            process.send_signal(signal.SIGSTOP)
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                process.returncode = os.waitstatus_to_exitcode(status)
            elif not too_late.exists():
                return process
        self.skipTest("the run went too far before it could be stopped")

    def end(self, process, code, *parts):
        """Lets the run go on; it ends with that code and a message that has these parts."""
        process.send_signal(signal.SIGCONT)
        _, messages = process.communicate(timeout=60)
        self.assertEqual(process.returncode, code, messages)
        for part in parts:
            self.assertIn(part, messages)

    def source_folder(self):
        """Two small shards and two side files, of which the last takes long to copy."""
        shards = {
            f"model-0000{part}-of-00002.safetensors": {
                f"{part}.weight": codec.bf16_tensor((128, 128), 1.0)
            }
            for part in (1, 2)
        }
        source = model.write_folder(self.dir / "in", shards, {}, files={"a.txt": "", "z.txt": ""})
        os.truncate(source / "z.txt", 2 * ELEMENTS)
        return source

    def start_folder(self):
        """A run that is stopped while it copies z.txt; its input and its OUTPUT.partial."""
        source, partial = self.source_folder(), self.dir / "out.partial"

        def is_time():
            return (partial / "a.txt").exists() and any(partial.glob("*.tmp"))

        process = self.start(source, self.dir / "out", is_time, partial / "z.txt")
        return process, source, partial

    def test_changed_input_is_told_before_bad_values(self):
        source, output = self.dir / "in.safetensors", self.dir / "out.safetensors"
        shapes = {"a.weight": ("BF16", (ELEMENTS >> 13, 1 << 13))}
        tensors.write_sparse(source, shapes)
        partial = self.dir / "out.safetensors.partial"
        process = self.start(source, output, partial.exists, output)
        with open(source, "r+b") as file:
            file.seek(-len(NAN), os.SEEK_END)
            file.write(NAN)
        self.end(process, 4, b"in.safetensors: the file was changed while it was read")
        self.assertAbsent(output)

    def test_signal_in_the_last_moment(self):
        process, _, partial = self.start_folder()
        process.send_signal(signal.SIGINT)
        self.end(process, 128 + signal.SIGINT, b"interrupted")
        self.assertFalse((self.dir / "out").exists())
        self.assertTrue((partial / "model-00001-of-00002.safetensors").exists())

    def test_index_and_config_come_last(self):
        process, source, partial = self.start_folder()
        found = {path.name for path in partial.iterdir() if path.suffix != ".tmp"}
        self.end(process, 0)
        self.assertEqual(found, {path.name for path in source.glob("model-*")} | {"a.txt"})
        output = {path.name for path in (self.dir / "out").iterdir()}
        self.assertEqual(output, {path.name for path in source.iterdir()})

    def test_changed_side_file(self):
        process, source, _ = self.start_folder()
        os.utime(source / "z.txt", (1, 1))
        self.end(process, 4, b"z.txt: the file was changed while it was read")
        self.assertFalse((self.dir / "out").exists())


if __name__ == "__main__":
    tool.main()
