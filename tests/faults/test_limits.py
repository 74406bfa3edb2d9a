"""What the system may limit: the size of files, open descriptors, address space."""

import errno
import os
import resource
import subprocess

import injection
import scenes
from support import tool

FOLDER = scenes.SCENES[0]
LONE = scenes.Scene("convert a file", "convert", "wide.safetensors")
BACK = scenes.Scene("dequant a file over another", "dequant", "wide-fp8.safetensors", True)
INSPECT = scenes.Scene("inspect a folder", "inspect", "folder-fp8", options=("--json",))


def limited(kind, value):
    """A preexec function that sets a limit."""
    return lambda: resource.setrlimit(kind, (value, value))


class Limits(scenes.Case):
    """resource.setrlimit, from too little to enough."""

    scenes = (FOLDER, LONE, BACK, INSPECT)

    def try_limits(self, kind, values, scene, codes, reasons):
        """Runs under each limit; whether it failed, for each."""
        failed = []
        for value in values:
            with self.stage.folder(scene) as folder:
                fault, limit = injection.Fault(""), limited(kind, value)
                process = injection.Process(scene.args(), folder, fault, preexec_fn=limit)
                outcome = process.result()
                found = list(self.stage.complaints(scene, folder, outcome, codes, reasons))
            self.assertFalse(found, f"{scene.name} under {value}: {outcome.brief()}")
            failed.append(outcome.code != 0)
        return failed

    def test_file_size(self):
        """The signal that would kill is ignored: the error is seen."""
        reasons = [os.strerror(errno.EFBIG)]
        for scene in (FOLDER, LONE, BACK):
            done = self.stage.undisturbed[scene.name]
            files = [done] if isinstance(done, bytes) else filter(None, done.values())
            sizes = [len(data) for data in files]
            values = sorted({0, 1, *sizes, *(size - 1 for size in sizes)})
            failed = self.try_limits(resource.RLIMIT_FSIZE, values, scene, {0, 4}, reasons)
            self.assertEqual(failed, [value < max(sizes) for value in values])

    def test_descriptors(self):
        for scene in (FOLDER, BACK, INSPECT):
            reasons = [os.strerror(errno.EMFILE)]
            failed = self.try_limits(resource.RLIMIT_NOFILE, range(4, 20), scene, {0, 4}, reasons)
            self.assertTrue(failed[0])
            self.assertFalse(failed[-1])

    def test_address_space(self):
        if injection.SANITIZED:
            self.skipTest("sanitizers take terabytes of address space")
        reasons = ["out of memory; ", os.strerror(errno.ENOMEM)]
        least, enough = least_space(), 1 << 30
        values = [*range(least, least + (16 << 20), 1 << 20), enough]
        for scene in (FOLDER, LONE, BACK, INSPECT):
            failed = self.try_limits(resource.RLIMIT_AS, values, scene, {0, 5}, reasons)
            self.assertFalse(failed[-1], scene.name)
            if scene.writes:  # what it takes to load the program may be enough for inspect
                self.assertTrue(failed[0], scene.name)


def least_space():
    """The address space in which the program can just be loaded, and a little more."""
    environment = {**os.environ, "LD_PRELOAD": injection.SHIM}
    for value in range(1 << 20, 1 << 28, 1 << 18):
        line = [tool.PROGRAM, "--version"]
        limit = limited(resource.RLIMIT_AS, value)
        done = subprocess.run(
            line, capture_output=True, preexec_fn=limit, check=False, env=environment
        )
        if done.returncode == 0:
            return value + (1 << 18)
    raise RuntimeError("no address space is enough")


if __name__ == "__main__":
    tool.main()
