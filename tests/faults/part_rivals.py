#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts several processes that resume one run, or train one sweep. One process continues, the
others refuse."""
import signal
import time

import run_files
from part_kills import same_sweep
from verdict import complaints

NAME, SHORT, LONG = "rivals", 3, 20
TITLE = "four processes on one run, or on one sweep"
JOBS = 1  # four processes per case are enough
RIVALS = 4


def run(stage, number, folder):
    random = stage.random(NAME, number)
    if number % 4 == 2:
        return sweeps(stage, folder)
    stage.copy(folder, "q.yaml")
    begin = stage.start(folder, "run", "q.yaml", "-o", "runs", "--threads", 1)
    while not any(folder.glob("runs/q/2*/status.json")) and not begin.ended_within(0):
        time.sleep(0.001)
    begin.ended_within(time.monotonic() - begin.begin + random.uniform(0, 0.05))
    begin.send(signal.SIGKILL)
    begin.process.wait()
    target = stage.newest(folder / "runs/q") if number % 2 else "auto"
    words = ["run", *(["--resume", target] if number % 2 else
                      ["q.yaml", "-o", "runs", "--resume", "auto"]), "--threads", 1]
    outcomes = race(stage, folder, words)
    found, went_on = [], 0
    for one in outcomes:
        finished = "is finished already" in one.err or "no unfinished run" in one.err
        went_on += one.code == 0 and "done   report" in one.err and not finished
        refused = one.code == 2 and "no process works on" in one.err
        if not refused:
            found += complaints(one, codes=(0,))
        elif one.err.count("error:") != 1:
            found.append("a refusal of more than one sentence")
    # The killed process may have finished already.
    if went_on > 1 or went_on == 0 and not all("is finished" in one.err or "nothing unf" in one.err
                                               for one in outcomes):
        found.append(f"{went_on} of {RIVALS} went on, expected one")
    found += the_same_once(stage, folder)
    return found + [one.told() for one in outcomes] if found else []


def the_same_once(stage, folder):
    """Checks that all runs have the same bits. (A rival that starts after the end may begin a new
    run.)"""
    runs = run_files.finished(folder / "runs")
    if not runs:
        return ["no finished run"]
    differences = [run_files.difference(one, stage.whole["q"]) for one in runs]
    return [one for one in differences if one]


def sweeps(stage, folder):
    stage.copy(folder, "s.yaml")
    words = ["sweep", "s.yaml", "-o", "runs", "--threads", 1]
    outcomes = race(stage, folder, words)
    found = []
    for one in outcomes:
        if not (one.code == 2 and "no process works on" in one.err):
            found += complaints(one, codes=(0,))
    if not any(one.code == 0 for one in outcomes):
        found.append("none of them trained the sweep")
    found += same_sweep(stage, folder)
    return found + [one.told() for one in outcomes] if found else []


def race(stage, folder, words):
    calls = [stage.start(folder, *words) for _ in range(RIVALS)]
    return [call.outcome(stage.patience) for call in calls]
