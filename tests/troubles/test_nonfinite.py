"""Models that hold NaN or Inf, with --on-nonfinite keep: what is found late must reach all shards."""

import struct

from support import codec, model, tensors, tool

SHARDS = [f"model-0000{part}-of-00002.safetensors" for part in (1, 2)]
INF = struct.pack("<f", float("inf"))


class Nonfinite(tool.Case):
    """The first shard is finished before the second one is read."""

    def test_finished_shards_are_written_anew_where_their_metadata_change(self):
        first = {"model.layers.0.mlp.down_proj.weight": codec.bf16_tensor((128, 128), 1.0)}
        last = {"model.layers.1.mlp.down_proj.weight": codec.filled("F32", (128, 128), INF)}
        source = model.write_folder(
            self.dir / "in", dict(zip(SHARDS, (first, last), strict=True)), {}
        )
        output = self.dir / "out"
        line = ["convert", source, "-o", output, "--on-nonfinite", "keep", "--threads", "1"]
        self.assertMentions(self.fp8q(*line), "holds NaN or Inf; kept unquantized")
        for shard in SHARDS:
            metadata = tensors.read_header(output / shard).metadata
            self.assertEqual(metadata["fp8q.source_dtype"], "BF16", shard)
        found = model.read_folder(output)
        self.assertEqual(found["model.layers.0.mlp.down_proj.weight"].dtype, "F8_E4M3")
        self.assertTensor(found[name := next(iter(last))], last[name], name)


if __name__ == "__main__":
    tool.main()
