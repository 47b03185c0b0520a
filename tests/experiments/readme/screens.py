#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks screens and command lines: screens.py PROGRAM

Tests that help pages and screens fit 80 columns, that '-' means stdout, and that the program keeps each word of a
command line unchanged. A mistake must lead to one sentence and the right exit code. PyYAML, if it is installed,
must be able to read the program's YAML.
"""
import json
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import fcntl
import unittest

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve()) if len(sys.argv) > 1 else "convscope"
QUICK = ["--min-time", "0.001", "--rounds", "1"]
SMALL = """name: q
data: {set: synthetic_digits, train_size: 64, test_size: 32, batch_size: 16}
model: {type: lenet5}
optim: {type: sgd, lr: 0.05}
train: {epochs: 1}
"""
SWEEP = SMALL + "sweep: {grid: {optim.lr: [1e-2, 0.1], conv.algorithm: [direct, im2col_gemm]}}\n"
CONV = "n=1,c=8,h=8,w=8,k=8,r=3,s=3,pad=1"


class Program(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        # A long path, as on some machines; screens print it.
        cls.environment = dict(os.environ, CONVSCOPE_CACHE_DIR=str(cls.folder / ("cache" * 20)))
        cls.environment.pop("COLUMNS", None)
        (cls.folder / "q.yaml").write_text(SMALL)
        (cls.folder / "s.yaml").write_text(SWEEP)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def call(self, *words, columns=None):
        environment = dict(self.environment, **({"COLUMNS": str(columns)} if columns else {}))
        return subprocess.run([PROGRAM, *words], cwd=self.folder, capture_output=True, text=True, timeout=120,
                              env=environment, check=False)

    def on_terminal(self, *words, columns=80):
        """Returns the text of stdout and stderr on a terminal, without colours and progress
        bars."""
        here, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        child = subprocess.Popen([PROGRAM, *words], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=there,
                                 stderr=there, env=self.environment)
        os.close(there)
        out = b""
        while True:
            try:
                piece = os.read(here, 65536)
            except OSError:
                break
            if not piece:
                break
            out += piece
        os.close(here)
        self.assertEqual(child.wait(), 0, (words, out[-500:]))
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.decode()).replace("\r\n", "\n")
        return [line.split("\r")[-1] for line in text.split("\n")]

    def assert_fits(self, lines, words, columns=80):
        for line in lines:
            if re.fullmatch(r"\s*/\S+", line):  # a path has a line to itself, and is never broken
                continue
            self.assertLessEqual(len(line), columns, f"{words}: {line!r}")

    def assert_fails(self, code, sentence, *words):
        done = self.call(*words)
        self.assertEqual(done.returncode, code, (words, done.stdout, done.stderr))
        self.assertIn(sentence, done.stderr, words)


class Help(Program):
    def pages(self):
        def nested(page):
            parts = re.findall(r"(?ms)^(?:Train|See results|Study algorithms|More commands|Commands):\n(.*?)\n\n", page)
            return re.findall(r"(?m)^  ([a-z_0-9]+) ", "\n".join(parts))
        yield (), self.call("--help").stdout
        for command in nested(self.call("--help").stdout):
            page = self.call("help", command).stdout
            yield (command,), page
            for inner in nested(page):
                yield (command, inner), self.call("help", command, inner).stdout

    def test_every_page_fits_and_names_options_in_words(self):
        count = 0
        for words, page in self.pages():
            count += 1
            self.assert_fits(page.split("\n"), words)
            self.assertNotRegex(page, r":\{|:POSITIVE|\bTEXT:|(INT|UINT|FLOAT)\b", words)
            usage = page.split("Usage: ")[1].split("\n\n")[0]
            options = page.split("\nOptions")[1] if "\nOptions" in page else ""
            names = [pair for pair in re.findall(r"(?m)^  (?:(-\w), |    )(--[a-z-]+)", options)
                     if pair[1] != "--help"]
            named = all(long in usage or (short and short in usage) for short, long in names)
            self.assertTrue("options]" in usage or named, (words, usage))
        self.assertGreater(count, 35)

    def test_a_narrow_or_wide_terminal_is_used(self):
        self.assert_fits(self.on_terminal("help", "bench", "conv2d", columns=60), "help", 60)
        self.assertGreater(max(map(len, self.on_terminal("help", "bench", "conv2d", columns=120))), 80)


class Screens(Program):
    def test_the_usual_ones_fit_80_columns(self):
        for words in (["run", "q.yaml"], ["run", "q.yaml", "seed=2", "sparsity={method: magnitude, target: 0.5}"],
                      ["sweep", "s.yaml", "--dry-run"], ["sweep", "s.yaml", "--name", "sw"],
                      ["sweep", "runs/sw", "--status"], ["eval", "runs/q"], ["report", "runs"],
                      ["report", "runs", "--columns", "all"], ["report", "runs/sw", "--group", "optim.lr"],
                      ["compare", "runs/sw/lr-0.1--algorithm-direct", "runs/sw/lr-0.1--algorithm-im2col_gemm"],
                      ["config", "list"], ["config", "keys"], ["info"], ["explain", "q.yaml"],
                      ["explain", "q.yaml", "--layer", "c1"], ["explain", "q.yaml", "--all"],
                      ["explain", "q.yaml", "--steps"], ["note", "runs/q", "a note " * 20], ["note", "runs/q"],
                      ["watch", "runs/q", "--once"], ["watch", "runs", "--once"], ["look", "winograd"],
                      ["notebook", "--list"], ["check", "conv2d", "direct", "--quick"],
                      ["bench", "conv2d", "--problem", CONV, "--algorithm", "direct,im2col_gemm", *QUICK],
                      ["bench", "conv2d", "--ladder", "direct", "--problem", CONV, *QUICK],
                      ["bench", "net", "q.yaml", "--layers", *QUICK], ["plot", "runs/q"], ["index"]):
            with self.subTest(words):
                self.assert_fits(self.on_terminal(*words), words)

    def test_columns_says_the_width_of_a_pipe(self):
        self.assert_fits(self.call("config", "list", columns=80).stdout.split("\n"), "config list")
        self.assertGreater(max(map(len, self.call("config", "list").stdout.split("\n"))), 80)
        for words in (["config", "show", "q.yaml", "note=" + "long " * 30], ["man"], ["init", "-"]):
            self.assertEqual(self.call(*words, columns=80).stdout, self.call(*words).stdout, words)

    def test_a_table_that_is_split_loses_nothing(self):
        words = ["bench", "conv2d", "--problem", CONV, "--algorithm", "direct", *QUICK]
        def headings(text):
            return {word for line in text.split("\n") if line.split()[:1] == ["algorithm"] for word in line.split()}
        self.assertEqual(headings("\n".join(self.on_terminal(*words))), headings(self.call(*words).stdout))


class Words(Program):
    def test_a_dash_is_stdout(self):
        for words in (["bench", "conv2d", "--problem", CONV, "--algorithm", "direct", *QUICK, "--json", "-"],
                      ["bench", "conv2d", "--ladder", "direct", "--problem", CONV, *QUICK, "--json", "-"],
                      ["bench", "net", "q.yaml", *QUICK, "--json", "-"]):
            done = self.call(*words)
            self.assertEqual(done.returncode, 0, done.stderr)
            json.loads(done.stdout)
            self.assertIn("ms", done.stderr)  # the table
        self.assertEqual(self.call("run", "q.yaml", "-q").returncode, 0)
        self.assertIn("avg_forward", json.dumps(json.loads(
            self.call("report", "runs", "-f", "json", "-o", "-").stdout)))
        self.assertTrue(self.call("sites", "--cloud", "cloud=ink,sites=20", "-o", "-").stdout.startswith("<svg"))
        self.assertFalse((self.folder / "-").exists())
        self.assert_fails(2, "got two", "bench", "net", "q.yaml", "--json", "-", "--csv", "-")

    def test_the_first_word_that_is_a_file_is_the_config(self):
        (self.folder / "lr=0.1.yaml").write_text(SMALL)
        (self.folder / "s=1.yaml").write_text(SWEEP)
        (self.folder / "seed=1").write_text("no config")
        for words in (["run", "lr=0.1.yaml", "seed=7", "-n"], ["run", "seed=7", "lr=0.1.yaml", "-n"],
                      ["run", "q.yaml", "seed=1", "-n"], ["run", "seed=1", "q.yaml", "-n"][:2] + ["-n"],
                      ["config", "show", "lr=0.1.yaml", "seed=7"], ["explain", "lr=0.1.yaml", "seed=7"],
                      ["sweep", "s=1.yaml", "--dry-run"], ["config", "check", "lr=0.1.yaml"]):
            done = self.call(*words)
            if words[:2] == ["run", "seed=1"]:  # the file is not a config
                self.assertEqual(done.returncode, 3)
                continue
            self.assertEqual(done.returncode, 0, (words, done.stderr))
            if "seed=7" in words and words[0] != "explain":
                self.assertIn("seed: 7", done.stdout)

    def test_an_empty_text_is_no_value(self):
        for words in (["run", "q.yaml", "--name", ""], ["run", "q.yaml", "--name="], ["run", "--resume", ""],
                      ["sweep", "s.yaml", "--name", ""], ["report", "runs", "--filter", ""],
                      ["bench", "net", "q.yaml", "--json", ""], ["run", "q.yaml", "-o", ""]):
            self.assert_fails(2, "", *words)
        self.assert_fails(2, "--name: expected a value, got an empty text", "run", "q.yaml", "--name", "")

    def test_a_name_is_a_text(self):
        for name in ("1", "yes", "1.5"):
            self.assertIn(f'name: "{name}"', self.call("run", "q.yaml", "-n", "--name", name).stdout)

    def test_mistakes_have_short_sentences(self):
        self.assert_fails(2, "--fail-above: expected a number above 0, got '-1'", "compare", "a", "b",
                          "--fail-above", "-1")
        self.assert_fails(2, "--format: expected one of md, csv, json, latex, got 'csc'; did you mean 'csv'?",
                          "report", "runs", "-f", "csc")
        self.assert_fails(2, "--threads: expected an integer from 0 to 1024, got '99999999999'", "info",
                          "--threads", "99999999999")
        self.assert_fails(2, "expected a config file, the name of a shipped config", "explain", "net.onnx")
        self.assert_fails(2, "did you mean 'resnet18'?", "explain", "resnet19")
        self.assert_fails(2, "expected a run folder or a .safetensors file", "eval", "q.yaml")

    def test_a_network_can_be_explained_by_its_name(self):
        done = self.call("explain", "resnet18")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"3x224x224")

    def test_a_config_that_cannot_be_read_is_no_mistake_in_it(self):
        unreadable = "/proc/self/mem"  # reading it fails with EIO
        if not os.path.exists(unreadable):
            self.skipTest("no /proc")
        for words in (["run"], ["explain"], ["bench", "net"], ["config", "show"], ["config", "check"], ["sweep"],
                      ["op", "net", "--x", "x.npy", "--out-y", "y.npy"]):
            self.assert_fails(6, "Input/output error", *words, unreadable)
        (self.folder / "extends.yaml").write_text(f"extends: {unreadable}\n")
        self.assert_fails(6, "Input/output error", "run", "extends.yaml")
        (self.folder / "broken").mkdir()
        (self.folder / "broken/config.yaml").symlink_to(unreadable)
        for words in (["export", "broken", "--onnx", "o"], ["eval", "broken"], ["bench", "net", "broken/config.yaml"]):
            self.assert_fails(6, "Input/output error", *words)
        self.assert_fails(3, "No such file", "run", "missing.yaml")
        self.assert_fails(3, "a folder", "config", "show", "broken")


TEXTS = ["y", "n", "yes", "No", "on", "OFF", "true", "null", "~", "010", "0o7", "1_000", "0b1", "0x1F", "1:30", "1e5",
         "1e-5", "+1", "-.5", ".5", ".inf", ".NaN", "2024-01-31", "2024-01-31 10:00:00", "=", "<<", "-", "- a", "a: b",
         "a #b", "#a", "%a", "@a", "!a", "&a", "*a", "|", "[a", "...", "---", "12", "1.5.", "größe", "plain", "issue #12 fixed", "a'b\"c\\d"]


class Yaml(Program):
    def setUp(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("no PyYAML")
        self.read = yaml.safe_load

    def test_pyyaml_reads_the_same_values(self):
        for text in TEXTS:
            quoted = json.dumps(text) if text[0] in "[{'\"" or text in ("~", "null", "true") or \
                re.fullmatch(r"[-+.\w]*", text) else text
            done = self.call("config", "show", "q.yaml", "note=" + quoted, "optim.lr=1e-5", "seed=0x1F")
            self.assertEqual(done.returncode, 0, done.stderr)
            config = self.read(done.stdout)
            self.assertEqual(config["note"], text)
            self.assertEqual(config["optim"]["lr"], 1e-5)
            self.assertEqual(config["seed"], 31)

    def test_every_file_is_read(self):
        self.assertEqual(self.call("run", "q.yaml", "-q", "--name", "no", "optim.lr=1e-5").returncode, 0)
        latest = self.read((self.folder / "runs/no/latest/config.yaml").read_text())
        self.assertEqual((latest["name"], latest["optim"]["lr"]), ("no", 1e-5))
        self.call("sweep", "s.yaml", "-q", "--name", "on", "sweep.grid={optim.lr: [1e-5, 1e-4]}")
        plan = self.read((self.folder / "runs/on/sweep.yaml").read_text())
        self.assertEqual((plan["name"], plan["sweep"]["grid"]["optim.lr"]), ("on", [1e-5, 1e-4]))
        member = self.read(next((self.folder / "runs/on").glob("*/s1.yaml")).read_text())
        self.assertIsInstance(member["optim"]["lr"], float)
        self.assertEqual(self.read(self.call("init", "-", "--data", "mnist").stdout)["optim"]["weight_decay"], 5e-4)
        self.call("init", "yes.yaml")
        self.assertEqual(self.read((self.folder / "yes.yaml").read_text())["name"], "yes")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=0)
