#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that a headless run of a wrong notebook fails and names the cell."""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
NOTEBOOKS = ROOT / "experiments/notebooks"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import course_test  # noqa: E402


def cell(source, *tags, kind="code"):
    out = {"cell_type": kind, "id": f"id-{abs(hash(source)) % 10**8}", "metadata": {"tags": list(tags)},
           "source": source.splitlines(keepends=True)}
    return {**out, "outputs": [], "execution_count": None} if kind == "code" else out


def notebook(*cells):
    return {"cells": list(cells), "metadata": {"kernelspec": {"name": "xcpp20", "display_name": "C++20"}},
            "nbformat": 4, "nbformat_minor": 5}


SET_UP = cell(course_test.SET_UP)


class Headless(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.folder.cleanup()

    def run_notebook(self, made, *options):
        path = pathlib.Path(self.folder.name) / "99_planted.ipynb"
        path.write_text(json.dumps(made))
        return subprocess.run([sys.executable, str(NOTEBOOKS / "run_notebooks.py"), *options, str(path)],
                              capture_output=True, text=True, timeout=300)

    def fails(self, made, *words, options=()):
        done = self.run_notebook(made, *options)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("FAILED  99_planted.ipynb", done.stdout)
        for word in words:
            self.assertIn(word, done.stdout)

    def test_a_good_one_ends_with_0_and_makes_a_page(self):
        made = notebook(cell("# A title", kind="markdown"), SET_UP,
                        cell("show(Figure{.title = \"a figure\"});\n1 + 1"))
        pages = pathlib.Path(self.folder.name) / "pages"
        done = self.run_notebook(made, "--html", str(pages), "--times")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        page = (pages / "99_planted.html").read_text()
        for part in ("<h1", "<svg", "a figure", "(int) 2"):
            self.assertIn(part, page)

    def test_a_cell_that_does_not_compile(self):
        self.fails(notebook(SET_UP, cell("int a = 1;\nint b = nothing_here;"), cell("1")),
                   "a cell failed with compile error", "line 2: error: use of undeclared identifier")

    def test_a_cell_that_throws(self):
        self.fails(notebook(SET_UP, cell('expect(1 + 1 == 3, "one and one are three");')),
                   "a cell failed with exception", "one and one are three")

    def test_a_convolution_that_is_wrong(self):
        self.fails(notebook(SET_UP, cell("Tensor wrong(const Conv2dProblem& z, const Tensor&, const Tensor&) {\n"
                                         "  return Tensor::zeros(z.y_shape());\n}\n"
                                         'check_conv2d("wrong", wrong, {"h=5,w=5,r=3,s=3"});')),
                   "[wrong]", "h=5,w=5")

    def test_a_cell_that_ends_the_process(self):
        self.fails(notebook(SET_UP, cell("_exit(3);")), "died")

    def test_a_mistake_in_the_course_itself(self):
        for name, function, right, wrong, words in (
                ("01_what_a_convolution_is", "Tensor seven_loops(", "* w(k, c, r, s)", "* w(k, c, s, r)",
                 "[seven_loops]"),
                ("13_samples_that_move", "Tensor by_samples(", "offset(n, 2 * tap + 1, p, q)",
                 "offset(n, 2 * tap, p, q)", "by_samples should agree with reference"),
                ("13_samples_that_move", "ReadPoint slopes(", "lower_left - upper_left",
                 "upper_left - lower_left", "the gradient of the offsets should be"),
                ("14_where_nothing_is", "Tensor by_taps(", "sum += w[", "sum -= w[",
                 "by_taps should agree with reference"),
                ("14_where_nothing_is", "neighbours_of(const SparseSites& sites) {", "tap % 3 - 1", "tap % 3",
                 "both maps should be the same"),
                ("15_three_ways_to_transpose", "Tensor flipped(", "z.r - 1 - r", "r",
                 "by_zeros should agree with the gradient")):
            made = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())
            at = next(i for i, one in enumerate(made["cells"])
                      if one["cell_type"] == "code" and function in "".join(one["source"]))
            planted = copy.deepcopy(made)
            planted["cells"][at]["source"] = [line.replace(right, wrong)
                                              for line in made["cells"][at]["source"]]
            with self.subTest(notebook=name, function=function):
                self.assertNotEqual(planted, made)
                self.fails(planted, words)

    def test_exercises_say_not_yet_and_solutions_right(self):
        exercise = [cell("int one() { return 2; }", "exercise-1"),
                    cell("void check_one() { expect(one() == 1, \"one is 1\"); }\n"
                         "exercise(\"exercise 1\", check_one);", "check-1"),
                    cell("```cpp\nint one() { return 1; }\n```", "solution-1", kind="markdown")]
        good = notebook(SET_UP, *exercise)
        for options in ((), ("--solutions",), ("--both",)):
            done = self.run_notebook(good, *options)
            self.assertEqual(done.returncode, 0, done.stdout)
        solved = copy.deepcopy(good)
        solved["cells"][1]["source"] = ["int one() { return 1; }"]
        self.fails(solved, "expected its check to say 'not yet'")
        wrong = copy.deepcopy(good)
        wrong["cells"][3]["source"] = ["```cpp\nint one() { return 7; }\n```"]
        for option in ("--solutions", "--both"):
            self.fails(wrong, "expected its check to say 'right'", options=(option,))

    def test_a_slow_one(self):
        self.fails(notebook(cell("volatile double s = 0;\nfor (long i = 0; i < 200000000; ++i) s = s + 1;")),
                   "expected at most 0.1 s of processor time", options=("--limit", "0.1"))

    def test_clean_takes_outputs_out(self):
        made = notebook(SET_UP)
        made["cells"][0]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["x"]}]
        made["cells"][0]["execution_count"] = 3
        self.assertEqual(self.run_notebook(made, "--clean").returncode, 0)
        after = json.loads((pathlib.Path(self.folder.name) / "99_planted.ipynb").read_text())
        self.assertEqual((after["cells"][0]["outputs"], after["cells"][0]["execution_count"]), ([], None))


class Form(unittest.TestCase):
    """course_test.py finds the errors that it should find."""

    def test_each_rule(self):
        path = NOTEBOOKS / "04_winograd.ipynb"
        good = json.loads(path.read_text())
        self.assertEqual(course_test.problems_of(path.stem, good), [])

        def spoilt(change):
            made = copy.deepcopy(good)
            change(made)
            return "\n".join(course_test.problems_of(path.stem, made))

        code = [i for i, one in enumerate(good["cells"]) if one["cell_type"] == "code"]
        for change, words in (
                (lambda m: m["cells"][code[2]].update(execution_count=1), "no outputs in git"),
                (lambda m: m["cells"][code[2]].update(source=["int a;\n"] * 40), "at most 30 lines"),
                (lambda m: m["cells"][code[2]].update(source=["x" * 120]), "at most 98 columns"),
                (lambda m: m["cells"][code[0]].update(source=["using namespace convscope;"]), "first code cell"),
                (lambda m: m["cells"][0].update(source=["# Winograd"]), "Question"),
                (lambda m: m["cells"].pop(), "## Read next"),
                (lambda m: m["metadata"]["kernelspec"].update(name="python3"), "xcpp20"),
                (lambda m: [c["metadata"].clear() for c in m["cells"]], "exercise-1")):
            self.assertIn(words, spoilt(change))


if __name__ == "__main__":
    unittest.main()
