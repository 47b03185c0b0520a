#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts the program with limits on memory, file size and time, and reports how it ended."""
import dataclasses
import os
import pathlib
import shlex
import signal
import subprocess
import time

MEMORY_BYTES = 2 << 30  # address space, far more than the small configs of these tests need


@dataclasses.dataclass
class Outcome:
    """The result of one call. `code` is the exit code that a shell shows: 128 + n
    after signal n."""
    words: list
    code: int
    by_signal: int  # the signal that ended the process; 0: it ended without one
    out: str
    err: str
    seconds: float
    hung: bool = False

    def told(self):
        """Returns a readable description: the call and everything that it produced."""
        how = "did not end" if self.hung else f"signal {self.by_signal}" if self.by_signal else \
            f"exit code {self.code}"
        return (f"$ {shlex.join(self.words)}\n{how}, {self.seconds:.2f} s\n"
                f"--- stdout\n{self.out[-4000:]}\n--- stderr\n{self.err[-4000:]}\n")


class Call:
    """A running call. Its output goes to files, so that the call never waits for a reader. If the
    size of files is limited, the limit would also apply to such a file, so the output goes to
    pipes, which hold 64 KiB."""
    number = 0

    def __init__(self, words, folder, cwd=None, memory=MEMORY_BYTES, file_bytes=None, streams="",
                 env=None, before="", to=None, piped=False):
        """Starts the call. streams: shell redirections such as '<&- >&-'. before: shell commands
        that run first. to: the file for stdout. piped: stdout and stderr are pipes."""
        self.words = [str(word) for word in words]
        Call.number += 1
        self.at = pathlib.Path(folder) / f".call-{os.getpid()}-{Call.number}"
        line = before
        if memory:
            line += f"ulimit -v {memory // 1024}; "
        if file_bytes is not None:
            line += f"ulimit -f {file_bytes // 512}; "
        line += f'exec "$0" "$@" {streams}'
        if piped or file_bytes is not None:
            self.begin = time.monotonic()
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", line, *self.words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, cwd=cwd, env=env, start_new_session=True)
            return
        with open(to or f"{self.at}.out", "wb") as out, open(f"{self.at}.err", "wb") as err:
            self.begin = time.monotonic()
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", line, *self.words], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                cwd=cwd, env=env, start_new_session=True)

    def ended_within(self, seconds):
        try:
            self.process.wait(max(0, self.begin + seconds - time.monotonic()))
            return True
        except subprocess.TimeoutExpired:
            return False

    def send(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)

    def stop_reading_errors(self):
        """Closes the reading end of a piped stderr."""
        self.process.stderr.close()
        self.process.stderr = None

    def kill_all(self):
        """Kills the process and the processes that it started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def outcome(self, seconds=60, stoppable=False):
        """Waits until the call ends. With `stoppable`, a call may take long, but it must react
        to SIGINT."""
        hung = not self.ended_within(seconds)
        if hung and stoppable:
            self.send(signal.SIGINT)
            hung = not self.ended_within(2 * seconds)
        self.kill_all()
        taken = time.monotonic() - self.begin
        if self.process.stdout:
            texts = [(text or b"").decode("utf-8", "replace") for text in self.process.communicate()]
        else:
            texts = [self.said(suffix) for suffix in (".out", ".err")]
        code = self.process.returncode
        return Outcome(self.words, 128 - code if code < 0 else code, max(0, -code), *texts, taken,
                       hung)

    def said(self, suffix):
        path = pathlib.Path(f"{self.at}{suffix}")
        text = path.read_bytes().decode("utf-8", "replace") if path.exists() else ""
        path.unlink(missing_ok=True)
        return text
