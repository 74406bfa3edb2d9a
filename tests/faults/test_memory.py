"""Every allocation fails, one after the other, until a run meets no failure: memory that runs out
once, and memory that stays out."""

import errno

import injection
import scenes
from support import tool

REASONS = ("out of memory; ", "Cannot allocate memory")


class Memory(scenes.Case):
    """Ends with 5, or with the right result where only the progress or a message is lost."""

    def judge(self, scene):
        def judge(_, folder, outcome):
            yield from self.stage.complaints(scene, folder, outcome, {0, 5}, REASONS)

        return judge

    def strike_scenes(self, every):
        total = 0
        for scene in scenes.SCENES:
            n = self.stage.count(scene, "alloc")
            self.assertGreater(n, 10)
            faults = [
                injection.Fault("alloc", at=at, every=every, value=errno.ENOMEM)
                for at in injection.places(n, 50 if injection.SANITIZED else n)
            ]

            total += self.strike(scene, faults, self.judge(scene))
        print(total, "allocations failed")

    def test_once(self):
        self.strike_scenes(0)

    def test_from_there_on(self):
        self.strike_scenes(1)


if __name__ == "__main__":
    tool.main()
