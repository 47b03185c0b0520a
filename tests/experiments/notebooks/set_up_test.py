#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that set_up.py names a missing program in one sentence, and keeps files that the reader has
changed."""
import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "experiments/notebooks"))
import set_up  # noqa: E402


class SetUp(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.base = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def call(self, *words):
        """Returns (exit code, output)."""
        said = io.StringIO()
        with mock.patch.object(sys, "argv", ["set_up.py", "--environment", str(self.base / "env"), *words]), \
                contextlib.redirect_stderr(said):
            try:
                set_up.main()
                return 0, said.getvalue()
            except SystemExit as end:
                return end.code, said.getvalue()

    def one_sentence(self, said, *words):
        lines = [line for line in said.splitlines() if not line.startswith("notebooks: installing")]
        self.assertEqual(len(lines), 1, said)
        for word in words:
            self.assertIn(word, said)

    def test_another_version_of_python(self):
        for version in ((3, 10, 2), (3, 14, 0)):
            with mock.patch.object(sys, "version_info", version):
                code, said = self.call("--packages")
            self.assertEqual(code, 5)
            self.one_sentence(said, "expected Python 3.11 to 3.13", f"got 3.{version[1]}", "CONVSCOPE_PYTHON")

    def test_asks_on_a_terminal_before_it_installs(self):
        with mock.patch.object(sys, "stdin", mock.Mock(isatty=lambda: True, readline=lambda: "n\n")):
            code, said = self.call("--packages")
        self.assertEqual(code, 5)
        self.assertIn("install cppyy from PyPI into", said)
        self.assertIn("were not installed", said)
        self.assertNotIn("installing", said)

    def test_no_compiler(self):
        with mock.patch.dict(os.environ, {"PATH": "/nowhere"}):
            code, said = self.call("--packages")
        self.assertEqual(code, 5)
        self.one_sentence(said, "expected a C++ compiler in PATH", "apt-get install g++")

    def test_no_python_headers(self):
        with mock.patch("sysconfig.get_path", return_value="/nowhere"):
            code, said = self.call("--packages")
        self.assertEqual(code, 5)
        self.one_sentence(said, "/nowhere/Python.h", "apt-get install python3-dev")

    def test_no_venv(self):
        with mock.patch.dict(sys.modules, {"ensurepip": None}):
            code, said = self.call("--packages")
        self.assertEqual(code, 5)
        self.one_sentence(said, "expected the module venv", "apt-get install python3-venv")

    def pretend_pip(self, text, status):
        """Makes a Python environment with a stub of pip, which prints a text and exits with a
        status."""
        def run(words, stdout, **_):
            if "pip" in words:
                stdout.write(text)
                stdout.flush()
            return mock.Mock(returncode=status if "pip" in words else 0)
        return mock.patch("subprocess.run", run)

    def test_no_network(self):
        with self.pretend_pip("Collecting cppyy\nWARNING: Retrying\nERROR: No matching distribution found "
                              "for cppyy==3.5.0\n", 1):
            code, said = self.call("--packages")
        self.assertEqual(code, 5)
        self.one_sentence(said, "ERROR: No matching distribution found for cppyy==3.5.0", "env.log")
        self.assertFalse(set_up.is_ready(self.base / "env", False))

    def test_a_second_call_installs_nothing(self):
        (self.base / "env/bin").mkdir(parents=True)
        (self.base / "env/bin/python").touch()
        with self.pretend_pip("", 0):
            self.assertEqual(self.call("--packages")[0], 0)
        with mock.patch("subprocess.run", side_effect=AssertionError("installed again")):
            self.assertEqual(self.call("--packages")[0], 0)
        with mock.patch.object(set_up, "wanted", return_value="other packages"):
            self.assertFalse(set_up.is_ready(self.base / "env", False))

    def ready(self):
        environment = self.base / "env"
        (environment / "bin").mkdir(parents=True)
        (environment / "bin/python").touch()
        (environment / "ready_lab").write_text(set_up.wanted(True))
        return environment

    def test_no_library(self):
        self.ready()
        code, said = self.call("--include", "a", "--library", "/nowhere/lib.so")
        self.assertEqual(code, 5)
        self.one_sentence(said, "/nowhere/lib.so", "build it first")

    def test_the_kernel_knows_where_things_are(self):
        environment = self.ready()
        library = self.base / "libconvscope.so"
        library.touch()
        self.assertEqual(self.call("--include", "a:b", "--library", str(library))[0], 0)
        spec = json.loads((environment / "share/jupyter/kernels/xcpp20/kernel.json").read_text())
        self.assertTrue(pathlib.Path(spec["argv"][1]).is_file())
        self.assertEqual(spec["env"]["CONVSCOPE_INCLUDE"], "a:b")
        self.assertEqual(spec["env"]["CONVSCOPE_LIBRARY"], str(library))

    def test_an_unknown_notebook(self):
        code, said = self.call("--packages", "77_nothing")
        self.assertEqual(code, 5)
        self.one_sentence(said, "got '77_nothing', which none has", "04_winograd")
        self.assertEqual(set_up.notebook_named("04").stem, "04_winograd")

    def test_the_readers_copy_is_kept(self):
        course = self.base / "course"
        with contextlib.redirect_stderr(io.StringIO()):
            set_up.copy_course(course, False)
            mine = course / "04_winograd.ipynb"
            mine.write_text("mine")
            set_up.copy_course(course, False)
            self.assertEqual(mine.read_text(), "mine")
            set_up.copy_course(course, True)
        self.assertNotEqual(mine.read_text(), "mine")
        self.assertEqual((course / "04_winograd.old1.ipynb").read_text(), "mine")


if __name__ == "__main__":
    unittest.main()
