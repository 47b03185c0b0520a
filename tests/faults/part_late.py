#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests system calls that are late or fail (shim.cpp), in concurrent `note` commands and for each
file of a run."""
import json
import signal
import time

import run_files
from part_kills import the_same
from verdict import complaints

NAME, SHORT, LONG = "late", 8, 120
TITLE = "system calls that come late or fail, by a shim"
SLOW_MS = 250
WRITTEN = ["report.html", "status.json", "summary.json", "choices.json", "layers.csv", "env.json",
           "config.yaml", "last.safetensors", "best.safetensors", "overrides.txt"]


def run(stage, number, folder):
    if stage.shim is None:
        return None
    kinds = [two_notes, note_and_run, killed_writer, lambda *words: failed_rename(*words, number // 4)]
    return kinds[number % 4](stage, folder)


def shim(stage, fault):
    """The program restarts itself once; counting begins in the second process."""
    return {"LD_PRELOAD": str(stage.shim), "FAULT_SHIM": fault, "GOMP_SPINCOUNT": "0"}


def summary(run):
    return run_files.read_json(run / "summary.json")


def two_notes(stage, folder):
    stage.copy(folder, "runs/q")
    run = stage.newest(folder / "runs/q")
    slow = shim(stage, f"close summary.json 0 {SLOW_MS}")
    calls = [stage.start(folder, "note", run, "--tag", tag, more_env=slow) for tag in ("one", "two")]
    ended = [call.outcome(stage.patience) for call in calls]
    found = [text for one in ended for text in complaints(one, codes=(0, 2))]
    kept = summary(run).get("tags", "")
    for one, tag in zip(ended, ("one", "two")):
        if one.code == 0 and tag not in kept.split(", "):
            found.append(f"the tag {tag} was lost: '{kept}'")
        if one.code == 2 and f"process {calls[0].process.pid} " not in one.err and \
                f"process {calls[1].process.pid} " not in one.err:
            found.append("the refusal does not name the process that works")
    return found + [one.told() for one in ended] if found else []


def note_and_run(stage, folder):
    """Starts a `note` that reads the summary before the run continues, and writes the summary after
    the run has ended."""
    stage.copy(folder, "paused/q", "q.yaml")
    (folder / "paused").rename(folder / "runs")
    run = stage.newest(folder / "runs/q")
    note = stage.start(folder, "note", run, "--tag", "late",
                       more_env=shim(stage, f"close summary.json 1 {4 * SLOW_MS}"))
    time.sleep(0.1)
    done = stage.train(folder, "q", "--resume", "auto")
    late = note.outcome(stage.patience)
    found = complaints(done, codes=(0,)) + complaints(late, codes=(0, 2))
    got = summary(run)
    if got.get("epochs") != 2:
        found.append(f"summary.json is of epoch {got.get('epochs')} again")
    if late.code == 0 and got.get("tags") != "late":
        found.append("the tag was lost")
    found += the_same(stage, folder, "q")
    return found + [done.told(), late.told()] if found else []


def killed_writer(stage, folder):
    """Kills a writer that waits for a slow disk. Only the older file may exist afterwards."""
    stage.copy(folder, "runs/q")
    (folder / "out").mkdir()
    (folder / "out/old.md").write_text("an older result")
    call = stage.start(folder, "report", "runs", "-o", "out/old.md",
                       more_env=shim(stage, f"fsync any 0 {20 * SLOW_MS}"))
    time.sleep(0.3)  # the program is in its first fsync then
    call.send(signal.SIGKILL)
    call.process.wait()
    left = sorted(path.name for path in (folder / "out").iterdir())
    if left != ["old.md"] or (folder / "out/old.md").read_text() != "an older result":
        return [f"a file is left over: {', '.join(left)}"]
    return []


def failed_rename(stage, folder, place):
    """Lets one rename fail. Exit code and status.json must agree, and the run must be able to
    continue."""
    name, nth = WRITTEN[place % len(WRITTEN)], 1 + place // len(WRITTEN)
    stage.copy(folder, "q.yaml")
    first = stage.train(folder, "q", more_env=shim(stage, f"rename {name} {nth} fail"))
    found = complaints(first, codes=(0, 6))
    runs = run_files.runs_below(folder / "runs")
    status = run_files.read_json(runs[0] / "status.json") if runs else {}
    state, code = status.get("state"), status.get("exit_code")
    # If even the final status could not be written, it stays RUNNING; no command treats such a run
    # as finished.
    if state in ("DONE", "FAILED") and code != first.code or state == "DONE" and first.code != 0:
        found.append(f"exit code {first.code}, but status.json says {json.dumps(status)}")
    if name == "report.html" and (first.code != 0 or state != "DONE"):
        found.append(f"a run failed with its page alone: exit code {first.code}, state {state}")
    done = first if state == "DONE" else stage.train(folder, "q", "--resume", "auto")
    found += complaints(done, codes=(0,)) + the_same(stage, folder, "q")
    return found + [first.told(), done.told()] if found else []
