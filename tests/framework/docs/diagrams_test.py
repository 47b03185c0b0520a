#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that the diagrams in the documents equal those that the script makes from the sources.

Usage: diagrams_test.py"""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "framework/docs/site"))
import diagrams  # noqa: E402


class Diagrams(unittest.TestCase):
    def setUp(self):
        """A small repository with everything that the diagrams show."""
        self.held = tempfile.TemporaryDirectory()
        self.addCleanup(self.held.cleanup)
        self.root = pathlib.Path(self.held.name)
        for name in [*diagrams.TOP, *(f"layers/{one}" for one in diagrams.INSIDE)]:
            self.add(f"{name}/a.h", "")
        for name, symbol, *_ in diagrams.STEPS:
            self.add(name, symbol)
        (self.root / diagrams.PICTURES).mkdir(parents=True)
        self.write()

    def add(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def write(self):
        for name, text in diagrams.made(self.root).items():
            self.add(f"{diagrams.PICTURES}/{name}", text)

    def test_those_of_the_repository_are_committed(self):
        self.assertEqual(diagrams.problems(ROOT), [])

    def test_a_new_include_is_found(self):
        self.assertEqual(diagrams.problems(self.root), [])
        self.add("optim/b.cpp", '#include "datasets/a.h"\n')
        self.assertIn("folders.svg: expected the picture", diagrams.problems(self.root)[0])
        self.write()
        self.assertEqual(diagrams.problems(self.root), [])

    def test_a_step_that_is_gone_is_found(self):
        name, symbol, *_ = diagrams.STEPS[1]
        self.add(name, "")
        self.assertIn(f"expected {symbol} in {name}", diagrams.problems(self.root)[0])
        (self.root / name).unlink()
        self.assertIn(f"expected the file {name}", diagrams.problems(self.root)[0])

    def test_arrows_that_follow_from_others_are_left_out(self):
        pairs = {("a", "b"), ("b", "c"), ("a", "c"), ("d", "c")}
        self.assertEqual(diagrams.reduced(pairs), {("a", "b"), ("b", "c"), ("d", "c")})


if __name__ == "__main__":
    unittest.main()
