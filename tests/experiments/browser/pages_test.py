#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the pages that the program writes in a real browser: pages_test.py PROGRAM ROOT

Opens three pages: report.html of one run, the report of the runs of two configs, and the index of
all runs. Each must have an empty console, visible curves, and a layout that fits a telephone and a
dark screen; search and sorting must work. The last class damages pages on purpose, to show that the
checks notice. Without chromium the test is skipped (77)."""
import pathlib
import subprocess
import sys
import tempfile
import unittest
import urllib.parse

import page_checks as checks
import sample_runs
from chromium import Browser, find_chromium

PROGRAM, ROOT = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
PHONE, DESKTOP = 400, 1200


def setUpModule():
    global folder, browser, run, accuracies
    folder = tempfile.TemporaryDirectory()
    base = pathlib.Path(folder.name)
    run = sample_runs.train(PROGRAM, ROOT, base)
    sample_runs.train(PROGRAM, ROOT, base, "--name", "wider", "optim.lr=0.1")
    call("plot", "runs")
    accuracies = sample_runs.many_runs(run, base / "all")
    call("index", "all")
    browser = Browser(find_chromium())
    browser.__enter__()


def tearDownModule():
    browser.__exit__()
    folder.cleanup()


def call(*words):
    done = subprocess.run([str(PROGRAM), *words], cwd=folder.name, capture_output=True, text=True,
                          timeout=600)
    assert done.returncode == 0, done.stderr


def file_of(name):
    return pathlib.Path(folder.name) / name


class EveryPage(unittest.TestCase):
    """Each page at each size, light and dark."""

    def look(self, check, **look):
        for path in (run / "report.html", file_of("runs/report.html"), file_of("all/index.html")):
            with self.subTest(page=str(path.relative_to(folder.name))):
                with browser.page(path, **look) as page:
                    self.assertEqual(check(page), [])

    def test_nothing_on_the_console_and_no_other_file(self):
        self.look(lambda page: page.complaints())

    def test_a_telephone_does_not_scroll_sideways(self):
        self.look(lambda page: checks.overflow(page, PHONE), width=PHONE)

    def test_a_telephone_shows_the_first_figure_on_its_first_screens(self):
        self.look(lambda page: checks.late(page, "figure, table", 1000), width=PHONE)

    def test_letters_are_large_enough_on_a_telephone(self):
        self.look(checks.small_letters, width=PHONE)

    def test_letters_are_large_enough_on_a_desk(self):
        self.look(checks.small_letters, width=DESKTOP)

    def test_a_desk_does_not_scroll_sideways(self):
        self.look(lambda page: checks.overflow(page, DESKTOP), width=DESKTOP)

    def test_text_stands_out_in_the_light(self):
        self.look(checks.weak_contrast)

    def test_text_stands_out_in_the_dark(self):
        self.look(checks.weak_contrast, dark=True)

    def test_headings_names_and_links(self):
        self.look(checks.structure)


class Report(unittest.TestCase):
    def test_the_curves_of_a_run_are_seen(self):
        for name in ("train", "test"):
            with browser.page(run / "report.html") as page:
                self.assertEqual(checks.unseen_curves(page, name, 2), [])

    def test_the_curves_of_two_configs_are_seen(self):
        for name in ("quickstart", "wider"):
            with browser.page(file_of("runs/report.html")) as page:
                lines = page.evaluate(checks.CURVE.replace("NAME", repr(name)))
                self.assertGreaterEqual(len(lines), 2)
                self.assertEqual(checks.unseen_curves(page, name, len(lines)), [])

    def test_the_facts_stand_on_the_first_screen(self):
        with browser.page(run / "report.html", height=900) as page:
            seen = page.evaluate("""
                return [...document.querySelectorAll(".state,.facts dd")]
                  .filter(e => e.getBoundingClientRect().bottom <= innerHeight)
                  .map(e => e.textContent).join("; ");
                """)
        for text in ("DONE", "lenet5", "synthetic_digits", "cpu", "thread", "%", "ms", "images/s"):
            self.assertIn(text, seen)

    def test_a_dark_page_is_dark_and_so_are_its_figures(self):
        with browser.page(run / "report.html", dark=True) as page:
            corner = page.evaluate("""
                const box = document.querySelector("#curves svg").getBoundingClientRect();
                return {x: box.x + scrollX, y: box.y + scrollY};""")
            picture = page.screenshot(clip=dict(corner, width=500, height=300))
        bright = browser.count_pixels(picture, "r + g + b > 600")
        self.assertLess(bright, 0.1 * 500 * 300)
        self.assertGreater(bright, 100)  # letters


VISIBLE = "return [...document.querySelectorAll('#runs tbody tr')].filter(r => !r.hidden)"


class Index(unittest.TestCase):
    def setUp(self):
        self.page = browser.page(file_of("all/index.html"))
        self.addCleanup(self.page.__exit__)

    def found(self, query):
        self.page.evaluate(f"""
            const box = document.getElementById("search");
            box.value = {query!r}; box.dispatchEvent(new Event("input")); return 0;""")
        return self.page.evaluate(VISIBLE + ".map(r => r.cells[0].textContent)")

    def test_names_and_notes_of_users_are_text(self):
        self.assertIsNone(self.page.evaluate("window.hacked ?? null"))
        text = self.page.evaluate("document.getElementById('runs').innerText")
        self.assertIn(sample_runs.HOSTILE, text)
        elements = self.page.evaluate("document.querySelectorAll('#runs script,img').length")
        self.assertEqual(elements, 0)

    def count(self):
        return self.page.evaluate("document.getElementById('count').textContent")

    def test_all_runs_are_listed_and_counted(self):
        self.assertEqual(len(self.found("")), 6)
        self.assertEqual(self.count(), "6 runs")

    def test_a_word_is_searched_everywhere(self):
        self.assertEqual(len(self.found("BETA")), 1)
        self.assertEqual(len(self.found("two words")), 1)
        self.assertEqual(len(self.found("beta gamma")), 0)
        self.assertEqual(len(self.found("-beta")), 5)
        self.assertEqual(len(self.found("not finite")), 1)  # the reason why a run failed
        self.found("beta")
        self.assertEqual(self.count(), "1 of 6 runs")

    def test_a_key_is_searched_in_its_column_or_setting(self):
        for query, count in (("state:failed", 1), ("reason:finite", 1), ("tag:first", 4),
                             ("lr:0.02", 1), ("optim.lr:0.03", 1), ("name:first", 0),
                             ("acc>98", 2), ("acc<10", 1),
                             ('note:"two words"', 1), ("model:lenet5 -state:failed", 4),
                             ("project:changes", 1), ("nothing:here", 0), ("lr>0.015", 4)):
            with self.subTest(query):
                self.assertEqual(len(self.found(query)), count)

    def column(self, key):
        return self.page.evaluate(f"""
            const at = [...document.querySelectorAll("#runs thead th")].findIndex(h =>
              h.dataset.k === "{key}");
            return [...document.querySelectorAll("#runs tbody tr")].map(r =>
              r.cells[at].textContent);
            """)

    def click(self, key):
        self.page.evaluate(f"document.querySelector('#runs th[data-k={key}] button').click()")

    def test_a_click_sorts_numbers_as_numbers(self):
        expected = [f"{value:.2f}" for value in sorted(accuracies, reverse=True)]
        self.click("acc")
        self.assertEqual(self.column("acc"), expected + ["", ""])
        self.click("acc")
        self.assertEqual(self.column("acc"), expected[::-1] + ["", ""])
        self.assertEqual(
            self.page.evaluate("document.querySelector('th[data-k=acc]').ariaSort"), "ascending")

    def test_a_click_sorts_words(self):
        self.click("name")
        names = [name.lower() for name in self.column("name")]
        self.assertLess(names.index(next(n for n in names if "alpha" in n)),
                        names.index(next(n for n in names if "gamma" in n)))

    def test_of_many_runs_the_first_are_drawn_and_the_others_on_demand(self):
        text = file_of("all/index.html").read_text()
        self.assertIn("const most = 200;", text)
        file_of("all/few.html").write_text(text.replace("const most = 200;", "const most = 2;"))
        self.page = browser.page(file_of("all/few.html"))
        self.addCleanup(self.page.__exit__)
        self.assertEqual(len(self.found("")), 2)
        self.assertEqual(self.count(), "6 runs")
        self.click("acc")
        rows = self.page.evaluate(VISIBLE + ".map(r => r.innerText)")
        self.assertTrue("100.00" in rows[0] and "98.25" in rows[1], rows)
        self.page.evaluate("document.getElementById('more').click()")
        self.assertEqual(len(self.page.evaluate(VISIBLE + ".map(r => r.innerText)")), 6)
        self.assertTrue(self.page.evaluate("document.getElementById('more').hidden"))
        self.assertEqual(len(self.found("tag:first")), 2)

    def test_links_lead_to_the_reports(self):
        links = self.page.evaluate(
            "return [...document.querySelectorAll('#runs a')].map(a => a.href);")
        self.assertEqual(len(links), 5)
        for link in links:
            path = pathlib.Path(urllib.parse.unquote(urllib.parse.urlparse(link).path))
            self.assertTrue(path.is_file(), link)

    def test_a_run_that_cannot_be_read_says_why(self):
        rows = self.page.evaluate(VISIBLE + ".map(r => r.innerText)")
        row = [text for text in rows if "broken" in text]
        self.assertEqual(len(row), 1)
        self.assertIn("status.json is missing", row[0])

    def test_each_run_with_epochs_has_its_curve(self):
        curves = self.page.evaluate("document.querySelectorAll('.spark polyline').length")
        self.assertEqual(curves, 4)

    def test_without_a_script_it_is_a_plain_table(self):
        with browser.page(file_of("all/index.html"), script=False) as page:
            root = page.call("DOM.getDocument", depth=-1)["root"]["nodeId"]

            def nodes(selector):
                return page.call("DOM.querySelectorAll", nodeId=root,
                                 selector=selector)["nodeIds"]

            def height(node):  # raises an error when it is not drawn
                return page.call("DOM.getBoxModel", nodeId=node)["model"]["height"]

            rows = nodes("#runs tbody tr")
            self.assertEqual(len(rows), 6)
            for row in rows:
                self.assertGreater(height(row), 10)
            self.assertEqual(nodes("#runs button"), [])
            with self.assertRaises(RuntimeError):
                height(nodes("#finder")[0])


class TheChecksThemselves(unittest.TestCase):
    """Pages that are damaged on purpose."""

    def spoiled(self, old, new, **look):
        text = (run / "report.html").read_text()
        self.assertIn(old, text)
        path = file_of("spoiled.html")
        path.write_text(text.replace(old, new, 1))
        page = browser.page(path, **look)
        self.addCleanup(page.__exit__)
        return page

    def test_they_see_a_hidden_curve(self):
        for style in ("#curves path{display:none}", "#curves path{opacity:0}",
                      "#curves svg{filter:grayscale(1)}", ".plot{visibility:hidden}"):
            page = self.spoiled("</style>", style + "</style>")
            self.assertEqual(len(checks.unseen_curves(page, "test", 2)), 2, style)

    def test_they_see_a_missing_curve(self):
        page = self.spoiled("<title>test</title>", "<title>tset</title>")
        self.assertEqual(len(checks.unseen_curves(page, "test", 2)), 1)

    def test_they_see_an_error_and_a_request(self):
        policy = "default-src 'none'; "
        page = self.spoiled(policy, "")
        page.evaluate("console.error('spoiled')")
        self.assertEqual(len(page.complaints()), 1)
        page = self.spoiled("<main>", '<main><img src="other.png" alt="">')
        self.assertTrue(page.complaints())

    def test_they_see_what_is_too_wide_or_too_small(self):
        wide, small = '<div style="width:500px">.</div>', '<p style="font-size:9px">small</p>'
        page = self.spoiled("<main>", "<main>" + wide, width=PHONE)
        self.assertEqual(len(checks.overflow(page, PHONE)), 1)
        page = self.spoiled("<main>", "<main>" + small, width=PHONE)
        self.assertEqual(len(checks.small_letters(page)), 1)
        page = self.spoiled("min-width:1152px", "min-width:0", width=PHONE)
        self.assertGreater(len(checks.small_letters(page)), 10)

    def test_they_see_what_cannot_be_told_from_the_ground(self):
        grey = '<p style="color:#888;background:#999">grey</p>'
        page = self.spoiled("<main>", "<main>" + grey)
        self.assertEqual(len(checks.weak_contrast(page)), 1)

    def test_they_see_what_a_reader_without_eyes_misses(self):
        self.assertEqual(len(checks.structure(self.spoiled('<html lang="en">', "<html>"))), 1)
        self.assertEqual(len(checks.structure(self.spoiled('role="img"', 'role="none"'))), 1)
        self.assertEqual(len(checks.structure(self.spoiled('id="layer-table"', 'id="leyer-table"'))), 1)


if __name__ == "__main__":
    if find_chromium() is None:
        print("skipped: no chromium on this machine (CONVSCOPE_CHROMIUM names one elsewhere)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
