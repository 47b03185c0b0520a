#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends INT, TERM, HUP or PIPE to a run at random moments. The run must write a checkpoint,
end with code 128 + n, and resume."""
import signal
import time

import run_files
from part_kills import the_same
from verdict import complaints

NAME, SHORT, LONG = "signals", 12, 70
TITLE = "INT, TERM, HUP and PIPE at random moments"
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE]


def run(stage, number, folder):
    random = stage.random(NAME, number)
    config = "rich" if number % 3 == 2 else "q"
    one = SIGNALS[number % 4]
    stage.copy(folder, f"{config}.yaml")
    words = ["run", f"{config}.yaml", "-o", "runs", "--threads", 1]
    reader_goes = number % 8 == 3  # SIGPIPE as in practice: `convscope run ... 2>&1 | head`
    call = stage.start(folder, *words, piped=reader_goes)
    early = number % 10 == 9  # before anything can be saved, the signal may end the process
    begun = True
    if early:
        call.ended_within(random.uniform(0, 0.5 * stage.seconds[config]))
        begun = has_begun(folder)
    else:
        while not has_begun(folder) and not call.ended_within(0):
            time.sleep(0.001)
        call.ended_within(time.monotonic() - call.begin +
                          random.uniform(0, 0.7 * stage.seconds[config]))
    if reader_goes:
        call.stop_reading_errors()
    else:
        call.send(one)
    stopped = call.outcome(stage.patience)
    # A signal that arrives after the last step may end the process, because all files are written. If
    # the reader of a pipe has gone, the program's last message ends the process by SIGPIPE.
    through = bool(run_files.finished(folder / "runs"))
    by_itself = begun and not reader_goes and not through
    found = complaints(stopped, codes=(0, 128 + one), signals=() if by_itself else (one,))
    if begun and stopped.code == 128 + one and not through:
        found += kept(folder, stopped, reader_goes)
    done = stopped if through else stage.call(folder, *words, "--resume", "auto")
    found += complaints(done, codes=(0,)) if done is not stopped else []
    found += the_same(stage, folder, config, half_a_page=through)
    return found + [stopped.told(), done.told()] if found else []


def has_begun(folder):
    """Returns whether the program already handles signals: it does so before it writes
    status.json."""
    return any(folder.glob("runs/*/2*/status.json"))


def kept(folder, stopped, reader_goes):
    runs = run_files.runs_below(folder / "runs")
    if len(runs) != 1:
        return [f"{len(runs)} runs, expected one"]
    state = run_files.read_json(runs[0] / "status.json").get("state")
    if state != "INTERRUPTED":
        return [f"state {state}, expected INTERRUPTED"]
    if not (runs[0] / "ckpt/last.safetensors").exists():
        return ["no checkpoint was written"]
    return [] if reader_goes or "go on with" in stopped.err else ["it does not say how to go on"]
