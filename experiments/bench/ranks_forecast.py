#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the forecast of `explain --ranks` with `launch -n P run`, on the processes of this host.

For each network and each number of processes, three commands run one after the other. `bench exchange` measures latency
and rate between the processes. `explain --ranks P --ranks-per-host P --inside ...` predicts the time of a step from
this latency and rate. `launch -n P run` trains. The three commands are repeated `--repeats` times, and a Markdown table
shows the medians. Every process has one thread. Do not use more processes than cores, because `explain` times steps in
a single process.

    python3 experiments/bench/ranks_forecast.py --program build/release/bin/convscope
    ... --quick --only lenet5
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

DATA = ["data.set=synthetic_digits", "data.train_size=5120", "data.test_size=64"]
TRAIN = ["threads=1", "log.layers=false", "train.eval_every=1000000", "checkpoint.every_epochs=0"]
WIDE = """name: wide
data: {set: synthetic_digits}
optim: {type: sgd, lr: 0.0001}
layers:
  - {type: flatten}
  - {type: linear, out_features: 2048}
  - {type: relu}
  - {type: linear, out_features: 2048}
  - {type: relu}
  - {type: linear, out_features: 10}
"""
# title, config, images of all processes, epochs of 5120 images
CASES = {
    "lenet5": ("LeNet-5, batch 256", "quickstart", 256, 10),
    "resnet18_small": ("ResNet-18 with an eighth of its channels, batch 64", "synthetic_resnet18_small",
                       64, 1),
    "wide": ("three linear layers of 5.8 million weights, batch 256", "wide.yaml", 256, 3),
}


def called(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"ranks_forecast: {' '.join(command)} ended with code {done.returncode}: "
                 f"{(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
    return done.stdout


def measured_link(program, processes, folder):
    text = called([program, "launch", "-n", str(processes), "bench", "exchange", "--most", "16"], folder)
    return re.search(r"--inside (\S+)", text)[1]


def foretold(program, words, processes, link, folder):
    """Returns the prediction: milliseconds of a step, of waiting for sums, and of all sums."""
    text = called([program, "explain", *words, "--ranks", str(processes), "--ranks-per-host",
                   str(processes), "--inside", link, "--json"], folder)
    row = json.loads(text)["rows"][-1]
    return row["step_ms"], row["exposed_ms"], row["exchange_ms"]


def trained(program, words, processes, epochs, folder):
    """Returns what was measured: milliseconds of a step, milliseconds of waiting, cores used by other programs. The
    third number is unknown with several processes, because each process would count the others as other programs."""
    with tempfile.TemporaryDirectory(dir=folder) as out:
        start = ["launch", "-n", str(processes)] if processes > 1 else []
        called([program, *start, "run", *words, "expect=null", f"train.epochs={epochs}", "-o", out],
               folder)
        found = next(pathlib.Path(out).glob("**/summary.json"))
        summary = json.loads(found.read_text())
        others = json.loads((found.parent / "env.json").read_text()).get("cores_of_others") or 0
        others = others if processes == 1 else 0
        return 1e3 * summary["avg_step"], 1e3 * summary.get("avg_exchange", 0), others


def median(rows, column):
    return statistics.median(row[column] for row in rows)


def compare(args, name, processes, folder):
    title, config, batch, epochs = CASES[name]
    words = [config, *DATA, *TRAIN, f"data.batch_size={batch}"]
    said, took, links = [], [], []
    for _ in range(args.repeats):
        link = measured_link(args.program, processes, folder) if processes > 1 else "1GB"
        links.append(link)
        if processes > 1:
            said.append(foretold(args.program, words, processes, link, folder))
        else:
            text = called([args.program, "explain", *words, "--ranks", "1", "--json"], folder)
            row = json.loads(text)["rows"][-1]
            said.append((row["step_ms"], 0, 0))
        took.append(trained(args.program, words, processes, epochs, folder))
    ratio = median(said, 0) / median(took, 0)
    print(f"| {title} | {processes} | {links[-1] if processes > 1 else '-'} | {median(said, 0):.2f} "
          f"| {median(took, 0):.2f} | {ratio:.2f} | {median(said, 1):.2f} | {median(took, 1):.2f} |",
          flush=True)
    return max(row[2] for row in took)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/release/bin/convscope")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="once")
    parser.add_argument("--only", choices=sorted(CASES), help="only this network")
    args = parser.parse_args()
    args.program = str(pathlib.Path(args.program).resolve())
    if args.quick:
        args.repeats = 1
    if args.repeats < 1 or min(args.processes) < 1:
        parser.error("expected --repeats and --processes of at least 1")
    if not pathlib.Path(args.program).exists():
        parser.error(f"expected --program to be there, got {args.program}; build it first")
    print(f"{os.cpu_count()} cores; medians of {args.repeats}\n")
    print("| network | processes | link | predicted ms | measured ms | predicted : measured "
          "| exposed, predicted | waited, measured |\n|---|---|---|---|---|---|---|---|")
    others = 0
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "wide.yaml").write_text(WIDE)
        for name in [args.only] if args.only else CASES:
            for processes in args.processes:
                others = max(others, compare(args, name, processes, folder))
    if others > 0.5:
        print(f"\nOther programs kept {others:.1f} cores busy: the times are not reliable.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
