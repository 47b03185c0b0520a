# SPDX-License-Identifier: Apache-2.0
"""Tests that the Python module and the command line give the same algorithms, explanations and run
tables."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

import numpy as np

import convscope

PROGRAM = pathlib.Path(os.environ.get("CONVSCOPE_PROGRAM",
                                      pathlib.Path(convscope.__file__).parent / "bin" / "convscope"))
HAS_PANDAS = importlib.util.find_spec("pandas") is not None


def program(*words):
    done = subprocess.run([str(PROGRAM), *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{words}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


class Algorithms(unittest.TestCase):
    def test_lists_the_algorithms(self):
        found = convscope.algorithms(device="cpu")
        self.assertIn("winograd_f4x3", found.names())
        one = found["im2col_gemm"]
        self.assertEqual((one.device, one.operation, one.auto), ("cpu", "conv2d", True))
        self.assertEqual(one.directions, ("forward", "backward_data", "backward_weight"))
        self.assertFalse(found["reference"].auto)
        self.assertIn("deform_reference", " ".join(
            "deform_" + name for name in convscope.algorithms(operation="deform_conv2d").names()))
        self.assertTrue(convscope.algorithms(operation="sparse_conv"))
        with self.assertRaises(KeyError):
            found["nothing"]

    def test_says_why_an_algorithm_refuses(self):
        x, w = np.ones((1, 3, 8, 8), np.float32), np.ones((4, 3, 3, 3), np.float32)
        found = convscope.algorithms(x, w, stride=2)
        self.assertIn("stride", found["winograd_f4x3"].refusals["forward"])
        self.assertFalse(found["winograd_f4x3"].accepts)
        self.assertTrue(found["direct"].accepts)
        self.assertGreater(found["direct"].estimated_ms["forward"], 0)
        by_sizes = convscope.algorithms(x.shape, w.shape, stride=2)
        by_text = convscope.algorithms("n=1,c=3,h=8,w=8,k=4,r=3,s=3,stride=2")
        self.assertEqual(found, by_sizes)
        self.assertEqual(found, by_text)

    def test_shows_a_table(self):
        found = convscope.algorithms(device="cpu")
        self.assertEqual(repr(found).count("\n"), len(found))
        self.assertEqual(found._repr_html_().count("<tr>"), len(found) + 1)
        xml.fromstring(found._repr_html_())

    @unittest.skipUnless(HAS_PANDAS, "pandas is not installed")
    def test_is_a_frame(self):
        frame = convscope.algorithms().frame()
        self.assertIn("direct", set(frame["name"]))


class Explain(unittest.TestCase):
    def test_of_a_problem(self):
        text = convscope.explain((1, 3, 8, 8), (4, 3, 3, 3), stride=2, algorithm="fft")
        self.assertIn("conv2d  n=1,c=3,h=8,w=8,k=4,r=3,s=3,stride=2", text)
        self.assertIn("! fft", text)
        self.assertIn("im2col_gemm", text)
        chosen = convscope.explain("n=1,c=3,h=8,w=8,k=4,r=3,s=3", algorithm="direct")
        self.assertIn("forward (direct): runs direct, on cpu", chosen)
        self.assertIn("* direct", chosen)
        self.assertEqual(repr(text), str(text))
        self.assertTrue(text._repr_html_().startswith("<pre>"))
        double = convscope.explain(np.ones((1, 3, 8, 8)), np.ones((4, 3, 3, 3)))
        self.assertIn("dtype=f64", double)

    @unittest.skipUnless(PROGRAM.is_file(), "the program is not in the package")
    def test_of_a_config_is_the_text_of_the_program(self):
        before = convscope.num_threads()
        for words, options in [(["quickstart"], {}), (["quickstart", "--layer", "c1"], {"layer": "c1"}),
                               (["quickstart", "conv.algorithm=im2col_gemm", "--all"], {"all": True})]:
            named = [word for word in words[1:] if "=" in word]
            with self.subTest(words=words):
                self.assertEqual(convscope.explain("quickstart", *named, **options),
                                 program("explain", *words))
        self.assertEqual(convscope.num_threads(), before)


@unittest.skipUnless(PROGRAM.is_file(), "the program is not in the package")
class Runs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.runs = pathlib.Path(cls.folder.name) / "runs"
        for seed in (1, 2):
            program("run", "quickstart", "data.train_size=128", "data.test_size=64", "train.epochs=1",
                    "expect=null", f"seed={seed}", "-o", cls.runs, "-q")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_report_is_the_text_of_the_program(self):
        report = convscope.report(self.runs)
        self.assertEqual(repr(report), program("report", self.runs))
        self.assertEqual((len(report.rows), report.head[0]), (2, "id"))
        xml.fromstring(report._repr_html_())
        few = convscope.report(str(self.runs), columns=["id", "optim.lr"], sort="id", descending=True)
        self.assertEqual(few.head, ["id", "optim.lr"])
        self.assertGreater(few.rows[0][0], few.rows[1][0])
        self.assertEqual(few.text, program("report", self.runs, "--columns", "id,optim.lr", "--sort",
                                           "id", "--descending"))
        grouped = convscope.report([self.runs], group="model.type")
        self.assertEqual(len(grouped.rows), 1)
        self.assertEqual(len(convscope.report(self.runs, filter="seed=1").rows), 1)
        self.assertEqual(json.loads(convscope.report(self.runs, format="json").text)[0]["name"],
                         "quickstart")

    @unittest.skipUnless(HAS_PANDAS, "pandas is not installed")
    def test_runs_is_a_frame_with_the_keys_of_the_configs(self):
        frame = convscope.runs(self.runs)
        self.assertEqual(len(frame), 2)
        self.assertEqual(sorted(frame["seed"]), [1, 2])
        self.assertEqual(set(frame["data.train_size"]), {128})
        self.assertGreater(frame["avg_forward"].min(), 0)
        self.assertEqual(set(frame["state"]), {"DONE"})

    def test_plots_are_pictures(self):
        plots = convscope.plot(self.runs, ["curves", "memory"])
        self.assertEqual([one.kind for one in plots], ["curves", "memory"])
        for one in plots:
            self.assertTrue(xml.fromstring(one._repr_svg_()).tag.endswith("svg"))
        self.assertIn("<svg", plots._repr_html_())
        narrow = convscope.plot(self.runs, "curves", width=400)["curves"]
        self.assertNotEqual(narrow.svg, plots["curves"].svg)
        path = pathlib.Path(self.folder.name) / "curves.svg"
        plots[0].save(path)
        self.assertEqual(path.read_text(), plots[0].svg)
        convscope.plot(self.runs, "curves").save(path)
        self.assertEqual(path.read_text(), plots[0].svg)
        plots.save(path.parent / "figures")
        self.assertEqual(sorted(one.name for one in (path.parent / "figures").iterdir()),
                         ["curves.svg", "memory.svg"])
        with self.assertRaisesRegex(TypeError, "expected a folder for 2 figures"):
            plots.save(path)
        self.assertTrue(any(sentence.startswith("sparsity") for sentence in
                            convscope.plot(self.runs).left_out))

    def test_benchmarks_are_drawn_too(self):
        path = pathlib.Path(self.folder.name) / "bench.json"
        program("bench", "conv2d", "--problem", "n=1,c=4,h=8,w=8,k=8,r=3,s=3", "--algorithm",
                "direct,im2col_gemm", "--threads", 1, "--min-time", 0.01, "--json", path)
        self.assertIn("roofline", [one.kind for one in convscope.plot(path)])

    def test_mistakes(self):
        nowhere = pathlib.Path(self.folder.name) / "nowhere"
        for function in (convscope.report, convscope.plot):
            with self.assertRaisesRegex(OSError, "which is not a folder"):
                function(nowhere)
        with self.assertRaisesRegex(ValueError, "did you mean"):
            convscope.report(self.runs, columns=["optim.lrr"])
        with self.assertRaisesRegex(ValueError, "curves"):
            convscope.plot(self.runs, "curve")
        with self.assertRaisesRegex(TypeError, "expected a path"):
            convscope.report(7)
        with self.assertRaisesRegex(convscope.FileError, "expected to write"):
            convscope.plot(self.runs, "curves")[0].save(nowhere / "x.svg")


class Package(unittest.TestCase):
    @unittest.skipUnless((pathlib.Path(convscope.__file__).parent / "bin" / "convscope").is_file(),
                         "not an installed package")
    def test_the_program_is_there(self):
        done = subprocess.run([sys.executable, "-m", "convscope", "config", "list"], capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("quickstart", done.stdout)

    def test_without_pandas_a_sentence_says_what_to_install(self):
        code = ("import sys; sys.modules['pandas'] = None\n"
                "import convscope\n"
                "try:\n    convscope.runs('.')\n"
                "except convscope.Error as error:\n    print(error)")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertIn("pip install pandas", done.stdout, done.stderr)


if __name__ == "__main__":
    unittest.main()
