#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `convscope sweep --launcher slurm` on a Slurm cluster of two nodes: slurm_sweep_test.py PROGRAM.
Without Slurm, the exit code is 77 (skipped)."""
import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import threading
import time
import unittest

import slurm_cluster
from slurm_cluster import PATIENCE_S, wait_until
from sweeps import (Sweeps, bits_of, claims_in, first_difference, processes_with, runs_in, state_of,
                    steps_of, without_times)

PROGRAM = sys.argv[1] if len(sys.argv) > 1 else ""
SEEDS_OF_ONE = "sweep.seeds=[1]"
ONE = [SEEDS_OF_ONE, "sweep.members=[{name: only}]"]


class Pauses(threading.Thread):
    """Ends the pauses of two minutes before Slurm restarts a task."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.done = cluster, threading.Event()
        self.start()

    def run(self):
        while not self.done.wait(0.5):
            self.cluster.end_pauses()


def setUpModule():
    global PLACE, CLUSTER, PAUSES, SWEEPS, CONFIG, LONG, LIMITED, LOST, WANTED, WANTED_LONG
    PLACE = tempfile.TemporaryDirectory(prefix="convscope-slurm-")
    unittest.addModuleCleanup(PLACE.cleanup)
    root = pathlib.Path(PLACE.name)
    CLUSTER = slurm_cluster.Cluster(root / "slurm")
    unittest.addModuleCleanup(CLUSTER.stop)
    PAUSES = Pauses(CLUSTER)
    unittest.addModuleCleanup(PAUSES.done.set)
    SWEEPS = Sweeps(PROGRAM, root / "work", CLUSTER.env)
    CONFIG = SWEEPS.config()  # twelve members
    LONG = SWEEPS.config("long.yaml", images=1600, epochs=50, seeds="1")  # four of more than a second
    whole = SWEEPS.start(LONG, "-o", "whole", "--threads", 1, "-f", "csv")
    LIMITED = LimitedMember()  # its minute passes while the others run
    local = SWEEPS.call(CONFIG, "-o", "local", "--threads", 1, "-f", "csv")
    assert local.code == 0, local
    LOST = LostNode()
    out, err = whole.communicate(timeout=PATIENCE_S)
    assert whole.returncode == 0, err
    WANTED = without_times(local.out), bits_of(SWEEPS.folder / "local/small")
    WANTED_LONG = without_times(out), bits_of(SWEEPS.folder / "whole/small")


class LimitedMember:
    """Stops the processes of a sweep member (SIGSTOP) until the time limit of its Slurm job is
    reached. So the limit ends the member in the middle of its training."""

    def __init__(self):
        answer = SWEEPS.call(CONFIG, *ONE, "--name", "limited", "-o", "limited", "--threads", 1,
                             "--launcher", "slurm", "--slurm", "time=1", "--detach")
        assert answer.code == 0, answer
        self.folder = SWEEPS.folder / "limited/limited"
        self.job = json.loads((self.folder / "sweep.slurm.json").read_text())["job"]
        run = wait_until(lambda: next((one for one in runs_in(self.folder) if steps_of(one) > 5), None),
                         "the limited member trains", pause=0.002)
        # Selects only processes of this test, because other tests may run on this machine.
        self.pids = [pid for pid in processes_with("convscope", "run", "/limited/limited", "--color never")
                     if self.is_ours(pid)]
        self.steps, self.run, self.begin = steps_of(run), run, time.monotonic()
        for pid in self.pids:
            slurm_cluster.kill(pid, signal.SIGSTOP)
        threading.Thread(target=self.wake_at_limit, daemon=True).start()

    @staticmethod
    def is_ours(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/cwd").resolve().is_relative_to(SWEEPS.folder.resolve())
        except OSError:
            return False

    def wake_at_limit(self):
        """Wakes all stopped processes. A process that has already ended, such as a short child of the member,
        must not end this loop."""
        there = self.pids
        while there:
            time.sleep(0.1)
            there, waiting = [], False
            for pid in self.pids:
                try:
                    text = pathlib.Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                there.append(pid)
                pending = re.search(r"ShdPnd:\s*([0-9a-f]+)", text)
                waiting |= bool(pending) and int(pending.group(1), 16) >> (signal.SIGTERM - 1) & 1 == 1
            if waiting:
                for pid in there:
                    slurm_cluster.kill(pid, signal.SIGCONT)
                return

    def tell(self):
        """Returns diagnostics of a member that does not end."""
        logs = [f"{log.name}: {log.read_text()}" for log in sorted(self.folder.glob("sweep.slurm-*.log"))]
        states = [(pid, re.findall(r"(?:State|ShdPnd):.*", pathlib.Path(f"/proc/{pid}/status").read_text()))
                  for pid in self.pids if pathlib.Path(f"/proc/{pid}").exists()]
        return (f"{state_of(self.run)} after {steps_of(self.run)} steps, {self.steps} before its stop; stopped: "
                f"{self.pids}, there: {states}; tasks: {CLUSTER.tasks()}; claims: {claims_in(self.folder)}; {logs}; "
                f"the controller: {CLUSTER.told_of(self.job)}")


class LostNode:
    """Node b fails in the middle of a sweep; Slurm notices after half a minute."""

    def __init__(self):
        self.folder = SWEEPS.folder / "lost/small"
        self.waiting = SWEEPS.start(CONFIG, "--threads", 1, "-f", "csv", "--launcher", "slurm", "-o", "lost")
        self.member = wait_until(self.member_on_b, "a member trains on node b", pause=0.01)
        self.killed = CLUSTER.lose_node("b")

    def member_on_b(self):
        for member, claim in claims_in(self.folder).items():
            task = claim.get("task", "").split("_")[-1]
            on_b = [one for one in CLUSTER.tasks() if one[1] == task and one[4] == "b"
                    and one[2] == "RUNNING" and one[0] in claim.get("task", "")]
            if on_b and claim.get("held"):
                run = self.run_of(member)
                if run and state_of(run) == "RUNNING" and steps_of(run) > 10:
                    return member
        return None

    def run_of(self, member):
        row, seed = member.split()
        return next((run for run in runs_in(self.folder / row) if run.name.endswith(f"-{seed}")), None)


class Slurm(unittest.TestCase):
    maxDiff = None

    def check_same(self, folder, answer=None, wanted=None):
        table, bits = wanted or WANTED_LONG
        if answer is not None:
            self.assertEqual(answer.code, 0, answer)
            self.assertEqual(without_times(answer.out), table, answer)
        self.assertEqual(without_times((folder / "sweep.csv").read_text()), table)
        self.assertEqual(first_difference(bits_of(folder), bits), "")
        self.assertEqual(len(runs_in(folder)), len(bits))

    def on_slurm(self, *words):
        return [LONG, "--threads", 1, "-f", "csv", "--launcher", "slurm", *words]

    def wait_for_tasks(self, folder, count=1):
        """Waits until that many members train, with a checkpoint or without."""
        wait_until(lambda: sum(1 for run in runs_in(folder)
                               if state_of(run) == "RUNNING" and steps_of(run) > 3) >= count,
                   f"{count} members train", pause=0.01)

    def arrays_of(self, folder):
        return {line.split("|")[0] for line in CLUSTER.ask("squeue", "-h", "-o", "%F|%Z").splitlines()
                if os.path.realpath(line.split("|")[1]) == os.path.realpath(folder)}

    def test_2_a_killed_command_is_followed_by_the_next(self):
        folder = SWEEPS.folder / "followed/small"
        first = SWEEPS.start(*self.on_slurm("-o", "followed"))
        self.wait_for_tasks(folder)
        # A second command while the first one waits.
        second = SWEEPS.call(*self.on_slurm("-o", "followed"))
        self.assertEqual(second.code, 2, second)
        self.assertIn("expected a sweep that no process works on", second.err)
        self.assertEqual(second.err.count("error:"), 1, second)
        first.kill()
        first.communicate()
        arrays = self.arrays_of(folder)
        self.assertEqual(len(arrays), 1)
        # While the array trains, a second command on this machine refuses to train the same sweep.
        local = SWEEPS.call(LONG, "-o", "followed", "--threads", 1)
        self.assertEqual(local.code, 2, local)
        self.assertIn(f"whose members job {arrays.copy().pop()} of Slurm trains", local.err)
        # The command may have been killed before it wrote the note.
        (folder / "sweep.slurm.json").unlink()
        third = SWEEPS.call(*self.on_slurm("-o", "followed"))
        self.assertIn(f"follow job {arrays.pop()} of Slurm", third.err)
        self.assertNotIn("submit", third.err)
        self.check_same(folder, third)

    def test_3_cancelled_it_goes_on_here_and_the_other_way_round(self):
        folder = SWEEPS.folder / "cancelled/small"
        waiting = SWEEPS.start(*self.on_slurm("-o", "cancelled"))
        self.wait_for_tasks(folder)
        waiting.send_signal(signal.SIGINT)
        out, err = waiting.communicate(timeout=PATIENCE_S)
        self.assertEqual((waiting.returncode, out), (130, ""), err)
        self.assertIn("is cancelled, the same command resumes", err)
        self.assertEqual(self.arrays_of(folder), set())
        states = [state_of(run) for run in runs_in(folder)]
        self.assertIn("INTERRUPTED", states)
        self.assertNotIn("RUNNING", states)
        # Some members run here and are stopped in the middle ...
        local = SWEEPS.start(LONG, "-o", "cancelled", "--threads", 1, "-f", "csv")
        done = sum(state == "DONE" for state in states)
        wait_until(lambda: sum(state_of(run) == "DONE" for run in runs_in(folder)) > done, "one is done")
        local.send_signal(signal.SIGTERM)
        local.communicate(timeout=PATIENCE_S)
        self.assertEqual(local.returncode, 143)
        # ... then Slurm runs the remaining members, and no command waits for them. Another command cancels them ...
        answer = SWEEPS.call(*self.on_slurm("-o", "cancelled", "--detach"))
        self.assertEqual((answer.code, answer.out), (0, ""), answer)
        self.wait_for_tasks(folder)
        self.assertEqual(SWEEPS.call(folder, "--cancel").code, 0)
        # ... and the same command runs the rest, at once.
        self.check_same(folder, SWEEPS.call(*self.on_slurm("-o", "cancelled")))
        refused = SWEEPS.call(folder, "--cancel")
        self.assertEqual(refused.code, 2, refused)
        self.assertIn("which has no job in its queue", refused.err)

    def test_4_detached_it_ends_with_the_table_and_tells_how_far_it_is(self):
        folder = SWEEPS.folder / "detached/small"
        words = ["-o", "detached", "--detach", "--slurm", "at_once=1"]
        self.assertEqual(SWEEPS.call(*self.on_slurm(*words)).code, 0)
        self.wait_for_tasks(folder)
        status = SWEEPS.call(folder, "--status", "-f", "csv")
        self.assertEqual(status.code, 0, status)
        self.assertIn("member,name,seed,state,host,epoch,epochs,task,error", status.out)
        self.assertRegex(status.out, r"dense,1,(running|done),\S+,\d+,50,")
        self.assertRegex(status.out, r"queued,,0,50,\d+_\d+ PENDING")
        self.assertRegex(status.err, r"4 members: .*\d queued; job \d+ of Slurm")
        by_config = SWEEPS.call(LONG, "-o", "detached", "--status")
        self.assertEqual(by_config.code, 0, by_config)
        wait_until(lambda: not self.arrays_of(folder), "the array has ended")
        self.check_same(folder)
        self.assertIn('"state": "DONE"', (folder / "sweep.state.json").read_text())
        self.assertIn("4 members: 4 done", SWEEPS.call(folder, "--status").err)

    def test_5_names_that_a_shell_reads_are_only_names(self):
        for place in ["a b", "it's \"x\"", "$(touch pwned)`touch pwned`", "a\nb; touch pwned", "%a%"]:
            with self.subTest(place):
                folder = SWEEPS.folder / place / "only"
                (SWEEPS.folder / place).mkdir()
                config = SWEEPS.config(place + "/x.yaml", epochs=1)
                answer = SWEEPS.call(config, *ONE, "--name", "only", "-o", place, "--threads", 1,
                                     "--launcher", "slurm", "-f", "csv")
                self.assertEqual(answer.code, 0, answer)
                self.assertIn("only,", answer.out)
                logs = list(folder.glob("sweep.slurm-0.log"))
                self.assertEqual(len(logs), 1, list(folder.iterdir()))
        self.assertEqual(list(SWEEPS.folder.rglob("pwned")), [])

    def test_6_a_dry_run_prints_a_script_that_slurm_takes(self):
        answer = SWEEPS.call("mnist_lenet5_table", "--launcher", "slurm", "--dry-run", "--slurm",
                             "time=2:00:00,cpus=1,mem=500,at_once=6,partition=all")
        self.assertEqual(answer.code, 0, answer)
        self.assertEqual(answer.out.count(" to do"), 54)
        script = answer.out[answer.out.index("#!/bin/sh"):]
        self.assertIn("#SBATCH --array=0-53%6\n", script)
        self.assertFalse((SWEEPS.folder / "runs").exists(), "a look leaves no trace")
        path = SWEEPS.folder / "script.sh"
        path.write_text(script.replace("time=2:00:00", "time=30"))  # the partition's limit
        self.assertEqual(CLUSTER.ask("sbatch", "--test-only", str(path)), "")
        told = SWEEPS.call(CONFIG, "--launcher", "slurm", "--slurm", "partition=nowhere", "-o", "nowhere")
        self.assertEqual(told.code, 5, told)
        self.assertRegex(told.err, r"error: \[sweep\] expected sbatch to take .*Invalid partition")

    def test_7_a_lost_node_changes_nothing(self):
        self.assertGreaterEqual(len(LOST.killed), 3, "slurmd, its step daemon and the worker")
        out, err = LOST.waiting.communicate(timeout=PATIENCE_S)
        self.assertEqual(LOST.waiting.returncode, 0, err)
        self.assertEqual(without_times(out), WANTED[0])
        self.check_same(LOST.folder, wanted=WANTED)
        self.assertIn("[12/12]", err)
        log = LOST.run_of(LOST.member) / "log.txt"
        self.assertIn("resume", log.read_text(), "the member on the lost node went on")

    def test_8_at_its_time_limit_a_member_is_queued_again_and_goes_on(self):
        folder = LIMITED.folder
        try:
            wait_until(lambda: state_of(LIMITED.run) == "DONE", "the limited member is through", 2 * PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; {LIMITED.tell()}") from None
        wait_until(lambda: not self.arrays_of(folder), "its array has ended")
        log = (folder / "sweep.slurm-0.log").read_text()
        self.assertIn("again, to go on", log)
        self.assertIn("begin  only seed 1 again", log)
        self.assertEqual(runs_in(folder), [LIMITED.run])
        whole = SWEEPS.call(CONFIG, *ONE, "--name", "limited", "-o", "unlimited", "--threads", 1, "-f", "csv")
        self.assertEqual(first_difference(bits_of(folder), bits_of(SWEEPS.folder / "unlimited/limited")), "")
        self.assertEqual(without_times((folder / "sweep.csv").read_text()), without_times(whole.out))


if __name__ == "__main__":
    lacking = slurm_cluster.missing()
    if lacking:
        print(f"skipped: {lacking} was not found (Debian: slurmctld slurmd slurm-client munge)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
