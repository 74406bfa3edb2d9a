"""Writes model folders as people have them, and describes what a folder holds."""

import hashlib
import json
import os
from pathlib import Path

from support import tensors

INDEX = "model.safetensors.index.json"


def write_folder(folder, shards, config=None, index=None, files=None):
    """Makes a folder of {shard name: {name: Tensor}}.

    config: an object or the text of config.json. index: None writes one if there are several
    shards, False none, anything else is its weight_map. files: {path: text or bytes}.
    """
    folder = Path(folder)
    folder.mkdir(parents=True)
    for name, content in shards.items():
        tensors.write(folder / name, content, {"format": "pt"})
    if index is None and len(shards) > 1:
        index = {tensor: shard for shard, content in shards.items() for tensor in content}
    if index:
        write_index(folder, index)
    if config is not None:
        text = config if isinstance(config, str) else json.dumps(config, indent=2)
        (folder / "config.json").write_text(text, encoding="utf-8")
    for path, content in (files or {}).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def write_index(folder, weight_map, metadata=None):
    """Writes an index with the right total_size (of the shards named) unless metadata say else."""
    if metadata is None:
        sizes = [
            entry.end - entry.begin
            for shard in set(weight_map.values())
            for entry in tensors.read_header(Path(folder) / shard).entries.values()
        ]
        metadata = {"total_size": sum(sizes)}
    text = json.dumps({"metadata": metadata, "weight_map": weight_map}, indent=2)
    (Path(folder) / INDEX).write_text(text, encoding="utf-8")


def read_folder(folder):
    """All tensors of all safetensors files directly in a folder, by name."""
    found = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        for name, tensor in tensors.read(path).items():
            if name in found:
                raise ValueError(f"{name} is in two shards")
            found[name] = tensor
    return found


def index_faults(folder):
    """What is wrong with the index of an output folder with several shards."""
    folder = Path(folder)
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    truth, total = {}, 0
    for path in folder.glob("*.safetensors"):
        for name, entry in tensors.read_header(path).entries.items():
            truth[name] = path.name
            total += entry.end - entry.begin
    faults = []
    if index["weight_map"] != truth:
        faults.append(f"weight_map {index['weight_map']} is not {truth}")
    size = index["metadata"]["total_size"]
    if type(size) is not int or size != total:
        faults.append(f"total_size {size!r} is not {total}")
    return faults


def snapshot(path):
    """Mode, mtime and content of everything under a path, for "unchanged" (links not followed)."""
    path = Path(path)
    found = {}
    for item in [path, *sorted(path.rglob("*"))]:
        info = os.lstat(item)
        digest = os.readlink(item) if item.is_symlink() else None
        if digest is None and item.is_file() and info.st_size < 1 << 26:
            mode = info.st_mode & 0o7777
            digest = hashlib.sha256(item.read_bytes()).hexdigest() if mode & 0o400 else None
        found[str(item)] = (info.st_mode, info.st_mtime_ns, info.st_size, digest)
    return found


def splice(before, after):
    """The text that was put into before to get after; None if anything else changed."""
    extra = len(after) - len(before)
    common = os.path.commonprefix([before, after])
    place = len(common)
    while place >= 0:
        if after[place + extra :] == before[place:]:
            return after[place : place + extra]
        place -= 1
    return None
