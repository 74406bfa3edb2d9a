"""Peak memory is a constant, whatever the size of a tensor, shard or model; and no size overflows.

Inputs are sparse files, so that only outputs take room. Fails where a peak exceeds the bound, or
the last block of a tensor is wrong.
"""

import argparse
import struct
import sys
import tempfile

from support import codec, measure, tensors, tool

BOUND = 300 * measure.MIB
FOLDERS = ["/dev/shm", tempfile.gettempdir()]
NAME = "model.layers.0.self_attn.o_proj.weight"
SCALE = NAME + "_scale_inv"
E4M3_MAX_CODE = b"\x7e"


class Failed(Exception):
    """A peak is over the bound, or an output is wrong."""


def report(what, read, written, run):
    """One line of the table, and the bound."""
    print(
        f"{what:34} {read / 1e9:6.2f} GB in, {written / 1e9:5.2f} GB out, {run.seconds:6.1f} s,"
        f" peak {run.peak / measure.MIB:5.0f} MiB",
        flush=True,
    )
    if run.peak > BOUND:
        raise Failed(f"{what}: peak {run.peak} bytes, over {BOUND}")


def last_bytes(path, name, count):
    """The last bytes of a tensor."""
    entry = tensors.read_header(path).entries[name]
    with open(path, "rb") as file:
        file.seek(entry.end - count)
        return file.read(count)


def expect(found, wanted, what):
    """Fails unless the bytes are as they must be."""
    if found != wanted:
        raise Failed(f"{what}: {found.hex()} instead of {wanted.hex()}")


def verify_tensor(there, source, rows, cols):
    """The output passes; with another last code it fails there."""
    nbytes = 3 * rows * cols
    products = ("--tokens", "32") if rows * cols < 2**31 else ("--no-gemm",)  # they take long
    run = measure.fp8q("verify", there, "--reference", source, *products)
    report(f"verify one tensor [{rows}, {cols}]", nbytes, 0, run)
    end = tensors.read_header(there).entries[NAME].end
    with open(there, "r+b") as file:
        file.seek(end - 1)
        file.write(b"\x7d")
        file.flush()
        result = tool.run("verify", there, "--reference", source, "--json", "--no-gemm")
        place = result.json()["tensors"][0]["weight"]["first_code_differ"]
        if result.code != 1 or place != [rows - 1, cols - 1]:
            raise Failed(f"verify: first code that differs at {place}")
        file.seek(end - 1)
        file.write(E4M3_MAX_CODE)


def convert_tensor(folder, rows, cols):
    """Quantizes a tensor of zeros but for its last element; gives the output."""
    source, there = folder / "in.safetensors", folder / "there.safetensors"
    nbytes = 2 * rows * cols
    last = codec.bf16_tensor((1,), 1.5).data
    tensors.write_sparse(source, {NAME: ("BF16", (rows, cols))}, [(NAME, nbytes - 2, last)])
    run = measure.fp8q("convert", source, "-o", there)
    report(f"convert one tensor [{rows}, {cols}]", nbytes, nbytes // 2, run)
    expect(last_bytes(there, NAME, 2), b"\0" + E4M3_MAX_CODE, "last codes")
    scales = struct.pack("<2f", 1e-4 / 448, 1.5 / 448)
    expect(last_bytes(there, SCALE, 8), scales, "last scales")
    verify_tensor(there, source, rows, cols)
    source.unlink()
    return there


def there_and_back(folder, rows, cols):
    """convert_tensor, and cast back."""
    there, back = convert_tensor(folder, rows, cols), folder / "back.safetensors"
    nbytes = 2 * rows * cols
    run = measure.fp8q("dequant", there, "-o", back)
    report(f"dequant one tensor [{rows}, {cols}]", nbytes // 2, nbytes, run)
    last = codec.bf16_tensor((1,), 1.5).data
    expect(last_bytes(back, NAME, 4), b"\0\0" + last, "last elements")


def many_tensors(folder, count, rows, cols):
    """One shard of many tensors."""
    source, there = folder / "in.safetensors", folder / "there.safetensors"
    names = [f"model.layers.{i}.self_attn.o_proj.weight" for i in range(count)]
    tensors.write_sparse(source, dict.fromkeys(names, ("BF16", (rows, cols))))
    nbytes = 2 * rows * cols * count
    run = measure.fp8q("convert", source, "-o", there)
    report(f"convert a shard of {count} tensors", nbytes, nbytes // 2, run)


def with_room(folders, needed, test, *args):
    """Runs a test where there is room for what it writes; False if there is none."""
    with measure.scratch(*folders, needed=needed) as folder:
        if folder is None:
            print(f"skipped: no room for {needed / 1e9:.1f} GB in {' or '.join(folders)}")
            return False
        test(folder, *args)
        return True


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="write no more than 5 GB at a time")
    parser.add_argument("--folder", action="append", help="where outputs go, if there is room")
    options = parser.parse_args()
    gib = measure.GIB
    tests = [
        (3 * gib + gib // 4, there_and_back, 16384, 65536),
        (4 * gib + gib // 4, convert_tensor, 65537, 65536),  # over 2^32 elements
    ]
    if not options.quick:
        tests = [
            (6 * gib + gib // 2, there_and_back, 32768, 65536),
            (4 * gib + gib // 2, many_tensors, 64, 8192, 8192),
            (13 * gib, there_and_back, 65537, 65536),
        ]
    try:
        done = [with_room(options.folder or FOLDERS, *test) for test in tests]
    except Failed as error:
        sys.exit(str(error))
    if not any(done):
        sys.exit(tool.SKIPPED)


if __name__ == "__main__":
    main()
