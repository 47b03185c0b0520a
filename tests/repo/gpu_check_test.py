#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests a GPU check without a GPU (gpu_tree.py): interruption, continuation, the parts of a check, verification,
failures, the archive for another machine."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

from gpu_tree import FEW, PROBLEMS, RANDOM, REPOSITORY, TOOLS, Tree

sys.path.insert(0, str(REPOSITORY / "experiments" / "bench"))
import gpu_tests


class WholeCheck(Tree):
    def test_cut_off_gone_on_composed_verified(self):
        self.environment["CONVSCOPE_SANITIZER_FILTER"] = f"{RANDOM}:{FEW}"
        # At first one test hangs. Two other tests have already finished in the same process.
        self.fake(slow=["FewChannelOnCuda.Three"])
        out = self.stopped_when(lambda: all(self.rows(tool) == 8 for tool in TOOLS) and self.rows("huge") == 1
                                and all(["FewChannelOnCuda.Three"] in self.calls(key) for key in ("plain", *TOOLS)))
        self.assertIn("left: tests, racecheck, memcheck, initcheck, peaks, net_lenet5", out)
        self.assertRegex(out, "this goes on: .* --parts")
        self.assertEqual(len(list(self.records.iterdir())), 0)
        stamp = self.part("racecheck.stamp")
        self.assertEqual((stamp["complete"], stamp["failed"], stamp["gpu"]["name"]), (False, False, "NVIDIA H200"))
        self.assertEqual(self.part("racecheck.json")["not_done"],
                         [f"FewChannelOnCuda.{name}" for name in ("One", "Two", "Three")])
        self.assertEqual(sorted(self.calls("racecheck")), sorted([[RANDOM, f"{i}/8"] for i in range(1, 9)] + [
            [f"FewChannelOnCuda.{name}"] for name in ("One", "Two", "Three")]))
        # Next the second part of a list of convolutions hangs.
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
        self.assertEqual(found["peaks"], {"f32_flops_per_second": 5e13})
        self.assertEqual(set(found["sparse"]), {"f32", "f16", "net"})
        self.assertEqual(set(found["compressed"]), {"int8", "int8_block_sparse", "block_sparse"})
        self.assertTrue(all(entry["complete"] for entry in found["measured"].values()))
        out = self.record("verify")
        self.assertIn("NVIDIA H200, driver 580.1, 6 tests passed, 1 source files", out)
        self.assertEqual(out.count("\n"), 1, out)  # no remark about unmeasured sources
        # A finished check runs nothing again, so its record can be written on a machine without a
        # GPU.
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

    def test_a_list_whose_program_crashed_goes_on_behind_the_rows_before(self):
        self.environment["CONVSCOPE_COMPARE"] = "dense_f32"
        program = self.root / "built/bin/convscope"
        good = program.read_text()
        program.write_text(good.replace('note("bench", line)', f"os._exit(3) if line == '{PROBLEMS[5]}' else 0"))
        self.assertIn("conv2d_dense_f32: exit code 1", self.check("--only", "conv2d", code=1))
        program.write_text(good)
        self.check("--only", "conv2d")
        self.assertEqual([call[0] for call in self.calls("bench")], PROBLEMS[4:])

    def test_rows_of_another_gpu_wait_until_it_is_back(self):
        self.environment["CONVSCOPE_COMPARE"] = "dense_f32"
        words = ("--only", "conv2d")
        for gpu, slow in (("NVIDIA H200", PROBLEMS[5]), ("NVIDIA H100", PROBLEMS[4])):
            self.fake(gpu=gpu, slow=[slow])
            self.stopped_when(lambda: [slow] in self.calls("bench"), *words)
            self.assertEqual([call[0] for call in self.calls("bench")][:4], PROBLEMS[:4])
            self.assertEqual(self.calls("info"), [gpu.split()])  # its measured peaks, once
        self.assertEqual(self.part("conv2d_dense_f32.json")["device"], "NVIDIA H100")
        self.fake(gpu="NVIDIA H200")
        self.check(*words)
        self.assertEqual([call[0] for call in self.calls("bench")], PROBLEMS[4:])
        self.assertEqual(self.calls("info"), [])
        found = self.part("conv2d_dense_f32.json")
        self.assertEqual((found["device"], len(found["rows"])), ("NVIDIA H200", 18))

    def test_an_unknown_part_is_a_usage_error(self):
        self.check("--only", "tests,everything", code=2)
        self.check("--fast", code=2)


class Tests(Tree):
    """Tests that a failure is reported, is kept in the record, and is run again."""

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

    def test_tests_that_cannot_be_listed_and_a_missing_sanitizer_are_failures(self):
        self.environment["PATH"] = self.environment["PATH"].replace(f"{self.root / 'fakes'}:", f"{self.root / 'few'}:")
        self.add("few/nvidia-smi", (self.root / "fakes/nvidia-smi").read_text())
        (self.root / "few/nvidia-smi").chmod(0o755)
        if shutil.which("compute-sanitizer", path=self.environment["PATH"]) is None:
            self.assertIn("compute-sanitizer was not found", self.check("--only", "sanitizers", code=1))
        self.add("built/bin/test_cuda", "#!/bin/sh\nexit 1\n")
        self.assertIn("the tests cannot be listed", self.check("--only", "tests", code=1))

    def test_tests_that_are_not_done_are_an_error(self):
        self.fake(slow=["Others.Alone"])
        self.stopped_when(lambda: ["Others.Alone"] in self.calls("plain"), "--only", "tests")
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
        self.fake(fail=["Deform/DeformOnCudaBeyond31Bits.EveryAlgorithm/0"])
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

    def test_a_test_that_fails_under_a_tool_alone_can_be_explained_and_a_report_cannot(self):
        name = "FewChannelOnCuda.Two"
        self.fake(fail=[name])
        self.check("--only", "sanitizers", code=1)
        self.compose()
        self.assertIn("initcheck found 1 errors", self.record("verify", code=1))
        for tool in ("memcheck", "racecheck", "initcheck"):
            self.record("incomplete", tool, "the machine was gone")
        out = self.record("verify")
        self.assertIn(f"failed under initcheck, and only there: {name}", out)
        self.assertIn("incomplete: initcheck: the machine was gone", out)
        self.fake(report={"racecheck": [name]})
        self.check("--only", "sanitizers", code=1)
        self.compose()
        self.record("incomplete", "racecheck", "the machine was gone")
        self.assertIn("racecheck found 1 errors", self.record("verify", code=1))

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
        (self.root / "parts/racecheck.rows").write_text("\n".join(rows[:7]) + "\n" + rows[7][:30])  # an incomplete line
        self.fake(slow=[RANDOM])
        out = self.check("--only", "sanitizers", "--seconds", "2", code=75)
        self.assertRegex(out, "this goes on: .*--only sanitizers --seconds 2 --parts")
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

    def test_a_list_of_other_sources_begins_anew(self):
        self.environment["CONVSCOPE_COMPARE"] = "dense_f32"
        self.fake(slow=[PROBLEMS[5]])
        self.stopped_when(lambda: [PROBLEMS[5]] in self.calls("bench"), "--only", "conv2d")
        for text in ("int b;\n", "int c;\n"):  # after an interrupted list, and after a complete one
            self.add("framework/a.cu", text)
            self.fake()
            self.check("--only", "conv2d")
            self.assertEqual(len(self.calls("bench")), 6)


class Outcome(unittest.TestCase):
    """Tests gpu_tests.outcome, which reads the output of a process."""

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
        two = text.replace("========= ERROR", "========= RACECHECK SUMMARY: 8 hazards displayed (8 errors, 0 warnings)\n"
                                              "========= ERROR")
        self.assertEqual(self.outcome(two, 9, "racecheck")[0]["A.b"], ("passed", 8))
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
