#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests a group of processes in which one process is killed, stopped, interrupted, or runs another program. All
processes must end within ten seconds with one sentence. The resumed run must have the same bits as an
undisturbed run."""
import os
import pathlib
import shutil
import signal
import subprocess
import time

import harness
from harness import children, environment, ranks_of, status, wait_for, weights

LIMIT = 10  # seconds
WORDS = ["quickstart", "expect=null", "data={set: synthetic_digits, train_size: 4800, test_size: 480, batch_size: 48}",
         "train={epochs: 6, deterministic_ranks: true}", "threads=1"]


class Faults(harness.Case):
    def started(self, words=(), processes=2):
        run = self.start(processes, [*WORDS, *words, "-o", "lost"])
        wait_for(lambda: list(self.folder.glob("lost/quickstart/2*/ckpt/last.safetensors")))
        ranks = wait_for(lambda: (found := ranks_of(run.pid)) and len(found) == processes and found)
        return run, {rank: pid for pid, rank in ranks.items()}

    def ended(self, run, started, code):
        out, error = run.communicate(timeout=LIMIT + 20)
        self.assertLess(time.monotonic() - started, LIMIT, error)
        self.assertEqual(run.returncode, code, out + error)
        return error

    def one_sentence(self, error, *words):
        lines = [line for line in error.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(lines), 1, error)
        for word in words:
            self.assertIn(word, lines[0])
        self.assertNotIn("MPI_ABORT", error)
        self.assertNotIn("mpirun", error.replace("Debian", ""))
        self.assertNotIn("Signal code", error)

    def goes_on(self):
        """Resumes a run with a different number of processes. The bits must be those of an undisturbed
        run."""
        lost = self.newest("lost")
        self.call(["launch", "-n", "1", "--launcher", self.launcher, "run", "--resume", str(lost)])
        self.call(["run", *WORDS, "-o", "whole"])
        self.assertEqual(weights(lost), weights(self.newest("whole")))

    def test_killed(self):
        run, ranks = self.started()
        now = time.monotonic()
        os.kill(ranks[1], signal.SIGKILL)
        self.one_sentence(self.ended(run, now, 8), "signal 9")
        self.goes_on()

    def test_first_process_killed(self):
        run, ranks = self.started()
        now = time.monotonic()
        os.kill(ranks[0], signal.SIGKILL)
        self.one_sentence(self.ended(run, now, 8), "signal 9")
        self.goes_on()

    def test_stopped(self):
        for silent in (1, 0):
            with self.subTest(silent=silent):
                shutil.rmtree(self.folder / "lost", ignore_errors=True)
                run, ranks = self.started()
                now = time.monotonic()
                os.kill(ranks[silent], signal.SIGSTOP)
                error = self.ended(run, now, 8)
                self.one_sentence(error, f"process {silent} of 2", "sign of life", "--resume")
                if silent == 1:
                    self.assertEqual(status(self.newest("lost"))["state"], "INTERRUPTED")
        self.goes_on()

    def test_signal_to_one_process(self):
        for asked in (0, 1):
            with self.subTest(asked=asked):
                shutil.rmtree(self.folder / "lost", ignore_errors=True)
                run, ranks = self.started()
                now = time.monotonic()
                os.kill(ranks[asked], signal.SIGTERM)
                error = self.ended(run, now, 143)
                self.assertNotIn("error:", error)
                self.assertIn("go on with: convscope run --resume", error)
                self.assertEqual(status(self.newest("lost"))["state"], "INTERRUPTED")
        self.goes_on()

    def test_ctrl_c_at_the_launcher(self):
        run, _ = self.started()
        now = time.monotonic()
        os.kill(run.pid, signal.SIGINT)
        self.assertNotIn("error:", self.ended(run, now, 130))
        stopped = status(self.newest("lost"))
        self.assertEqual((stopped["state"], stopped["exit_code"]), ("INTERRUPTED", 130))
        self.goes_on()

    def test_launch_itself_is_killed(self):
        run, ranks = self.started(["train.epochs=200"])
        os.kill(run.pid, signal.SIGKILL)
        wait_for(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in ranks.values()), LIMIT)
        self.assertEqual(status(self.newest("lost"))["state"], "INTERRUPTED")

    def test_nobody_is_left_behind(self):
        run, ranks = self.started()
        mpirun = children(run.pid)
        os.kill(ranks[0], signal.SIGKILL)
        run.communicate(timeout=LIMIT)
        wait_for(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in [*mpirun, *ranks.values()]), LIMIT)
        # A killed process leaves its scratch folder. The next group of processes deletes this
        # folder.
        self.call(["launch", "-n", "2", "--launcher", self.launcher, "run", *WORDS, "train.epochs=1", "-o", "next"])
        self.assertEqual(list(pathlib.Path("/tmp").glob("convscope-rank-*")), [])

    def mixed(self, first, second, env=None):
        """Two different programs in one group."""
        root = ["--oversubscribe"] if "openmpi" in os.path.realpath(self.launcher) or "orte" in os.path.realpath(
            self.launcher) else []
        now = time.monotonic()
        out = subprocess.run([self.launcher, *root, "-n", "1", *first, ":", "-n", "1", *second], cwd=self.folder,
                             env=env or environment(), capture_output=True, text=True, timeout=60, check=False)
        self.assertLess(time.monotonic() - now, LIMIT, out.stderr)
        return out

    def test_another_version(self):
        # The same program, with another version number in its library.
        built = pathlib.Path(harness.PROGRAM).parent.parent
        (self.folder / "other/bin").mkdir(parents=True)
        (self.folder / "other/lib").mkdir()
        shutil.copy(harness.PROGRAM, self.folder / "other/bin/convscope")
        data = (built / "lib/libconvscope.so.0").read_bytes()
        self.assertIn(b"\x000.1.0\x00", data)
        (self.folder / "other/lib/libconvscope.so.0").write_bytes(data.replace(b"\x000.1.0\x00", b"\x000.1.7\x00"))
        words = ["run", *WORDS, "-o", "lost"]
        out = self.mixed([harness.PROGRAM, *words], [str(self.folder / "other/bin/convscope"), *words])
        self.assertEqual(out.returncode, 3, out.stderr)
        self.assertIn("expected the same version of convscope in all processes, got 0.1.0", out.stderr)
        self.assertIn("0.1.7", out.stderr)
        self.assertFalse((self.folder / "lost").exists())

    def test_other_data(self):
        for name, labels in (("a", 0), ("b", 1)):
            write_mnist(self.folder / name / "data/mnist", labels)
        words = ["run", "mnist_lenet5_baseline", "sweep=null", "expect=null", "train.epochs=1", "data.root=data",
                 "data.val_split=0", "-o", str(self.folder / "lost")]
        directory = "-wdir"
        out = self.mixed([directory, str(self.folder / "a"), harness.PROGRAM, *words],
                         [directory, str(self.folder / "b"), harness.PROGRAM, *words])
        self.assertNotEqual(out.returncode, 0)
        self.assertIn("expected the same training data in all processes", out.stderr)
        self.assertEqual(out.stderr.count("error: "), 1, out.stderr)

    def test_data_missing_at_one_process(self):
        write_mnist(self.folder / "a/data/mnist", 0)
        (self.folder / "b").mkdir()
        words = ["run", "mnist_lenet5_baseline", "sweep=null", "expect=null", "train.epochs=1", "data.root=data",
                 "data.val_split=0", "-o", str(self.folder / "lost")]
        out = self.mixed(["-wdir", str(self.folder / "a"), harness.PROGRAM, *words],
                         ["-wdir", str(self.folder / "b"), harness.PROGRAM, *words])
        self.assertEqual(out.returncode, 4, out.stderr)
        self.assertEqual(out.stderr.count("error: "), 1, out.stderr)
        self.assertIn("process 1 of 2", out.stderr)

    def test_loss_that_is_not_finite(self):
        out = self.call(["launch", "-n", "2", "--launcher", self.launcher, "run", *WORDS, "optim.lr=1e6", "-o", "lost"], 1)
        self.one_sentence(out.stderr, "finite")
        self.assertEqual(status(self.newest("lost"))["state"], "FAILED")

    def test_one_process_fails_alone(self):
        shim = os.environ.get("FAULTS_SHIM")
        if not shim:
            self.skipTest("no shim")
        words = ["run", *WORDS, "-o", "lost"]
        out = self.mixed([harness.PROGRAM, *words], ["env", f"LD_PRELOAD={shim}", "FAULT_SHIM=rename summary.json 1 fail",
                                                     harness.PROGRAM, *words])
        self.assertEqual(out.returncode, 6, out.stderr)
        self.assertEqual(out.stderr.count("error: "), 1, out.stderr)
        self.assertRegex(out.stderr, r"error: .*summary\.json.*process 1 of 2")
        ended = status(self.newest("lost"))
        self.assertEqual((ended["state"], ended["exit_code"]), ("FAILED", 6))

    def test_missed_gate(self):
        out = self.call(["launch", "-n", "2", "--launcher", self.launcher, "run", *WORDS, "train.epochs=1",
                         "expect={test_acc_min: 100}", "-o", "lost"], 1)
        self.one_sentence(out.stderr, "expect")


def write_mnist(folder, first_label):
    """Writes 200 images of noise in the files of MNIST."""
    folder.mkdir(parents=True)
    for name, count in (("train", 200), ("t10k", 200)):
        images = bytes((i * 37) % 256 for i in range(count * 784))
        labels = bytes((i + first_label) % 10 for i in range(count))
        (folder / f"{name}-images-idx3-ubyte").write_bytes(
            b"".join(n.to_bytes(4, "big") for n in (2051, count, 28, 28)) + images)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(
            b"".join(n.to_bytes(4, "big") for n in (2049, count)) + labels)


if __name__ == "__main__":
    harness.main()
