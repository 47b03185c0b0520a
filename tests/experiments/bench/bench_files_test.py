#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests benchmark files: the file that an interrupted benchmark leaves, and `compare` on files that are from a busy
machine, unfinished, of another format or incomplete. Also tests a benchmark that calls two builds alternately.
Call: bench_files_test.py PROGRAM"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
PROBLEM = "c=1,h=6,w=6,k=1,r=3,s=3"
QUICK = ["--direction", "forward", "--min-time", "0.002", "--algorithm", "direct,im2col_gemm"]
PATIENCE_S = 60


class Case(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.environment = dict(os.environ, CONVSCOPE_MEASURE="off")

    def call(self, *words, code=0, program=PROGRAM):
        done = subprocess.run([str(program), *map(str, words)], cwd=self.folder, env=self.environment,
                              capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, code, f"{words}: {done.stdout}\n{done.stderr}")
        return done

    def path(self, name):
        return self.folder / name

    def content(self, name):
        return json.loads(self.path(name).read_text())

    def write(self, name, times, others=0.0, complete=True, form="convscope bench conv2d 1", **more):
        """Writes a benchmark file with one row for each entry of `times`, such as {"direct":
        1.0}."""
        rows = [{"problem": "n=1,c=1,h=6,w=6,k=1,r=3,s=3", "direction": "forward", "algorithm": algorithm,
                 "device": "cpu", "threads": 2, "median_ms": ms,
                 "block_medians_ms": [ms * (1 + 0.001 * i) for i in range(12)], **more}
                for algorithm, ms in times.items()]
        machine = {"cpu": "c", "threads": 2, "cores": 2, "cores_of_others": others}
        content = {"format": form, "complete": complete, "machine": machine, "settings": {"cache": "warm"},
                   "rows": rows}
        if complete is None:
            del content["complete"]
        self.path(name).write_text(json.dumps(content))
        return name


class Interrupted(Case):
    def interrupt(self, *words):
        """Ends a benchmark of two cases after the first one."""
        self.path("b.json").write_text("an older result")
        process = subprocess.Popen([str(PROGRAM), "bench", *words, "--json", "b.json"], cwd=self.folder,
                                   env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + PATIENCE_S
        while (not self.path("b.unfinished.json").exists() and process.poll() is None and
               self.path("b.json").read_text() == "an older result" and time.monotonic() < end):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=PATIENCE_S)[1]
        self.assertEqual(process.returncode, -signal.SIGINT)
        self.assertEqual(self.path("b.json").read_text(), "an older result")
        self.assertIn("bench: not finished; what was measured is in b.unfinished.json", said)
        self.assertIs(self.content("b.unfinished.json")["complete"], False)

    def test_a_benchmark_of_layers_leaves_the_older_file_and_marks_its_own(self):
        words = ["conv2d", "--problem", PROBLEM, "--algorithm", "direct"]
        self.interrupt(*words, "--direction", "forward,backward_data", "--min-time", "0.3")
        self.assertEqual(len(self.content("b.unfinished.json")["rows"]), 1)
        self.call("bench", *words, "--direction", "forward", "--min-time", "0.002", "--json", "b.json")
        self.assertIs(self.content("b.json")["complete"], True)
        self.assertFalse(self.path("b.unfinished.json").exists())

    def test_a_benchmark_of_networks_does_the_same(self):
        self.interrupt("net", "lenet5", "--batch", "1,2", "--mode", "inference", "--min-time", "0.3")

    def test_a_ladder_does_not_empty_the_older_file_when_it_begins(self):
        self.interrupt("conv2d", "--ladder", "direct", "--problem", PROBLEM, "--problem", "c=2,h=6,w=6,k=1,r=3,s=3",
                       "--min-time", "0.1")

    def test_a_device_gets_the_whole_alone(self):
        done = self.call("-q", "bench", "conv2d", "--problem", PROBLEM, "--direction", "forward,backward_data",
                         "--algorithm", "direct", "--min-time", "0.002", "--json", "/dev/stderr")
        self.assertIs(json.loads(done.stderr)["complete"], True)


class Compared(Case):
    def test_rows_that_vanish_are_no_pass(self):
        a = self.write("a.json", {"direct": 1, "fft": 2, "gone": 3})
        b = self.write("b.json", {"direct": 1})
        self.call("compare", a, b)
        done = self.call("compare", a, b, "--fail-above", "1.5", code=7)
        self.assertIn("missing: n=1,c=1,h=6,w=6,k=1,r=3,s=3 forward gone cpu 2 is in A and not in B", done.stderr)
        self.assertEqual(done.stderr.count("missing: "), 2)
        self.assertIn("is in B and not in A", self.call("compare", b, a, "--require-all", code=7).stderr)
        self.call("compare", a, b, "--fail-above", "1.5", "--no-require-all")
        self.call("compare", a, b, "--require-all", "--no-require-all", code=2)
        # If both sides of a comparison have several files, `compare` reports a row that one of the
        # files lacks.
        many = self.call("compare", f"{a},{b}", f"{a},{a}", "--fail-above", "1.5", code=7)
        self.assertEqual(many.stderr.count("missing: "), 2)

    def test_an_unfinished_file_is_no_pass(self):
        a = self.write("a.json", {"direct": 1})
        b = self.write("b.json", {"direct": 1}, complete=False)
        self.assertIn("B was not finished (b.json)", self.call("compare", a, b).stdout)
        self.assertIn("b.json was not finished", self.call("compare", a, b, "--fail-above", "1.5", code=7).stderr)
        older = self.write("older.json", {"direct": 1}, complete=None)
        self.call("compare", older, a, "--fail-above", "1.5")

    def test_a_busy_machine_decides_nothing(self):
        a = self.write("a.json", {"direct": 1, "fft": 1})
        b = self.write("b.json", {"direct": 2, "fft": 1}, others=1.2)
        for first, other in ((a, b), (b, self.write("c.json", {"direct": 4, "fft": 1}))):
            done = self.call("compare", first, other, "--fail-above", "1.1", code=9)
            self.assertIn("undecided: the machine was busy: B: ", done.stderr)
            self.assertNotIn("regression", done.stderr)
            self.assertIn("slower (busy)", done.stdout)
            self.assertIn("other programs used the cores while ", done.stdout)
        self.call("compare", b, b, "--fail-above", "1.1")  # nothing is slower
        quiet = self.write("quiet.json", {"direct": 2, "fft": 1}, others=0.3)
        self.assertIn("regression: ", self.call("compare", a, quiet, "--fail-above", "1.1", code=7).stderr)
        # `compare` uses the load during each row, not the average load while the file was made. A
        # row that ran on a quiet machine counts, even if other rows of its file ran on a busy one.
        rows = self.write("rows.json", {"direct": 2, "fft": 1}, others=1.2, cores_of_others=0.1)
        self.call("compare", a, rows, "--fail-above", "1.1", code=7)
        busy = self.write("busy.json", {"direct": 2, "fft": 1}, others=0, cores_of_others=0.9)
        self.call("compare", a, busy, "--fail-above", "1.1", code=9)
        # A GPU needs no core.
        on_gpu = [self.write(f"g{ms}.json", {"direct": ms}, others=0.9, device="cuda:0") for ms in (1, 2)]
        self.call("compare", *on_gpu, "--fail-above", "1.1", code=7)

    def test_a_measurement_says_how_busy_it_was(self):
        spin = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count())]
        try:
            done = self.call("bench", "conv2d", "--problem", PROBLEM, *QUICK[:2], "--min-time", "0.15", "--algorithm",
                             "direct", "--json", "b.json")
        finally:
            for one in spin:
                one.kill()
                one.wait()
        self.assertIn("warning: other programs used the cores in 1 of 1 case", done.stderr)
        self.assertGreater(self.content("b.json")["rows"][0]["cores_of_others"], 0.3)
        self.assertIn(" (busy)", self.call("compare", "b.json", "b.json").stdout)

    def test_files_of_another_format_are_refused(self):
        good = self.write("a.json", {"direct": 1})
        newer = self.write("n.json", {"direct": 1}, form="convscope bench conv2d 2")
        other = self.write("o.json", {"direct": 1}, form="somebody's benchmark 1")
        for words in (["compare", good, newer], ["compare", newer, newer], ["plot", newer]):
            said = self.call(*words, code=4).stderr
            self.assertIn("the format 'convscope bench conv2d 2', but this program reads 'convscope bench conv2d 1'",
                          said)
        self.assertIn("the format 'somebody's benchmark 1'", self.call("compare", good, other, code=4).stderr)
        ladder = {"format": "convscope bench conv2d ladder 2", "ladders": []}
        self.path("l.json").write_text(json.dumps(ladder))
        for words in (["plot", "l.json"], ["compare", "l.json", "l.json"]):
            self.assertIn("ladder 1'", self.call(*words, code=4).stderr)

    def test_caches_of_another_version_stay(self):
        cache = self.path("cache/convscope")
        cache.mkdir(parents=True)
        self.environment["XDG_CACHE_HOME"] = str(cache.parent)
        text = json.dumps({"format": "convscope peaks 2", "machines": {}})
        (cache / "peaks_cpu.json").write_text(text)
        done = self.call("bench", "conv2d", "--problem", PROBLEM, *QUICK)
        self.assertIn("convscope peaks 2", done.stderr)
        self.assertEqual((cache / "peaks_cpu.json").read_text(), text)


class Pages(Case):
    def test_a_page_of_benchmarks_says_what_when_and_where(self):
        self.call("bench", "conv2d", "--problem", PROBLEM, *QUICK, "--json", "b.json")
        content = self.content("b.json")
        content["machine"].update(cores_of_others=1.7, cores=2, threads=2, cpu="Some CPU")
        content["complete"] = False
        self.path("b.json").write_text(json.dumps(content))
        done = self.call("plot", "b.json", "--kind", "heatmap", "--html", "page.html")
        page = self.path("page.html").read_text()
        self.assertIn("<title>conv2d on Some CPU, 2 threads</title>", page)
        started = content["machine"]["started"].replace("T", " ").rstrip("Z")
        for words in (started, "min seconds 0.002", "cache warm", "Some CPU", "the benchmark did not finish",
                      "other programs kept 1.7 of 2 cores busy", "bench conv2d --problem"):
            self.assertIn(words, page)
        self.assertIn("the benchmark did not finish", done.stderr)


class InTurns(Case):
    def test_another_program_and_another_library(self):
        library = next(PROGRAM.parent.parent.glob("lib*/libconvscope.so.0*"))
        words = ["bench", "conv2d", "--problem", PROBLEM, *QUICK, "--turns", "3"]
        done = self.call(*words, "--against", PROGRAM, "--json", "c.json", "--fail-above", "100")
        compared = self.content("c.json")
        self.assertEqual(compared["format"], "convscope compare 1")
        self.assertEqual([side["given"] for side in compared["sides"]], [str(PROGRAM), "this build"])
        self.assertEqual(len(compared["results"]), 2)
        for row in compared["results"]:
            self.assertTrue(row["ratio_low"] < row["ratio"] < row["ratio_high"], row)
        self.assertIn("95 % interval", done.stdout)
        # If --against names a shared library, the benchmark also runs this program with that library. Here the
        # library is a link to this build's library.
        copy = self.path("old.so")
        copy.symlink_to(library.resolve())
        self.call("bench", "net", "lenet5", "--batch", "1", "--mode", "inference", "--min-time", "0.01", "--rounds",
                  "2", "--turns", "3", "--against", copy)

    def test_what_cannot_be_compared_is_refused(self):
        words = ["bench", "conv2d", "--problem", PROBLEM, *QUICK]
        self.call(*words, "--fail-above", "1.1", code=2)
        self.assertIn("which is not there", self.call(*words, "--against", "nothing", code=5).stderr)
        self.assertIn("--version", self.call(*words, "--against", "/bin/false", code=5).stderr)
        self.path("no.so").write_text("no library")
        self.assertIn("not a shared library", self.call(*words, "--against", "no.so", code=5).stderr)
        slow = self.path("convscope")  # an older build that lacks a row
        slow.write_text(f"""#!{sys.executable}
import json, subprocess, sys
words = sys.argv[1:]
done = subprocess.run([{str(PROGRAM)!r}, *words])
if "--json" in words:
    path = words[words.index("--json") + 1]
    content = json.load(open(path))
    content["machine"]["cores_of_others"] = 0
    for row in content["rows"]:
        row["median_ms"] /= 50
        row["cores_of_others"] = 0
    json.dump(content, open(path, "w"))
sys.exit(done.returncode)
""")
        slow.chmod(0o755)
        done = subprocess.run([str(PROGRAM), *words, "--turns", "3", "--against", str(slow), "--fail-above", "2"],
                              cwd=self.folder, env=self.environment, capture_output=True, text=True)
        self.assertIn(done.returncode, (7, 9), done.stderr)  # 9: the machine is busy with other tests
        self.assertIn(" times as long", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
