#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Helpers for the tests of sweeps on several nodes: a small sweep, calls of the program, and the
results that two equal sweeps share (the table without times, and the bits of every run)."""
import csv
import io
import json
import os
import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "faults"))
import run_files  # noqa: E402  pylint: disable=wrong-import-position
from slurm_cluster import PATIENCE_S  # noqa: E402  pylint: disable=wrong-import-position

CONFIG = """name: small
data: {{set: synthetic_digits, train_size: {images}, test_size: 100, batch_size: 16}}
layers:
  - {{type: conv2d, name: c1, out_channels: 4, kernel_size: 5}}
  - {{type: relu}}
  - {{type: max_pool2d, kernel_size: 4}}
  - {{type: flatten}}
  - {{type: linear, name: f1, out_features: 10}}
optim: {{lr: 0.02}}
train: {{epochs: {epochs}}}
log: {{every_steps: 1}}
sweep:
  members:
    - {{name: dense}}
    - {{name: pruned, sparsity: {{method: magnitude, target: 0.5}}}}
    - {{name: half, optim.lr: 0.01}}
    - {{name: codes, quant: {{w_bits: 4, a_bits: 4}}}}
  seeds: [{seeds}]
"""


class Sweeps:
    """The program in one folder."""

    def __init__(self, program, folder, env):
        self.program, self.folder = pathlib.Path(program).resolve(), pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.env = dict(env, CONVSCOPE_MEASURE="off", CONVSCOPE_CACHE_DIR=str(self.folder / "cache"),
                        OMP_WAIT_POLICY="passive", LC_ALL="C.UTF-8", PYTHONDONTWRITEBYTECODE="1")
        for name in [name for name in self.env if name.startswith("SLURM_") and name != "SLURM_CONF"]:
            del self.env[name]

    def config(self, name="small.yaml", images=640, epochs=3, seeds="1, 2, 3"):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CONFIG.format(images=images, epochs=epochs, seeds=seeds))
        return path

    def start(self, *words, env=None, cwd=None):
        return subprocess.Popen([str(self.program), "sweep", *map(str, words)], env=env or self.env,
                                cwd=cwd or self.folder, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def call(self, *words, seconds=PATIENCE_S, **options):
        process = self.start(*words, **options)
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            out, err = process.communicate()
            raise AssertionError(f"{words} did not end:\n{out}\n{err}")
        return Answer(process.returncode, out, err)


class Answer:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = 128 - code if code < 0 else code, out, err

    def __str__(self):
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def without_times(text):
    """Returns the rows of a CSV table, without the columns that differ between two runs of the same
    member."""
    rows = list(csv.DictReader(io.StringIO(text)))
    return [{key: value for key, value in row.items() if not key.startswith("avg_") and key != "busy"}
            for row in rows]


def bits_of(sweep):
    """Returns the runs in a sweep's folder by row and seed. Checks that each member has finished
    exactly once."""
    found = {}
    for run in run_files.finished(sweep):
        member = f"{run.parent.name} s{run.name.split('-s')[1].split('-')[0]}"
        if member in found:
            raise AssertionError(f"{member} was finished twice")
        found[member] = run_files.bits(run)
    return found


def first_difference(got, wanted):
    """Returns one sentence; "" when all members have the same bits."""
    if sorted(got) != sorted(wanted):
        return f"members {sorted(got)}, expected {sorted(wanted)}"
    for member, bits in wanted.items():
        for name in sorted(set(bits) | set(got[member])):
            if got[member].get(name) != bits.get(name):
                return f"{member}: other bits in {name}"
    return ""


def runs_in(sweep):
    return run_files.runs_below(sweep)


def state_of(run):
    return run_files.read_json(run / "status.json").get("state")


def steps_of(run):
    try:
        return (run / "metrics.jsonl").read_bytes().count(b"\n")
    except OSError:
        return 0


def claims_in(sweep):
    """Returns, by member, what its owner file says."""
    found = {}
    for path in pathlib.Path(sweep).glob("*/.s*.claim/.owner-*"):
        try:
            record = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        found[f"{path.parent.parent.name} {path.parent.name[1:-6]}"] = record
    return found


def processes_with(*words):
    """Returns the ids of the processes whose command line contains all these words."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if entry.name.isdigit() and int(entry.name) != os.getpid() and all(word in line for word in words):
            found.append(int(entry.name))
    return found
