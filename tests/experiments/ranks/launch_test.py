#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `convscope launch`, and `run` under a launcher, with Open MPI and with MPICH. Checks mistakes of the user,
and the output of each process."""
import os
import pathlib
import shutil
import subprocess

import harness
from harness import SMALL, environment, epochs, mpirun, summary, weights


class Launch(harness.Case):
    def test_both_libraries_give_the_same_network(self):
        found = [kind for kind in ("openmpi", "mpich") if mpirun(kind)]
        runs = []
        for kind in found:
            self.call(["launch", "-n", "2", "--launcher", mpirun(kind), "run", "quickstart", "expect=null", *SMALL,
                       "train.deterministic_ranks=true", "-o", kind])
            run = self.newest(kind)
            self.assertIn({"openmpi": "Open MPI", "mpich": "MPICH"}[kind], (run / "log.txt").read_text())
            runs.append(run)
        if len(runs) < 2:
            self.skipTest("one of Open MPI and MPICH is missing")
        self.assertEqual(weights(runs[0]), weights(runs[1]))

    def test_without_launch(self):
        extra = ["--oversubscribe"] if mpirun("openmpi") == self.launcher else []
        out = subprocess.run([self.launcher, *extra, "-n", "2", harness.PROGRAM, "run", "quickstart", "expect=null",
                              *SMALL, "-o", "plain"], cwd=self.folder, env=environment(), capture_output=True,
                             text=True, timeout=60, check=True)
        self.assertEqual(out.stdout.count("| quickstart"), 1, "one table, of process 0")
        self.assertEqual(summary(self.newest("plain"))["ranks"], 2)

    def test_alone_when_told_so(self):
        extra = ["--oversubscribe"] if mpirun("openmpi") == self.launcher else []
        subprocess.run([self.launcher, *extra, "-n", "2", harness.PROGRAM, "run", "quickstart", "expect=null", *SMALL,
                        "-o", "alone"], cwd=self.folder, env=environment(CONVSCOPE_ALONE="1"), capture_output=True,
                       text=True, timeout=60, check=True)
        runs = list(self.folder.glob("alone/quickstart/2*"))
        self.assertEqual([summary(run)["ranks"] for run in runs], [1, 1])

    def test_one_run_folder_and_its_tables(self):
        run = self.train("run", 2, SMALL)
        self.assertEqual(len(list(self.folder.glob("run/quickstart/2*"))), 1)
        out = self.call(["report", str(run), "--columns", "ranks,threads,avg_exchange"])
        self.assertIn("| 2 ", out.stdout)
        self.assertIn("2 processes", (run / "report.html").read_text())
        self.assertIn("2 parts on 2 processes", (run / "log.txt").read_text())
        self.assertEqual(len(epochs(run)), 2)
        self.assertGreater(summary(run)["avg_exchange"], 0)

    def test_dry_run(self):
        out = self.call(["launch", "-n", "3", "--launcher", self.launcher, "--dry-run", "run", "quickstart"])
        self.assertIn(" -n 3 ", out.stdout)
        out = self.call(["launch", "-n", "2", "--launcher", self.launcher, "run", "quickstart", "--dry-run"])
        self.assertEqual(out.stdout.count("name: quickstart"), 1)

    def test_mistakes(self):
        launcher = ["--launcher", self.launcher]
        cases = [
            (["launch", "run", "quickstart"], 2, "expected -n N"),
            (["launch", "-n", "0", "run", "quickstart"], 2, ""),
            (["launch", "-n", "2"], 2, "expected a command"),
            (["launch", "-n", "2", "report", "x"], 2, "expected the command run"),
            (["launch", "-n", "2", "--hosts", "no_such_file", "run", "quickstart"], 6, "expected a file of hosts"),
            (["launch", "-n", "2", "--launcher", "no_such_program", "run", "quickstart"], 5, "openmpi-bin"),
            (["launch", "-n", "2", *launcher, "run", "no_such.yaml"], 3, "no_such.yaml"),
            (["launch", "-n", "2", *launcher, "run", "quickstart", "train.epohcs=3"], 3, "did you mean"),
            (["launch", "-n", "2", *launcher, "run", "quickstart", "data.batch_size=1"], 3, "data.batch_size"),
            (["launch", "-n", "3", *launcher, "run", "quickstart", "train.deterministic_ranks=true"], 3, "1, 2, 4"),
            (["launch", "-n", "2", *launcher, "run", "quickstart", "train.deterministic_ranks=true",
              "train.rank_parts=3"], 3, "a power of two"),
            (["launch", "-n", "2", *launcher, "run", "quickstart", "train.deterministic_ranks=true",
              "quant={w_bits: 4}"], 3, "quantisers"),
        ]
        for words, code, text in cases:
            with self.subTest(words=words):
                error = self.call(words, code).stderr
                self.assertIn(text, error)
                self.assertEqual(sum("error" in line for line in error.splitlines()), 1, error)

    def test_no_library(self):
        out = self.call(["launch", "-n", "2", "--launcher", self.launcher, "run", "quickstart"], 5,
                        env=environment(CONVSCOPE_MPI_LIBRARY="/no/such/libmpi.so"))
        self.assertIn("expected an MPI library", out.stderr)

    def test_no_launcher_in_path(self):
        tools = self.folder / "tools"
        tools.mkdir()
        for name in ("sh", "env"):
            os.symlink(shutil.which(name), tools / name)
        out = self.call(["launch", "-n", "2", "run", "quickstart"], 5, env=environment(PATH=str(tools)))
        self.assertIn("none of mpirun, mpiexec", out.stderr)
        # A run of one process needs neither.
        self.call(["run", "quickstart", "expect=null", *SMALL], env=environment(PATH=str(tools)))

    def test_threads_are_shared(self):
        cores = len(os.sched_getaffinity(0))
        words = [word for word in SMALL if not word.startswith("threads")]
        run = self.train("run", 2, words)
        self.assertEqual(summary(run)["threads"], max(1, cores // 2))

    def test_hosts_file(self):
        hosts = pathlib.Path(self.folder / "hosts")
        hosts.write_text("localhost slots=2\n" if mpirun("openmpi") == self.launcher else "localhost:2\n")
        self.call(["launch", "-n", "2", "--hosts", str(hosts), "--launcher", self.launcher, "run", "quickstart",
                   "expect=null", *SMALL, "-o", "run"])
        self.assertEqual(summary(self.newest("run"))["ranks"], 2)


if __name__ == "__main__":
    harness.main()
