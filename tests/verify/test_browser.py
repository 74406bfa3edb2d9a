"""The page of verify --html in a browser, as people have it: on a phone and on a desk, light and
dark, without scripts and on paper. FP8Q_SCREENSHOTS names a folder that keeps pictures of it."""

import os
import sys
from pathlib import Path

from checkpoints import DOWN, Q, SCALE, UP, Case, edit_config, read, write
from support import browser, tool

WIDTHS = (390, 1280)
LEAST_CONTRAST = 4.5  # of text, by WCAG 2 AA
# The least contrast of a text with what lies behind it, and where.
CONTRAST = """
(() => {
  const light = text => {
    const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map(v => v / 255)
      .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const behind = element => {
    for (; element; element = element.parentElement) {
      const color = getComputedStyle(element).backgroundColor;
      if (!color.endsWith(", 0)")) return light(color);
    }
    return 1;
  };
  let worst = [99, ""];
  for (const element of document.querySelectorAll("body *:not(svg, svg *, script)")) {
    if (![...element.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    const [a, b] = [light(getComputedStyle(element).color), behind(element)];
    const contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (contrast < worst[0]) worst = [contrast, element.outerHTML.slice(0, 80)];
  }
  return worst;
})()
"""
# Elements that stick out of the window, those of a table that scrolls by itself aside.
WIDE = """
[...document.querySelectorAll("body *:not(.scroll *)")].filter(element => {
  const box = element.getBoundingClientRect();
  return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
}).map(element => element.outerHTML.slice(0, 80))
"""
SCROLL_WIDTH = "document.documentElement.scrollWidth"
GROUND = "getComputedStyle(document.body).backgroundColor"
ROWS = "[...document.querySelectorAll('#weights tbody tr:not([hidden])')]"
FIRST_CELLS = f"{ROWS}.map(row => row.cells[0].firstChild.textContent)"


class Browser(Case):
    """A good page and a bad one."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.__exit__)

    def pages(self):
        good, bad = self.dir / "good.html", self.dir / "bad.html"
        self.verify(self.shared / "f32", "--html", good)
        folder = self.copy()
        for name, place, value in ((DOWN, 9, 0x7F), (Q, 0, 0x11), (UP + SCALE, 3, 0x50)):
            data = read(folder, name)
            data[place] = value
            write(folder, name, data)
        edit_config(folder, lambda config: config.pop("weight_block_size"))
        self.verify(folder, "--html", bad, code=1)
        return good, bad

    def keep_screenshot(self, name):
        path = Path(os.environ.get("FP8Q_SCREENSHOTS", self.dir)) / name
        self.browser.screenshot(path)
        self.assertTrue(path.read_bytes().startswith(b"\x89PNG"))

    def test_fits_and_can_be_read(self):
        for path in self.pages():
            for width in WIDTHS:
                grounds = set()
                for dark in (False, True):
                    name = f"{path.stem}-{width}-{'dark' if dark else 'light'}.png"
                    self.browser.show(width, dark)
                    self.browser.open(path)
                    self.assertEqual(self.browser.value("innerWidth"), width, name)
                    self.assertLessEqual(self.browser.value(SCROLL_WIDTH), width, name)
                    self.assertEqual(self.browser.value(WIDE), [], name)
                    contrast = self.browser.value(CONTRAST)
                    self.assertGreaterEqual(contrast[0], LEAST_CONTRAST, (name, contrast))
                    grounds.add(self.browser.value(GROUND))
                    self.assertEqual(self.browser.requests, [path.resolve().as_uri()], name)
                    self.assertEqual(self.browser.errors, [], name)
                    self.keep_screenshot(name)
                self.assertEqual(len(grounds), 2, "light and dark differ")

    def test_without_scripts(self):
        for path in self.pages():
            self.browser.show(WIDTHS[1], scripts=False)
            self.browser.open(path)
            self.browser.show(WIDTHS[1])  # for the questions alone: the page has been built
            controls = self.browser.value("document.querySelectorAll('button, input').length")
            self.assertEqual(controls, 0)
            self.assertEqual(len(self.browser.value(FIRST_CELLS)), 6)

    def test_sorts_and_finds(self):
        self.browser.show(WIDTHS[1])
        self.browser.open(self.pages()[0])
        column = f"{ROWS}.map(row => row.cells[4].textContent)"
        button = "document.querySelectorAll('#weights th button')"
        for expected in (True, False):
            self.browser.value(f"{button}[4].click()")
            figures = [float(text) for text in self.browser.value(column)]
            self.assertEqual(figures, sorted(figures, reverse=expected))
        self.browser.value(f"{button}[0].click()")
        names = self.browser.value(FIRST_CELLS)
        self.assertEqual(names, sorted(names))
        self.browser.value("""(() => {
          const input = document.querySelector("#weights input");
          input.value = "down_proj";
          input.dispatchEvent(new Event("input"));
        })()""")
        self.assertEqual(self.browser.value(FIRST_CELLS), [DOWN])

    def test_is_printed_whole(self):
        self.browser.show(WIDTHS[1])
        self.browser.open(self.pages()[1])
        path = Path(os.environ.get("FP8Q_SCREENSHOTS", self.dir)) / "bad.pdf"
        self.browser.print_pdf(path)
        self.assertTrue(path.read_bytes().startswith(b"%PDF"))


if __name__ == "__main__":
    if not browser.find():
        print("skipped: there is no Chromium")
        sys.exit(tool.SKIPPED)
    tool.main()
