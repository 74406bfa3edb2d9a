"""Killed at every call that changes something on disk, and at random times: OUTPUT is as before or
complete, a later run refuses what is left behind, and --force gives the undisturbed bytes."""

import os
import random
import signal
import time

import injection
import scenes
from support import tensors, tool

CHANGES = (
    "close,create,fsync,ftruncate,futimens,journal,mkdirat,pwrite,renameat,renameat2,unlinkat"
)
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WRITERS = [scene for scene in scenes.SCENES if scene.command in ("convert", "dequant")]
LARGE = [
    scenes.Scene("convert a large folder", "convert", "large"),
    scenes.Scene("dequant a large folder", "dequant", "large-fp8"),
]


class KillCase(scenes.Case):
    """What a killed run leaves is judged, then cleared up as a user would."""

    def rerun(self, scene, folder, *more):
        return injection.run(scene.args(*more), folder, injection.Fault(""))

    def after_kill(self, scene, folder, states, resume):
        """What is wrong with what lies in the folder, and with the runs that come after.

        resume: that is one with --resume, else one that is refused and one with --force.
        """
        state = self.stage.state_of_output(scene, folder)
        left = set(os.listdir(folder))
        if state not in states:
            yield f"the output is {state}"
        if left - {"out", *scenes.BESIDE, "out.partial.old"}:
            yield f"left outside OUTPUT.partial: {left}"
        if resume:
            yield from self.go_on(scene, folder, "--resume")
            return
        # A scene over an older output has --force itself.
        if not scene.over_old:
            plain = self.rerun(scene, folder)
            is_free = left.isdisjoint({"out", "out.partial"})
            if plain.code != (0 if is_free else 2) or not is_free and b"--force" not in plain.err:
                yield f"a plain run afterwards: {plain.brief()}"
            if not is_free and set(os.listdir(folder)) != left:
                yield f"a plain run changed what was left: {os.listdir(folder)}"
        yield from self.go_on(scene, folder, "--force")

    def go_on(self, scene, folder, option):
        """What is wrong with a run that takes up, or clears up, what was left."""
        left = set(os.listdir(folder))
        is_done = self.stage.state_of_output(scene, folder) == "complete" and left == {"out"}
        if is_done and option == "--resume" and not scene.over_old:
            return  # there is nothing to go on with
        options = {option, "--force"} if scene.over_old else {option}
        done = self.rerun(scene._replace(over_old=False), folder, *sorted(options))
        if done.code != 0 or self.stage.state_of_output(scene, folder) != "complete":
            yield f"{options} afterwards: {done.brief()}"
        if os.listdir(folder) != ["out"]:
            yield f"left after {options}: {os.listdir(folder)}"


class Kills(KillCase):
    """At each call, and right after it."""

    scenes = WRITERS

    def kill_scenes(self, kill, states, which=WRITERS, most=30):
        for scene in which:
            n = self.stage.count(scene, kill.calls)
            faults = [kill._replace(at=at) for at in injection.places(n, most)]
            before = "old" if scene.over_old else "absent"
            for resume in (False, True):

                def judge(_, folder, outcome, scene=scene, before=before, resume=resume):
                    if outcome.code != -signal.SIGKILL:
                        yield "was not killed"
                    states_of_kill = {before, "complete", *states}
                    yield from self.after_kill(scene, folder, states_of_kill, resume)

                self.strike(scene, faults, judge)

    def test_before_each_change(self):
        kill = injection.Fault(CHANGES, how="before", value=signal.SIGKILL)
        self.kill_scenes(kill, [], most=5 if injection.SANITIZED else 30)

    def test_after_each_change(self):
        kill = injection.Fault(CHANGES, how="after", value=signal.SIGKILL)
        self.kill_scenes(kill, [], most=5 if injection.SANITIZED else 100)

    def test_within_each_write(self):
        kill = injection.Fault("journal,pwrite", how="cut", value=signal.SIGKILL)
        self.kill_scenes(kill, [], most=5 if injection.SANITIZED else 30)

    def test_without_rename_flags(self):
        """Where OUTPUT cannot be replaced by one step, it may be absent, never torn."""
        kill = injection.Fault(CHANGES, how="after", value=signal.SIGKILL, rename_flags=False)
        over_old = [scene for scene in WRITERS if scene.over_old]
        self.kill_scenes(kill, ["absent"], over_old, most=5 if injection.SANITIZED else 60)

    def test_signals(self):
        """SIGINT and its like, before each change: exit 128 + signal, and nothing torn."""
        for scene in WRITERS:
            n = self.stage.count(scene, CHANGES)
            faults = [
                injection.Fault(CHANGES, at=at, how="before", value=number)
                for number in STOPPING
                for at in injection.places(n, 2 if injection.SANITIZED else 8)
            ]

            def judge(fault, folder, outcome, scene=scene):
                # The last changes come after the point from which there is no way back.
                codes = {128 + fault.value} if fault.at == 1 else {128 + fault.value, 0}
                yield from self.stage.complaints(scene, folder, outcome, codes, ["interrupted"])

            self.strike(scene, faults, judge)

    def test_second_signal_kills(self):
        fault = injection.Fault(CHANGES, at=4, every=1, how="before", value=signal.SIGINT)

        def judge(_, folder, outcome):
            if outcome.code != -signal.SIGINT or outcome.n_struck != 2:
                yield f"exit {outcome.code} after {outcome.n_struck} signals"
            yield from self.after_kill(WRITERS[0], folder, {"absent"}, False)

        self.strike(WRITERS[0], [fault], judge)


class KillsAtRandomTimes(KillCase):
    """At times that no call marks, on shards that take a while."""

    scenes = ()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        large = cls.stage.root / "large"
        large.mkdir()
        for part in range(1, 4):
            name = f"model.layers.{part}.mlp.down_proj.weight"
            shapes = {name: ("BF16", (2048, 2048))}
            tensors.write_sparse(large / scenes.SHARD.format(part), shapes)
        (large / "config.json").write_text("{}")
        tool.run("convert", large, "-o", cls.stage.root / "large-fp8")
        for scene in LARGE:
            cls.stage.undisturbed[scene.name] = cls.stage.run_undisturbed(scene)

    def seconds_of(self, scene):
        """What an undisturbed run takes, at the least."""
        seconds = []
        for _ in range(5):
            with self.stage.folder(scene) as folder:
                start = time.monotonic()
                self.rerun(scene, folder)
                seconds.append(time.monotonic() - start)
        return min(seconds)

    def kill_once(self, scene, seconds, resume):
        with self.stage.folder(scene) as folder:
            process = injection.Process(scene.args(), folder, injection.Fault(""))
            time.sleep(seconds)
            process.popen.kill()
            outcome = process.result()
            found = list(self.after_kill(scene, folder, {"absent", "complete"}, resume))
            return outcome.code, found

    def test_random_times(self):
        source = random.Random(injection.SEED)
        n_each = 100 if injection.LONG else 5 if injection.SANITIZED else 20
        for scene in LARGE:
            longest, n_killed, n_runs = self.seconds_of(scene), 0, 0
            while n_killed < n_each:
                seconds = source.uniform(0, longest)
                code, found = self.kill_once(scene, seconds, n_runs % 4 > 0)
                self.assertFalse(found, f"{scene.name}, after {seconds} s: {found}")
                n_killed += code == -signal.SIGKILL
                n_runs += 1
            print(f"{scene.name}: {n_killed} of {n_runs} runs were killed before their end")


if __name__ == "__main__":
    for stopping in STOPPING:  # in the background they may be ignored, and would stay so
        signal.signal(stopping, signal.SIG_DFL)
    tool.main()
