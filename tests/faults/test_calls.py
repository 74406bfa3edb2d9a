"""Every call of the operating system fails, one after the other, until a run meets no failure."""

import errno
import os
from unittest import mock

import injection
import scenes
from support import tool

EIO = os.strerror(errno.EIO)
# Beside EIO, what each call may fail with.
ERRORS = {
    "close": (errno.ENOSPC, errno.EDQUOT),
    "close_read": (),
    "create": (errno.ENOSPC, errno.EACCES, errno.EMFILE, errno.EROFS),
    "faccessat": (errno.EACCES,),
    "fcntl": (errno.EMFILE,),
    "fflush": (errno.ENOSPC,),
    "flock": (errno.ENOLCK,),
    "fstat": (errno.ESTALE,),
    "fstatat": (errno.ESTALE,),
    "fstatfs": (errno.ENOSYS,),
    "fstatvfs": (errno.ENOSYS,),
    "fsync": (errno.ENOSPC, errno.EDQUOT),
    "ftruncate": (errno.ENOSPC, errno.EFBIG),
    "futimens": (errno.EROFS,),
    "journal": (errno.ENOSPC,),
    "madvise": (),
    "mkdirat": (errno.ENOSPC, errno.EACCES),
    "open": (errno.EMFILE, errno.ENFILE),
    "pread": (errno.ESTALE,),
    "pwrite": (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    "readlink": (errno.EACCES,),
    "realpath": (errno.EACCES,),
    "renameat": (errno.ENOSPC, errno.EXDEV),
    "renameat2": (errno.ENOSPC, errno.EROFS),
    "scandirat": (errno.EMFILE,),
    "stat": (errno.EACCES,),
    "statx": (errno.ENOSYS,),
    "sync_file_range": (),
    "unlinkat": (errno.EROFS,),
}
# What a run may get over: it then ends with 0 and the very same bytes.
SURVIVED = {
    "close": "of the lock, at the end: the file is on the disk by then",
    "close_read": "nothing was written to it",
    "faccessat": "an index that cannot be looked up is opened all the same",
    "flock": "not every file system can lock",
    "fstat": "that a sticky folder keeps the old output shows when it is to be renamed",
    "fstatat": "how much room an old OUTPUT.partial takes need not be known",
    "fstatfs": "how a file is written best need not be known",
    "journal": "the output is as good, it can only not be taken up after an interruption",
    "madvise": "a hint",
    "open": "of /dev/null, in place of standard streams that are there",
    "statx": "older kernels do not tell mounts",
    "sync_file_range": "a hint",
}


class Calls(scenes.Case):
    """One test for a fault that comes once, one for a disk that has failed for good."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        pairs = [(scene, kind) for scene in scenes.SCENES for kind in ERRORS]
        counts = injection.in_parallel(lambda pair: cls.stage.count(*pair), pairs)
        cls.counts = dict(zip(pairs, counts))

    def strike_all(self, scene, kind, every):
        n = self.counts[scene, kind]
        places = {errno.EIO: 60, **dict.fromkeys(ERRORS[kind], 2)}
        if injection.SANITIZED:
            places = {errno.EIO: 2 if every else 4}
        faults = [
            injection.Fault(kind, at=at, every=every, value=value)
            for value, most in places.items()
            for at in injection.places(n, most)
        ]

        def judge(fault, folder, outcome):
            codes = {4, 0} if kind in SURVIVED else {4}
            reasons = [os.strerror(fault.value)]
            if kind == "pread":
                reasons = [f"failed: {reasons[0]}", f"cannot be read back: {reasons[0]}"]
            yield from self.stage.complaints(scene, folder, outcome, codes, reasons)

        return self.strike(scene, faults, judge)

    def strike_scenes(self, every):
        n_struck = dict.fromkeys(ERRORS, 0)
        for scene in scenes.SCENES:
            for kind in ERRORS:
                n_struck[kind] += self.strike_all(scene, kind, every)
        print(n_struck)
        # No link in these scenes leads nowhere, and no output is written out before its end.
        untried = {kind for kind, n in n_struck.items() if n == 0}
        self.assertEqual(untried, {"readlink", "sync_file_range"})

    def test_disk_that_fills_up(self):
        """Within each write: a part of it succeeds, nothing after it."""
        n_struck = 0
        for scene in scenes.SCENES:
            n = self.counts[scene, "pwrite"]
            faults = [
                injection.Fault("pwrite", at=at, how="full", value=errno.ENOSPC)
                for at in injection.places(n, 2 if injection.SANITIZED else 60)
            ]

            def judge(fault, folder, outcome, scene=scene):
                reasons = [os.strerror(fault.value)]
                yield from self.stage.complaints(scene, folder, outcome, {4}, reasons)

            n_struck += self.strike(scene, faults, judge)
        print(f"{n_struck} writes")

    def test_failed_fsync_is_final(self):
        """None is made again, of a file or a folder (the stage complains of it), and what it was to
        make durable is written anew by a run that goes on."""
        for scene in scenes.SCENES:
            n = self.counts[scene, "fsync"]
            faults = [
                injection.Fault("fsync", at=at) for at in range(1, n + 1) if not injection.SANITIZED
            ]

            def judge(_, folder, outcome, scene=scene):
                yield from self.stage.complaints(scene, folder, outcome, {4}, [EIO])
                if os.path.lexists(f"{folder}/out.partial"):
                    again = injection.run(scene.args("--resume"), folder, injection.Fault(""))
                    if self.stage.state_of_output(scene, folder) != "complete":
                        yield f"it cannot be gone on with: {again.brief()}"

            self.strike(scene, faults, judge)

    def test_threads_that_do_not_start(self):
        """What one thread gives, any number gives, however many of them there are."""
        for scene in scenes.SCENES:
            threads = scene._replace(options=(*scene.options, "--threads", "4"))
            n = self.stage.count(threads, "pthread_create")
            faults = [
                injection.Fault("pthread_create", at=at, every=every)
                for at in range(1, n + 1)
                for every in (0, 1)
            ]

            def judge(_, folder, outcome, scene=scene):
                yield from self.stage.complaints(scene, folder, outcome, {0}, [])

            self.strike(threads, faults, judge)

    def test_mapping_that_fails(self):
        """Each mapping and each copy into one, once and from there on: pwrite takes over."""
        n_struck = 0
        strikes = (("mmap", "fail"), ("process_vm_writev", "fail"), ("process_vm_writev", "short"))
        with mock.patch.dict(os.environ, FP8Q_MAP_OUTPUT="always"):
            for scene in (scene for scene in scenes.SCENES if scene.writes):
                faults = [
                    injection.Fault(kind, at=at, every=every, how=how, value=errno.EFAULT)
                    for kind, how in strikes
                    for at in injection.places(self.stage.count(scene, kind), 6)
                    for every in (0, 1)
                ]

                def judge(_, folder, outcome, scene=scene):
                    yield from self.stage.complaints(scene, folder, outcome, {0}, [])

                n_struck += self.strike(scene, faults, judge)
        print(f"{n_struck} mappings and copies")
        self.assertGreater(n_struck, 100)

    def test_once(self):
        self.strike_scenes(0)

    def test_from_there_on(self):
        self.strike_scenes(1)


if __name__ == "__main__":
    tool.main()
