"""Several runs at one output at the same time: one makes it, the others are refused; whoever comes
last, it is complete."""

import os
import signal

import injection
import scenes
from support import tool

N_RUNS = 8
FOLDER = scenes.Scene("convert a folder", "convert", "folder")
LONE = scenes.Scene("convert a file", "convert", "wide.safetensors")


class Together(scenes.Case):
    scenes = (FOLDER, LONE)

    def start_all(self, scene, folder, *more):
        """The outcomes of runs that are started at once."""
        line, fault = scene.args(*more), injection.Fault("")
        started = [injection.Process(line, folder, fault) for _ in range(N_RUNS)]
        outcomes = [process.result() for process in started]
        for outcome in outcomes:
            self.assertIn(outcome.code, (0, 2), outcome.brief())
            self.assertEqual((outcome.n_left_open, outcome.n_bad_closes), (0, 0))
        self.assertEqual(self.stage.state_of_output(scene, folder), "complete")
        self.assertEqual(os.listdir(folder), ["out"])
        return [outcome.code for outcome in outcomes]

    def test_one_wins(self):
        for scene in self.scenes:
            for _ in range(10):
                with self.stage.folder(scene) as folder:
                    codes = self.start_all(scene, folder)
                    self.assertEqual(codes.count(0), 1)

    def test_replaced(self):
        """What another run, told to, puts in the place of OUTPUT.partial is never taken for it."""
        stop = injection.Fault("fsync", how="before", value=signal.SIGSTOP)
        for scene in self.scenes:
            n = self.stage.count(scene, "fsync")
            for at in (2, n - 1):
                with self.stage.folder(scene) as folder:
                    process = injection.Process(scene.args(), folder, stop._replace(at=at))
                    injection.wait_for_stop(process)
                    args = [scene.command, f"../{scene.source}", "-o", "out.partial", "--force"]
                    args += ["--device", "cpu", "--scale-format", "pow2"]
                    other = injection.run(args, folder, injection.Fault(""))
                    self.assertEqual(other.code, 0, other.brief())
                    made = injection.contents(f"{folder}/out.partial")
                    process.popen.send_signal(signal.SIGCONT)
                    outcome = process.result()
                    self.assertEqual(outcome.code, 4, outcome.brief())
                    self.assertIn("was replaced or removed while it was", outcome.lines[0])
                    self.assertFalse(os.path.lexists(f"{folder}/out"))
                    self.assertEqual(injection.contents(f"{folder}/out.partial"), made)

    def test_with_force(self):
        for scene in self.scenes:
            for _ in range(10):
                with self.stage.folder(scene) as folder:
                    codes = self.start_all(scene, folder, "--force")
                    self.assertGreater(codes.count(0), 0)


if __name__ == "__main__":
    tool.main()
