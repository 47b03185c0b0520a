#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the time to 99.0 % on MNIST with PyTorch: wall time of the whole process, with the same recipe.

Each program starts a process, reads the four files, trains LeNet-5 (61,706 weights) and evaluates the 10,000
test images once, at the end. The recipe is that of configs/mnist_lenet5_99.yaml: batch 64, 3 epochs, SGD with
Nesterov momentum, one cycle of the learning rate. Two times are shown. The wall time is that of the process
from start to end; the time of PyTorch's import is shown too, so that it can be subtracted. The time after
start-up begins when data and network are in memory and ends when the accuracy of the test images is known.
Convscope's time after start-up includes file output and, on a GPU, the copy of the data and the recording of
the steps; PyTorch's data are on the device before its time begins. PyTorch keeps the data as one normalised
tensor and runs eagerly, in both memory layouts. Initial weights follow the same distribution, but their values
and the order of the samples differ, so the accuracies differ. Exit code 1 when a run of Convscope misses 99.0
%.

    python3 experiments/baselines/mnist_to_99.py --data DIR --program build/release/bin/convscope
"""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from images import mnist
from processes import environment, on_cores, peak_bytes

STARTED = time.perf_counter()
CONFIG = pathlib.Path(__file__).parents[1] / "configs" / "mnist_lenet5_99.yaml"
RECIPE = {"batch": 64, "epochs": 3, "lr": 0.05, "momentum": 0.9, "weight_decay": 1e-4,
          "pct_start": 0.15, "div_factor": 25.0, "final_div_factor": 1e4}


def one_cycle(step, total):
    """Returns the learning rate of optim/lr_schedule.cpp: two half cosines, as in
    torch.optim.lr_scheduler.OneCycleLR."""
    first = RECIPE["lr"] / RECIPE["div_factor"]
    last = first / RECIPE["final_div_factor"]
    top, end = RECIPE["pct_start"] * total - 1, total - 1
    half = lambda a, b, t: b + (a - b) * (1 + math.cos(math.pi * t)) / 2
    if step < top:
        return half(first, RECIPE["lr"], step / top)
    return half(RECIPE["lr"], last, (step - top) / (end - top))


def torch_child(args):
    import torch
    import torch_networks as baselines

    imported = time.perf_counter() - STARTED
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seeds[0])
    layout = baselines.layout_of(args.layout)

    x, labels = (t.to(args.device) for t in mnist(args.data, "train", layout))
    x_test, labels_test = (t.to(args.device) for t in mnist(args.data, "t10k", layout))
    model = baselines.lenet5(padding=2).to(args.device, memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=RECIPE["lr"], momentum=RECIPE["momentum"],
                                weight_decay=RECIPE["weight_decay"], nesterov=True)
    loss_of = torch.nn.CrossEntropyLoss()
    batch = RECIPE["batch"]
    total = RECIPE["epochs"] * math.ceil(len(labels) / batch)
    step = 0
    if args.device == "cuda":
        torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(RECIPE["epochs"]):
        order = torch.randperm(len(labels))
        for start in range(0, len(labels), batch):
            index = order[start:start + batch]
            optimizer.param_groups[0]["lr"] = one_cycle(step, total)
            optimizer.zero_grad()
            loss_of(model(x[index]), labels[index]).backward()
            optimizer.step()
            step += 1
    model.eval()
    correct = 0
    with torch.inference_mode():
        for start in range(0, len(labels_test), 500):
            guess = model(x_test[start:start + 500]).argmax(1)
            correct += int((guess == labels_test[start:start + 500]).sum())
    print(json.dumps({"accuracy": 100 * correct / len(labels_test), "import_s": imported,
                      "training_s": time.perf_counter() - begun,
                      "process": peak_bytes(), "version": torch.__version__}))


def timed(command, args):
    start = time.perf_counter()
    done = subprocess.run(command, env=environment(args.threads), capture_output=True, text=True,
                          preexec_fn=on_cores(args.threads, args.pin))
    return time.perf_counter() - start, done


def convscope_run(args, seed):
    with tempfile.TemporaryDirectory() as out:
        wall, done = timed([args.program, "run", str(CONFIG), f"data.root={args.data}",
                            f"seed={seed}", f"threads={args.threads}", f"device={args.device}", "-q",
                            "-o", out, *args.override], args)
        if done.returncode not in (0, 1):  # 1: the expected accuracy was missed
            sys.exit(done.stderr)
        summary = next(pathlib.Path(out).glob("**/summary.json"))
        rows = [json.loads(row) for row in (summary.parent / "metrics.jsonl").read_text().splitlines()]
        known_at = [row["t"] for row in rows if row["split"] == "test"]
        if not known_at:  # the run failed before its first evaluation
            sys.exit(done.stderr)
        return {"wall": wall, "accuracy": json.loads(summary.read_text())["acc"], "training_s": known_at[-1]}


def torch_run(args, seed, layout):
    wall, done = timed([args.python, __file__, "--child", "--data", args.data, "--threads",
                        str(args.threads), "--seeds", str(seed), "--layout", layout,
                        "--device", args.device], args)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return {"wall": wall, **json.loads(done.stdout.splitlines()[-1])}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder of the four MNIST files")
    parser.add_argument("--program", default="build/release/bin/convscope")
    parser.add_argument("--python", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pin", action="store_true", help="bind both sides to the first cores")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--baseline-seeds", "--peer-seeds", type=int, nargs="*", metavar="SEED",
                        help="of PyTorch, which takes longer (default: those of --seeds; none leaves it out)")
    parser.add_argument("--override", action="append", default=[], help="key=value for Convscope")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"],
                        help="of both sides; PyTorch keeps the data there")
    parser.add_argument("--layout", default="contiguous", help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        torch_child(args)
        return 0
    systems = {"Convscope": lambda seed: convscope_run(args, seed),
               "PyTorch NCHW": lambda seed: torch_run(args, seed, "contiguous"),
               "PyTorch channels-last": lambda seed: torch_run(args, seed, "channels_last")}
    baseline_seeds = args.seeds if args.baseline_seeds is None else args.baseline_seeds
    runs = {name: [] for name in systems if name == "Convscope" or baseline_seeds}
    for seed in dict.fromkeys([*args.seeds, *baseline_seeds]):
        for name, run in systems.items():
            if seed not in (args.seeds if name == "Convscope" else baseline_seeds):
                continue
            runs[name].append(run(seed))
            print(f"seed {seed}: {name} {runs[name][-1]['wall']:.2f} s, "
                  f"{runs[name][-1]['accuracy']:.2f} %", file=sys.stderr)
    ours = statistics.median(r["wall"] for r in runs["Convscope"])
    others = f", PyTorch's {baseline_seeds}" if runs.keys() != {"Convscope"} and baseline_seeds != args.seeds else ""
    print(f"LeNet-5 on MNIST, {args.device}, {args.threads} threads, whole process, seeds {args.seeds}{others}")
    print("| system | wall s, median | min | max | times Convscope | of it import s | after start-up s "
          "| test % |")
    print("|---|---|---|---|---|---|---|---|")
    for name, rows in runs.items():
        walls = [r["wall"] for r in rows]
        version = f" {rows[0]['version']}" if "version" in rows[0] else ""
        imported = f"{statistics.median(r['import_s'] for r in rows):.2f}" if version else "-"
        print(f"| {name}{version} | {statistics.median(walls):.2f} | {min(walls):.2f} "
              f"| {max(walls):.2f} | {statistics.median(walls) / ours:.2f} | {imported} "
              f"| {statistics.median(r['training_s'] for r in rows):.3f} "
              f"| {', '.join('%.2f' % r['accuracy'] for r in rows)} |")
    return 0 if min(r["accuracy"] for r in runs["Convscope"]) >= 99.0 else 1


if __name__ == "__main__":
    sys.exit(main())
