#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests hostile surroundings: no HOME, unusual locales, read-only folders, few file descriptors."""
import shlex

from calls import Call
from part_kills import the_same
from stage import NO_MOUNT, namespace_words
from verdict import complaints

# Each case has environment variables (None removes one), shell commands that run first, and the
# accepted exit codes other than 0. A call that ends with 0 must have the usual results.
NO_HOME = {"HOME": None, "XDG_CACHE_HOME": None, "CONVSCOPE_CACHE_DIR": None}
CASES = [
    ("no HOME", NO_HOME, "", ()),
    ("HOME that is not there", NO_HOME | {"HOME": "/nonexistent/home"}, "", ()),
    ("HOME that is a file", NO_HOME | {"HOME": "/etc/passwd"}, "", ()),
    ("HOME without a letter", NO_HOME | {"HOME": ""}, "", ()),
    ("a cache folder that is a file", {"CONVSCOPE_CACHE_DIR": "/etc/passwd"}, "", ()),
    ("a cache folder that cannot be made", {"CONVSCOPE_CACHE_DIR": "/proc/nothing/here"}, "", ()),
    ("a cache folder in the way of a device", {"CONVSCOPE_CACHE_DIR": "/dev/null"}, "", ()),
    ("a locale that is not there", {"LC_ALL": "xx_XX.bad", "LANG": "xx"}, "", ()),
    ("a locale with decimal commas", {"LC_ALL": "de_DE.UTF-8"}, "", ()),
    ("the plain locale", {"LC_ALL": "C"}, "", ()),
    ("TMPDIR that is not there", {"TMPDIR": "/nonexistent/tmp"}, "", ()),
    ("TMPDIR that is a file", {"TMPDIR": "/etc/passwd"}, "", ()),
    ("no PATH", {"PATH": ""}, "", ()),
    ("an empty environment", {"": None, "CONVSCOPE_MEASURE": "off"}, "", ()),
    ("a time zone that is not there", {"TZ": "No/Where"}, "", ()),
    ("OMP_NUM_THREADS of words", {"OMP_NUM_THREADS": "many"}, "", ()),
    ("OMP_NUM_THREADS of 0", {"OMP_NUM_THREADS": "0"}, "", ()),
    ("an instruction set that is none", {"CONVSCOPE_ISA": "sse9"}, "", (5,)),
    ("a CUDA library that is none", {"CONVSCOPE_CUDA_LIBRARY": "/etc/passwd"}, "", ()),
    ("a folder of data that is not there", {"CONVSCOPE_DATA": "/nonexistent"}, "", ()),
    ("a terminal of no columns", {"COLUMNS": "0", "LINES": "-1", "TERM": "nothing"}, "", ()),
    ("a date of no number", {"SOURCE_DATE_EPOCH": "soon"}, "", (2,)),
    ("24 file descriptors", {}, "ulimit -n 24; ", (6,)),
    ("6 file descriptors", {}, "ulimit -n 6; ", (1, 6, 127)),
    ("256 KiB of stack", {}, "ulimit -s 256; ", ()),
    ("no right for others", {}, "umask 077; ", ()),
    ("a working folder that is gone", {}, "mkdir gone; cd gone; rmdir ../gone; ", (3, 6)),
    ("a working folder that is read-only", {}, "READONLY", (6,)),
    ("an output folder that is read-only", {}, "READONLY runs", (6,)),
    ("an output folder that is a file", {}, "rm -rf runs; echo x > runs; ", (6,)),
    ("an output folder that is a loop", {}, "rm -rf runs; ln -s runs runs; ", (6,)),
]
COMMANDS = [["run", "q.yaml", "-o", "runs", "--threads", "1"], ["report", "given"],
            ["info", "--json"], ["plot", "RUN", "-o", "runs/plots"], ["man"],
            ["eval", "RUN", "--threads", "1"], ["explain", "q.yaml"], ["index", "given"],
            ["config", "show", "q.yaml"], ["completion", "bash"], ["watch", "given", "--once"]]

NAME, SHORT, LONG = "surroundings", 2 * len(CASES), len(CASES) * len(COMMANDS)
TITLE = "no HOME, odd locales, read-only folders, few descriptors"


def run(stage, number, folder):
    what, variables, before, codes = CASES[number % len(CASES)]
    unwritable = before.startswith(("READONLY", "rm -rf runs"))
    place = number // len(CASES)  # one run for each, then the other commands in turn
    words = COMMANDS[0] if place == 0 else COMMANDS[1:][(place - 1 + number) % (len(COMMANDS) - 1)]
    if before.startswith("READONLY") and not stage.namespaces:
        return None
    stage.copy(folder, "q.yaml")
    stage.copy(folder, "runs/q")
    (folder / "runs").rename(folder / "given")
    (folder / "runs").mkdir()
    given = stage.newest(folder / "given/q")
    words = [str(given) if word == "RUN" else word for word in words]
    if before.startswith("READONLY"):
        before = read_only(stage, before.removeprefix("READONLY").strip() or ".", words)
    env = stage.env | {key: value for key, value in variables.items() if value is not None}
    env = {key: value for key, value in env.items()
           if ("" not in variables or key in variables) and variables.get(key, value) is not None}
    done = Call([stage.program, *words], folder, cwd=folder, env=env, before=before,
                memory=stage.memory).outcome(stage.patience)
    if done.code == NO_MOUNT:
        return None
    found = complaints(done, codes=(6,) if unwritable and words[0] == "run" else (0, *codes))
    if words[0] == "run" and done.code == 0:
        found += the_same(stage, folder, "q")
    return [f"with {what}", *found, done.told()] if found else []


def read_only(stage, place, words):
    """Returns a shell command that mounts `place` read-only, calls the program, and exits with the
    program's exit code."""
    call = shlex.join([str(stage.program), *words])
    script = (f"mount --bind {place} {place} && mount -o remount,bind,ro {place} && cd . || "
              f"exit {NO_MOUNT}; {call}")
    return shlex.join([*namespace_words(), "sh", "-c", script]) + "; exit; "
