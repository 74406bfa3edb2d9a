"""Runs every case of the hostile corpus: bad files are refused without a trace, odd ones are read.

The manifest's `rules` hold for every case; its `facts` are checked against an independent reader.
Usage: run_hostile.py [NAME...] runs all cases, or those named.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from checks import check_dequantized, check_outputs, check_quantized, check_read
from support import model, tool

DATA = Path(__file__).resolve().parents[1] / "data" / "hostile"
MEMORY = 512 << 20
SECONDS = 10
COMMANDS = {"read": "inspect", "quantize": "convert", "dequantize": "dequant"}


class Failed(Exception):
    """A case did not go as the manifest says."""


def require(truth, what):
    """Fails the case unless truth."""
    if not truth:
        raise Failed(what)


def limited():
    """Bounds the memory of the program about to run."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def memory_limit():
    """`limited`, or None where the program (under a sanitizer) cannot start within it."""
    return limited if tool.run("--version", preexec=limited).code == 0 else None


class Corpus:
    """The unpacked cases, and where their outputs go."""

    def __init__(self, folder):
        self.inputs = Path(folder, "in")
        self.outputs = Path(folder, "out")
        self.outputs.mkdir()
        self.limit = memory_limit()
        subprocess.run(
            ["tar", "-S", "-x", "-z", "-f", DATA / "hostile.tar.gz", "--one-top-level=in"],
            cwd=folder,
            check=True,
        )

    def run(self, case, *args, seconds=SECONDS):
        """One run of the program under the rules for every case."""
        limit = None if case["sparse"] else self.limit
        seconds = case.get("facts", {}).get("max_seconds", seconds)
        try:
            result = tool.run(*args, timeout=seconds, preexec=limit, env={"COLUMNS": "20"})
        except subprocess.TimeoutExpired as error:
            raise Failed(f"over {seconds} s: {error.cmd}") from error
        require(result.code >= 0, f"a signal\n{result}")
        for stream in (result.out, result.err):
            require(tool.unsafe(stream) is None, f"{tool.unsafe(stream)}\n{result}")
        return result


def output_of(corpus, case):
    suffix = ".safetensors" if case["kind"] == "file" else ""
    return corpus.outputs / (case["name"] + suffix)


def command_line(corpus, case):
    """The command of a case, and its output (None if it writes nothing)."""
    source = corpus.inputs / case["path"]
    command = COMMANDS[case["op"]]
    if command == "inspect":
        return [command, source, "--json"], None
    output = output_of(corpus, case)
    return [command, source, "-o", output, "--json", *case.get("options", [])], output


def check_reject(corpus, case):
    """Refused with a line that names the file and what else the manifest asks for, traceless."""
    line, output = command_line(corpus, case)
    result = corpus.run(case, *line)
    require(result.code in (3, 4), f"exit {result.code}, not 3 or 4\n{result}")
    messages = [line for line in result.text.splitlines() if line.startswith("fp8q: ")]
    require(messages, f"no message\n{result}")
    require(not result.out.strip(), f"something on stdout\n{result}")
    names = named_files(corpus.inputs / case["path"])
    named = any(name in message for message in messages for name in names)
    require(named, f"none of {names} is named\n{result}")
    for part in case.get("mentions", []):
        require(any(part in message for message in messages), f"{part!r} not said\n{result}")
    if output is not None:
        check_traceless(corpus, case, line, output)


def named_files(path):
    """The names of which a message must hold one: the file's, or the folder's or one in it."""
    inside = [item.name for item in path.rglob("*")] if path.is_dir() else []
    return [path.name, *inside]


def check_traceless(corpus, case, line, output):
    """Nothing is left by the run before, and an older output survives a run with --force."""
    require(not list(corpus.outputs.iterdir()), f"left: {list(corpus.outputs.iterdir())}")
    marker = output
    if case["kind"] == "folder":
        output.mkdir()
        marker = output / "older"
    marker.write_text("older output", encoding="ascii")
    result = corpus.run(case, *line, "--force")
    require(result.code in (3, 4), f"exit {result.code} with --force, not 3 or 4\n{result}")
    require(marker.read_text(encoding="ascii") == "older output", "the older output was changed")
    require(list(corpus.outputs.iterdir()) == [output], "more than the older output is left")


def check_accept(corpus, case):
    """Done with exit 0, and every fact of the manifest holds."""
    line, output = command_line(corpus, case)
    result = corpus.run(case, *line)
    require(result.code == 0, f"exit {result.code}\n{result}")
    facts = case.get("facts", {})
    warning = facts.get("warning")
    if warning:
        require(warning.lower() in result.text.lower(), f"no warning of {warning}\n{result}")
    source = corpus.inputs / case["path"]
    if case["op"] == "read":
        plain = corpus.run(case, "inspect", source)
        require(plain.code == 0, f"exit {plain.code} without --json\n{plain}")
        faults = check_read(facts, result.json())
        faults += check_copy(corpus, case, source, facts)
    elif case["op"] == "quantize":
        faults = check_outputs(source, output, facts) + check_quantized(output, facts)
    else:
        faults = check_dequantized(source, output, facts)
    require(not faults, "\n".join(faults) + f"\n{result}")


def check_copy(corpus, case, source, facts):
    """A conversion that quantizes nothing gives every byte back; too big for sparse files."""
    dtypes = [tensor["dtype"] for tensor in facts.get("tensors", [])]
    if case["sparse"] or any(dtype.startswith("F8_") for dtype in dtypes):
        return []
    output = output_of(corpus, case)
    result = corpus.run(case, "convert", source, "-o", output, "--exclude", "*")
    require(result.code == 0, f"exit {result.code}\n{result}")
    return check_outputs(source, output, facts)


def check_outside(corpus, case):
    """Files beside the model folder are not opened, whatever the index says."""
    if shutil.which("strace") is None or not case["name"].startswith(("path_", "disk_link_out")):
        return
    line, _ = command_line(corpus, case)
    with tempfile.NamedTemporaryFile() as log:
        subprocess.run(
            ["strace", "-f", "-y", "-e", "trace=open,openat,openat2", "-o", log.name]
            + [tool.PROGRAM, *line],
            env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"},
            capture_output=True,
            check=False,
        )
        opened = [line for line in Path(log.name).read_text().splitlines() if " = -1" not in line]
    require(opened, "strace saw nothing")
    outside = [line for line in opened if ".outside" in line]
    require(not outside, f"read outside the model folder: {outside}")


def run_case(corpus, case):
    source = corpus.inputs / case["path"]
    before = model.snapshot(source)
    try:
        if case["expected"] == "reject":
            check_reject(corpus, case)
        else:
            check_accept(corpus, case)
        check_outside(corpus, case)
        require(model.snapshot(source) == before, "the input was changed")
    finally:
        for left in corpus.outputs.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()


def wanted(case, names):
    if case["group"] == "zst" or names and case["name"] not in names:
        return False
    return not (case.get("skip_if_root") and os.geteuid() == 0)


def main():
    manifest = json.loads((DATA / "manifest.json").read_text(encoding="utf-8"))
    cases = [case for case in manifest["cases"] if wanted(case, sys.argv[1:])]
    failed, start = [], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fp8q-hostile-") as folder:
        corpus = Corpus(folder)
        for case in cases:
            try:
                run_case(corpus, case)
            except Failed as error:
                failed.append(case["name"])
                print(f"FAILED {case['name']}: {case['what']}\n  {error}", flush=True)
    limit = "512 MiB" if corpus.limit else "none"
    print(f"{time.monotonic() - start:.1f} s, address space limit: {limit}; {' '.join(failed)}")
    print(f"{len(cases) - len(failed)} passed, {len(failed)} failed")
    sys.exit(1 if failed or not cases else 0)


if __name__ == "__main__":
    main()
