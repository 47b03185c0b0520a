#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that each JSON file that the program writes for other programs matches its schema in experiments/schema:
schema_test.py PROGRAM"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from json_schema import Schema  # noqa: E402

PROGRAM = str(pathlib.Path(sys.argv[1]).resolve())
SCHEMAS = pathlib.Path(__file__).resolve().parents[3] / "experiments/schema"
TINY = "data.train_size=32,data.test_size=16,data.batch_size=8,train.epochs=1"
SMALL = ["--problem", "c=1,h=6,w=6,k=1,r=3,s=3", "--min-time", "0.002"]


def call(*words, cwd):
    environment = dict(os.environ, CONVSCOPE_MEASURE="off")
    done = subprocess.run([PROGRAM, "-q", *words], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise AssertionError(f"{words}: exit code {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


class Writers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def check(self, name, value):
        schema = Schema.load(SCHEMAS / f"{name}.schema.json")
        self.assertEqual(schema.errors(value, closed=True), [], name)

    def bench(self, schema, *words):
        call("bench", *words, "--json", "out.json", cwd=self.folder)
        content = json.loads((self.folder / "out.json").read_text())
        self.assertIs(content["complete"], True)
        self.check(schema, content)
        self.check("env", content["machine"])

    def test_benchmarks_of_layers(self):
        self.bench("bench_conv2d", "conv2d", *SMALL, "--algorithm", "direct,im2col_gemm")
        whole = json.loads((self.folder / "out.json").read_text())
        del whole["complete"]
        schema = Schema.load(SCHEMAS / "bench_conv2d.schema.json")
        self.assertEqual(schema.errors(whole), ["$: expected the member 'complete'"])
        self.bench("bench_conv2d", "deform_conv2d", *SMALL, "--direction", "forward")
        self.bench("bench_conv2d", "sparse_conv", "--problem", "cloud=shell,sites=50,kernel=3x3x3,c=2,k=2", "--min-time", "0.002",
                   "--direction", "forward")
        self.bench("bench_ladder", "conv2d", "--ladder", "direct", *SMALL)

    def test_benchmarks_of_networks_and_a_comparison(self):
        self.bench("bench_net", "net", "lenet5", "--batch", "1", "--min-time", "0.01", "--rounds", "2", "--layers")
        self.bench("bench_sparse_net", "sparse_net", "--voxels", "200", "--channels", "2,2", "--min-time", "0.002")
        self.check("compare", json.loads(call("compare", "out.json", "out.json", "-f", "json", cwd=self.folder)))

    def test_runs(self):
        call("run", "quickstart", *TINY.split(","), "log.every_steps=1", "expect=null", cwd=self.folder)
        run = next((self.folder / "runs").glob("*/2*"))
        for name in ("summary", "status", "env"):
            self.check(name, json.loads((run / f"{name}.json").read_text()))
        lines = (run / "metrics.jsonl").read_text().splitlines()
        self.assertGreater(len(lines), 2)
        for line in lines:
            self.check("metrics", json.loads(line))
        self.check("table", json.loads(call("report", str(run), "-f", "json", cwd=self.folder)))
        runs = [str(run), str(run)]
        self.check("compare", json.loads(call("compare", *runs, "-f", "json", cwd=self.folder)))

    def test_an_explanation(self):
        self.check("explain", json.loads(call("explain", "quickstart", "--json", cwd=self.folder)))

    def test_a_check(self):
        call("check", "conv2d", "direct", "--problem", "n=1,c=2,h=5,w=5,k=2,r=3,s=3,pad=1", "--json", "check.json",
             cwd=self.folder)
        self.check("check", json.loads((self.folder / "check.json").read_text()))

    def test_a_sweep(self):
        (self.folder / "s.yaml").write_text(SWEEP)
        call("sweep", "s.yaml", cwd=self.folder)
        self.check("sweep_state", json.loads((self.folder / "runs/s/sweep.state.json").read_text()))


class Schemas(unittest.TestCase):
    def test_only_keywords_that_the_check_knows(self):
        files = sorted(SCHEMAS.glob("*.schema.json"))
        self.assertGreater(len(files), 10)
        for file in files:
            schema = Schema.load(file)
            self.assertEqual(schema.unknown_keywords(), [], file.name)
            self.assertEqual(schema.content["$schema"], "https://json-schema.org/draft/2020-12/schema")

    def test_the_check_finds_what_is_wrong(self):
        schema = Schema({"type": "object", "required": ["a"], "properties": {
            "a": {"type": "integer", "minimum": 1}, "b": {"anyOf": [{"type": "null"}, {"enum": ["x", "y"]}]},
            "c": {"type": "array", "items": {"$ref": "#/$defs/word"}}}, "$defs": {"word": {"type": "string"}}}, None)
        self.assertEqual(schema.errors({"a": 2, "b": None, "c": ["x"], "other": 1}), [])
        for wrong, closed in [({}, False), ({"a": 0}, False), ({"a": 1.5}, False), ({"a": True}, False),
                              ({"a": 1, "b": "z"}, False), ({"a": 1, "c": [1]}, False), ([], False),
                              ({"a": 1, "other": 1}, True)]:
            self.assertEqual(len(schema.errors(wrong, closed=closed)), 1, wrong)
        self.assertEqual(Schema({"pattern": "x"}, None).unknown_keywords(), ["pattern"])
        self.assertEqual(len(Schema({"pattern": "x"}, None).errors("x")), 1)


SWEEP = """name: s
data: {set: synthetic_digits, train_size: 32, test_size: 16, batch_size: 8}
model: {type: lenet5}
optim: {type: sgd, lr: 0.1, momentum: 0.9}
train: {epochs: 1}
sweep: {grid: {optim.lr: [0.1]}}
"""

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
