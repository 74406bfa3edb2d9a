"""Going on after an interruption: the bytes of an undisturbed run, or a refusal that changes
nothing."""

import os
import shutil
import signal
import subprocess

from support import codec, interrupt, model, tensors, tool

N_SHARDS = 5
SHARDS = [f"model-{part + 1:05}-of-{N_SHARDS:05}.safetensors" for part in range(N_SHARDS)]
ROWS, COLS = 1024, 2048  # 4 MiB of BF16
NAN = b"\xc0\x7f"


def weight(part):
    """A weight around 0.01 whose rows repeat, and differ from those of other parts."""
    row = b"".join(bytes((col * (part + 3) % 251, 0x3C)) for col in range(COLS))
    return tensors.Tensor("BF16", (ROWS, COLS), row * ROWS)


def name_of(part):
    return f"model.layers.{part}.self_attn.o_proj.weight"


class Interrupted(tool.Case):
    """What a killed run left, and what the next one makes of it."""

    def setUp(self):
        super().setUp()
        self.output = self.dir / "out"
        self.partial = interrupt.partial_of(self.output)
        self.journal = interrupt.journal_of(self.output)

    def source(self, change=None):
        """A folder of five shards; change(part, tensors) may edit what one holds."""
        shards = {}
        for part, shard in enumerate(SHARDS):
            content = {
                name_of(part): weight(part),
                f"model.layers.{part}.norm.weight": codec.bf16_tensor((COLS,), 1.0 + part),
            }
            if change:
                change(part, content)
            shards[shard] = content
        files = {"tokenizer.json": "{}", "sub/notes.txt": "n"}
        return model.write_folder(self.dir / "in", shards, {"a": 1}, files=files)

    def interrupted(self, *args, n_lines=3):
        """Kills runs until one is caught with so many lines in its journal, and shards yet to do.

        Returns how many are done.
        """
        line = (*args, "-o", self.output, "--threads", "1")
        for _ in range(20):
            killed = interrupt.kill(*line, is_time=lambda: interrupt.n_lines(self.output) >= n_lines)
            lines = interrupt.lines_of(self.output)
            done = {fields["shard"] for fields in lines if "shard" in fields}
            if killed and len(done) < N_SHARDS and self.partial.is_dir():
                return len(done)
            shutil.rmtree(self.partial, ignore_errors=True)
            shutil.rmtree(self.output, ignore_errors=True)
            self.journal.unlink(missing_ok=True)
        self.skipTest("runs are too fast here to be met at work")

    def undisturbed(self, *args):
        """The same run without interruption: its folder and its JSON."""
        result = self.fp8q(*args, "-o", self.dir / "whole", "--json")
        return self.dir / "whole", result.json()

    def content(self, folder):
        """Path, mode and bytes of all files."""
        return {
            str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes())
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }

    def assertSameOutput(self, found, expected):
        found, expected = self.content(found), self.content(expected)
        self.assertEqual(list(found), list(expected))
        for path, (mode, data) in expected.items():
            self.assertEqual(found[path][0], mode, path)
            self.assertBytes(found[path][1], data, path)

    def assertResumes(self, *args, whole, n_resumed=None):
        """The resumed run ends well and gives the bytes of the undisturbed one."""
        result = self.fp8q(*args, "-o", self.output, "--resume", "--json")
        self.assertSameOutput(self.output, whole)
        self.assertFalse(self.partial.exists() or self.journal.exists())
        if n_resumed is not None:
            self.assertEqual(result.json()["summary"]["n_files_resumed"], n_resumed)
        return result

    def assertRefused(self, *args, mentions, code=2):
        """Refused with and without --force, as a dry run too; nothing is changed."""
        before = model.snapshot(self.dir)
        for more in ([], ["--force"], ["--dry-run"]):
            result = self.fp8q(*args, "-o", self.output, "--resume", *more, code=code)
            self.assertMentions(result, *mentions)
            self.assertEqual(model.snapshot(self.dir), before)


class Resume(Interrupted):
    """convert and dequant, resumed."""

    def test_same_bytes_and_same_report(self):
        source = self.source()
        whole, report = self.undisturbed("convert", source)
        for n_lines in (2, 4):
            n = self.interrupted("convert", source, n_lines=n_lines)
            result = self.assertResumes("convert", source, whole=whole, n_resumed=n).json()
            self.assertEqual(result["tensors"], report["tensors"])
            for key, value in report["summary"].items():
                if key not in ("seconds", "gb_per_s", "n_files_resumed"):
                    self.assertEqual(result["summary"][key], value, key)
            shutil.rmtree(self.output)

    def test_dequant(self):
        quantized = self.dir / "fp8"
        self.fp8q("convert", self.source(), "-o", quantized)
        whole, _ = self.undisturbed("dequant", quantized, "--dtype", "f32")
        self.interrupted("dequant", quantized, "--dtype", "f32")
        self.assertRefused("dequant", quantized, mentions=["--dtype: was F32", "is BF16 now"])
        self.assertResumes("dequant", quantized, "--dtype", "f32", whole=whole)

    def test_summary_counts_the_work_of_this_run(self):
        source = self.source()
        n = self.interrupted("convert", source)
        result = self.fp8q("convert", source, "-o", self.output, "--resume")
        lines = result.out.decode()
        self.assertIn(f"Finished by the interrupted run: {n} of 5 weight files", lines)
        nbytes = (N_SHARDS - n) * (2 * ROWS * COLS + 2 * COLS)
        self.assertIn(f"Read {nbytes / 1e6:#.3g} MB", lines)

    def test_what_does_not_change_bytes_may_differ(self):
        source = self.source()
        whole, _ = self.undisturbed("convert", source)
        self.interrupted("convert", source)
        free = ("--threads", "3", "--memory", "16M", "--device", "cpu", "--no-progress")
        self.assertResumes("convert", source, *free, whole=whole)

    def test_each_option_that_differs_is_named(self):
        source = self.source()
        given = ["--exclude", "*.9.*", "--exclude", "*.8.*", "--include-file", "*.gguf"]
        self.interrupted("convert", source, *given)
        for option, *parts in (
            (["--arch", "sm100"], "--arch: was sm90", "is sm100 now"),
            (["--scale-format", "pow2"], "--scale-format: was f32", "is pow2 now"),
            (["--exclude", "*.7.*"], "--exclude *.8.*", "--exclude *.7.* now"),
            (["--experts", "keep"], "--experts: was split", "is keep now"),
            (["--on-nonfinite", "keep"], "--on-nonfinite: was error", "is keep now"),
            (["--amax-floor", "0.25"], "--amax-floor: was 0.0001", "is 0.25 now"),
            (["--include-file", "*.bin"], "--include-file: was *.gguf", "*.gguf, *.bin now"),
            (["--checksum"], "--checksum: was not given", "is given now"),
        ):
            with self.subTest(option[0]):
                self.assertRefused("convert", source, *given, *option, mentions=parts)
        reordered = ["--exclude", "*.8.*", "--exclude", "*.9.*", "--include-file", "*.gguf"]
        self.assertRefused("convert", source, *reordered, mentions=["--include and --exclude"])
        self.assertRefused("convert", source, mentions=["--include and --exclude", "not given now"])

    def test_version_and_command(self):
        source = self.source()
        self.interrupted("convert", source)
        interrupt.change_line(self.output, 0, lambda run: run.update(version="0.0.9"))
        self.assertRefused("convert", source, mentions=["fp8q 0.0.9"])
        interrupt.change_line(self.output, 0, lambda run: run.update(command="dequant"))
        interrupt.change_line(self.output, 0, lambda run: run.update(version="0.1.0"))
        self.assertRefused("convert", source, mentions=["by fp8q dequant"])

    def test_input_that_changed_is_named(self):
        source = self.source()
        self.interrupted("convert", source)
        for name in (SHARDS[1], "config.json", model.INDEX):
            with self.subTest(name):
                before, info = (source / name).read_bytes(), (source / name).stat()
                if name == SHARDS[1]:
                    os.utime(source / name, (1, 1))
                else:
                    (source / name).write_bytes(before + b"\n")
                self.assertRefused("convert", source, mentions=[f"{name} of the input"])
                (source / name).write_bytes(before)
                os.utime(source / name, ns=(info.st_atime_ns, info.st_mtime_ns))
        (source / "config.json").unlink()
        self.assertRefused("convert", source, mentions=["config.json of the input"])

    def test_header_that_changed_is_named(self):
        """Same size, same time."""
        source = self.source()
        self.interrupted("convert", source)
        info = (source / SHARDS[0]).stat()
        data = (source / SHARDS[0]).read_bytes()
        (source / SHARDS[0]).write_bytes(data.replace(b'"pt"', b'"PT"', 1))
        os.utime(source / SHARDS[0], ns=(info.st_atime_ns, info.st_mtime_ns))
        self.assertRefused("convert", source, mentions=[f"{SHARDS[0]} of the input"])

    def test_shard_that_decayed_is_written_again(self):
        source = self.source()
        whole, _ = self.undisturbed("convert", source)
        n = self.interrupted("convert", source)
        with open(self.partial / SHARDS[0], "r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)[0]
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last ^ 1]))
        result = self.assertResumes("convert", source, whole=whole, n_resumed=n - 1)
        self.assertMentions(result, SHARDS[0], "is written again")
        self.assertEqual(len(result.json()["warnings"]), 1)

    def test_torn_journal(self):
        source = self.source()
        whole, _ = self.undisturbed("convert", source)
        for tear in (
            lambda text: text[:-10],
            lambda text: text + b'{"shard":"mod',
            lambda text: text + b"\0" * 5000,
            lambda text: text.replace(b'"shard":"model-00002', b'"shard":"model-00003'),
        ):
            self.interrupted("convert", source)
            self.journal.write_bytes(tear(self.journal.read_bytes()))
            self.assertResumes("convert", source, whole=whole)
            shutil.rmtree(self.output)

    def test_without_a_journal_it_is_not_gone_on_with(self):
        source = self.source()
        self.interrupted("convert", source)
        text = self.journal.read_bytes()
        self.journal.unlink()
        self.assertRefused("convert", source, mentions=["has no journal", "--force"])
        self.journal.write_bytes(text[:100])
        self.assertRefused("convert", source, mentions=["cannot be read", "--force"])
        result = self.fp8q("convert", source, "-o", self.output, code=2)
        self.assertMentions(result, "--resume", "--force")
        self.fp8q("convert", source, "-o", self.output, "--force")
        self.assertAbsent(self.partial)

    def test_planted_links(self):
        source = self.source()
        whole, _ = self.undisturbed("convert", source)
        self.interrupted("convert", source)
        precious = self.dir / "precious"
        precious.write_text("p", encoding="ascii")
        for name in ("tokenizer.json", "config.json", SHARDS[4], SHARDS[0]):
            (self.partial / name).unlink(missing_ok=True)
            (self.partial / name).symlink_to(precious)
        self.assertResumes("convert", source, whole=whole)
        self.assertEqual(precious.read_text(encoding="ascii"), "p")
        self.assertFalse(any(path.is_symlink() for path in self.output.rglob("*")))

    def test_planted_journal(self):
        source = self.source()
        self.interrupted("convert", source)
        moved = self.dir / "moved"
        self.journal.rename(moved)
        self.journal.symlink_to(moved)
        self.assertRefused("convert", source, mentions=[str(self.journal), "is a link"])
        self.journal.unlink()
        os.link(moved, self.journal)
        self.assertRefused("convert", source, mentions=[str(self.journal), "hard link"])

    def test_what_the_run_does_not_write_is_kept(self):
        source = self.source()
        self.interrupted("convert", source)
        (self.partial / "mine.txt").write_text("m", encoding="ascii")
        self.assertRefused("convert", source, mentions=["mine.txt", "nothing that this run writes"])

    def test_two_runs_at_once(self):
        source = self.source()
        whole, _ = self.undisturbed("convert", source)
        self.interrupted("convert", source)
        line = ("convert", source, "-o", self.output, "--resume", "--quiet")
        runs = [interrupt.start(*line) for _ in range(6)]
        ended = [(run.communicate(timeout=60)[1].decode(), run.returncode) for run in runs]
        self.assertEqual([code for _, code in ended].count(0), 1, ended)
        for messages, code in ended:
            if code:
                self.assertEqual(code, 2)
                self.assertRegex(messages, "being written by another run|exists already")
        self.assertSameOutput(self.output, whole)
        self.assertFalse(self.partial.exists() or self.journal.exists())

    def test_a_stopped_run_holds_its_lock(self):
        source = self.source()
        run = interrupt.start("convert", source, "-o", self.output, "--threads", "1")
        while run.poll() is None and interrupt.n_lines(self.output) < 2:
            pass
        run.send_signal(signal.SIGSTOP)
        try:
            if not self.partial.exists():
                self.skipTest("the run was over before it could be stopped")
            for more in ("--resume", "--force"):
                result = self.fp8q("convert", source, "-o", self.output, more, code=2)
                self.assertMentions(result, "being written by another run")
        finally:
            run.send_signal(signal.SIGCONT)
            run.communicate(timeout=60)
        self.assertEqual(run.returncode, 0)

    def test_force_keeps_the_old_output_until_the_end(self):
        source = self.source()
        whole, _ = self.undisturbed("convert", source)
        self.output.mkdir()
        (self.output / "old").write_text("o", encoding="ascii")
        self.interrupted_over_old(source)
        result = self.fp8q("convert", source, "-o", self.output, "--resume", code=2)
        self.assertMentions(result, "exists already", "--force")
        self.assertResumes("convert", source, "--force", whole=whole)

    def interrupted_over_old(self, source):
        line = ("convert", source, "-o", self.output, "--force", "--threads", "1")
        if not interrupt.kill(*line, is_time=lambda: interrupt.n_lines(self.output) > 2):
            self.skipTest("runs are too fast here to be met at work")
        self.assertEqual([path.name for path in self.output.iterdir()], ["old"])

    def test_killed_while_the_old_output_is_removed(self):
        source = self.source()
        whole, report = self.undisturbed("convert", source)
        self.output.mkdir()
        for number in range(20000):
            (self.output / str(number)).touch()
        line = ("convert", source, "-o", self.output, "--force")
        if not interrupt.kill(*line, is_time=(self.output / SHARDS[0]).exists):
            self.skipTest("removing goes too fast here to be met at work")
        self.assertSameOutput(self.output, whole)
        result = self.fp8q("convert", source, "-o", self.output, code=2)
        self.assertMentions(result, "exists already")
        result = self.assertResumes("convert", source, whole=whole, n_resumed=N_SHARDS)
        self.assertEqual(result.json()["tensors"], report["tensors"])

    def test_nothing_to_go_on_with(self):
        source = self.source()
        whole, _ = self.undisturbed("convert", source)
        self.assertResumes("convert", source, whole=whole, n_resumed=0)
        self.interrupted_journal_alone(source)
        shutil.rmtree(self.output)
        self.assertResumes("convert", source, "--arch", "sm90", whole=whole, n_resumed=0)

    def interrupted_journal_alone(self, source):
        """The user deletes OUTPUT.partial: what its journal says counts no more."""
        shutil.rmtree(self.output)
        self.interrupted("convert", source)
        shutil.rmtree(self.partial)
        self.fp8q("convert", source, "-o", self.output, "--scale-format", "pow2")
        self.assertFalse(self.journal.exists())

    def test_signal_and_error_say_how_to_go_on(self):
        source = self.source()
        whole, _ = self.undisturbed("convert", source)
        line = ("convert", source, "-o", self.output, "--threads", "1")
        code, messages = interrupt.end(
            interrupt.start(*line), signal.SIGINT, lambda: interrupt.n_lines(self.output) > 2
        )
        if code == 0:
            self.skipTest("the run was over before it could be stopped")
        self.assertEqual(code, 130)
        self.assertRegex(messages, r"left behind with [234] finished shards; go on with --resume")
        self.assertResumes("convert", source, whole=whole)


class Special(Interrupted):
    """Runs whose plan changes under way, whose output is one file, and with checksums."""

    def spoil(self, part, content):
        """A NaN in the last shards: their plan changes once they were read."""
        if part >= 3:
            tensor = content[name_of(part)]
            content[name_of(part)] = tensor._replace(data=tensor.data[:-2] + NAN)

    def test_nonfinite_tensors_stay_known(self):
        source = self.source(self.spoil)
        line = ("convert", source, "--on-nonfinite", "keep")
        whole, report = self.undisturbed(*line)
        self.assertEqual(len(report["warnings"]), 2)
        n = self.interrupted(*line)
        result = self.assertResumes(*line, whole=whole, n_resumed=n).json()
        self.assertEqual(result["tensors"], report["tensors"])
        self.assertEqual(sorted(result["warnings"]), sorted(report["warnings"]))

    def test_killed_in_the_second_pass(self):
        source = self.source(self.spoil)
        line = ("convert", source, "--on-nonfinite", "keep")
        whole, report = self.undisturbed(*line)
        n = self.interrupted(*line, n_lines=5)
        lines = interrupt.lines_of(self.output)
        self.assertTrue(any("nonfinite" in fields for fields in lines), lines)
        result = self.assertResumes(*line, whole=whole, n_resumed=n).json()
        self.assertEqual(result["tensors"], report["tensors"])
        self.assertEqual(sorted(result["warnings"]), sorted(report["warnings"]))

    def test_a_journal_that_lies_about_nonfinite(self):
        source = self.source()
        line = ("convert", source, "--on-nonfinite", "keep")
        whole, _ = self.undisturbed(*line)
        self.interrupted(*line)
        names = [name_of(4), name_of(4), "model.layers.0.norm.weight", "no.such.tensor"]
        with open(self.journal, "a", encoding="ascii") as file:
            file.write(interrupt.line_text({"nonfinite": names}))
        result = self.assertResumes(*line, whole=whole)
        self.assertEqual(result.json()["warnings"], [])

    def test_a_journal_that_lies_about_counts(self):
        source = self.source()
        whole, report = self.undisturbed("convert", source)
        n = self.interrupted("convert", source)

        def lie(fields):
            fields["counts"] = {"quantize.saturated": [10**9, 1]}

        interrupt.change_line(self.output, 1, lie)
        result = self.assertResumes("convert", source, whole=whole, n_resumed=n - 1)
        self.assertEqual(result.json()["tensors"], report["tensors"])

    def test_checksums(self):
        source = self.source()
        line = ("convert", source, "--checksum")
        whole, report = self.undisturbed(*line)
        n = self.interrupted(*line)
        result = self.assertResumes(*line, whole=whole, n_resumed=n).json()
        self.assertEqual(result["tensors"], report["tensors"])
        metadata = tensors.read_header(self.output / SHARDS[0]).metadata
        keys = [key for key in metadata if key.startswith("fp8q.xxh3_128.")]
        self.assertEqual(keys, ["fp8q.xxh3_128.model.layers.0.norm.weight"])
        back = self.dir / "back"
        self.fp8q("dequant", self.output, "-o", back)
        metadata = tensors.read_header(back / SHARDS[0]).metadata
        self.assertFalse([key for key in metadata if key.startswith("fp8q.")])

    def lone_file(self):
        shapes = {f"l.{i}.weight": weight(i) for i in range(8)}
        tensors.write(self.dir / "in.safetensors", shapes)
        return self.dir / "in.safetensors"

    def test_lone_file_starts_anew(self):
        source, output = self.lone_file(), self.dir / "out.safetensors"
        whole = self.dir / "whole.safetensors"
        self.fp8q("convert", source, "-o", whole)
        line = ("convert", source, "-o", output, "--threads", "1")
        if not interrupt.kill(*line, is_time=lambda: interrupt.n_written(output) > 1 << 20):
            self.skipTest("runs are too fast here to be met at work")
        result = self.fp8q(*line, "--resume", "--arch", "sm100", code=2)
        self.assertMentions(result, "--arch: was sm90")
        result = self.fp8q(*line, code=2)
        self.assertMentions(result, "--resume", "--force")
        self.fp8q(*line, "--resume")
        self.assertBytes(output.read_bytes(), whole.read_bytes(), "the output")
        self.assertAbsent(self.dir / "out.safetensors.partial")

    def test_error_then_room(self):
        """A limit that the first shard fits into, and the second does not."""
        names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
        small = {"a.weight": codec.bf16_tensor((128, 128), 1.0)}
        shards = dict(zip(names, (small, {"b.weight": weight(1)}), strict=True))
        source = model.write_folder(self.dir / "in", shards, {})
        whole, _ = self.undisturbed("convert", source)
        line = f"ulimit -f 1000; exec {tool.PROGRAM} convert {source} -o {self.output}"
        done = subprocess.run(["bash", "-c", line], capture_output=True, check=False)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn(b"left behind with 1 finished shard; go on with --resume", done.stderr)
        self.assertResumes("convert", source, whole=whole, n_resumed=1)


if __name__ == "__main__":
    tool.main()
