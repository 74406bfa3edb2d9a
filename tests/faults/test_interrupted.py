"""Reads and writes that move a part of their bytes, and calls that a signal interrupts, are made
again until all is done: the result has the same bytes."""

import errno

import injection
import scenes
from support import tool

# Those that POSIX lets a signal interrupt.
INTERRUPTED = "close close_read create fstatvfs fsync ftruncate open pread pwrite".split()


class Interrupted(scenes.Case):
    """Every outcome is that of an undisturbed run."""

    def judge(self, scene):
        def judge(_, folder, outcome):
            yield from self.stage.complaints(scene, folder, outcome, {0}, [])

        return judge

    def test_short(self):
        for scene in scenes.SCENES:
            for calls in ("pread", "pwrite", "pread,pwrite"):
                n = self.stage.count(scene, calls)
                if n:
                    fault = injection.Fault(calls, at=1, every=1, how="short")
                    self.strike(scene, [fault], self.judge(scene))

    def test_each_call_once(self):
        for scene in scenes.SCENES:
            for kind in INTERRUPTED:
                n = self.stage.count(scene, kind)
                faults = [
                    injection.Fault(kind, at=at, value=errno.EINTR)
                    for at in injection.places(n, 2 if injection.SANITIZED else 40)
                ]
                self.strike(scene, faults, self.judge(scene))

    def test_every_other_call(self):
        for scene in scenes.SCENES:
            faults = [
                injection.Fault(",".join(INTERRUPTED), at=first, every=every, value=errno.EINTR)
                for every in (2, 3)
                for first in range(1, every + 1)
            ]
            self.strike(scene, faults, self.judge(scene))


if __name__ == "__main__":
    tool.main()
