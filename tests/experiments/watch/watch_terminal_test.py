#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `convscope watch` on a terminal: frames fit, also after a change of the terminal's size,
and the program ends on Ctrl-C and with the run: watch_terminal_test.py PROGRAM"""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
CLEAR = "\x1b[J"
PATIENCE_S = 60


class Terminal:
    """Runs the program in a separate terminal; `seen` is its whole output so far."""

    def __init__(self, columns, rows, *words):
        self.outer, inner = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(inner)
        self.inner = inner
        environment = dict(os.environ, LANG="C.UTF-8", LC_ALL="C.UTF-8", TERM="xterm", NO_COLOR="1")
        self.seen = ""
        self.process = subprocess.Popen(
            [str(PROGRAM), *words], stdin=inner, stdout=inner, stderr=inner, env=environment,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def resize(self, columns, rows):
        fcntl.ioctl(self.outer, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, is_there):
        end = time.monotonic() + PATIENCE_S
        while not is_there(self.seen):
            ready, _, _ = select.select([self.outer], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise AssertionError(f"not seen in: {self.seen[-3000:]!r}")
            self.seen += os.read(self.outer, 65536).decode()

    def frames(self):
        """Returns the lines of each frame except the last."""
        text = re.sub(r"\x1b\[[0-9;?]*[A-IK-Za-z]", "", self.seen)
        return [frame.split("\r\n") for frame in text.split(CLEAR)[1:-1]]

    def end(self):
        code = self.process.wait(PATIENCE_S)
        while select.select([self.outer], [], [], 0.2)[0]:
            self.seen += os.read(self.outer, 65536).decode()
        after = termios.tcgetattr(self.inner)
        os.close(self.inner)
        os.close(self.outer)
        return code, after == self.before


class WatchOnATerminal(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_folder = pathlib.Path(folder.name) / "lenet/2026-01-01_000000-s1"
        self.run_folder.mkdir(parents=True)
        (self.run_folder / "config.yaml").write_text("name: lenet\ntrain:\n  epochs: 9\n")
        (self.run_folder / "metrics.jsonl").write_text("".join(
            json.dumps({"t": step, "step": step, "epoch": 1, "split": "train", "loss": 1 / step,
                        "acc": step, "images_per_s": 10}) + "\n" for step in range(1, 40)))
        self.set_state("RUNNING", None)
        self.lock = open(self.run_folder / ".lock", "w")
        self.addCleanup(self.lock.close)
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def set_state(self, state, code):
        text = json.dumps({"state": state, "exit_code": code, "host": socket.gethostname(), "pid": 1, "epoch": 0,
                           "step": 39, "heartbeat_unix": time.time()})
        (self.run_folder / "new").write_text(text)
        (self.run_folder / "new").rename(self.run_folder / "status.json")

    def watch(self, columns, rows):
        terminal = Terminal(columns, rows, "watch", str(self.run_folder), "--interval", "0.1")
        terminal.read_until(lambda seen: seen.count(CLEAR) > 2)
        return terminal

    def test_ctrl_c_gives_the_terminal_back(self):
        terminal = self.watch(60, 20)
        self.assertTrue(terminal.seen.startswith(ENTER), terminal.seen[:50])
        os.write(terminal.outer, b"\x03")
        code, same = terminal.end()
        self.assertEqual(code, 130)
        self.assertTrue(same)
        after = terminal.seen.split(LEAVE)[1]
        self.assertIn("RUNNING", after)  # the last frame stays
        self.assertNotIn("\x1b", after)

    def test_a_frame_fits_a_terminal_of_60_columns(self):
        terminal = self.watch(60, 20)
        for frame in terminal.frames():
            self.assertLessEqual(len(frame), 20)
            self.assertLessEqual(max(map(len, frame)), 60)
        self.assertTrue(any("\u2800" <= letter <= "\u28ff" for letter in terminal.seen))
        terminal.process.terminate()
        self.assertEqual(terminal.end(), (143, True))

    def test_another_size_is_drawn_anew(self):
        terminal = self.watch(60, 20)
        terminal.resize(110, 30)
        terminal.read_until(lambda seen: len(terminal.frames()[-1][0]) == 110)
        os.write(terminal.outer, b"\x03")
        self.assertEqual(terminal.end(), (130, True))

    def test_it_ends_with_the_run(self):
        terminal = self.watch(80, 24)
        self.set_state("DONE", 0)
        self.assertEqual(terminal.end(), (0, True))
        self.assertIn("DONE", terminal.seen.split(LEAVE)[1])

    def test_it_sees_that_a_run_was_killed(self):
        terminal = self.watch(80, 24)
        self.lock.close()
        self.assertEqual(terminal.end(), (1, True))
        self.assertIn("KILLED", terminal.seen.split(LEAVE)[1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
