"""Runs of fp8q that are killed in the middle, and the journals that they leave."""

import json
import signal
import subprocess
import time
import zlib
from pathlib import Path

from support import tool


def journal_of(output):
    """Where the journal of an output is."""
    return Path(f"{output}.partial.journal")


def partial_of(output):
    """Where an output is built."""
    return Path(f"{output}.partial")


def lines_of(output):
    """The whole lines of a journal, parsed; none where there is no journal."""
    try:
        text = journal_of(output).read_bytes()
    except OSError:
        return []
    return [json.loads(line) for line in text.split(b"\n")[:-1]]


def n_lines(output):
    """How many whole lines a journal has."""
    try:
        return journal_of(output).read_bytes().count(b"\n")
    except OSError:
        return 0


def n_written(output):
    """Bytes that an unfinished output takes on disk."""
    partial, total = partial_of(output), 0
    try:
        paths = list(partial.rglob("*")) if partial.is_dir() else [partial]
    except OSError:
        return 0
    for path in paths:
        try:
            total += path.lstat().st_blocks * 512
        except OSError:
            pass
    return total


def line_text(fields):
    """A line of a journal with the checksum that fits it."""
    text = json.dumps(fields, separators=(",", ":"))[:-1]
    return f'{text},"check":"{zlib.crc32(text.encode()):08x}"}}\n'


def change_line(output, number, change):
    """Lets change(fields) edit a line of a journal, and signs it again."""
    lines = journal_of(output).read_text(encoding="ascii").splitlines(keepends=True)
    fields = json.loads(lines[number])
    del fields["check"]
    change(fields)
    lines[number] = line_text(fields)
    journal_of(output).write_text("".join(lines), encoding="ascii")


def start(*args):
    """A run in the background."""
    line = [str(tool.PROGRAM), *map(str, args)]
    return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def end(process, number, is_time):
    """Sends a signal once it is time. Returns the exit code and the messages."""
    while process.poll() is None and not is_time():
        time.sleep(0.0002)
    process.send_signal(number)
    _, messages = process.communicate(timeout=120)
    return process.returncode, messages.decode("utf-8", "replace")


def kill(*args, is_time):
    """Starts a run and kills it once it is time. True if it was killed before it had ended."""
    code, _ = end(start(*args), signal.SIGKILL, is_time)
    return code == -signal.SIGKILL
