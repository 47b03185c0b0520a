#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Closes stdin, stdout and stderr, in all seven combinations. Results must be the same, and files
must contain no messages."""
import run_files
from part_kills import same_sweep, the_same
from verdict import complaints

CLOSED = ["<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"]
COMMANDS = [["run", "q.yaml", "-o", "runs", "--threads", "1"],
            ["sweep", "s.yaml", "-o", "runs", "--threads", "1"],
            ["report", "given", "-f", "json", "-o", "out.json"],
            ["eval", "RUN"], ["plot", "RUN", "-o", "out"], ["info"], ["config", "show", "q.yaml"],
            ["bench", "conv2d", "--shapes", "files/shapes.txt", "--min-time", "0.0001", "--rounds",
             "1", "--direction", "forward", "--json", "out.json"]]

NAME, SHORT, LONG = "streams", 14, 7 * len(COMMANDS)
TITLE = "stdin, stdout, stderr closed in all combinations"


def run(stage, number, folder):
    closed, words = CLOSED[number % 7], COMMANDS[number // 7 % len(COMMANDS)]
    stage.copy(folder, "q.yaml", "s.yaml", "files/shapes.txt")
    stage.copy(folder / "given", "runs/q")
    (folder / "given/runs/q").rename(folder / "given/q")
    (folder / "given/runs").rmdir()
    given = stage.newest(folder / "given/q")
    before = run_files.snapshot(given)
    words = [str(given) if word == "RUN" else word for word in words]
    done = stage.call(folder, *words, streams=closed)
    found = complaints(done, codes=(0,))
    gone = run_files.lost(before, run_files.snapshot(given))
    found += [f"a good file was lost: {gone}"] if gone else []
    found += [f"text in {path.name}" for path in folder.rglob(".lock") if path.stat().st_size]
    if words[0] == "run":
        found += the_same(stage, folder, "q")
    if words[0] == "sweep":
        found += same_sweep(stage, folder)
    if "out.json" in words and not run_files.read_json(folder / "out.json"):
        found.append("the JSON that it wrote cannot be read")
    return [f"with {closed}", *found, done.told()] if found else []
