#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the records of a GPU check, and the lists of measured problems in them, without a GPU
(gpu_tree.py)."""
import json
import shutil
import subprocess
import sys
import unittest

from gpu_tree import PROBLEMS, REPOSITORY, TORCH, Tree


class Records(Tree):
    def test_what_was_not_run_is_taken_over_and_said(self):
        self.old_record(incomplete={"sparse": "of older sources"})
        self.assertEqual(self.record("verify").count("\n"), 2)  # an old record is read unchanged
        self.check("--only", "tests,sanitizers,conv2d")
        self.assertRegex(self.record("write", str(self.root / "parts")),
                         "taken over from the record of 2020-01-01T00:00:00Z: .*deform")
        found = self.written()
        deform, sparse, ours = (found["measured"][item] for item in ("deform", "sparse_f32", "conv2d_dense_f32"))
        self.assertEqual((deform["gpu"]["name"], deform["date"]), ("NVIDIA A100", "2020-01-01T00:00:00Z"))
        self.assertEqual((sparse["sources_sha256"], sparse["remark"]), (None, "of older sources"))
        self.assertNotIn("taken_over_from", ours)
        self.assertEqual(ours["gpu"]["name"], "NVIDIA H200")
        self.assertEqual(len(next(part for part in found["conv2d"] if part["name"] == "dense_f32")["rows"]), 18)
        self.assertEqual(found["ranks"], {"ms": 1})
        out = self.record("verify")
        self.assertIn("on another GPU (NVIDIA A100, 2020-01-01): deform", out)
        self.assertIn("of other sources than today's (not known; NVIDIA A30, 2020-01-01): sparse_f32", out)
        self.assertIn("said of it: of older sources: sparse_f32", out)
        # A second record on top keeps the origin of each result.
        (self.root / "parts" / "huge.stamp").unlink(missing_ok=True)
        self.check("--only", "huge")
        self.record("write", str(self.root / "parts"))
        self.assertEqual(self.written()["measured"]["deform"], deform)

    def test_without_a_base_a_missing_part_is_an_error(self):
        self.check("--only", "tests,sanitizers")
        self.record("write", str(self.root / "parts"), "--base", "none")
        out = self.record("verify", code=1)
        for part in ("peaks", "conv2d", "deform", "sparse", "compressed", "networks"):
            self.assertIn(f"its part '{part}' is missing", out)

    def test_older_sources_are_an_error_but_for_later(self):
        self.old_record()
        self.check("--only", "tests,sanitizers,huge")
        self.record("write", str(self.root / "parts"))
        self.assertIn("nothing is later", self.record("later", "why", code=1))
        self.add("framework/a.cu", "int b;  // changed\n")
        self.assertIn("made from other device code than today's: tests, memcheck, racecheck, initcheck;",
                      self.record("verify", code=1))
        self.record("later", "b is the better name")
        out = self.record("verify")
        self.assertIn("not measured in their present form: b is the better name", out)
        self.assertRegex(out, r"of other sources than today's \(.*\): .*huge")
        self.add("framework/a.cu", "int c;\n")
        self.record("verify", code=1)
        self.record("later", "c is better still")
        self.assertIn("b is the better name; c is better still", self.record("verify"))
        # Only the part `tests` of the check runs again. The sources have not changed, so the sanitizers' results
        # remain valid.
        self.check("--only", "tests")
        self.record("write", str(self.root / "parts"))
        self.assertIn("not measured in their present form", self.record("verify"))
        self.add("framework/a.cu", "int d;\n")
        self.check("--only", "tests")
        self.record("write", str(self.root / "parts"))
        self.assertIn("than today's: memcheck, racecheck, initcheck;", self.record("verify", code=1))

    def test_later_excuses_what_it_was_said_of_and_nothing_else(self):
        self.old_record()
        self.check("--only", "tests,sanitizers")
        self.record("write", str(self.root / "parts"))
        self.add("framework/a.cu", "int b;\n")
        self.record("later", "a name")
        self.add("framework/a.cu", "int x = 1 / 0;\n")  # an attempt
        self.check("--only", "sanitizers")
        self.add("framework/a.cu", "int b;\n")
        self.record("write", str(self.root / "parts"))
        self.assertIn("than today's: memcheck, racecheck, initcheck;", self.record("verify", code=1))

    def test_later_names_an_old_record(self):
        self.old_record()
        self.add("framework/a.cu", "int b;\n")
        self.record("verify", code=1)
        self.record("later", "a name")
        self.assertIn("not measured in their present form: a name", self.record("verify"))

    def test_a_list_that_was_cut_off_does_not_replace_a_whole_one(self):
        self.old_record()
        self.fake(slow=[PROBLEMS[4]])
        self.stopped_when(lambda: [PROBLEMS[4]] in self.calls("bench"))
        self.assertEqual(len(self.part("conv2d_dense_f32.json")["rows"]), 12)
        self.record("write", str(self.root / "parts"))
        found = self.written()
        self.assertEqual([len(part["rows"]) for part in found["conv2d"]], [1])
        self.assertEqual(found["measured"]["conv2d_dense_f32"]["cut_off"]["rows"], 12)
        self.assertIn("cut off the last time, so an older one is kept here: conv2d_dense_f32", self.record("verify"))
        # A wrong result is never left out.
        rows = self.part("conv2d_dense_f32.json")
        rows["rows"][0]["wrong"] = ["fft"]
        (self.root / "parts/conv2d_dense_f32.json").write_text(json.dumps(rows))
        self.record("write", str(self.root / "parts"))
        self.assertIn("wrong results, conv2d_dense_f32: fft", self.record("verify", code=1))

    def test_wrong_results_fail(self):
        self.old_record()
        self.fake(wrong=[PROBLEMS[1]])
        self.assertIn("WRONG: fft", self.check("--only", "conv2d", code=1))
        self.record("write", str(self.root / "parts"))
        self.assertIn(f"wrong results, conv2d_dense_f32: fft on {PROBLEMS[1]} forward", self.record("verify", code=1))
        self.fake()  # the defect is fixed
        self.check("--only", "conv2d")
        self.record("write", str(self.root / "parts"))
        self.record("verify")

    def test_an_old_folder_does_not_replace_newer_parts(self):
        self.check("--only", "tests,huge")
        self.old_record(date="2099-01-01T00:00:00Z")
        out = self.record("write", str(self.root / "parts"), "--out", str(self.root / "alone"))
        self.assertIn("tests: that of 2099-01-01T00:00:00Z is newer", out)
        found = json.loads(next((self.root / "alone").iterdir()).read_text())
        self.assertEqual((found["tests"]["passed"], found["huge"]["passed"]), (5, 1))

    def test_notes_go_along_with_what_they_are_about(self):
        self.old_record()
        self.record("note", "deform was slow")
        self.check("--only", "huge")
        for _ in range(2):
            self.record("write", str(self.root / "parts"))
            self.assertEqual(self.written()["notes"], ["Of the record of 2020-01-01T00:00:00Z: deform was slow"])
        self.record("write", str(self.root / "parts"), "--base", "none", "--out", str(self.root / "alone"))
        self.assertNotIn("notes", json.loads(next((self.root / "alone").iterdir()).read_text()))

    def test_a_part_without_its_origin_is_an_error(self):
        self.old_record()
        self.check("--only", "huge")
        self.record("write", str(self.root / "parts"))
        path = max(self.records.glob("*.json"))
        found = json.loads(path.read_text())
        del found["measured"]["deform"]
        path.write_text(json.dumps(found))
        self.assertIn("it does not say when 'deform' was measured", self.record("verify", code=1))

    def test_a_part_without_a_stamp_is_not_taken(self):
        self.old_record()
        self.check("--only", "huge")
        self.add("parts/conv2d_dense_f32.json", json.dumps({"rows": []}))
        self.assertIn("conv2d_dense_f32.json has no stamp", self.record("write", str(self.root / "parts")))
        (self.root / "parts/huge.stamp").unlink()
        self.assertIn("expected parts with their stamps", self.record("write", str(self.root / "parts"), code=1))


class Lists(Tree):
    """Tests conv2d_gpu_vs_pytorch.py, and the scripts for whole networks."""

    def baseline(self, *words, code=0, script="conv2d_gpu_vs_pytorch.py"):
        lists = ["--shapes", str(self.root / "experiments/shapes/gpu_dense.txt")] if "conv2d" in script else []
        done = subprocess.run([sys.executable, str(self.root / "experiments/baselines" / script), *lists, "--program",
                               str(self.root / "built/bin/convscope"), "--json", str(self.root / "out.json"), *words],
                              capture_output=True, text=True, env=self.environment)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout

    def test_a_list_stops_and_goes_on(self):
        self.baseline("--seconds", "0", code=75)
        self.assertEqual(self.calls("bench"), [])
        self.baseline("--portion", "2")
        whole = json.loads((self.root / "out.json").read_text())
        self.assertEqual((whole["complete"], whole["done"], len(whole["rows"])), (True, PROBLEMS, 18))
        part = {**whole, "complete": False, "done": PROBLEMS[:5], "rows": whole["rows"][:15]}
        self.add("out.json", json.dumps(part))
        self.fake()
        self.baseline("--go-on")
        self.assertEqual(self.calls("bench"), [PROBLEMS[5:]])
        self.assertEqual(json.loads((self.root / "out.json").read_text()), whole)

    def test_rows_of_another_gpu_or_setting_are_not_mixed(self):
        self.baseline("--portion", "6")
        self.fake(gpu="NVIDIA H100")
        self.assertIn("begins again", self.baseline("--go-on"))
        self.assertEqual(len(self.calls("bench")), 6)
        self.fake(gpu="NVIDIA H100")
        self.assertIn("rows with batch 0", self.baseline("--go-on", "--batch", "1"))

    def test_a_crash_keeps_the_portions_before_it(self):
        program = self.root / "built/bin/convscope"
        program.write_text(program.read_text().replace('note("bench", line)', f'''note("bench", line)
        if line == "{PROBLEMS[5]}":
            os.kill(os.getpid(), 11)'''))
        self.baseline(code=1)
        self.assertEqual(len(json.loads((self.root / "out.json").read_text())["rows"]), 12)

    def test_deformable_convolutions_go_on(self):
        baselines = "experiments/baselines"
        shutil.copy(REPOSITORY / baselines / "deform_vs_torchvision.py", self.root / baselines / "deform.py")
        for name in ("numpy", "torchvision"):
            self.add(f"python/{name}/__init__.py", TORCH)
        self.add("experiments/shapes/gpu_deform.txt", "# a list\nc=4\nc=8\nc=16\n")
        # torchvision's times and results are stubs.
        self.add("experiments/baselines/run.py", """import sys, deform
deform.torchvision_us = lambda *_: (8000.0, 16000.0)
deform.Results = lambda args: type("Good", (), {"run": lambda self: print("results") or True})()
sys.exit(deform.main())""")
        words = ["--device", "cuda", "--precision", "f32,bf16", "--problems", "1"]
        out = self.baseline("--seconds", "0", *words, script="run.py", code=75)
        self.assertIn("results", out)
        self.assertIn("forward 2.00, 2.00; backward 2.00, 2.00", self.baseline(*words, script="run.py"))
        whole = json.loads((self.root / "out.json").read_text())
        self.assertEqual((whole["complete"], len(whole["rows"])), (True, 6))
        self.add("out.json", json.dumps({**whole, "complete": False, "done": whole["done"][:4],
                                         "rows": whole["rows"][:4]}))
        self.fake()
        self.assertNotIn("results", self.baseline("--go-on", *words, script="run.py"))
        self.assertEqual(self.calls("bench"), [["c=8"], ["c=16"]])
        self.assertEqual(json.loads((self.root / "out.json").read_text()), whole)
        self.fake(wrong=["c=16"])
        self.baseline(*words, script="run.py", code=1)

    def test_networks_go_on(self):
        for script, count, more in (("net_gpu_vs_pytorch.py", 54, []),
                                    ("lenet_step_gpu_vs_pytorch.py", 5, ["--kinds", "CUDA graph"])):
            (self.root / "out.json").unlink(missing_ok=True)
            self.baseline("--seconds", "0", *more, script=script, code=75)
            self.baseline(*more, script=script)
            rows = json.loads((self.root / "out.json").read_text())
            self.assertEqual(len(rows), count)
            self.add("out.json", json.dumps(rows[:-2]))
            self.fake()
            self.baseline("--go-on", *more, script=script)
            self.assertEqual(len(self.calls("net")), 2)
            self.assertEqual(len(json.loads((self.root / "out.json").read_text())), count)


if __name__ == "__main__":
    unittest.main()
