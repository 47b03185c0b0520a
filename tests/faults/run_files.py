#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a finished run. Compares the bits of two runs, without times."""
import csv
import hashlib
import json
import os
import pathlib
import struct

RESULTS = ["epoch", "step", "lr", "train_loss", "train_acc", "val_loss", "val_acc", "test_loss",
           "test_acc"]
# Progress entries of a checkpoint that depend on time, or on how many processes have continued the
# run.
OF_TIME = ("run_steps.", "warmup_steps.", "epoch_steps.", "epoch_s", "run_s", "epoch_allocations",
           "metrics_bytes", "epochs_bytes")


def read_checkpoint(path):
    """Returns the tensors by name, each as (type, shape, bytes), and the metadata."""
    data = path.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    head = json.loads(data[8:8 + length])
    metadata = head.pop("__metadata__", {})
    tensors = {}
    for name, entry in head.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = (entry["dtype"], entry["shape"], data[begin:end])
    return tensors, metadata


def read_json(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def bits(run):
    """Returns the part of a run folder's content that depends only on the config."""
    tensors, metadata = read_checkpoint(run / "ckpt/last.safetensors")
    found = {f"tensor {name}": value for name, value in tensors.items()}
    progress = json.loads(metadata["progress"])
    found |= {f"progress {key}": value for key, value in progress.items()
              if not key.startswith(OF_TIME)}
    if (run / "ckpt/best.safetensors").exists():
        best, _ = read_checkpoint(run / "ckpt/best.safetensors")
        found |= {f"best tensor {name}": value for name, value in best.items()}
    with open(run / "epochs.csv", newline="") as file:
        for row in csv.DictReader(file):
            found[f"epochs.csv row {row['epoch']}"] = [row.get(key) for key in RESULTS]
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found["metrics.jsonl"] = [(one.get("step"), one.get("split"), one.get("loss"), one.get("acc"))
                              for one in steps]
    found["state"] = read_json(run / "status.json").get("state")
    return found


def difference(run, sound):
    """Returns the first difference between a run and the bits() of another run, or "" if there is
    none."""
    try:
        got = bits(run)
    except (OSError, ValueError, KeyError, struct.error) as error:
        return f"the files of {run.name} cannot be read: {error!r}"
    for name in sorted(set(got) | set(sound)):
        if got.get(name) != sound.get(name):
            shown = "" if "tensor" in name else f": {got.get(name)} for {sound.get(name)}"
            return f"other bits than the run that was left alone, in {name}{shown}"
    return ""


def runs_below(folder):
    """Returns all run folders, in the order of their names."""
    return sorted(path.parent for path in pathlib.Path(folder).rglob("config.yaml")
                  if not path.parent.is_symlink() and path.parent.name != "latest")


def finished(folder):
    return [run for run in runs_below(folder)
            if read_json(run / "status.json").get("state") == "DONE"]


def names_in(run):
    """Returns the paths of the files of a run folder, except files named after the owner's process
    id."""
    return sorted(str(path.relative_to(run)) for path in run.rglob("*")
                  if path.is_file() and not path.name.startswith(".owner-"))


def snapshot(folder, without=()):
    """Returns the SHA-256 of each file below a folder, by relative path. Leaves out the paths in
    `without`, which a call is allowed to write."""
    found = {}
    for base, below, names in os.walk(folder):
        below[:] = sorted(name for name in below if not name.startswith(".call-"))
        for name in sorted(names):
            path = pathlib.Path(base) / name
            relative = str(path.relative_to(folder))
            if name.startswith((".call-", ".lock", ".owner-")) or path.is_symlink() or \
                    any(relative == one or relative.startswith(one + "/") for one in without):
                continue
            found[relative] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def lost(before, after):
    """Returns a sentence about the first file that existed before and is now missing or changed, or
    "" if all files are intact."""
    for name, digest in before.items():
        if name not in after:
            return f"{name} is gone"
        if after[name] != digest:
            return f"{name} was changed"
    return ""
