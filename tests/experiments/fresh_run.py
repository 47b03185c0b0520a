#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that the report and the plots of a new run contain every line of the run's files:
fresh_run.py PROGRAM ROOT

Trains a run that writes every kind of file (validation, pruning and quantisers) in a temporary
folder, then compares its tables with the report and the SVG files.
"""
import csv
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM, ROOT = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
EPOCHS = 3
SETTINGS = ["data.train_size=320", "data.test_size=64", "data.val_split=64",
            f"train.epochs={EPOCHS}", "expect.test_acc_min=0", "log.every_steps=2",
            "quant={w_bits: 4, a_bits: 4}",
            "sparsity={method: magnitude, target: 0.5, start: 0, end: 0.9, every_steps: 2}"]


class FreshRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        config = ROOT / "experiments/configs/quickstart.yaml"
        cls.trained = cls.call("run", str(config), *SETTINGS)
        assert cls.trained.returncode == 0, cls.trained.stderr
        cls.run_folder = next(path for path in pathlib.Path(cls.folder.name).glob("runs/quickstart/*")
                              if not path.is_symlink() and path.is_dir() and path.name != "plots")
        cls.plotted = cls.call("plot", str(cls.run_folder))
        cls.report = (cls.run_folder / "report.html").read_text()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def call(cls, *words):
        return subprocess.run([str(PROGRAM), *words], cwd=cls.folder.name, capture_output=True,
                              text=True, timeout=600)

    def rows(self, name):
        with open(self.run_folder / name, newline="") as file:
            return list(csv.DictReader(file))

    def svg(self, name):
        drawn = {path.name: path for path in pathlib.Path(self.folder.name).rglob("*.svg")}
        self.assertIn(name, drawn, self.plotted.stderr)
        return drawn[name].read_text()

    def test_nothing_is_left_out(self):
        self.assertEqual(self.plotted.returncode, 0, self.plotted.stderr)
        for text in (self.trained.stderr, self.plotted.stderr, self.report):
            said = re.findall(r"[^\n<>]*(?:left out|cut short)[^\n<>]*", text)
            self.assertEqual([line for line in said if "first steps" not in line], [])

    def test_the_run_wrote_what_this_test_reads(self):
        self.assertEqual(len(self.rows("epochs.csv")), EPOCHS)
        for name in ("layers.csv", "sparsity.csv", "quant.csv"):
            self.assertTrue(self.rows(name), name)

    def test_curves_show_train_validation_and_test_at_every_epoch(self):
        for text in (self.svg("curves.svg"), self.report):
            for epoch in range(1, EPOCHS + 1):
                # The loss panel and the accuracy panel each mark one value of the validation images
                # and one value of the test images.
                points = re.findall(rf"<title>[^<]*, epoch {epoch}: ", text)
                self.assertEqual(len(points), 4, f"points of epoch {epoch}")
            for split in ("train", "val", "test"):
                self.assertTrue(re.search(rf">{split}<", text), f"no line of {split}")
                # Each path in the loss panel and in the accuracy panel has one point per epoch.
                paths = re.findall(rf'<path d="([^"]*)"[^>]*><title>{split}</title></path>', text)
                self.assertEqual(len(paths), 2, f"lines of {split}")
                for path in paths:
                    corners = len(re.findall("[ML]", path))
                    self.assertGreaterEqual(corners, EPOCHS, f"corners of {split}: {path}")

    def test_the_report_names_every_layer(self):
        for row in self.rows("layers.csv"):
            self.assertTrue(f"<td>{row['layer']}</td>" in self.report, row["layer"])

    def test_plots_of_masks_and_step_sizes_name_every_layer(self):
        for name, table in (("sparsity.svg", "sparsity.csv"), ("steps.svg", "quant.csv")):
            drawn = self.svg(name)
            for layer in {row["layer"] for row in self.rows(table)} - {"", "all", "total"}:
                self.assertTrue(re.search(rf"\b{re.escape(layer)}\b", drawn), f"{layer} in {name}")

    def test_the_last_epoch_is_that_of_the_summary(self):
        summary = json.loads((self.run_folder / "summary.json").read_text())
        last = self.rows("epochs.csv")[-1]
        self.assertAlmostEqual(float(last["test_acc"]), summary["acc"], places=2)
        self.assertTrue(f"{summary['acc']:.5g}" in self.report, "the report lacks the accuracy")

    def test_the_report_lists_every_epoch(self):
        table = re.search(r"<h2>Epochs</h2>.*?</table>", self.report, re.DOTALL).group(0)
        self.assertEqual(table.count("<tr><td>"), EPOCHS)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
