#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the pages of `convscope look` in a real browser: look_test.py PROGRAM

Tests every lesson in every direction. The page must end with the result of the seven nested loops. Back
steps and the slider restore earlier states, a second computation confirms the cache counts, and marked
lines contain code. The last class damages pages on purpose, to show that the checks notice. Without
chromium the test is skipped (77).
"""
import html
import itertools
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

import look_checks
import page_checks
from chromium import Browser, find_chromium

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
PHONE, DESKTOP = 390, 1200
FIRST_SCREEN = 700  # the picture begins above this height, on every screen
DIRECTIONS = ("forward", "backward_data", "backward_weight")


def setUpModule():
    global folder, browser, pages
    folder = tempfile.TemporaryDirectory()
    names = re.search(r"with a lesson: ([\w, ]+)\)", call("look", "nothing").stderr).group(1)
    pages = {}
    for name in names.split(", "):
        for direction in DIRECTIONS if name != "int8" else DIRECTIONS[:1]:
            page = f"{name}-{direction}.html"
            done = call("look", name, "--direction", direction, "-o", page)
            assert done.returncode == 0, done.stderr
            pages[name, direction] = pathlib.Path(folder.name) / page
    browser = Browser(find_chromium())
    browser.__enter__()


def tearDownModule():
    browser.__exit__()
    folder.cleanup()


def call(*words):
    return subprocess.run([str(PROGRAM), *words], cwd=folder.name, capture_output=True, text=True,
                          timeout=600)


def console_problems(page):
    """Returns the messages on the console, and requests for other files."""
    return page.complaints()


class EveryLesson(unittest.TestCase):
    def test_there_are_pages_of_all_folders_with_a_lesson(self):
        self.assertLessEqual({"direct", "im2col_gemm", "gemm_1x1", "winograd", "fft", "depthwise",
                              "implicit_gemm", "block_sparse", "int8"}, {name for name, _ in pages})

    def test_replay_lines_result_cache_and_console(self):
        # Opening a page takes longer than checking it, so all checks share one visit. Each check
        # moves to the state that it needs; the console is read last.
        for (name, direction), path in pages.items():
            checks = [look_checks.replay_problems, look_checks.line_problems]
            if name != "int8":
                checks.append(look_checks.end_problems)
            if direction == DIRECTIONS[0]:
                checks.append(look_checks.cache_problems)
            with browser.page(path) as page:
                for check in [*checks, console_problems]:
                    with self.subTest(page=path.name, check=check.__name__):
                        self.assertEqual(check(page), [])

    def test_they_are_legible_on_a_telephone_and_on_a_desk(self):
        for (_, direction), path in pages.items():
            for width, dark in itertools.product((PHONE, DESKTOP), (False, True)):
                if direction != DIRECTIONS[0]:
                    continue
                with self.subTest(page=path.name, width=width, dark=dark), \
                        browser.page(path, width=width, dark=dark) as page:
                    look_checks.go(page, 700)
                    self.assertEqual(page_checks.small_letters(page) + page_checks.weak_contrast(page) +
                                     page_checks.structure(page) + page_checks.overflow(page, width) +
                                     page_checks.late(page, "#arrays", FIRST_SCREEN), [])


class Int8(unittest.TestCase):
    def test_the_sums_are_exact_and_the_lanes_behind_the_last_channel_are_0(self):
        with browser.page(pages["int8", "forward"]) as page:
            data = look_checks.data_of(page)
            events = page.evaluate(look_checks.EVENTS)
        z = look_checks.sizes_of(data["problem"])
        start = {array["name"]: array["start"] for array in data["arrays"]}
        which = [array["name"] for array in data["arrays"]].index("y")
        sums = {}
        for x, w, y in look_checks.products_of(z):
            plane, pixel = divmod(x, z["h"] * z["w"])
            number = start["x"][pixel * 16 + plane]  # one block of 16 channels, one image
            sums[y] = sums.get(y, 0) + number * start["w"][w]
        written = [i for i, event in enumerate(events) if event[:2] == [look_checks.WRITE, which]]
        written = written[z["p"] * z["q"] * 16:]  # without y = 0
        self.assertEqual(len(written), len(sums))
        for i in written:
            pixel, k = divmod(events[i][2], 16)
            before = [event[3] for event in events[i - 2:i]]  # the sum of integers, the real one
            self.assertEqual(before[0], sums[k * z["p"] * z["q"] + pixel])


class Playing(unittest.TestCase):
    def open(self, name, direction="forward"):
        page = browser.page(pages[name, direction])
        self.addCleanup(page.__exit__)
        return page

    def text(self, page, name):
        return page.evaluate(f"document.getElementById('{name}').innerText").replace("\u202f", "")

    def test_play_runs_to_the_end_and_pauses(self):
        page = self.open("gemm_1x1")
        page.evaluate("document.getElementById('speed').value = '512'; 0")
        look_checks.click(page, "play")
        self.assertEqual(self.text(page, "play"), "Pause")
        total, deadline = look_checks.data_of(page)["total"], time.monotonic() + 60
        while page.evaluate("look.at") < total and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertEqual(page.evaluate("look.at"), total)
        self.assertEqual(self.text(page, "play"), "Play")
        self.assertEqual(look_checks.end_problems(page), [])

    def test_the_first_product_is_told_in_words(self):
        page = self.open("gemm_1x1")
        seen = []
        for _ in range(4):
            look_checks.click(page, "step")
            seen.append(self.text(page, "now"))
        self.assertEqual(seen[0], "Step: y = w x + b")
        self.assertRegex(seen[1], r"^Reads w\[0,0,0,0\]|^Reads w\[0,0,0\]")
        self.assertRegex(seen[2], r"^Reads x\[0,0,0,0\]")
        self.assertRegex(seen[3], r"^The sum is now -?\d+\.$")
        self.assertIn("1 of 192", self.text(page, "products"))

    def test_counts_stand_beside_those_of_the_textbook(self):
        for name, products, textbook in (("direct", 676, 900), ("winograd", 256, 576),
                                         ("im2col_gemm", 486, 486), ("block_sparse", 216, 648)):
            page = self.open(name)
            look_checks.click(page, "end")
            self.assertIn(f"{products} of {products}", self.text(page, "products"), name)
            self.assertIn(str(textbook), self.text(page, "textbook"), name)

    def test_a_step_of_the_lesson_is_reached_by_its_name(self):
        page = self.open("winograd")
        names = page.evaluate("look.data.steps")
        for name in names[::-1]:
            page.evaluate(f"[...document.querySelectorAll('#steps button')]"
                          f".find(b => b.textContent.startsWith({name!r})).click()")
            self.assertTrue(self.text(page, "now").startswith("Step: " + name))
            current = page.evaluate("document.querySelectorAll('#steps [aria-current=true]').length")
            self.assertEqual(current, 1)

    def key(self, page, name):
        page.evaluate(f"document.body.dispatchEvent(new KeyboardEvent('keydown', "
                      f"{{key: {name!r}, bubbles: true}}))")

    def test_keys_move_it(self):
        page = self.open("winograd")
        total = look_checks.data_of(page)["total"]
        for name, at in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", total),
                         ("Home", 0), ("n", 1)):
            self.key(page, name)
            self.assertEqual(page.evaluate("look.at"), at, name)
        self.key(page, "n")
        second = page.evaluate("look.at")
        self.assertTrue(self.text(page, "now").startswith("Step: V ="))
        self.key(page, "End")
        for _ in range(100):
            self.key(page, "p")
            if page.evaluate("look.at") <= second:
                break
        self.assertEqual(page.evaluate("look.at"), second)

    def test_a_click_on_a_number_tells_its_place(self):
        page = self.open("direct")
        look_checks.click(page, "end")
        page.evaluate("look.arrays[0].cells[6].box.click()")
        self.assertRegex(self.text(page, "cell"),
                         r"^x\[0,0,1,1\] = -?\d, read 18 times, written never$")

    def test_a_block_of_a_gpu_names_its_thread(self):
        page = self.open("implicit_gemm")
        events = page.evaluate(look_checks.EVENTS)
        arrays = look_checks.data_of(page)["arrays"]
        tile = next(i for i, array in enumerate(arrays)
                    if (array["name"], array["lies"]) == ("b", "shared memory"))
        loads = [i for i, event in enumerate(events) if event[:2] == [look_checks.WRITE, tile]]
        look_checks.go(page, loads[37] + 1)
        self.assertEqual(self.text(page, "thread"), "(2, 5)")
        self.assertFalse(page.evaluate("document.getElementById('threads').hidden"))

    def test_in_a_frame_it_plays_as_in_a_notebook(self):
        path = pathlib.Path(folder.name) / "notebook.html"
        inner = html.escape(pages["direct", "forward"].read_text())
        path.write_text(f'<!doctype html><html lang="en"><h1>cell</h1>'
                        f'<iframe title="t" style="width:100%;height:700px" srcdoc="{inner}"></iframe>')
        with browser.page(path) as page:
            self.assertEqual(page.evaluate("""
                const inner = document.querySelector("iframe").contentWindow;
                inner.document.getElementById("end").click();
                return inner.look.at === inner.look.total && inner.look.total > 0;"""), True)
            self.assertEqual(page.complaints(), [])

    def test_without_a_script_it_says_so(self):
        with browser.page(pages["direct", "forward"], script=False) as page:
            root = page.call("DOM.getDocument", depth=-1)["root"]["nodeId"]
            note = page.call("DOM.querySelector", nodeId=root, selector="noscript p")["nodeId"]
            self.assertGreater(page.call("DOM.getBoxModel", nodeId=note)["model"]["height"], 10)


class TheChecksThemselves(unittest.TestCase):
    """Pages that are damaged on purpose."""

    def spoiled(self, old, new, name="gemm_1x1"):
        text = pages[name, "forward"].read_text()
        self.assertIn(old, text)
        path = pathlib.Path(folder.name) / "spoiled.html"
        path.write_text(text.replace(old, new, 1))
        page = browser.page(path)
        self.addCleanup(page.__exit__)
        return page

    def test_they_see_a_way_back_that_leaves_something(self):
        for old, new in (("--writes;\n    --array.writes[element];\n    array.values[element] = "
                          "before[i];", "--writes;\n    --array.writes[element];"),
                         ("--array.reads[element];", ""), ("    --reads;", ""),
                         ("undo(--at)", "undo(at--)"),
                         ("if (cache.at > target) emptyCache();", "")):
            self.assertTrue(look_checks.replay_problems(self.spoiled(old, new)), old)

    def test_they_see_a_wrong_result(self):
        for old, new in (("array.values[element] = value[i];\n  }\n}",
                          "array.values[element] = value[i] + 1;\n  }\n}"),
                         ("cell.box.textContent = cell.text = text", "cell.text = text")):
            self.assertTrue(look_checks.end_problems(self.spoiled(old, new)), old)

    def test_they_see_a_record_that_does_not_fit(self):
        page = self.spoiled("start[i] = Math.fround(number);", "start[i] = number + (i === 0);")
        self.assertTrue(look_checks.replay_problems(page))
        self.assertFalse(page.evaluate("document.getElementById('wrong').hidden"))

    def test_they_see_a_cache_that_throws_out_another_line(self):
        for old, new in (("set.shift()", "set.pop()"), ("set.splice(found, 1);", ""),
                         ("line % cache.sets.length", "0"), ("++cache.hits;", "")):
            self.assertTrue(look_checks.cache_problems(self.spoiled(old, new, "direct")), old)

    def test_they_see_a_wrong_line(self):
        page = self.spoiled("code.children[line - 1]", "code.children[line]")
        self.assertTrue(look_checks.line_problems(page))
        page = self.spoiled("code.scrollTop +=", "code.scrollLeft +=", "winograd")
        self.assertTrue(look_checks.line_problems(page))


if __name__ == "__main__":
    if find_chromium() is None:
        print("skipped: no chromium on this machine (CONVSCOPE_CHROMIUM names one elsewhere)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
