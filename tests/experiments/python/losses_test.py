# SPDX-License-Identifier: Apache-2.0
"""Tests the losses of the Python module, and the metrics that a run folder has."""
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy as np

import convscope

PROGRAM = pathlib.Path(os.environ.get("CONVSCOPE_PROGRAM",
                                      pathlib.Path(convscope.__file__).parent / "bin" / "convscope"))


def cross_entropy(x, labels, smoothing=0.0, weights=None):
    """Returns PyTorch's cross_entropy of x [N,K] in float64."""
    classes = x.shape[1]
    weights = np.ones(classes) if weights is None else np.asarray(weights)
    log_p = x - x.max(1, keepdims=True)
    log_p = log_p - np.log(np.exp(log_p).sum(1, keepdims=True))
    target = np.eye(classes)[labels] * (1 - smoothing) + smoothing / classes
    return -(weights * target * log_p).sum() / weights[labels].sum()


class Losses(unittest.TestCase):
    def setUp(self):
        random = np.random.default_rng(3)
        self.x = 7 + 3 * random.standard_normal((6, 4))
        self.labels = np.array([0, 3, 1, 1, 2, 0], np.int32)

    def test_options_have_their_formula(self):
        weights = [1, 0.5, 2, 4]
        for options, want in [({}, {}), ({"label_smoothing": 0.2}, {"smoothing": 0.2}),
                              ({"label_smoothing": 0.2, "class_weights": weights},
                               {"smoothing": 0.2, "weights": weights})]:
            with self.subTest(options=options):
                got = convscope.loss(self.x, self.labels, "cross_entropy", **options)
                self.assertAlmostEqual(got, cross_entropy(self.x, self.labels, **want), delta=1e-14)
        self.assertEqual(convscope.loss(self.x, self.labels),
                         convscope.loss(self.x, self.labels, {"type": "cross_entropy"}))
        self.assertAlmostEqual(convscope.loss(self.x, self.labels, "focal", gamma=0),
                               convscope.loss(self.x, self.labels), delta=1e-14)

    def test_a_list_is_a_weighted_sum(self):
        self.assertEqual(sorted(convscope.loss_names()),
                         ["bce", "cross_entropy", "dice", "focal", "mse"])
        terms = [{"type": "cross_entropy", "weight": 0.25, "label_smoothing": 0.1}, "dice"]
        want = (0.25 * convscope.loss(self.x, self.labels, label_smoothing=0.1)
                + convscope.loss(self.x, self.labels, "dice"))
        self.assertAlmostEqual(convscope.loss(self.x, self.labels, terms), want, delta=1e-14)

    def test_gradients_are_those_of_differences(self):
        pixels = np.random.default_rng(4).standard_normal((2, 4, 3, 2))
        classes = np.random.default_rng(5).integers(0, 4, (2, 3, 2)).astype(np.int32)
        step = 1e-5
        for x, labels in [(self.x, self.labels), (pixels, classes)]:
            for kind in [{"type": "focal", "gamma": 1.5, "alpha": 0.25}, {"type": "bce", "pos_weight": [1, 2, 3, 4]}]:
                value, dx = convscope.loss_backward(x, labels, kind)
                self.assertEqual(value, convscope.loss(x, labels, kind))
                self.assertEqual(dx.shape, x.shape)
                at = (1,) * x.ndim
                moved = [x.copy(), x.copy()]
                moved[0][at] += step
                moved[1][at] -= step
                slope = np.subtract(*(convscope.loss(one, labels, kind) for one in moved)) / (2 * step)
                self.assertAlmostEqual(dx[at], slope, delta=1e-9)

    def test_mistakes(self):
        for call, error, words in [
                (lambda: convscope.loss(self.x, self.labels, "focall"), convscope.ConfigError, "did you mean 'focal'"),
                (lambda: convscope.loss(self.x, self.labels, "focal", gama=1), convscope.ConfigError, "'gamma'"),
                (lambda: convscope.loss(self.x, self.labels, "focal", gamma="two"), TypeError, "list of numbers"),
                (lambda: convscope.loss(self.x, self.labels, 7), TypeError, "expected the name of a loss"),
                (lambda: convscope.loss(self.x, self.labels, []), convscope.Error, "expected at least one loss"),
                (lambda: convscope.loss(self.x, self.labels, {"weight": "a"}), convscope.ArgumentError, "for weight"),
                (lambda: convscope.loss(self.x, self.labels, {"weight": [1, 2]}), convscope.ConfigError,
                 "weight: expected a number"),
                (lambda: convscope.loss(self.x, self.labels, "mse", weight=-1), convscope.ConfigError,
                 "weight: expected .*0"),
                (lambda: convscope.loss(self.x, self.labels, "mse", weight=float("nan")), convscope.ConfigError,
                 "weight: expected .*0"),
                (lambda: convscope.loss(self.x, self.labels, ["mse"], gamma=1), TypeError, "in the dicts"),
                (lambda: convscope.loss(self.x, self.labels, class_weights=[1, 2]), ValueError,
                 "expected 4 class weights"),
                (lambda: convscope.loss(self.x, self.labels + 2), ValueError, r"labels in \[0,4\)"),
                (lambda: convscope.loss(self.x, self.labels.astype(np.int64)), ValueError, "int32")]:
            with self.subTest(words=words), self.assertRaisesRegex(error, words):
                call()


class Confusion(unittest.TestCase):
    def test_a_damaged_file_is_refused_with_its_name(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "confusion.csv"
            path.write_text("class,cat,dog\ncat,3,1\ndog,0,4\n")
            self.assertEqual(convscope.confusion(folder), (["cat", "dog"], [[3, 1], [0, 4]]))
            for text in ["", "class\n", "class,cat,dog\ncat,3,1\n", "class,cat,dog\ncat,3,1\ndog,0\n",
                         "class,cat,dog\ncat,3,1\ndog,0,x\n", "class,cat,dog\ncat,3,1\ndog,0,\n"]:
                path.write_text(text)
                with self.subTest(text=text), self.assertRaisesRegex(convscope.FileError, "confusion.csv as a run"):
                    convscope.confusion(folder)


@unittest.skipUnless(PROGRAM.is_file(), "the program is not in the package")
class Metrics(unittest.TestCase):
    def test_a_run_with_a_sum_of_losses_has_a_confusion_matrix_and_a_top_five(self):
        with tempfile.TemporaryDirectory() as folder:
            runs = pathlib.Path(folder) / "runs"
            done = subprocess.run(
                [str(PROGRAM), "run", "quickstart", "data.train_size=128", "data.test_size=64", "train.epochs=1",
                 "expect=null", "train.loss=[{type: cross_entropy, label_smoothing: 0.1}, {type: dice, weight: 2}]",
                 "-o", str(runs), "-q"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            report = convscope.report(runs, columns=["acc", "test_top5", "train.loss.1.weight", "train.loss"])
            self.assertEqual(report.rows[0][3], "cross_entropy + dice")
            accuracy, top5, weight = map(float, report.rows[0][:3])
            self.assertEqual(weight, 2)
            classes, matrix = convscope.confusion(runs / "quickstart" / "latest")
            self.assertEqual((len(classes), len(matrix)), (10, 10))
            counts = np.array(matrix)
            self.assertEqual(counts.sum(), 64)
            self.assertAlmostEqual(100 * np.trace(counts) / 64, accuracy, delta=0.01)
            self.assertTrue(accuracy <= top5 <= 100)
            with self.assertRaisesRegex(OSError, "expected the file"):
                convscope.confusion(runs)


if __name__ == "__main__":
    unittest.main()
