"""How long fp8q takes to look at a large model: 100,000 tensors in 160 sparse shards."""

import argparse

from support import measure, model, tensors

N_SHARDS = 160
N_EXPERTS = 208  # per shard, of three matrices each: 160 · 208 · 3 = 99,840 tensors


def write_model(folder):
    """A mixture of experts as large ones are; its data take no room on disk."""
    folder.mkdir()
    weight_map = {}
    for shard in range(N_SHARDS):
        name = f"model-{shard + 1:05}-of-{N_SHARDS:05}.safetensors"
        shapes = {f"model.layers.{shard}.input_layernorm.weight": ("BF16", (7168,))}
        for expert in range(N_EXPERTS):
            prefix = f"model.layers.{shard}.mlp.experts.{expert}"
            shapes[f"{prefix}.gate_proj.weight"] = ("BF16", (2048, 7168))
            shapes[f"{prefix}.up_proj.weight"] = ("BF16", (2048, 7168))
            shapes[f"{prefix}.down_proj.weight"] = ("BF16", (7168, 2048))
        tensors.write_sparse(folder / name, shapes)
        weight_map.update(dict.fromkeys(shapes, name))
    model.write_index(folder, weight_map)
    (folder / "config.json").write_text("{}", encoding="ascii")
    return len(weight_map)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--folder", default="/tmp", help="where the sparse model is made")
    options = parser.parse_args()
    with measure.scratch(options.folder, needed=measure.GIB) as folder:
        if folder is None:
            parser.error(f"no room in {options.folder}")
        source = folder / "model"
        count = write_model(source)
        print(f"{count} tensors in {N_SHARDS} shards; medians of {options.repetitions}")
        for line in (["inspect"], ["inspect", "--json"], ["convert", "--dry-run"]):
            command = [line[0], source, *line[1:]]
            # 4: the dry run ends with the news that this disk has no room for the output.
            runs = [measure.fp8q(*command, codes=(0, 4)) for _ in range(options.repetitions)]
            peak = max(run.peak for run in runs) / measure.MIB
            print(f"fp8q {' '.join(line):18} {measure.median(runs):6.2f} s, peak {peak:4.0f} MiB")


if __name__ == "__main__":
    main()
