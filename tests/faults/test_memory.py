"""Every allocation fails, one after the other, until a run meets no failure: memory that runs out
once, and memory that stays out."""

import errno

import injection
import scenes
from support import tool

# Calls that take memory of the kernel's.
KERNEL = (
    "create,faccessat,fcntl,flock,fstat,fstatat,fstatvfs,fsync,ftruncate,journal,mkdirat,open,"
    "pread,pwrite,realpath,renameat,renameat2,scandirat,stat,statx,unlinkat"
)
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
                for at in injection.places(n, 40 if injection.SANITIZED else n)
            ]

            total += self.strike(scene, faults, self.judge(scene))
        print(total, "allocations failed")

    def test_of_the_kernel(self):
        for scene in scenes.SCENES:
            n = self.stage.count(scene, KERNEL)
            faults = [
                injection.Fault(KERNEL, at=at, value=errno.ENOMEM)
                for at in injection.places(n, 40 if injection.SANITIZED else 200)
            ]
            self.strike(scene, faults, self.judge(scene))

    def test_bad_input_and_words(self):
        """Runs that end otherwise than with a result, or with nothing but text."""
        keep = next(scene for scene in scenes.SCENES if scene.source == "nan")
        nan, missing = "../nan", "../folder/nothing"
        runs = [["convert", nan, "-o", "out", *scenes.PLAIN], ["convert", missing], ["inspect"]]
        runs += [["convert", nan, "-o", "out", "--dry-run"], ["convert", "--nonsense"], ["help"]]
        runs += [["convert", "--list-rules", "--json"], ["help", "--man"], ["dequant", nan]]
        for args in runs:
            with self.stage.folder(keep) as folder:
                usual = injection.run(args, folder, injection.Fault("alloc"))

            def judge(_, folder, outcome, usual=usual):
                if outcome.code not in (usual.code, 5) or not outcome.is_over:
                    yield f"exit {outcome.code}, not {usual.code}"
                if outcome.code == 5 != usual.code and b"memory" not in outcome.err:
                    yield "the reason is not told"
                if outcome.code == 0 and outcome.out != usual.out:
                    yield "the result differs"
                yield from self.stage.complaints_of_places(keep, folder, outcome)

            faults = [
                injection.Fault("alloc", at=at, every=every, value=errno.ENOMEM)
                for every in (0, 1)
                for at in injection.places(usual.n_calls, 8 if injection.SANITIZED else 100)
            ]
            self.strike(keep._replace(name=" ".join(args)), faults, judge, args)

    def test_once(self):
        self.strike_scenes(0)

    def test_from_there_on(self):
        self.strike_scenes(1)


if __name__ == "__main__":
    tool.main()
