#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests experiments/baselines without the systems that it compares with Convscope. Checks which packages setup.py
requests from pip, how the table is computed, and nets_vs_baselines.py with stubs of the program and of the systems.
Nothing is downloaded."""
import contextlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import types
import unittest

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "experiments" / "baselines"
sys.path.insert(0, str(FOLDER))
import net_table
import ranks_vs_pytorch
import setup


def completed_process(code=0, out="", error=""):
    return types.SimpleNamespace(returncode=code, stdout=out, stderr=error)


class Setup(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name) / "baselines"
        self.there, self.offline, self.commands = {}, False, []

    def tearDown(self):
        self.temporary.cleanup()

    def run_command(self, command, **_):
        """Imitates three commands: venv makes a python, `pip list` lists packages, `pip install` adds
        packages."""
        self.commands.append(command)
        if "venv" in command:
            setup.python_of(self.folder).parent.mkdir(parents=True)
            setup.python_of(self.folder).touch()
        elif "list" in command:
            return completed_process(out="".join(f"{n}=={v}\n" for n, v in self.there.items()))
        elif "install" in command:
            if self.offline:
                return completed_process(1, error="WARNING: Retrying\nERROR: No matching distribution found\n")
            self.there.update(p.split("==") for p in command if "==" in p)
            for name in setup.ONEDNN_FILES:
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / name).touch()
        return completed_process()

    def call(self, *arguments):
        out, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            code = setup.main(["--folder", str(self.folder), *arguments], self.run_command)
        return code, out.getvalue(), error.getvalue()

    def installs(self):
        return [[p for p in c if "==" in p] for c in self.commands if "install" in c]

    def test_every_package_has_one_version(self):
        for package in setup.wanted(setup.GROUPS):
            self.assertRegex(package, r"^[a-z-]+==[0-9.]+$")

    def test_a_list_runs_nothing(self):
        code, out, _ = self.call("--list", "--only", "onednn")
        self.assertEqual((code, out.split()), (0, setup.GROUPS["onednn"]))
        self.assertEqual(self.commands, [])

    def test_all_of_it_is_fetched_once(self):
        code, out, error = self.call()
        self.assertEqual(code, 0, error)
        self.assertIn("9 packages installed, 0 were there", out)
        code, out, _ = self.call()
        self.assertIn("0 packages installed, 9 were there", out)
        self.assertEqual(self.installs(), [setup.wanted(setup.GROUPS)])
        self.assertEqual(sum("venv" in c for c in self.commands), 1)

    def test_one_part_is_fetched_alone_and_named_in_the_next_command(self):
        _, out, _ = self.call("--only", "onednn")
        self.assertEqual(self.installs(), [setup.GROUPS["onednn"]])
        self.assertIn(f"cmake --preset release -DCONVSCOPE_BASELINES_DIR={self.folder} ", out)
        self.assertNotIn("nets_vs_baselines.py", out)
        _, out, _ = self.call("--only", "networks")
        self.assertIn("nets_vs_baselines.py", out)
        self.assertNotIn("cmake", out)

    def test_the_default_folder_needs_no_option_of_cmake(self):
        self.assertIn("cmake --preset release &&", setup.next_command(setup.FOLDER, ["onednn"])[0])

    def test_another_version_is_replaced(self):
        self.call()
        self.there.update({"torch": "2.15.0+cpu", "openvino": "2024.1.0"})
        self.call()
        self.assertEqual(self.installs()[1:], [[p for p in setup.GROUPS["networks"] if "openvino" in p]])

    def test_without_a_network_the_sentence_is_pips(self):
        self.offline = True
        code, out, error = self.call("--only", "onednn")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("ERROR: No matching distribution found; is PyPI reachable?", error)

    def test_a_folder_of_somebody_else_is_left_alone(self):
        self.folder.mkdir()
        (self.folder / "thesis.tex").touch()
        code, _, error = self.call()
        self.assertEqual((code, self.commands), (1, []))
        self.assertIn("expected", error)

    def test_a_wheel_of_another_layout_is_an_error(self):
        self.call("--only", "onednn")
        (self.folder / setup.ONEDNN_FILES[1]).unlink()
        code, _, error = self.call("--only", "onednn")
        self.assertEqual(code, 1)
        self.assertIn("dnnl-config.cmake", error)

    def test_an_unknown_part_is_a_usage_error(self):
        with self.assertRaises(SystemExit) as raised:
            self.call("--only", "mkl")
        self.assertEqual(raised.exception.code, 2)


@unittest.skipIf(shutil.which("cmake") is None, "cmake is not installed")
class CMake(unittest.TestCase):
    """Tests baselines.cmake in a separate project. Stub package files report which installation of oneDNN CMake has
    found."""

    def add(self, prefix, version):
        folder = prefix / "lib" / "cmake" / "dnnl"
        folder.mkdir(parents=True)
        (folder / "dnnl-config.cmake").write_text(
            f'message(STATUS "found {version}")\nset(dnnl_FOUND FALSE)\n')

    def configured(self, root, *options):
        run = subprocess.run(["cmake", "-S", str(root), "-B", str(root / "out"), *options,
                              f"-DCMAKE_PREFIX_PATH={root / 'system'}"],
                             capture_output=True, text=True, check=True)
        return [line[9:] for line in run.stdout.splitlines() if line.startswith("-- found ")]

    def test_the_folder_of_setup_goes_before_the_system(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "CMakeLists.txt").write_text(
                "cmake_minimum_required(VERSION 3.25)\nproject(baselines NONE)\n"
                f"include({FOLDER.parents[1]}/framework/cmake/baselines.cmake)\n")
            self.add(root / "system", "2.6.3")
            self.assertEqual(self.configured(root), ["2.6.3"])
            self.add(root / "build" / "baselines", "3.2.0")
            self.assertEqual(self.configured(root), ["3.2.0"])
            self.add(root / "mine", "3.9.0")
            mine = f"-DCONVSCOPE_BASELINES_DIR={root / 'mine'}"
            self.assertEqual(self.configured(root, mine), ["3.9.0"])
            former = f"-DCONVSCOPE_PEERS_DIR={root / 'mine'}"
            self.assertEqual(self.configured(root, former), ["3.9.0"])
            shutil.rmtree(root / "mine")
            self.assertEqual(self.configured(root), ["2.6.3"])
            self.assertEqual(self.configured(root, "-DCONVSCOPE_PEERS=OFF"), [])
            self.assertEqual(self.configured(root, "-DCONVSCOPE_BASELINES=ON"), ["2.6.3"])
            self.assertEqual(self.configured(root, "-DCONVSCOPE_BASELINES=OFF"), [])


class Table(unittest.TestCase):
    TURNS = {net_table.OURS: [{"ms": [4.0], "min": 2.0, "process": 30 << 20},
                              {"ms": [6.0], "min": 3.0, "process": 40 << 20},
                              {"ms": [5.0], "min": 3.0, "process": 20 << 20}],
             "A": [{"ms": [9.0, 10.0, 90.0], "process": 5 << 20, "before": 1 << 20}],
             "B": [{"ms": [20.0, 1.0, 20.0], "process": 7 << 20, "before": 2 << 20}]}

    def test_the_best_baseline_is_that_of_the_least_median(self):
        row = net_table.row_of("net N=1", 2, self.TURNS)
        self.assertEqual(row["systems"][net_table.OURS]["median_ms"], 5.0)
        self.assertEqual(row["systems"][net_table.OURS]["min_ms"], 2.0)
        self.assertEqual(row["systems"][net_table.OURS]["process_bytes"], 40 << 20)
        self.assertEqual((row["best_baseline"], row["ratio"]), ("A", 2.0))
        self.assertEqual(row["ratio_min"], 0.5)  # B's shortest run
        self.assertEqual(row["systems"]["B"]["ratio"], 4.0)
        self.assertEqual(row["systems"]["A"]["ratio_min"], 4.5)

    def test_lines_begin_with_ours_and_mark_the_best(self):
        lines = list(net_table.cells_of(net_table.row_of("net N=1", 2, self.TURNS)))
        self.assertEqual(lines, [
            ["net N=1", "2", "Convscope", "5.000", "2.000", "", "", "40", "-"],
            ["net N=1", "2", "A *", "10.000", "9.000", "2.00", "4.50", "5", "1"],
            ["net N=1", "2", "B", "20.000", "1.000", "4.00", "0.50", "7", "2"]])
        self.assertTrue(all(len(line) == len(net_table.HEADER) for line in lines))

    def test_the_closing_is_of_each_number_of_threads(self):
        rows = [{"threads": 1, "ratio": 2.0, "case": "a", "best_baseline": "A"},
                {"threads": 1, "ratio": 0.5, "case": "b", "best_baseline": "B"},
                {"threads": 2, "ratio": 3.0, "case": "c", "best_baseline": "A"}]
        one, two = net_table.closing(rows).split("\n")
        self.assertTrue(one.startswith("1 thread: "))
        self.assertIn("geometric mean 1.00, least 0.50 (b, B); ahead in 1 of 2 cases", one)
        self.assertTrue(two.startswith("2 threads: "))
        self.assertIn("geometric mean 3.00", two)

    def test_a_busy_machine_is_remarked_on(self):
        self.assertEqual(net_table.load_remark(0.2, 2, 2), "")
        self.assertEqual(net_table.load_remark(1.1, 1, 2), "")
        self.assertIn("kept 1.1 of 2 cores busy, so 2 threads did not have", net_table.load_remark(1.1, 2, 2))


PROGRAM = """import json, sys
if "bench" in sys.argv:
    row = {"median_ms": 2.0, "min_ms": 1.0, "process_peak_bytes": 1 << 20}
    out = {"rows": [row], "machine": {"cpu": "pretended", "cores_of_others": 999}}
    open(sys.argv[sys.argv.index("--json") + 1], "w").write(json.dumps(out))
"""
# Called as `python net_systems.py SYSTEM ...`.
SYSTEM = """import json, os, sys
system = sys.argv[2]
out = {"ms": [3.0], "process": 1, "before": 1, "version": "9", "error": 1e-7, "tolerance": 1e-4}
if system in json.loads(os.environ["ABSENT"]):
    out = {"skipped": "No module named " + system}
if system in json.loads(os.environ["BROKEN"]):
    out["error"] = float("nan")
print("chatter"); print(json.dumps(out))
"""


class Networks(unittest.TestCase):
    def call(self, *arguments, absent=(), broken=()):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, body in (("program", PROGRAM), ("python", SYSTEM)):
                (root / name).write_text(f"#!{sys.executable}\n{body}")
                (root / name).chmod(0o755)
            run = subprocess.run(
                [sys.executable, str(FOLDER / "nets_vs_baselines.py"), "--program", str(root / "program"),
                 "--python", str(root / "python"), "--json", str(root / "out.json"), "--repeats", "1",
                 "--only", "lenet5", "--threads", "1", *arguments], capture_output=True, text=True,
                env={**os.environ, "ABSENT": json.dumps(absent), "BROKEN": json.dumps(broken)})
            file = root / "out.json"
            return run, json.loads(file.read_text()) if file.exists() else None

    def test_all_systems_stand_in_the_table(self):
        run, written = self.call()
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("5 systems compared with Convscope, 0 skipped, 0 wrong", run.stdout)
        self.assertEqual([row["case"] for row in written["rows"]], ["lenet5 N=1", "lenet5 N=8"])
        self.assertEqual(written["rows"][0]["ratio"], 1.5)
        self.assertEqual(written["versions"]["OpenVINO"], "9")
        self.assertIn("other programs kept 999.0 of", run.stdout)
        self.assertNotIn("other programs", self.call("--clock", "cpu")[0].stdout)

    def test_an_absent_system_is_skipped_and_counted(self):
        run, written = self.call(absent=["OpenVINO", "torch.compile"])
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stderr.count("skipped: OpenVINO: No module named OpenVINO"), 1)
        self.assertIn("3 systems compared with Convscope, 2 skipped, 0 wrong", run.stdout)
        self.assertEqual(sorted(written["skipped"]), ["OpenVINO", "torch.compile"])
        self.assertNotIn("OpenVINO", written["rows"][0]["systems"])

    def test_without_pytorch_nothing_can_be_compared(self):
        run, _ = self.call(absent=["export"])
        self.assertEqual(run.returncode, 77)
        self.assertIn("0 systems compared with Convscope, 5 skipped, 0 wrong", run.stdout)

    def test_a_wrong_system_is_not_timed(self):
        run, written = self.call(broken=["ONNX Runtime"])
        self.assertEqual(run.returncode, 1)
        self.assertIn("WRONG RESULT, not timed: ONNX Runtime, lenet5 N=1", run.stderr)
        self.assertNotIn("ONNX Runtime", written["rows"][0]["systems"])

    def test_ours_wrong_times_nothing(self):
        run, written = self.call(broken=["export"])
        self.assertEqual((run.returncode, written), (1, None))
        self.assertIn("WRONG RESULT, not timed: Convscope, lenet5", run.stderr)

    def test_mistakes_in_the_command_line(self):
        for arguments, part in ((["--threads", "2", "--clock", "cpu"], "--threads 1 with --clock cpu"),
                                (["--only", "vgg"], "resnet18, mobilenet_v1, mobilenet_v2, lenet5"),
                                (["--repeats", "0"], "at least 1"),
                                (["--program", "/nowhere"], "build it first")):
            run, _ = self.call(*arguments)
            self.assertEqual(run.returncode, 2, arguments)
            self.assertIn(part, run.stderr)


class Scripts(unittest.TestCase):
    def test_each_script_is_python(self):
        files = sorted(FOLDER.glob("*.py"))
        self.assertGreater(len(files), 8)
        for file in files:
            compile(file.read_text(), str(file), "exec")


# Two processes have 0.98 times the images/s of one.
RANKS_PROGRAM = """import json, pathlib, sys
together = sys.argv[1] == "launch"
assert sys.argv[1:5] == ["launch", "-n", "2", "run"] if together else sys.argv[1] == "run"
assert f"threads={1 if together else 2}" in sys.argv, sys.argv
run = pathlib.Path(sys.argv[sys.argv.index("-o") + 1]) / "name" / "run"
run.mkdir(parents=True)
(run / "summary.json").write_text(json.dumps({"images_per_s": 980 if together else 1000}))
(run / "env.json").write_text(json.dumps({"version": "9.9", "cpu": "pretended", "cores_of_others": 1}))
"""


class Ranks(unittest.TestCase):
    def call(self, *arguments, **variables):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name in ("program", "mpirun"):
                (root / name).write_text(f"#!{sys.executable}\n{RANKS_PROGRAM}")
                (root / name).chmod(0o755)
            return subprocess.run(
                [sys.executable, str(FOLDER / "ranks_vs_pytorch.py"), "--program",
                 str(root / "program"), "--quick", "--no-torch", *arguments], capture_output=True,
                text=True, env={**os.environ, "PATH": str(root), **variables})

    def test_a_row_for_each_network(self):
        run = self.call()
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("Convscope 9.9; pretended", run.stdout)
        rows = [line for line in run.stdout.splitlines() if line.startswith("| ")][2:]
        self.assertEqual(len(rows), 2)
        self.assertIn("| 256.00 [256.00, 256.00] | 261.22 [261.22, 261.22] | 1000 | 980 "
                      "| 0.980 [0.980, 0.980] | yes |", rows[0])
        self.assertIn("| 64.00 [64.00, 64.00] |", rows[1])
        self.assertIn("Other programs kept 1.0 cores busy during lenet5", run.stdout)

    def test_ratios_are_of_one_turn_and_below_the_wish_is_said(self):
        case = ranks_vs_pytorch.CASES["lenet5"]
        row, = ranks_vs_pytorch.rows_of(case, {"A": {1: [9.0, 10.0, 20.0], 2: [10.0, 20.0, 10.0]}})
        self.assertEqual(row[6:], ["0.900 [0.500, 2.000]", "no"])
        self.assertEqual(len(row), len(ranks_vs_pytorch.HEAD))

    def test_without_a_launcher_it_is_skipped(self):
        run = self.call(PATH="/nowhere")
        self.assertEqual((run.returncode, run.stdout), (77, ""))
        self.assertIn("skipped: no mpirun in PATH", run.stderr)


if __name__ == "__main__":
    unittest.main()
