"""The page of verify --html, read with Python's parser: it is whole, holds what must be known, and
runs nothing that a file's names say. And the file is written where it may be, or nowhere."""

import os
import re
import resource
from html.parser import HTMLParser

from checkpoints import DOWN, LAYER, Q, Case, edit_config, make_foreign, read, write
from support import codec, model, tensors, tool

VOID = {"meta", "br", "wbr", "input", "link", "img", "hr"}
HOSTILE = "</td><script>alert('1')</script>&quot;\"\u202e\x1b[31m\u05d0.weight"


def limit_file_size():
    """No file may grow larger than a report."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


class Page(HTMLParser):
    """A page taken apart. Tags that do not match are errors."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.ids, self.links, self.texts = [], [], [], [], []
        self.rows = []  # of tables: texts of their cells
        self.feed(text)
        self.close()
        if self.open:
            raise ValueError(f"{self.open} are not closed")
        self.text = "".join(self.texts)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append((tag, attrs))
        if "id" in attrs:
            self.ids.append(attrs["id"])
        if "href" in attrs:
            self.links.append(attrs["href"])
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            raise ValueError(f"</{tag}> in {self.open}, line {self.getpos()[0]}")
        self.open.pop()

    def handle_data(self, data):
        if {"style", "script"} & set(self.open):
            return
        self.texts.append(data)
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def count(self, tag):
        return sum(found == tag for found, _ in self.tags)


class PageCase(Case):
    """Reports as pages."""

    def page(self, folder, *options, code=0, reference=True):
        path = self.dir / "report.html"
        report = self.verify(folder, "--html", path, *options, code=code, reference=reference)
        raw = path.read_bytes()
        self.assertIsNone(tool.unsafe(raw))
        page = Page(raw.decode("utf-8"))
        self.check_form(page, raw.decode("utf-8"))
        return page, report

    def check_form(self, page, text):
        """What holds for all pages."""
        self.assertTrue(text.startswith("<!DOCTYPE html>\n<html lang=\"en\">"))
        self.assertEqual(len(page.ids), len(set(page.ids)))
        for link in page.links:
            self.assertIn(link.removeprefix("#"), page.ids)
        self.assertEqual((page.count("h1"), page.count("script"), page.count("style")), (1, 1, 1))
        levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
        self.assertTrue(all(b <= a + 1 for a, b in zip(levels, levels[1:])), levels)
        for tag, attrs in page.tags:
            self.assertFalse({"src", "srcset", "action"} & attrs.keys(), (tag, attrs))
            self.assertFalse([name for name in attrs if name.startswith("on")], (tag, attrs))
            if tag == "th":
                self.assertIn(attrs.get("scope"), ("row", "col"))
            if tag == "svg":
                self.assertEqual(attrs.get("aria-hidden"), "true")
        self.assertIsNone(re.search(r"https?:|url\(|@import|//[a-z]", text))
        self.assertNotRegex(page.text, r"\b(nan|inf)\b")


class Contents(PageCase):
    def test_a_good_conversion(self):
        page, report = self.page(self.shared / "f32")
        self.assertIn("✓ passes", page.text)
        self.assertNotIn("What is wrong", page.text)
        shown = {row[0]: row for row in page.rows}
        for tensor in report["tensors"]:
            row = shown[tensor["name"]]
            self.assertEqual(row[1], "passes")
            self.assertIn(f"{100 * tensor['weight']['rel_l2']:.3f}", row)
            self.assertIn(f"{100 * tensor['gemm']['rel_l2']:.3f}", row)
        self.assertIn(f"{100 * report['summary']['weight_rel_l2']:.3f}\u00a0%", page.text)

    def test_every_failure_has_its_place_reason_and_cure(self):
        folder = self.copy()
        for name, place in ((DOWN, 384), (Q, 5)):
            data = read(folder, name)
            data[place] ^= 1
            write(folder, name, data)
        edit_config(folder, lambda config: config.pop("weight_block_size"))
        page, report = self.page(folder, code=1)
        self.assertIn("✗ fails", page.text)
        self.assertIn("2 of 6 FP8 weights fail; 1 other problem.", page.text)
        self.assertIn(report["problems"][0], page.text)
        self.assertEqual(page.text.count("What to do:"), 2)
        for tensor in report["tensors"]:
            fails = tensor["verdict"] == "fail"
            rows = [row for row in page.rows if row[0].startswith(tensor["name"])]
            self.assertEqual([row[1] for row in rows], ["✗ fails" if fails else "passes"])
            for reason in tensor["reasons"]:
                self.assertEqual(page.text.count(reason), 2, "in a card and in the table")

    def test_each_way_to_fail_has_a_cure(self):
        cures = set()
        for change in (0, 1, 2):
            folder = self.copy()
            data = read(folder, Q)
            if change == 0:
                data[0] = 0x7F
            elif change == 1:
                data[:4096] = data[4096:8192]
            else:
                make_foreign(folder)
                data[0] ^= 0x80
                data[4096:8192] = bytes(4096)
            write(folder, Q, data)
            page, _ = self.page(folder, code=1)
            cures.add(page.text.partition("What to do: ")[2].partition("\n")[0])
        self.assertEqual(len(cures), 3, cures)

    def test_without_a_reference(self):
        page, report = self.page(self.shared / "pow2", reference=False)
        self.assertIn(report["notes"][0], page.text)
        self.assertNotIn("Errors of blocks", page.text)
        self.assertIn("pow2", page.text)

    def test_without_any_weight(self):
        page, _ = self.page(self.reference, code=1, reference=False)
        self.assertIn("holds no FP8 weight", page.text)


class Hostile(PageCase):
    def test_names_are_text(self):
        folder = self.dir / "<img src=x onerror=alert(1)>&amp;"
        content = {
            LAYER + HOSTILE: tensors.Tensor("F8_E4M3", (128, 128), bytes([0x38]) * 16384),
            LAYER + HOSTILE + "_scale_inv": codec.f32_tensor((1, 1), [-1.0]),
        }
        model.write_folder(folder, {"model.safetensors": content}, config="{}")
        page, _ = self.page(folder, code=1, reference=False)
        name = (LAYER + HOSTILE).replace("\u202e", "\\u{202E}").replace("\x1b", "\\x1B")
        self.assertIn(name, page.text)
        self.assertIn(folder.name, page.text)
        self.assertEqual(page.count("img"), 0)

    def test_very_many_weights(self):
        """The worst have rows, all others are named."""
        content = {}
        for i in range(2100):
            name = f"model.layers.{i % 30}.mlp.experts.{i // 30}.up_proj.weight"
            content[name] = tensors.Tensor("F8_E4M3", (8, 8), bytes([0x7F if i == 77 else 0]) * 64)
            content[name + "_scale_inv"] = codec.f32_tensor((1, 1), [1.0])
        tensors.write(self.dir / "many.safetensors", content)
        page, _ = self.page(self.dir / "many.safetensors", "--no-gemm", code=1, reference=False)
        rows = [row[0] for row in page.rows if ".experts." in row[0]]
        self.assertEqual(len(rows), 2000)
        self.assertTrue(rows[0].startswith("model.layers.17.mlp.experts.2.up_proj.weight"))
        rest = r"passes: model\.layers\.8\.mlp\.experts\.\{5\.\.9,45\.\.69\}\.up_proj\.weight"
        self.assertRegex(page.text, r"The other 100 weights.*\s+" + rest)


class Places(PageCase):
    """Where the file may go."""

    def refuse(self, path, code, *mentions, target=None):
        before = model.snapshot(self.dir), model.snapshot(self.shared)
        target = target or self.shared / "f32"
        result = self.fp8q("verify", target, "--reference", self.reference, "--html", path,
                           "--no-gemm", "--json", code=code)  # fmt: skip
        self.assertEqual(result.out, b"")
        self.assertMentions(result, *mentions)
        self.assertEqual((model.snapshot(self.dir), model.snapshot(self.shared)), before)

    def test_never_in_a_checkpoint(self):
        for folder in (self.shared / "f32", self.reference):
            self.refuse(folder / "config.json", 2, "lies in the folder of")
            self.refuse(folder / "new.html", 2, "lies in the folder of")
        (self.dir / "link").symlink_to(self.shared / "f32")
        self.refuse(self.dir / "link" / "new.html", 2, "lies in the folder of")

    def test_never_over_a_shard(self):
        content = {"a.weight": codec.f32_tensor((128, 128), [0.5] * 16384)}
        tensors.write(self.dir / "in.safetensors", content)
        quantized = self.dir / "q.safetensors"
        self.fp8q("convert", self.dir / "in.safetensors", "-o", quantized, "-q", "--include", "*")
        os.link(quantized, self.dir / "other-name")
        for name in ("q.safetensors", "other-name"):
            line = ("verify", quantized, "--html", self.dir / name)
            self.assertMentions(self.fp8q(*line, code=2), "is a file of")
        self.fp8q("verify", quantized, "--html", self.dir / "beside.html", "-q")

    def test_only_regular_files_are_replaced(self):
        (self.dir / "folder").mkdir()
        os.mkfifo(self.dir / "pipe")
        (self.dir / "link").symlink_to("target")
        for name in ("folder", "pipe", "link"):
            self.refuse(self.dir / name, 2, "is no regular file")
        self.refuse(f"{self.dir}/folder/", 2, "names no file")
        self.refuse("", 2, "names no file")
        self.refuse(self.dir / "absent" / "report.html", 4, "does not exist")

    def test_an_older_report_is_replaced_at_the_end(self):
        path = self.dir / "report.html"
        path.write_text("old", encoding="utf-8")
        line = ("verify", self.shared / "f32", "--reference", self.reference, "--html", path)
        result = self.fp8q(*line, "--json", code=4, preexec=limit_file_size)
        self.assertMentions(result, "report.html: cannot be written")
        self.assertEqual((result.out, path.read_text(encoding="utf-8")), (b"", "old"))
        self.assertIn(b"passes", self.fp8q(*line, code=4, preexec=limit_file_size).out)
        self.assertEqual(os.listdir(self.dir), ["report.html"])
        result = self.fp8q(*line, "--quiet")
        self.assertEqual((result.out, os.listdir(self.dir)), (b"", ["report.html"]))
        self.assertIn("passes", path.read_text(encoding="utf-8"))

    def test_a_name_without_a_folder(self):
        self.fp8q("verify", self.shared / "f32", "--html", "here.html", "-q", cwd=self.dir)
        self.assertTrue((self.dir / "here.html").is_file())


if __name__ == "__main__":
    tool.main()
