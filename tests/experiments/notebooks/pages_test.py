#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the pages of the notebooks in a real browser: pages_test.py FOLDER

FOLDER contains the pages that run_notebooks.py --html has written. Without pages or without chromium
the test is skipped (77).
"""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "browser"))
from chromium import Browser, find_chromium  # noqa: E402

SKIPPED = 77
CUT = """
    const cut = [];
    for (const table of document.querySelectorAll('table')) {
      const box = table.closest('.wide, [style*="overflow"]') || document.documentElement;
      if (table.getBoundingClientRect().right > document.documentElement.clientWidth + 1 &&
          box.scrollWidth <= box.clientWidth) cut.push(table.innerText.slice(0, 60));
    }
    return cut;"""
SMALL = """
    return [...document.querySelectorAll('svg text')].filter(t => {
      const box = t.getBoundingClientRect();
      return box.width > 0 && box.height < 7;
    }).map(t => t.textContent).slice(0, 5);"""
BEYOND = """
    const out = [];
    for (const svg of document.querySelectorAll('svg')) {
      const frame = svg.getBoundingClientRect();
      for (const text of svg.querySelectorAll('text')) {
        const box = text.getBoundingClientRect();
        if (box.width > 0 && (box.right > frame.right + 2 || box.left < frame.left - 2 ||
                              box.bottom > frame.bottom + 2)) out.push(text.textContent);
      }
    }
    return out.slice(0, 5);"""


class Pages(unittest.TestCase):
    def look(self, path, width):
        with browser.page(path, width=width) as page:
            self.assertEqual(page.complaints(), [], f"{path.name} asks for other files or complains")
            self.assertGreaterEqual(page.evaluate("document.querySelectorAll('.out svg').length"), 3)
            self.assertGreater(page.evaluate("document.querySelectorAll('.in').length"), 8)
            self.assertEqual(page.evaluate("document.querySelectorAll('.out.error').length"), 0)
            wide = page.evaluate("document.documentElement.scrollWidth")
            self.assertLessEqual(wide, width, f"{path.name} is wider than a window of {width}")
            self.assertEqual(page.evaluate(CUT), [], f"tables of {path.name} are cut")
            self.assertEqual(page.evaluate(BEYOND), [], f"text of figures of {path.name} is cut")
            if width > 600:
                self.assertEqual(page.evaluate(SMALL), [], f"text of figures of {path.name} is tiny")

    def test_every_page(self):
        for path in pages:
            for width in (1000, 400):
                with self.subTest(page=path.name, width=width):
                    self.look(path, width)

    def test_the_checks_find_what_they_look_for(self):
        spoilt = pages[0].read_text().replace("</body>", '<div class="out"><svg width="50" height="20">'
                                              '<text x="40" y="12">far too long a text</text></svg></div>'
                                              '<table style="white-space:nowrap"><tr><td>' + "wide " * 400 +
                                              "</td></tr></table></body>")
        path = pages[0].with_name("spoilt.page.html")
        path.write_text(spoilt)
        try:
            with browser.page(path, width=1000) as page:
                self.assertNotEqual(page.evaluate(BEYOND), [])
                self.assertGreater(page.evaluate("document.documentElement.scrollWidth"), 1000)
        finally:
            path.unlink()


if __name__ == "__main__":
    pages = sorted(pathlib.Path(sys.argv.pop(1)).glob("[0-9]*.html"))
    program = find_chromium()
    if not pages or program is None:
        print(f"skipped: {'chromium is not installed' if pages else 'no notebook has been run here'}")
        sys.exit(SKIPPED)
    with Browser(program) as browser:
        unittest.main()
