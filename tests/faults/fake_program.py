#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program for self_test.py that replaces `convscope`: it calls the real one (FAKE_REAL) and makes
one mistake (FAKE_DOES).

self_test.py runs each part of the fault campaign (campaign.py) against this program.
"""
import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import time

REAL, DOES, WORDS = os.environ["FAKE_REAL"], os.environ["FAKE_DOES"], sys.argv[1:]


def real():
    """Calls the real program with the same arguments and returns its exit code."""
    return subprocess.run([REAL, *WORDS], check=False,
                          preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL)).returncode


def newest(pattern):
    return sorted(pathlib.Path().glob(pattern))[-1]


def crash():
    os.kill(os.getpid(), signal.SIGSEGV)


def hang():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    time.sleep(600)


def say_terminate():
    print("terminate called after throwing an instance of 'std::out_of_range'", file=sys.stderr)
    return 1


def say_nothing():
    return 1


def eat_memory():
    try:
        bytearray(3 << 30)
    except MemoryError:
        print("error: out of memory", file=sys.stderr)
        return 1
    return 0


def lose_a_file():
    found = sorted(path for path in pathlib.Path().rglob("*") if path.is_file() and
                   not path.is_symlink() and not path.name.startswith("."))
    found[0].unlink()
    return real()


def empty_the_older_file():
    pathlib.Path("out").write_text("")
    return real()


def other_bits():
    code = real()
    if code == 0:
        path = newest("runs/*/2*/ckpt/last.safetensors")
        data = bytearray(path.read_bytes())
        data[-1] = (data[-1] + 1) % 256  # not XOR: two rivals change one run, and two XORs cancel
        path.write_bytes(data)
    return code


def leave_a_file():
    code = real()
    (newest("runs/*/2*") / "summary.json.partial").write_text("x")
    return code


def write_into_the_lock():
    code = real()
    (newest("runs/*/2*") / ".lock").write_text("epoch 1")
    return code


def write_no_checkpoint():
    """Acts as a program that saves nothing when a signal arrives: kills the real program, and
    returns the exit code for this signal."""
    child = subprocess.Popen([REAL, *WORDS])

    def stop(number, _):
        os.kill(child.pid, signal.SIGKILL)
        os._exit(128 + number)

    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(one, stop)
    return child.wait()


def go_on_too():
    if real() == 2:
        print("done   report: mine too", file=sys.stderr)
    return 0


def write_an_old_summary():
    """Restores the run's state from before the call."""
    path = newest("runs/*/2*") / "summary.json"
    before = path.read_text()
    time.sleep(1)
    code = real()
    if WORDS[0] == "note":
        path.write_text(before)
    return code


def write_through_links():
    path = newest("runs/*/2*") / "metrics.jsonl"
    with open(path, "a", encoding="utf-8") as file:
        file.write("\n")
    return real()


def need_a_home():
    return real() if "HOME" in os.environ else crash()


ACTIONS = {"nothing": real, "return_139": lambda: 139, "return_42": lambda: 42,
           "return_0": lambda: 0}

if __name__ == "__main__":
    if DOES == "nothing":
        os.execv(REAL, [REAL, *WORDS])
    sys.exit(ACTIONS[DOES]() if DOES in ACTIONS else globals()[DOES]())
