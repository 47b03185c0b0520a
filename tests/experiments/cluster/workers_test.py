#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests several workers of one sweep without a cluster: workers that compete, killed workers, a full
disk, missing files, and options that exclude each other: workers_test.py PROGRAM"""
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import unittest

from slurm_cluster import PATIENCE_S, kill, wait_until
from sweeps import Sweeps, bits_of, claims_in, first_difference, runs_in, state_of, steps_of, without_times

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "faults"))
from stage import NO_MOUNT, can_mount, namespace_words  # noqa: E402

PROGRAM = sys.argv[1] if len(sys.argv) > 1 else ""


def setUpModule():
    global SWEEPS, CONFIG, TABLE, BITS
    place = tempfile.TemporaryDirectory(prefix="convscope-workers-")
    unittest.addModuleCleanup(place.cleanup)
    SWEEPS = Sweeps(PROGRAM, pathlib.Path(place.name) / "work", os.environ)
    CONFIG = SWEEPS.config(seeds="1, 2", images=320, epochs=2)
    local = SWEEPS.call(CONFIG, "-o", "local", "--threads", 1, "-f", "csv")
    assert local.code == 0, local
    TABLE, BITS = without_times(local.out), bits_of(SWEEPS.folder / "local/small")


class Workers(unittest.TestCase):
    maxDiff = None

    def prepare(self, place):
        """A sweep whose command was killed when its first member began."""
        folder = SWEEPS.folder / place / "small"
        begun = SWEEPS.start(CONFIG, "-o", place, "--threads", 1)
        wait_until(lambda: any(steps_of(run) > 1 for run in runs_in(folder)), "it trains", pause=0.002)
        begun.kill()
        begun.communicate()
        for row in ("dense", "pruned", "half", "codes"):  # as a launcher prepares them
            for seed in (1, 2):
                source = SWEEPS.folder / f"local/small/{row}/s{seed}.yaml"
                (folder / row).mkdir(exist_ok=True)
                (folder / row / f"s{seed}.yaml").write_bytes(source.read_bytes())
        return folder

    def test_three_of_them_train_each_member_once(self):
        folder = self.prepare("three")
        workers = [SWEEPS.start(folder, "--work", "--threads", 1) for _ in range(3)]
        # One worker is killed in the middle of its member; another worker then trains the member to
        # its end.
        claim = wait_until(lambda: next((one for one in claims_in(folder).values() if one["held"]
                                         and one["pid"] == workers[0].pid), None), "it has a member",
                           pause=0.002)
        workers[0].kill()
        self.assertEqual(claim["pid"], workers[0].pid)
        for worker in workers:
            out, err = worker.communicate(timeout=PATIENCE_S)
            self.assertIn(worker.returncode, (0, -signal.SIGKILL), err)
        self.assertEqual(first_difference(bits_of(folder), BITS), "")
        self.assertEqual(len(runs_in(folder)), len(BITS))
        # No command waits, so the last worker writes the table.
        self.assertEqual(without_times((folder / "sweep.csv").read_text()), TABLE)
        self.assertEqual(json.loads((folder / "sweep.state.json").read_text())["state"], "DONE")
        status = SWEEPS.call(folder, "--status")
        self.assertIn("8 members: 8 done", status.err)

    def test_one_member_by_its_number(self):
        folder = self.prepare("number")
        answer = SWEEPS.call(folder, "--work", "--member", 5, "--threads", 1)
        self.assertEqual(answer.code, 0, answer)
        status = SWEEPS.call(folder, "--status", "-f", "csv").out.splitlines()
        self.assertTrue(status[6].startswith("5,pruned,2,done,"), status)
        self.assertEqual(SWEEPS.call(folder, "--work", "--member", 8).code, 2)
        table = SWEEPS.call(CONFIG, "-o", "number", "--threads", 1, "-f", "csv")
        self.assertEqual(without_times(table.out), TABLE, table)
        self.assertEqual(first_difference(bits_of(folder), BITS), "")

    def test_a_member_knows_of_no_group(self):
        folder = self.prepare("group")
        env = dict(SWEEPS.env, OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="1", PMI_SIZE="2",
                   SLURM_NTASKS="2", SLURM_PROCID="1", RANK="1", WORLD_SIZE="2")
        worker = SWEEPS.start(folder, "--work", "--threads", 1, env=env)

        def environment():
            for pid in children_of(worker.pid):
                try:
                    words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                    found = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                except OSError:
                    continue
                if b"run" in words and b"CONVSCOPE_ALONE=1" in found:
                    return found
            return None
        names = {one.split(b"=")[0].decode() for one in wait_until(environment, "a member", pause=0.002)}
        self.assertEqual([name for name in names if name.startswith(("OMPI_", "PMI_", "SLURM_"))], [])
        self.assertNotIn("WORLD_SIZE", names)
        self.assertIn("CONVSCOPE_CACHE_DIR", names)
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=PATIENCE_S)
        self.assertEqual(worker.returncode, 143)
        self.assertNotIn("RUNNING", [state_of(run) for run in runs_in(folder)])

    def test_two_commands_at_once_do_no_harm(self):
        both = [SWEEPS.start(CONFIG, "-o", "both", "--threads", 1, "-f", "csv") for _ in range(2)]
        ends = []
        for one in both:
            out, err = one.communicate(timeout=PATIENCE_S)
            ends.append((one.returncode, err.count("error:"), "no process works on" in err))
        self.assertIn((0, 0, False), ends)
        self.assertTrue(all(end in ((0, 0, False), (2, 1, True)) for end in ends), ends)
        self.assertEqual(first_difference(bits_of(SWEEPS.folder / "both/small"), BITS), "")

    def test_on_a_full_disk_it_ends_with_6_and_goes_on_later(self):
        if not can_mount():
            self.skipTest("no mounts of its own here")
        for number, kilobytes in enumerate((24, 80, 250, 400)):
            with self.subTest(kilobytes=kilobytes):
                at = SWEEPS.folder / f"disk{number}"
                (at / "disk").mkdir(parents=True)
                words = shlex.join([str(SWEEPS.program), "sweep", str(CONFIG), "-o", "disk/runs",
                                    "--threads", "1", "-f", "csv"])
                script = (f"mount -t tmpfs -o size={kilobytes}k none disk || exit {NO_MOUNT}; {words}; "
                          "code=$?; cp -a disk/runs . 2>/dev/null; exit $code")
                full = subprocess.run([*namespace_words(), "sh", "-c", script], cwd=at, env=SWEEPS.env,
                                      capture_output=True, text=True, timeout=PATIENCE_S, check=False)
                self.assertIn(full.returncode, (1, 6), full.stderr)
                self.assertRegex(full.stderr, "(?i)no space left")
                again = SWEEPS.call(CONFIG, "-o", "runs", "--threads", 1, "-f", "csv", cwd=at)
                self.assertEqual(again.code, 0, again)
                self.assertEqual(without_times(again.out), TABLE)
                self.assertEqual(first_difference(bits_of(at / "runs/small"), BITS), "")

    def test_what_is_missing_is_said_in_one_sentence(self):
        env = dict(SWEEPS.env, PATH="/nowhere")
        for launcher, word in (("slurm", "slurm-client"), ("mpi", "openmpi-bin")):
            answer = SWEEPS.call(CONFIG, "-o", "missing", "--launcher", launcher, env=env)
            self.assertEqual(answer.code, 5, answer)
            self.assertRegex(answer.err, r"^error: \[sweep\] expected the program (sbatch|mpirun) in \$PATH")
            self.assertIn(word, answer.err)
            self.assertEqual(answer.err.count("\n"), 1, answer)
            self.assertFalse((SWEEPS.folder / "missing").exists())
        dry = SWEEPS.call(CONFIG, "-o", "missing", "--launcher", "slurm", "--dry-run", env=env)
        self.assertEqual(dry.code, 0, dry)
        self.assertIn("#SBATCH --array=0-7\n", dry.out)

    def test_options_that_do_not_fit_together_are_refused(self):
        for words, sentence in (
                (["--slurm", "time=5"], "expected --launcher slurm with --slurm"),
                (["--detach"], "expected --launcher slurm with --detach"),
                (["--hosts", "x"], "expected --launcher mpi with --hosts"),
                (["--member", "1"], "expected --work with --member"),
                (["--launcher", "slurm", "--jobs", "2"], "expected --slurm at_once=N instead of --jobs"),
                (["--status", "--cancel"], "expected one of --status, --cancel, --work and --dry-run"),
                (["--launcher", "slurm", "--slurm", "tim=5"], "did you mean 'time'?")):
            answer = SWEEPS.call(CONFIG, *words)
            self.assertEqual(answer.code, 2, answer)
            self.assertIn(sentence, answer.err)
        (SWEEPS.folder / "empty").mkdir()
        answer = SWEEPS.call(SWEEPS.folder / "empty", "--status")
        self.assertEqual(answer.code, 6, answer)
        self.assertIn("[sweep] expected the folder of a sweep", answer.err)


def children_of(pid):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == pid:
                found.append(int(entry.name))
        except (OSError, IndexError, ValueError):
            continue
    return found


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
