#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the stages of .ci/run (.ci/stages.sh) with stub commands: which stages count as passed, failed or skipped,
and the time limit, which skips long stages on a slow machine."""
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(script, **variables):
    """Runs `script` after sourcing stages.sh. Returns the exit status and the output lines."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["bash", "-c", f"set -uo pipefail; source {ROOT}/.ci/stages.sh\n{script}\nfinish"], cwd=folder,
            env={"PATH": "/usr/bin:/bin", **variables}, capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines()


class Stages(unittest.TestCase):
    def test_counts_are_added(self):
        status, lines = run('stage one echo "3 passed, 0 failed, 2 skipped"; stage two true; skip three "no nvcc"')
        self.assertEqual((status, lines[-1]), (0, "4 passed, 0 failed, 3 skipped"))

    def test_a_failed_command_fails_even_with_good_counts(self):
        status, lines = run('bad() { echo "3 passed, 0 failed, 0 skipped"; return 1; }; stage one bad; stage two false')
        self.assertEqual((status, lines[-1]), (1, "3 passed, 2 failed, 0 skipped"))

    def test_a_failed_case_fails(self):
        status, lines = run('bad() { echo "3 passed, 1 failed, 0 skipped"; return 1; }; stage one bad')
        self.assertEqual((status, lines[-1]), (1, "3 passed, 1 failed, 0 skipped"))


class Clock(unittest.TestCase):
    def test_a_long_stage_in_time_runs(self):
        status, lines = run('long_stage one echo "3 passed, 0 failed, 0 skipped"')
        self.assertEqual((status, lines[-1]), (0, "3 passed, 0 failed, 0 skipped"))

    def test_a_function_is_known_to_a_long_stage(self):
        status, lines = run('job() { echo "$1 passed, 0 failed, 0 skipped"; }; export -f job; long_stage one job 4')
        self.assertEqual((status, lines[-1]), (0, "4 passed, 0 failed, 0 skipped"))

    def test_a_long_stage_after_the_hour_is_skipped_with_a_line(self):
        status, lines = run("long_stage one false", CONVSCOPE_CI_BEGIN_UNTIL="0")
        self.assertEqual((status, lines[-1]), (0, "0 passed, 0 failed, 1 skipped"))
        self.assertRegex(lines[0], r"^ci: skipped .* one .* the clock: .*\.ci/nightly")

    def test_a_stage_that_must_run_is_never_skipped(self):
        status, lines = run("stage one false", CONVSCOPE_CI_BEGIN_UNTIL="0", CONVSCOPE_CI_END_AT="0")
        self.assertEqual((status, lines[-1]), (1, "0 passed, 1 failed, 0 skipped"))

    def test_a_long_stage_is_ended_and_counts_as_skipped(self):
        status, lines = run("long_stage one sleep 60", CONVSCOPE_CI_END_AT="2")
        self.assertEqual((status, lines[-1]), (0, "0 passed, 0 failed, 1 skipped"))
        self.assertRegex(lines[0], r"^ci: skipped .* one .* the clock: ended")

    def test_a_long_stage_that_had_failed_when_it_was_ended_fails(self):
        for line in ("1/9 Test #3: layers ...***Failed  2.0 sec", "==7==ERROR: AddressSanitizer: heap-buffer-overflow",
                     "a.cpp:3:1: runtime error: signed integer overflow"):
            job = f'job() {{ echo "{line}"; sleep 60; }}; export -f job; long_stage one job'
            status, lines = run(job, CONVSCOPE_CI_END_AT="2")
            self.assertEqual((status, lines[-1]), (1, "0 passed, 1 failed, 1 skipped"), line)

    def test_a_long_stage_that_fails_by_itself_fails(self):
        status, lines = run("long_stage one false")
        self.assertEqual((status, lines[-1]), (1, "0 passed, 1 failed, 0 skipped"))


if __name__ == "__main__":
    unittest.main()
