#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A GPU check without a GPU: gpu_check.sh, its parts, its record and the peers' scripts between pretended
programs (fake_gpu.py) and a pretended PyTorch, in a small tree of its own. Cut off, gone on, composed, verified."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "experiments" / "bench"))
import gpu_tests

FAKE = (pathlib.Path(__file__).parent / "fake_gpu.py").read_text()
TORCH = '''
import json, os, pathlib
__version__ = "9.9"
class Anything:
    def __init__(self, *a, **k): pass
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        return Anything()
    def __call__(self, *a, **k): return Anything()
    def __enter__(self): return self
    def __exit__(self, *a): return False
    def elapsed_time(self, other): return 1.0
class cuda:
    Stream = CUDAGraph = Event = graph = stream = Anything
    def current_stream(): return Anything()
    def empty_cache(): pass
    def get_device_name():
        path = pathlib.Path(os.environ["FAKE_ROOT"]) / "fake.json"
        return (json.loads(path.read_text()) if path.exists() else {}).get("gpu", "NVIDIA H200")
class backends:
    cuda = Anything()
    class cudnn:
        def version(): return 91900
def __getattr__(name):
    if name.startswith("__"): raise AttributeError(name)
    return Anything()
'''
DEFORM = '''
import json, sys
row = {"problem": "c=4", "precision": "f32", "wrong": []}
open(sys.argv[sys.argv.index("--json") + 1], "w").write(json.dumps({"rows": [row]}))
'''
PROBLEMS = [f"n=32,c={c},h=8,w=8,k=16" for c in (1, 2, 3, 4, 5, 6)]
RANDOM = "Conv2dOnCuda.AgreesWithTheReferenceOnRandomProblems"
TOOLS = ["memcheck", "racecheck", "initcheck"]
FEW = "FewChannel*"  # CONVSCOPE_SANITIZER_FILTER: three tests, two processes at most of each tool


class Tree(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name) / "tree"
        for folder in ("bench", "peers"):
            (self.root / "experiments" / folder).mkdir(parents=True)
            for path in (REPOSITORY / "experiments" / folder).iterdir():
                if path.suffix in (".py", ".sh"):
                    shutil.copy(path, self.root / "experiments" / folder)
        self.add("experiments/peers/deform_vs_torchvision.py", DEFORM)
        for name in ("gpu_dense", "gpu_depthwise", "gpu_grouped", "resnet18", "resnet50", "mobilenet_v2", "sparse",
                     "sparse_other"):
            self.add(f"experiments/shapes/{name}.txt", "# a list\n" + "\n".join(PROBLEMS) + "\n")
        self.add("framework/a.cu", "int a;\n")
        for name in ("fakes/nvidia-smi", "fakes/compute-sanitizer", "built/bin/test_cuda", "built/bin/convscope"):
            self.add(name, f"#!{sys.executable}\n{FAKE}")
            (self.root / name).chmod(0o755)
        self.add("built/lib/libconvscope_cuda.so", "")
        self.add("python/torch/__init__.py", TORCH)
        self.records = self.root / "experiments" / "bench" / "records"
        self.records.mkdir()
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("CONVSCOPE_")}
        self.environment.update({
            "FAKE_ROOT": str(self.root), "PYTHONPATH": str(self.root / "python"), "PYTHONDONTWRITEBYTECODE": "1",
            "PATH": f"{self.root / 'fakes'}:{os.environ['PATH']}", "CONVSCOPE_COMPARE": "dense_f32 dense_bf16_n1",
            "CONVSCOPE_SANITIZER_FILTER": FEW, "CONVSCOPE_SANITIZER_JOBS": "3", "CONVSCOPE_PEER_KINDS": "CUDA graph"})
        self.fake()

    def add(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def fake(self, **orders):
        """What goes wrong from now on; the list of calls begins anew."""
        self.add("fake.json", json.dumps(orders))
        self.add("calls.log", "")

    def calls(self, first):
        return [line.split()[1:] for line in (self.root / "calls.log").read_text().splitlines()
                if line.split()[0] == first]

    def command(self, *words):
        return ["bash", str(self.root / "experiments/bench/gpu_check.sh"), "--programs", str(self.root / "built"),
                "--parts", str(self.root / "parts"), "--jobs", "2", *words]

    def check(self, *words, code=0):
        done = subprocess.run(self.command(*words), capture_output=True, text=True, env=self.environment)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout

    def stopped_when(self, enough):
        """What a check printed that gets a signal then, as from a machine whose time is up."""
        process = subprocess.Popen(self.command(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   env=self.environment)
        end = time.monotonic() + 120
        while not enough() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        out = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 75, out)
        return out

    def rows(self, part):
        path = self.root / "parts" / f"{part}.rows"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def record(self, *words, code=0):
        done = subprocess.run([sys.executable, str(self.root / "experiments/bench/gpu_record.py"), *words],
                              capture_output=True, text=True, env=self.environment)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def written(self):
        return json.loads(max(self.records.glob("*.json")).read_text())

    def part(self, name):
        return json.loads((self.root / "parts" / name).read_text())

    def old_record(self, **more):
        """As they were before `measured`, of today's sources."""
        rows = [{"problem": PROBLEMS[0] + ",groups=1", "direction": "forward", "precision": "f32", "wrong": []}]
        clean = {"errors": 0, "exit": 0, "tests": 3}
        self.add("experiments/bench/records/2020-01-01-h100.json", json.dumps({
            "format": "convscope gpu record 1", "date": "2020-01-01T00:00:00Z",
            "sources_sha256": self.record("hash").strip(), "source_files": 1,
            "gpu": {"name": "NVIDIA H100", "driver_version": "1"}, "nvcc": None,
            "tests": {"passed": 5, "failed": 0, "skipped": 1}, "sanitizers": {tool: clean for tool in TOOLS},
            "ceilings": {"f32": 1}, "conv2d": [{"precision": "f32", "layout": "nchw", "weights": "once", "rows": rows}],
            "deform": {"device": "NVIDIA A100", "rows": []}, "sparse": {"f32": {"rows": []}},
            "compressed": {"int8": {"rows": []}}, "networks": {"lenet5": [{"batch": 1}]}, "ranks": {"ms": 1}, **more}))


class WholeCheck(Tree):
    def test_cut_off_gone_on_composed_verified(self):
        self.environment["CONVSCOPE_SANITIZER_FILTER"] = f"{RANDOM}:{FEW}"
        # First a test hangs, in a process that has done two others.
        self.fake(slow=["FewChannelOnCuda.Three"])
        out = self.stopped_when(lambda: all(self.rows(tool) == 8 for tool in TOOLS) and self.rows("huge") == 1
                                and ["FewChannelOnCuda.Three"] in self.calls("plain"))
        self.assertIn("left: tests, memcheck, racecheck, initcheck, net_lenet5", out)
        self.assertRegex(out, "this goes on: .* --parts")
        self.assertEqual(len(list(self.records.iterdir())), 0)
        stamp = self.part("racecheck.stamp")
        self.assertEqual((stamp["complete"], stamp["failed"], stamp["gpu"]["name"]), (False, False, "NVIDIA H200"))
        self.assertEqual(self.part("racecheck.json")["not_done"],
                         [f"FewChannelOnCuda.{name}" for name in ("One", "Two", "Three")])
        self.assertEqual(sorted(self.calls("racecheck")), sorted([[RANDOM, f"{i}/8"] for i in range(1, 9)] + [
            [f"FewChannelOnCuda.{name}"] for name in ("One", "Two", "Three")]))
        # Next the second portion of a list of convolutions hangs.
        self.fake(slow=[PROBLEMS[5]])
        out = self.stopped_when(lambda: [PROBLEMS[5]] in self.calls("bench"))
        self.assertEqual(self.calls("plain"), [["FewChannelOnCuda.Three"], ["ForwardMomentsPlanOnCuda.Bf16"],
                                               ["Others.Alone"], ["Others.Skipped"]])
        self.assertEqual(sorted(self.calls("racecheck")), [[f"FewChannelOnCuda.{n}"] for n in ("One", "Three", "Two")])
        self.assertIn("net_lenet5", self.files("json"))
        cut = self.part("conv2d_dense_f32.json")
        self.assertEqual((cut["complete"], len(cut["rows"])), (False, 12))
        self.assertIn("left: conv2d_dense_f32, conv2d_dense_bf16_n1, deform", out)
        # The rest.
        self.fake()
        out = self.check("--seconds", "500")
        self.assertIn("4 of 6 problems were there", out)
        self.assertIn("geometric mean 0.05x, least 0.05x, 6 problems", out)  # of all six
        self.assertEqual(self.calls("plain") + self.calls("racecheck"), [])
        timed = [words[0] for words in self.calls("bench")]
        self.assertEqual(timed[:8], PROBLEMS[4:] + PROBLEMS)
        self.assertIn("wrote", out)
        found = self.written()
        self.assertEqual(found["tests"], {"passed": 6, "failed": 0, "skipped": 1, "wanted": 7, "not_done": [],
                                          "failed_tests": []})
        self.assertEqual(found["huge"]["passed"], 1)
        self.assertEqual(found["sanitizers"]["racecheck"]["tests"], 4)
        self.assertEqual([part["name"] for part in found["conv2d"]], ["dense_bf16_n1", "dense_f32"])
        self.assertEqual([len(part["rows"]) for part in found["conv2d"]], [18, 18])
        self.assertEqual(len(found["networks"]["whole"]), 18)
        self.assertEqual(found["ceilings"], {"f32_flops_per_second": 5e13})
        self.assertEqual(set(found["sparse"]), {"f32", "f16", "net"})
        self.assertEqual(set(found["compressed"]), {"int8", "int8_block_sparse", "block_sparse"})
        self.assertTrue(all(entry["complete"] for entry in found["measured"].values()))
        out = self.record("verify")
        self.assertIn("NVIDIA H200, driver 580.1, 6 tests passed, 1 source files", out)
        self.assertEqual(out.count("\n"), 1, out)  # no debts
        # Done is done; and the record needs no GPU.
        self.fake(no_gpu=True)
        shutil.rmtree(self.records)
        self.record("write", str(self.root / "parts"))
        self.record("verify")
        self.fake()
        self.assertIn("conv2d_dense_f32: done before", self.check())
        self.assertEqual(self.calls("bench") + self.calls("plain"), [])

    def files(self, suffix):
        return {path.stem for path in (self.root / "parts").glob(f"*.{suffix}")}

    def test_without_a_gpu_nothing_runs(self):
        self.fake(no_gpu=True)
        self.check(code=5)

    def test_programs_find_their_libraries(self):
        self.add("python/nvidia/cu13/lib/libcublas.so.13", "")
        self.add("toolkit/lib64/libcudart.so", "")
        self.environment["CUDA_HOME"] = str(self.root / "toolkit")
        self.check("--only", "huge")
        seen = json.loads((self.root / "environment.json").read_text())
        built = self.root / "built"
        self.assertEqual(seen["CONVSCOPE_CUDA_LIBRARY"], str(built / "lib/libconvscope_cuda.so"))
        self.assertEqual(seen["CONVSCOPE_SOURCE_DIR"], str(self.root))
        paths = seen["LD_LIBRARY_PATH"].split(":")
        self.assertEqual(paths[:2], [str(built / "lib"), str(self.root / "toolkit/lib64")])
        self.assertIn(str(self.root / "python/nvidia/cu13/lib"), paths)

    def test_a_pack_says_what_it_was_made_from(self):
        self.add("built/pack.json", json.dumps({"sources_sha256": "f" * 64, "source_files": 3, "nvcc": "V13"}))
        self.assertIn("made from other device code", self.check("--only", "huge"))
        stamp = self.part("huge.stamp")
        self.assertEqual((stamp["sources_sha256"], stamp["source_files"], stamp["nvcc"]), ("f" * 64, 3, "V13"))

    def test_an_unknown_part_is_a_usage_error(self):
        self.check("--only", "tests,everything", code=2)
        self.check("--fast", code=2)


class Tests(Tree):
    """What fails is said, stays said, and runs again."""

    def compose(self):
        self.old_record()
        return self.record("write", str(self.root / "parts"))

    def test_a_failed_test_is_an_error_until_it_passes(self):
        self.fake(fail=["FewChannelOnCuda.Two"])
        out = self.check("--only", "tests", code=1)
        self.assertIn("tests: FewChannelOnCuda.Two failed", out)
        self.assertIn("tests: 5 passed, 1 failed, 1 skipped", out)
        self.compose()
        self.assertIn("its tests did not pass", self.record("verify", code=1))
        self.assertEqual(self.written()["tests"]["failed_tests"], ["FewChannelOnCuda.Two"])
        self.fake()
        self.check("--only", "tests")
        self.assertEqual(self.calls("plain"), [["FewChannelOnCuda.Two"]])
        self.compose()
        self.record("verify")

    def test_a_crash_fails_one_test_and_the_others_run(self):
        self.fake(crash=["FewChannelOnCuda.Two"])
        out = self.check("--only", "tests,sanitizers", code=1)
        self.assertIn("tests: 5 passed, 1 failed, 1 skipped", out)
        self.assertIn("memcheck: 1 errors, 3 of 3 tests", out)
        self.assertEqual(self.part("memcheck.json")["failed_tests"], ["FewChannelOnCuda.Two"])

    def test_a_program_that_does_not_start_fails_all_of_its_tests(self):
        self.check("--only", "huge")
        (self.root / "parts/huge.rows").unlink()
        program = self.root / "built/bin/test_cuda"
        program.write_text(program.read_text().replace("def test_cuda(words):\n", "def test_cuda(words):\n"
                           "    if '--gtest_list_tests' not in words: sys.exit(127)\n"))
        self.assertIn("huge: 0 passed, 1 failed", self.check("--only", "huge", code=1))

    def test_tests_that_are_not_done_are_an_error(self):
        self.fake(slow=["Others.Alone"])
        out = self.check("--only", "tests", "--seconds", "3", code=75)
        self.assertRegex(out, "this goes on: .*--only tests --seconds 3 --parts")
        self.compose()
        self.assertRegex(self.record("verify", code=1), "tests: .*Others.Alone.* not done")
        self.record("incomplete", "tests", "the machine was gone")
        out = self.record("verify")
        self.assertIn("incomplete: tests: the machine was gone", out)
        self.assertRegex(out, "not done: tests: .*Others.Alone")

    def test_huge_is_a_part_of_its_own(self):
        self.check("--only", "tests")
        self.assertFalse((self.root / "parts/huge.json").exists())
        self.compose()
        self.assertIn("not run: huge", self.record("verify"))
        self.fake(fail=["Deform/DeformOnCudaBeyond31Bits.EveryCard/0"])
        self.check("--only", "huge", code=1)
        self.compose()
        self.assertIn("its tests beyond 2^31 did not pass", self.record("verify", code=1))

    def test_a_hazard_is_an_error_with_a_name(self):
        self.fake(report={"racecheck": ["FewChannelOnCuda.Two"]})
        out = self.check("--only", "sanitizers", code=1)
        self.assertIn("racecheck: 1 errors, 3 of 3 tests", out)
        self.assertIn("memcheck: 0 errors, 3 of 3 tests", out)
        self.compose()
        self.assertIn("racecheck found 1 errors", self.record("verify", code=1))
        self.assertEqual(self.written()["sanitizers"]["racecheck"]["reported_tests"], ["FewChannelOnCuda.Two"])
        self.fake()
        self.check("--only", "sanitizers")
        self.assertEqual(self.calls("racecheck"), [["FewChannelOnCuda.Two"]])
        self.compose()
        self.record("verify")

    def test_known_reports_are_set_aside_for_their_test_and_tool_alone(self):
        self.environment["CONVSCOPE_SANITIZER_FILTER"] = "ForwardMoments*"
        name = "ForwardMomentsPlanOnCuda.Bf16"
        self.fake(report={"initcheck": [name]})
        self.assertIn("initcheck: 0 errors, 1 set aside, 1 of 1 tests", self.check("--only", "sanitizers"))
        self.compose()
        self.assertRegex(self.record("verify"), f"set aside: initcheck, {name}: .*not known")
        self.fake(report={"memcheck": [name]})
        (self.root / "parts/memcheck.rows").unlink()
        self.check("--only", "sanitizers", code=1)

    def test_a_share_that_is_missing_leaves_the_test_undone(self):
        self.environment["CONVSCOPE_SANITIZER_FILTER"] = RANDOM
        self.check("--only", "sanitizers")
        rows = (self.root / "parts/racecheck.rows").read_text().splitlines()
        self.assertEqual(len(rows), 8)
        (self.root / "parts/racecheck.rows").write_text("\n".join(rows[:7]) + "\n" + rows[7][:30])  # half a line
        self.fake(slow=[RANDOM])
        self.check("--only", "sanitizers", "--seconds", "2", code=75)
        found = self.part("racecheck.json")
        self.assertEqual((found["tests"], found["wanted"], len(found["not_done"])), (0, 1, 1))
        self.fake()
        self.check("--only", "sanitizers")
        self.assertEqual(len(self.calls("racecheck")), 1)

    def test_other_sources_begin_anew(self):
        self.check("--only", "huge")
        self.fake()
        self.check("--only", "huge")
        self.assertEqual(self.calls("plain"), [])
        self.add("framework/a.cu", "int b;\n")
        self.check("--only", "huge")
        self.assertEqual(len(self.calls("plain")), 1)


class Records(Tree):
    def test_what_was_not_run_is_taken_over_and_said(self):
        self.old_record(incomplete={"sparse": "of older sources"})
        self.assertEqual(self.record("verify").count("\n"), 2)  # an old record is read as it was
        self.check("--only", "tests,sanitizers,conv2d")
        self.assertIn("deform: taken over from the record of 2020-01-01T00:00:00Z",
                      self.record("write", str(self.root / "parts")))
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
        self.assertIn("of other sources than today's (not known; NVIDIA H100, 2020-01-01): sparse_f32", out)
        self.assertIn("said of it: of older sources: sparse_f32", out)
        # A second record on top keeps where things are from.
        (self.root / "parts" / "huge.stamp").unlink(missing_ok=True)
        self.check("--only", "huge")
        self.record("write", str(self.root / "parts"))
        self.assertEqual(self.written()["measured"]["deform"], deform)

    def test_without_a_base_a_missing_part_is_an_error(self):
        self.check("--only", "tests,sanitizers")
        self.record("write", str(self.root / "parts"), "--base", "none")
        out = self.record("verify", code=1)
        for part in ("ceilings", "conv2d", "deform", "sparse", "compressed", "networks"):
            self.assertIn(f"its part '{part}' is missing", out)

    def test_older_sources_are_an_error_but_for_later(self):
        self.old_record()
        self.check("--only", "tests,sanitizers,huge")
        self.record("write", str(self.root / "parts"))
        self.assertIn("nothing is later", self.record("later", "why", code=1))
        self.add("framework/a.cu", "int b;  // changed\n")
        self.assertIn("its tests, memcheck, racecheck, initcheck were made from other device code",
                      self.record("verify", code=1))
        self.record("later", "b is the better name")
        out = self.record("verify")
        self.assertIn("not measured as they are: b is the better name", out)
        self.assertRegex(out, r"of other sources than today's \(.*\): .*huge")
        self.add("framework/a.cu", "int c;\n")
        self.record("verify", code=1)
        self.record("later", "c is better still")
        self.assertIn("b is the better name; c is better still", self.record("verify"))
        # The tests anew; what was said of the sanitizers still holds, and only of these sources.
        self.check("--only", "tests")
        self.record("write", str(self.root / "parts"))
        self.assertIn("not measured as they are", self.record("verify"))
        self.add("framework/a.cu", "int d;\n")
        self.check("--only", "tests")
        self.record("write", str(self.root / "parts"))
        self.assertIn("its memcheck, racecheck, initcheck were made", self.record("verify", code=1))

    def test_later_names_an_old_record(self):
        self.old_record()
        self.add("framework/a.cu", "int b;\n")
        self.record("verify", code=1)
        self.record("later", "a name")
        self.assertIn("not measured as they are: a name", self.record("verify"))

    def test_a_list_that_was_cut_off_does_not_replace_a_whole_one(self):
        self.old_record()
        self.fake(slow=[PROBLEMS[4]])
        self.stopped_when(lambda: [PROBLEMS[4]] in self.calls("bench"))
        self.assertEqual(len(self.part("conv2d_dense_f32.json")["rows"]), 12)
        self.record("write", str(self.root / "parts"))
        found = self.written()
        self.assertEqual([len(part["rows"]) for part in found["conv2d"]], [1])
        self.assertEqual(found["measured"]["conv2d_dense_f32"]["cut_off"]["rows"], 12)
        self.assertIn("cut off the last time, so an older one stands here: conv2d_dense_f32", self.record("verify"))
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
    """conv2d_gpu_vs_pytorch.py by itself, and the scripts of whole networks."""

    def peer(self, *words, code=0, script="conv2d_gpu_vs_pytorch.py"):
        lists = ["--shapes", str(self.root / "experiments/shapes/gpu_dense.txt")] if "conv2d" in script else []
        done = subprocess.run([sys.executable, str(self.root / "experiments/peers" / script), *lists, "--program",
                               str(self.root / "built/bin/convscope"), "--json", str(self.root / "out.json"), *words],
                              capture_output=True, text=True, env=self.environment)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout

    def test_a_list_stops_and_goes_on(self):
        self.peer("--seconds", "0", code=75)
        self.assertEqual(self.calls("bench"), [])
        self.peer("--portion", "2")
        whole = json.loads((self.root / "out.json").read_text())
        self.assertEqual((whole["complete"], whole["done"], len(whole["rows"])), (True, PROBLEMS, 18))
        part = {**whole, "complete": False, "done": PROBLEMS[:5], "rows": whole["rows"][:15]}
        self.add("out.json", json.dumps(part))
        self.fake()
        self.peer("--go-on")
        self.assertEqual(self.calls("bench"), [PROBLEMS[5:]])
        self.assertEqual(json.loads((self.root / "out.json").read_text()), whole)

    def test_rows_of_another_gpu_or_setting_are_not_mixed(self):
        self.peer("--portion", "6")
        self.fake(gpu="NVIDIA H100")
        self.assertIn("begins anew", self.peer("--go-on"))
        self.assertEqual(len(self.calls("bench")), 6)
        self.fake(gpu="NVIDIA H100")
        self.assertIn("rows with batch 0", self.peer("--go-on", "--batch", "1"))

    def test_a_crash_keeps_the_portions_before_it(self):
        program = self.root / "built/bin/convscope"
        program.write_text(program.read_text().replace('note("bench", line)', f'''note("bench", line)
        if line == "{PROBLEMS[5]}":
            os.kill(os.getpid(), 11)'''))
        self.peer(code=1)
        self.assertEqual(len(json.loads((self.root / "out.json").read_text())["rows"]), 12)

    def test_networks_go_on(self):
        for script, count, more in (("net_gpu_vs_pytorch.py", 18, []),
                                    ("lenet_step_gpu_vs_pytorch.py", 5, ["--kinds", "CUDA graph"])):
            (self.root / "out.json").unlink(missing_ok=True)
            self.peer("--seconds", "0", *more, script=script, code=75)
            self.peer(*more, script=script)
            rows = json.loads((self.root / "out.json").read_text())
            self.assertEqual(len(rows), count)
            self.add("out.json", json.dumps(rows[:-2]))
            self.fake()
            self.peer("--go-on", *more, script=script)
            self.assertEqual(len(self.calls("net")), 2)
            self.assertEqual(len(json.loads((self.root / "out.json").read_text())), count)


class Outcome(unittest.TestCase):
    """gpu_tests.outcome, which reads what a process printed."""

    RAN = "[ RUN      ] A.a\n[       OK ] A.a (5 ms)\n[ RUN      ] A.b\n"

    def outcome(self, text, code, tool="", stopped=False):
        results, again = gpu_tests.outcome(text, code, ["A.a", "A.b", "A.c"], tool, stopped)
        return {name: (one["result"], one.get("errors", 0)) for name, one in results.items()}, again

    def test_who_was_stopped_has_what_it_finished_but_not_under_a_tool(self):
        self.assertEqual(self.outcome(self.RAN, -15, stopped=True), ({"A.a": ("passed", 0)}, []))
        self.assertEqual(self.outcome(self.RAN, -15, "racecheck", stopped=True), ({}, []))

    def test_a_crash(self):
        self.assertEqual(self.outcome(self.RAN, -11),
                         ({"A.a": ("passed", 0), "A.b": ("failed", 0)}, ["A.c"]))
        self.assertEqual(self.outcome(self.RAN, 1, "racecheck"), ({"A.b": ("failed", 0)}, ["A.a", "A.c"]))

    def test_a_bad_end_behind_good_tests_is_no_success(self):
        text = "".join(f"[ RUN      ] A.{x}\n[       OK ] A.{x} (5 ms)\n" for x in "abc")
        self.assertEqual(self.outcome(text, 0)[0]["A.c"], ("passed", 0))
        self.assertEqual(self.outcome(text, -11)[0]["A.c"], ("failed", 0))
        self.assertEqual(self.outcome(text, 1)[0]["A.c"], ("failed", 0))
        clean = text + "========= ERROR SUMMARY: 0 errors\n"
        self.assertEqual(self.outcome(clean, 0, "memcheck")[0]["A.c"], ("passed", 0))
        self.assertEqual(self.outcome(clean, 9, "memcheck")[0]["A.c"], ("failed", 0))
        without_a_summary = {name: ("failed", 0) for name in ("A.a", "A.b", "A.c")}
        self.assertEqual(self.outcome(text, 0, "memcheck"), (without_a_summary, []))

    def test_all_errors_are_counted_where_few_are_printed(self):
        text = ("[ RUN      ] A.a\n[       OK ] A.a (5 ms)\n[ RUN      ] A.b\n"
                "========= Invalid __global__ read of size 4 bytes\n=========     at f()\n[       OK ] A.b (5 ms)\n"
                "[ RUN      ] A.c\n[       OK ] A.c (5 ms)\n========= ERROR SUMMARY: 7 errors\n")
        self.assertEqual(self.outcome(text, 9, "memcheck")[0],
                         {"A.a": ("passed", 0), "A.b": ("passed", 7), "A.c": ("passed", 0)})
        bare = text.replace("========= Invalid __global__ read of size 4 bytes\n", "")
        self.assertEqual(sum(one[1] for one in self.outcome(bare, 9, "memcheck")[0].values()), 7)
        self.assertEqual(gpu_tests.SUMMARY.search("RACECHECK SUMMARY: 4 hazards displayed (3 errors, 1 warnings)")
                         .groups(), (None, "3"))


@unittest.skipIf(any(shutil.which(name) is None for name in ("ldd", "strip", "xz", "tar")), "no ldd, strip, xz, tar")
class Pack(Tree):
    def test_a_pack_has_programs_and_libraries_and_not_the_systems(self):
        xz = pathlib.Path(shutil.which("xz")).resolve()
        library = next(line.split()[2] for line in subprocess.run(["ldd", xz], capture_output=True, text=True)
                       .stdout.splitlines() if "liblzma" in line)
        for name, source in (("bin/convscope", xz), ("bin/test_cuda", xz), ("lib/libconvscope_cuda.so", library)):
            shutil.copy(source, self.root / "built" / name)
        for folder in ("layers", "optim", "quant", "sparsity", "datasets"):
            (self.root / folder).mkdir()
        command = ["bash", str(self.root / "experiments/bench/gpu_pack.sh"), str(self.root / "out"), "--build", "built"]
        subprocess.run(["touch", self.root / "built/lib/libconvscope_cuda.so"], check=True)
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        names = subprocess.run(["tar", "-tJf", self.root / "out/pack.tar.xz"], capture_output=True, text=True,
                               check=True).stdout.split()
        self.assertEqual({name for name in names if not name.endswith("/")},
                         {"./pack.json", "./bin/convscope", "./bin/test_cuda", "./lib/libconvscope_cuda.so",
                          "./lib/liblzma.so.5"})
        text = subprocess.run(["tar", "-xJOf", self.root / "out/pack.tar.xz", "./pack.json"], capture_output=True,
                              text=True, check=True).stdout
        self.assertEqual(json.loads(text)["sources_sha256"], self.record("hash").strip())
        os.utime(self.root / "framework/a.cu", (time.time() + 60, time.time() + 60))
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment)
        self.assertEqual(done.returncode, 1)
        self.assertIn("framework/a.cu is newer", done.stderr)


if __name__ == "__main__":
    unittest.main()
