"""Two other readers against fp8q, on the corpus and on random headers: our own strict one, and the
reference (the package safetensors, where it is installed).

What either refuses, fp8q refuses. What they accept, fp8q accepts with the same tensors, or it is
one of the exceptions of strict.py."""

import collections
import os
import random
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import headers
import strict
from support import tensors, tool

try:
    import safetensors
except ImportError:
    safetensors = None

DATA = Path(__file__).resolve().parents[1] / "data" / "hostile"
IS_LONG, IS_SLOW = os.environ.get("FP8Q_LONG") == "1", os.environ.get("FP8Q_SANITIZED")
N_FILES = 100_000 if IS_LONG else 500 if IS_SLOW else 3000
N_COPIED = 100  # of 1000, where they are accepted
SEED = 20
MAX_NBYTES = 1 << 20  # of a case of the corpus: others are sparse


def reference_accepts(data):
    try:
        safetensors.deserialize(data)
        return True
    except safetensors.SafetensorError:
        return False


def judge(data):
    """(tensors, exceptions, data_start) by the strict reader, or None if it refuses."""
    try:
        return strict.read(data)
    except strict.Refused:
        return None


class Differential(tool.Case):
    """One file at a time through all readers."""

    def setUp(self):
        super().setUp()
        self.met = collections.Counter()

    def compare(self, path, copy=False):
        """What is wrong with fp8q's or the strict reader's opinion of a file, or None."""
        data = path.read_bytes()
        verdict = judge(data)
        if safetensors and reference_accepts(data) != (verdict is not None):
            return f"{path}: the strict reader is wrong: {verdict}"
        result = tool.run("inspect", path, "--json")
        if verdict is None or verdict[1]:
            for exception in verdict[1] if verdict else ["refused by all"]:
                self.met[exception] += 1
            return None if result.code == 3 else f"{path}: must be refused, {verdict}: {result}"
        self.met["accepted by all"] += 1
        if result.code != 0:
            return f"{path}: must be accepted: {result}"
        found = {t["name"]: (t["dtype"], t["shape"]) for t in result.json()["tensors"]}
        if found != {name: (t.dtype, list(t.shape)) for name, t in verdict[0].items()}:
            return f"{path}: other tensors: {result}"
        return self.compare_copy(path, data, verdict) if copy else None

    def compare_copy(self, path, data, verdict):
        """The same for the bytes of its tensors, in a file that fp8q copies them to."""
        copy = path.with_suffix(".copy.safetensors")
        result = tool.run("convert", path, "-o", copy, "--exclude", "*", "--quiet")
        if result.code == 3 and any(t.dtype[:2] in ("F4", "F6", "F8") for t in verdict[0].values()):
            return None  # quantized already, which convert does not take
        if result.code != 0:
            return f"{path}: cannot be copied: {result}"
        self.met["copied"] += 1
        found, start = tensors.read(copy), verdict[2]
        if found.keys() != verdict[0].keys():
            return f"{path}: the copy holds {found.keys()}"
        for name, t in verdict[0].items():
            if found[name].data != data[start + t.begin : start + t.end]:
                return f"{path}: {name!r} has other bytes in the copy"
        return None

    def compare_all(self, paths, n_copied):
        copies = [True] * n_copied + [False] * len(paths)
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            wrong = list(filter(None, pool.map(self.compare, paths, copies)))
        self.assertEqual(len(wrong), 0, "\n".join(wrong[:3]))

    def test_corpus(self):
        line = ["tar", "-S", "-x", "-z", "-f", DATA / "hostile.tar.gz"]
        subprocess.run(line, cwd=self.dir, check=True)
        paths = [
            path
            for path in sorted(self.dir.rglob("*.safetensors"))
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= MAX_NBYTES
        ]
        self.assertGreater(len(paths), 200)
        self.compare_all(paths, 0)
        print(dict(self.met))

    def test_random(self):
        source = random.Random(SEED)
        parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        folder = Path(tempfile.mkdtemp(prefix="fp8q-test-", dir=parent))
        self.addCleanup(shutil.rmtree, folder)
        for start in range(0, N_FILES, 1000):
            paths = []
            for i in range(start, min(start + 1000, N_FILES)):
                paths.append(folder / f"{i % 1000}.safetensors")
                paths[-1].write_bytes(headers.random_file(source))
            self.compare_all(paths, N_COPIED)
            for path in folder.iterdir():
                path.unlink()
        print(dict(self.met))
        usual = {strict.TWICE, strict.LIST, "refused by all", "accepted by all", "copied"}
        self.assertGreaterEqual(set(self.met), usual)
        n_least = min(self.met["accepted by all"], self.met["refused by all"])
        self.assertGreater(n_least, N_FILES // 5)


if __name__ == "__main__":
    tool.main()
