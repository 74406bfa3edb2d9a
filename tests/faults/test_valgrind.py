"""No leak and no byte that was never written, in memory or in the output: a few runs under
valgrind, with the plain code and with AVX2 (that of Debian 12 knows no AVX-512)."""

import os
import shutil
import subprocess
import sys

import injection
import scenes
from support import codec, tensors, tool

FOUND = 99  # valgrind's exit code where it found something
VALGRIND = (
    "valgrind --quiet --leak-check=full --show-leak-kinds=definite,indirect,possible "
    f"--errors-for-leak-kinds=definite,indirect,possible --error-exitcode={FOUND}"
).split()
THREADS = ("--device", "cpu", "--threads", "2")


def variants():
    """The variants of the arithmetic that this machine and valgrind can run."""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        return ["plain", "avx2"] if " avx2" in file.read() else ["plain"]


class Valgrind(tool.Case):
    """Every result is compared with that of a run without valgrind."""

    def setUp(self):
        super().setUp()
        scenes.write_folder(self.dir / "folder")
        scenes.write_wide(self.dir / "wide.safetensors")
        self.variant = None

    def valgrind(self, *args, code=0):
        environment = {**os.environ, "FP8Q_CPU": self.variant}
        line = [*VALGRIND, tool.PROGRAM, *args]
        done = subprocess.run(
            line, cwd=self.dir, env=environment, capture_output=True, timeout=300, check=False
        )
        self.assertEqual(done.returncode, code, (line, done.stderr.decode()))
        self.assertNotIn(b"==", done.stderr)  # a report of valgrind's
        return done

    def check_run(self, command, source, *options):
        """The output of a run, which it is compared with and left in."""
        plain, checked = f"{command}-{source}-0", f"{command}-{source}-1"
        self.fp8q(command, source, "-o", plain, *options, *THREADS, "--force", cwd=self.dir)
        self.valgrind(command, source, "-o", checked, *options, *THREADS, "--force")
        self.assertEqual(
            injection.contents(self.dir / plain), injection.contents(self.dir / checked)
        )
        return checked

    def check_variant(self, variant):
        self.variant = variant
        folder = self.check_run("convert", "folder", "--json")
        self.check_run("dequant", folder)
        file = self.check_run("convert", "wide.safetensors", "--arch", "sm100")
        self.check_run("dequant", file, "--dtype", "f32")
        self.check_run("convert", "wide.safetensors", "--scale-format", "e8m0")
        self.valgrind("verify", folder, "--reference", "folder", *THREADS)
        self.valgrind("verify", file, "--json", *THREADS)
        for args in (["inspect", folder, "--stats"], ["inspect", folder, "--stats", "--json"]):
            self.assertEqual(self.valgrind(*args).stdout, self.fp8q(*args, cwd=self.dir).out)

    def test_plain(self):
        self.check_variant("plain")

    def test_avx2(self):
        if "avx2" not in variants():
            self.skipTest("this machine has no AVX2")
        self.check_variant("avx2")

    def test_failures(self):
        self.variant = "plain"
        tensors.write(self.dir / "nan.safetensors", {
            "a.o_proj.weight": codec.filled("BF16", (128, 128), b"\xff\xff")
        })
        self.valgrind("convert", "nan.safetensors", *THREADS, code=3)
        self.valgrind("convert", "nothing", code=4)
        self.valgrind("convert", "folder", "--nonsense", code=2)
        self.valgrind("convert", "folder", "-o", "folder", code=2)


if __name__ == "__main__":
    if injection.SANITIZED or not shutil.which("valgrind"):
        print("skipped: valgrind is not installed, or the program has sanitizers in it")
        sys.exit(tool.SKIPPED)
    tool.main()
