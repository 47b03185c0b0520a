#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills a run or a sweep at random moments (kill -9). The resumed run must have the same bits."""
import shutil
import signal

import run_files
from verdict import complaints

NAME, SHORT, LONG = "kills", 16, 100
TITLE = "kill -9 at random moments, then on to the same bits"


def run(stage, number, folder):
    random = stage.random(NAME, number)
    if number % 4 == 3:
        return killed_sweep(stage, random, folder)
    return killed_run(stage, random, folder, "rich" if number % 4 == 1 else "q")


def kill_at_random(stage, random, folder, whole, words):
    """Returns False when the program ended before the signal arrived."""
    call = stage.start(folder, *words)
    ended = call.ended_within(random.uniform(0, 1.2 * whole))
    call.send(signal.SIGKILL)
    call.process.wait()
    is_sweep = words[0] == "sweep"  # some runs of the sweep may be finished
    return not ended and (is_sweep or not run_files.finished(folder / "runs"))


def kill_some(stage, random, folder, config, words, times):
    """Kills a call at a random moment, and then the calls that resume it. If possible, at least one
    kill comes before the end of the run."""
    for attempt in range(1, 11):
        killed = 0
        while killed < times and kill_at_random(stage, random, folder,
                                                stage.seconds[config] / attempt, words):
            killed += 1
        if killed:
            return
        shutil.rmtree(folder / "runs", ignore_errors=True)


def killed_run(stage, random, folder, config):
    stage.copy(folder, f"{config}.yaml")
    words = ["run", f"{config}.yaml", "-o", "runs", "--threads", 1, "--resume", "auto"]
    kill_some(stage, random, folder, config, words, random.choice((1, 1, 2, 3)))
    if random.random() < 0.25:  # the files of a killed run are readable
        seen = stage.call(folder, "report", "runs", "-f", "json")
        found = complaints(seen, codes=(0, 6))
        if found:
            return found + [seen.told()]
    if run_files.finished(folder / "runs"):
        # The last kill came after the end of the run, while the program wrote report.html. A
        # finished run is not resumed, so the incomplete page remains.
        return the_same(stage, folder, config, half_a_page=True)
    done = stage.call(folder, *words)
    found = complaints(done, codes=(0,)) + the_same(stage, folder, config)
    return found + [done.told()] if found else []


def the_same(stage, folder, config, runs_in="runs", half_a_page=False):
    """Checks that exactly one run has finished, that its results have the same bits as an
    undisturbed run, and that its folder has no additional files."""
    runs = run_files.finished(folder / runs_in)
    if len(runs) != 1:
        return [f"{len(runs)} finished runs, expected one"]
    different = run_files.difference(runs[0], stage.whole[config])
    if different:
        return [different]
    more = sorted(set(run_files.names_in(runs[0])) -
                  set(run_files.names_in(stage.newest(stage.sound / "runs" / config))))
    if half_a_page:
        more = [name for name in more if not name.startswith(".report.html.")]
    return [f"a file is left over: {', '.join(more)}"] if more else []


def killed_sweep(stage, random, folder):
    stage.copy(folder, "s.yaml")
    words = ["sweep", "s.yaml", "-o", "runs", "--threads", 1]
    kill_some(stage, random, folder, "s", words, random.choice((1, 2)))
    for _ in range(100):  # its members end without a signal, soon
        done = stage.call(folder, *words)
        if done.code == 0 or "no process works on" not in done.err:
            break
    found = complaints(done, codes=(0,)) + same_sweep(stage, folder)
    return found + [done.told()] if found else []


def same_sweep(stage, folder):
    got = stage.sweep_bits(folder / "runs/s")
    for member, whole in stage.sweep.items():
        if len(got.get(member, [])) != 1:
            return [f"{len(got.get(member, []))} finished runs of {member}, expected one"]
        if got[member] != whole:
            return [f"other bits than the sweep that was left alone, in {member}"]
    return [] if len(got) == len(stage.sweep) else ["more members than the sweep has"]
