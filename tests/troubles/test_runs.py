"""Runs that end badly: typing errors, killed in the middle, full disks, no GPU."""

import filecmp
import os
import signal
import subprocess
import time

from support import codec, model, tensors, tool

SHARDS = [f"model-{part:05}-of-00003.safetensors" for part in (1, 2, 3)]


class Runs(tool.Case):
    """Each test names its row of the list of troubles."""

    def small_file(self):
        source = self.dir / "in.safetensors"
        tensors.write(source, {"a.weight": codec.bf16_tensor((256, 256), 1.0)})
        return source

    def large_folder(self):
        """Three shards of 64 MiB of zeros that take no room."""
        source = self.dir / "in"
        source.mkdir()
        for part, shard in enumerate(SHARDS):
            name = f"model.layers.{part}.self_attn.o_proj.weight"
            tensors.write_sparse(source / shard, {name: ("BF16", (8192, 4096))})
        return source

    def test_b19_no_gpu_is_needed(self):
        source, output = self.small_file(), self.dir / "out.safetensors"
        env = {"CUDA_VISIBLE_DEVICES": ""}
        self.fp8q("convert", source, "-o", output, "--device", "cpu", env=env)
        self.fp8q("dequant", output, "-o", self.dir / "back.safetensors", env=env)
        self.assertTensors(tensors.read(self.dir / "back.safetensors"), tensors.read(source))

    def test_b52_killed_runs_leave_no_final_name(self):
        source, output = self.large_folder(), self.dir / "out"
        undisturbed = self.dir / "whole"
        self.fp8q("convert", source, "-o", undisturbed)
        line = [tool.PROGRAM, "convert", source, "-o", output, "--threads", "1", "--quiet"]
        process = subprocess.Popen(line, stderr=subprocess.DEVNULL)
        partial = self.dir / "out.partial"
        while process.poll() is None and not (partial / SHARDS[0]).exists():
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if process.returncode != -signal.SIGKILL:
            self.skipTest("the run was over before it could be killed")
        self.assertFalse(output.exists())
        result = self.fp8q("convert", source, "-o", output, code=2)
        self.assertMentions(result, "--force")
        self.fp8q("convert", source, "-o", output, "--force")
        self.assertAbsent(partial)
        same, *different = filecmp.cmpfiles(
            undisturbed, output, [path.name for path in undisturbed.iterdir()], shallow=False
        )
        self.assertEqual(different, [[], []])
        self.assertEqual(len(same), len(list(output.iterdir())))

    def test_b54_full_disk(self):
        disk = self.dir / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "fp8q-test", disk]
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            self.skipTest("no right to mount a file system")
        try:
            result = self.fp8q("convert", self.large_folder(), "-o", disk / "out", code=4)
            self.assertMentions(result, str(disk))
            self.assertAbsent(disk / "out")
        finally:
            subprocess.run(["umount", disk], check=True)

    def test_b54_file_size_limit(self):
        source, output = self.large_folder(), self.dir / "out"
        limit = f"ulimit -f 1024; trap '' XFSZ; exec {tool.PROGRAM} convert {source} -o {output}"
        done = subprocess.run(["bash", "-c", limit], capture_output=True, check=False)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn(b"fp8q: ", done.stderr)
        self.assertFalse(output.exists())
        self.assertFalse(list(self.dir.glob("out.partial/*.safetensors")))

    def test_b70_options_that_do_not_exist(self):
        source, output = self.small_file(), self.dir / "out.safetensors"
        for typed, meant in (("--scale-fnt", "--scale-format"), ("--exlude", "--exclude")):
            result = self.fp8q("convert", source, "-o", output, typed, "x", code=2)
            self.assertMentions(result, typed, meant)
        for option, value in (("--scale-format", "ue8m1"), ("--arch", "sm70"), ("--threads", "x")):
            result = self.fp8q("convert", source, "-o", output, option, value, code=2)
            self.assertMentions(result, option, value)
        self.assertMentions(self.fp8q("convrt", source, code=2), "convert")
        self.assertAbsent(output)

    def test_b70_defaults_work(self):
        self.fp8q("convert", self.small_file())
        found = tensors.read(self.dir / "in-fp8-sm90.safetensors")
        self.assertEqual(found["a.weight_scale_inv"].dtype, "F32")
        self.fp8q("dequant", self.dir / "in-fp8-sm90.safetensors")
        names = {path.name for path in self.dir.iterdir()}
        self.assertEqual(len(names), 3, names)

    def test_signals_end_with_their_number(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            source = self.dir / f"in-{number}"
            source.mkdir()
            shape = {"a.weight": ("BF16", (1 << 16, 1 << 14))}
            tensors.write_sparse(source / "model.safetensors", shape)
            output = self.dir / f"out-{number}"
            line = [tool.PROGRAM, "convert", source, "-o", output, "--quiet"]
            process = subprocess.Popen(line, stderr=subprocess.PIPE)
            while process.poll() is None and not os.path.exists(f"{output}.partial"):
                time.sleep(0.001)
            process.send_signal(number)
            _, messages = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 128 + number, messages)
            self.assertAbsent(output)

    def test_dry_run_writes_nothing(self):
        source = model.write_folder(
            self.dir / "in",
            {"model.safetensors": {"a.weight": codec.bf16_tensor((256, 256), 1.0)}},
            {},
        )
        before = sorted(self.dir.rglob("*"))
        result = self.fp8q("convert", source, "-o", self.dir / "out", "--dry-run")
        self.assertIn(b"a.weight", result.out)
        self.fp8q("convert", source, "--dry-run", "--json").json()
        self.assertEqual(sorted(self.dir.rglob("*")), before)


if __name__ == "__main__":
    tool.main()
