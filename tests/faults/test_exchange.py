"""Where the file system cannot exchange two names, a run that is killed between the renames leaves
the old output as OUTPUT.partial.old: it is named, given its name back, or removed if replaced."""

import contextlib
import errno
import os
import signal

import injection
import scenes
from support import model, tool

OVER = [scene for scene in scenes.SCENES if scene.command == "convert" and scene.over_old]
OLD = "out.partial.old"
KILL = injection.Fault("renameat", how="after", value=signal.SIGKILL, rename_flags=False)


class Exchange(scenes.Case):
    scenes = OVER

    @contextlib.contextmanager
    def killed(self, scene, has_output):
        """The folder of a run that was killed when OUTPUT.partial.old was there, and OUTPUT was
        there (the new one by then) or was not."""
        for at in range(1, self.stage.count(scene, "renameat") + 4):
            with self.stage.folder(scene) as folder:
                outcome = injection.run(scene.args(), folder, KILL._replace(at=at))
                self.assertEqual(outcome.code, -signal.SIGKILL, outcome.brief())
                found = os.listdir(folder)
                if OLD in found and ("out" in found) == has_output:
                    yield folder
                    return
        self.fail("no kill left it")

    def run_again(self, scene, folder, *options, fault=injection.Fault("")):
        return injection.run(scene._replace(over_old=False).args(*options), folder, fault)

    def assert_done(self, scene, folder, outcome):
        self.assertEqual(outcome.code, 0, outcome.brief())
        self.assertNotIn(OLD, outcome.err.decode())
        self.assertEqual(os.listdir(folder), ["out"], outcome.brief())
        self.assertEqual(self.stage.state_of_output(scene, folder), "complete")

    def test_refused_and_named(self):
        """Without --force nothing is touched, and the old output is named."""
        for scene in OVER:
            for has_output in (False, True):
                for options in (["--dry-run"], [], *([] if has_output else [["--resume"]])):
                    with self.killed(scene, has_output) as folder:
                        before = model.snapshot(folder)
                        outcome = self.run_again(scene, folder, *options)
                        self.assertEqual(outcome.code, 2, outcome.brief())
                        self.assertEqual(model.snapshot(folder), before, options)
                    self.assertIn(OLD, outcome.lines[0], options)
                    self.assertIn("pass --resume", outcome.lines[0])

    def test_go_on(self):
        for scene in OVER:
            with self.killed(scene, False) as folder:
                outcome = self.run_again(scene, folder, "--resume", "--force")
                self.assert_done(scene, folder, outcome)
            for options in (["--resume"], ["--resume", "--force"]):
                with self.killed(scene, True) as folder:
                    self.assert_done(scene, folder, self.run_again(scene, folder, *options))

    def test_start_again(self):
        for scene in OVER:
            for has_output in (False, True):
                for rename_flags in (False, True):
                    fault = injection.Fault("", rename_flags=rename_flags)
                    with self.killed(scene, has_output) as folder:
                        outcome = self.run_again(scene, folder, "--force", fault=fault)
                        self.assert_done(scene, folder, outcome)

    def test_old_output_stands(self):
        """A run that gives it its name back, and then fails, leaves it there."""
        full = injection.Fault("pwrite", at=1, every=1, value=errno.ENOSPC)
        for scene in OVER:
            for options in (["--force"], ["--force", "--resume"]):
                with self.killed(scene, False) as folder:
                    outcome = self.run_again(scene, folder, *options, fault=full)
                    state = self.stage.state_of_output(scene, folder)
                    # A lone file is whole already, and --resume has nothing to write.
                    is_whole = options[1:] and scene.source.endswith(".safetensors")
                    expected = (0, "complete") if is_whole else (4, "old")
                    self.assertEqual((outcome.code, state), expected, outcome.brief())
                    self.assertNotIn(OLD, os.listdir(folder))

    def test_stuck(self):
        """What cannot be renamed or removed is named, and is still there."""
        for scene in OVER:
            with self.killed(scene, False) as folder:
                fault = injection.Fault("renameat2", at=1)
                outcome = self.run_again(scene, folder, "--force", fault=fault)
                self.assertEqual(outcome.code, 4, outcome.brief())
                self.assertIn(f"{OLD}: cannot be given its name out back", outcome.lines[0])
                self.assertIn(OLD, os.listdir(folder))
            with self.killed(scene, True) as folder:
                fault = injection.Fault("unlinkat", at=1)
                outcome = self.run_again(scene, folder, "--resume", fault=fault)
                self.assertEqual(outcome.code, 4, outcome.brief())
                self.assertIn("out: is complete, but the old one could not be", outcome.lines[0])
                self.assertIn(OLD, outcome.lines[0])

    def test_strangers(self):
        """A thing of that name of which no journal tells is left alone, and named."""
        for scene in OVER:
            for rename_flags, code in ((True, 0), (False, 4)):
                with self.stage.folder(scene) as folder:
                    with open(f"{folder}/{OLD}", "wb") as file:
                        file.write(scenes.OLD)
                    fault = injection.Fault("", rename_flags=rename_flags)
                    outcome = injection.run(scene.args(), folder, fault)
                    self.assertEqual(outcome.code, code, outcome.brief())
                    self.assertIn(OLD, outcome.err.decode())
                    self.assertEqual(injection.contents(f"{folder}/{OLD}"), scenes.OLD)
                    if code == 4:
                        self.assertIn(f"as {OLD} is in the way", outcome.lines[0])
                        self.assertEqual(self.stage.state_of_output(scene, folder), "old")
                        os.remove(f"{folder}/{OLD}")
                        again = self.run_again(scene, folder, "--resume", "--force", fault=fault)
                        self.assert_done(scene, folder, again)


if __name__ == "__main__":
    tool.main()
