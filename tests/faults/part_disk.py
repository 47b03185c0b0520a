#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests disks of many sizes, limits on the size of a file, and a full stdout. The program must end
with exit code 6; with free space the run continues."""
import shlex

import run_files
from part_kills import the_same
from stage import NO_MOUNT, namespace_words
from verdict import complaints

NAME, SHORT, LONG = "disk", 10, 48
TITLE = "small disks, bounds on a file's size, a full stdout"
# Disk sizes in KiB. A run takes about 1 MB, and its largest file is 360 KB.
DISKS = [4, 8, 12, 20, 28, 40, 64, 100, 180, 300, 420, 600, 780, 900, 1000, 1100]
FILES = [0, 0.5, 1, 2, 4, 8, 16, 35, 64, 120, 177, 180, 200, 300, 350, 352]
# Commands that write a result over an older one.
WRITERS = [["report", "runs", "-o", "out"], ["report", "runs", "-f", "json", "-o", "out"],
           ["compare", "RUN", "RUN2", "-o", "out"], ["index", "runs", "-o", "out"],
           ["bench", "net", "q.yaml", "--min-time", "0.001", "--rounds", "1", "--json", "out"],
           ["plot", "RUN", "--kind", "curves", "-o", "out.svg"],
           ["export", "PRUNED", "--compact", "out"], ["export", "RUN2", "--quantised", "out"],
           ["export", "PRUNED", "--sparse", "out"], ["export", "RUN", "--onnx", "out"],
           ["op", "conv2d", "--x", "files/x.npy", "--w", "files/w.npy", "--out-y", "out"]]


def run(stage, number, folder):
    kind, place = number % 3, number // 3
    if kind == 0:
        return small_disk(stage, folder, DISKS[place * 5 % len(DISKS)])
    if kind == 1:
        return small_files(stage, folder, FILES[place * 5 % len(FILES)])
    return full_output(stage, folder, WRITERS[place % len(WRITERS)], place)


def on_again(stage, folder, first):
    """Resumes the run where there is enough space. The result must be that of a run that always had
    enough space."""
    found = complaints(first, codes=(0, 6))
    if first.code == 0:
        return found + the_same(stage, folder, "q")
    done = stage.train(folder, "q", "--resume", "auto")
    found += complaints(done, codes=(0,)) + the_same(stage, folder, "q")
    return found + [first.told(), done.told()] if found else []


def small_disk(stage, folder, kilobytes):
    if not stage.namespaces:
        return None
    stage.copy(folder, "q.yaml")
    (folder / "disk").mkdir()
    words = shlex.join([str(stage.program), "run", "q.yaml", "-o", "disk/runs", "--threads", "1"])
    # The mount of the disk disappears when its namespace ends, so the script copies the files to
    # the folder of the case.
    script = (f"mount -t tmpfs -o size={kilobytes}k none disk || exit {NO_MOUNT}; {words}; code=$?; "
              "cp -a disk/runs . 2>/dev/null; exit $code")
    first = stage.call(folder, before=shlex.join([*namespace_words(), "sh", "-c", script]) +
                       "; exit; ")
    if first.code == NO_MOUNT:
        return None
    return on_again(stage, folder, first)


def small_files(stage, folder, kilobytes):
    stage.copy(folder, "q.yaml")
    return on_again(stage, folder, stage.train(folder, "q", file_bytes=int(kilobytes * 1024)))


def full_output(stage, folder, words, place):
    stage.copy(folder, "runs/q", "runs/rich", "runs/pruned", "files", "q.yaml")
    for name in ("out", "out.svg"):
        (folder / name).write_text("an older result")
    places = {"RUN": "q", "RUN2": "rich", "PRUNED": "pruned"}
    words = [str(stage.newest(folder / "runs" / places[word])) if word in places else word
             for word in words]
    if place % 2:  # stdout has no space for the results
        result = stage.call(folder, *[word for word in words[:2]] if words[0] == "report" else
                            ["info"], to="/dev/full")
        found = complaints(result, codes=(6,))
        return found + [result.told()] if found else []
    before = run_files.snapshot(folder)
    result = stage.call(folder, *words, file_bytes=0)
    found = complaints(result, codes=(6,))
    gone = run_files.lost(before, run_files.snapshot(folder))
    found += [f"an older file was lost: {gone}"] if gone else []
    return found + [result.told()] if found else []
