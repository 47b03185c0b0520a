#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `convscope sweep --launcher mpi` with mpirun: mpi_sweep_test.py PROGRAM. Without mpirun,
the exit code is 77 (skipped)."""
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import unittest

from slurm_cluster import PATIENCE_S, kill, wait_until
from sweeps import (Sweeps, bits_of, claims_in, first_difference, processes_with, runs_in, state_of,
                    steps_of, without_times)

PROGRAM = sys.argv[1] if len(sys.argv) > 1 else ""


def setUpModule():
    global SWEEPS, CONFIG, TABLE, BITS
    place = tempfile.TemporaryDirectory(prefix="convscope-mpi-")
    unittest.addModuleCleanup(place.cleanup)
    # Open MPI runs as root (in a container) only if variables OMPI_* allow it. A new user has not
    # set these variables, so the tests remove them: the program must set them itself.
    env = {name: value for name, value in os.environ.items() if not name.startswith("OMPI_")}
    SWEEPS = Sweeps(PROGRAM, pathlib.Path(place.name) / "work", env)
    CONFIG = SWEEPS.config(seeds="1", images=6400, epochs=20)
    local = SWEEPS.call(CONFIG, "-o", "local", "-f", "csv", "--jobs", 2)
    assert local.code == 0, local
    TABLE, BITS = without_times(local.out), bits_of(SWEEPS.folder / "local/small")


class Mpi(unittest.TestCase):
    maxDiff = None

    def words(self, *more):
        return [CONFIG, "-f", "csv", "--launcher", "mpi", "--jobs", 2, *more]

    def check_same(self, folder, answer, jobs=2):
        self.assertEqual(answer.code, 0, answer)
        table = [{**row, "jobs": str(jobs)} for row in TABLE]
        self.assertEqual(without_times(answer.out), table, answer)
        self.assertEqual(first_difference(bits_of(folder), BITS), "")
        self.assertEqual(len(runs_in(folder)), len(BITS))

    def wait_for_runs(self, folder, count):
        wait_until(lambda: sum(1 for run in runs_in(folder)
                               if state_of(run) == "RUNNING" and steps_of(run) > 3) >= count,
                   f"{count} members train", pause=0.01)

    def test_members_are_handed_out_to_ranks(self):
        hosts = SWEEPS.folder / "hosts"
        hosts.write_text("localhost\nlocalhost\n")
        folder = SWEEPS.folder / "ranks/small"
        self.check_same(folder, SWEEPS.call(*self.words("-o", "ranks", "--hosts", hosts)))
        tasks = {claim["task"] for claim in claims_in(folder).values()}
        self.assertEqual(tasks, {"rank 0", "rank 1"})

    def test_stopped_and_killed_it_goes_on_with_the_same_bits(self):
        folder = SWEEPS.folder / "stopped/small"
        stopped = SWEEPS.start(*self.words("-o", "stopped"))
        self.wait_for_runs(folder, 2)
        stopped.send_signal(signal.SIGINT)
        out, err = stopped.communicate(timeout=PATIENCE_S)
        self.assertEqual((stopped.returncode, out), (130, ""), err)
        states = [state_of(run) for run in runs_in(folder)]
        self.assertNotIn("RUNNING", states)
        self.assertIn("INTERRUPTED", states)
        # In the next sweep one worker is killed. mpirun then ends the other workers, as it does
        # after a node failure.
        lost = SWEEPS.start(*self.words("-o", "stopped"))
        self.wait_for_runs(folder, 1)
        for worker in processes_with("sweep", str(folder), "--work")[-1:]:
            kill(worker)
        out, err = lost.communicate(timeout=PATIENCE_S)
        self.assertIn(lost.returncode, (0, 1), err)  # 0: that worker was no longer needed
        # In the last sweep mpirun itself is killed.
        killed = SWEEPS.start(*self.words("-o", "stopped"))
        wait_until(lambda: killed.poll() is not None or claims_in(folder), "it has begun")
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        self.check_same(folder, SWEEPS.call(*self.words("-o", "stopped")))

    def test_more_workers_than_cores(self):
        jobs = (os.cpu_count() or 1) + 2
        words = [CONFIG, "-f", "csv", "--launcher", "mpi", "--jobs", jobs, "-o", "crowded"]
        self.check_same(SWEEPS.folder / "crowded/small", SWEEPS.call(*words), jobs)

    def test_what_mpirun_says_is_told(self):
        hosts = SWEEPS.folder / "none"
        answer = SWEEPS.call(*self.words("-o", "told", "--hosts", hosts))
        self.assertEqual(answer.code, 1, answer)
        self.assertRegex(answer.err, r"end    mpirun ended with exit code \d+: ")
        self.assertIn("its worker ended too early", answer.err)


if __name__ == "__main__":
    if not shutil.which("mpirun"):
        print("skipped: mpirun was not found (Debian: openmpi-bin)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
