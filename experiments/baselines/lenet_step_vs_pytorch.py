#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares LeNet-5 on MNIST with PyTorch eager: time of one epoch and memory of one step.

Both programs train the same network (conv 6 k5, ReLU, pool 2, conv 16 k5, ReLU, pool 2, 256-120-84-10) with SGD
and momentum on the same shuffled, normalised batches, without evaluating the accuracy. They run in turn,
`--repeats` times; medians and the ratio are printed. PyTorch gets its data as one normalised float tensor in
memory, so its time excludes file reading and conversion; Convscope's time includes its whole data loader.
PyTorch's time is measured in both memory layouts.

    python3 experiments/baselines/lenet_step_vs_pytorch.py --data DIR --binary build/release/bin/convscope
"""
import argparse
import gzip
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time


def read_idx(folder, stem):
    for name in (stem, stem + ".gz"):
        path = pathlib.Path(folder) / name
        if path.exists():
            raw = gzip.open(path).read() if name.endswith(".gz") else path.read_bytes()
            break
    else:
        sys.exit(f"error: {stem}[.gz] is not in {folder}; fetch it with `convscope data fetch mnist`")
    rank = raw[3]
    shape = struct.unpack(f">{rank}I", raw[4 : 4 + 4 * rank])
    return shape, raw[4 + 4 * rank :]


def torch_child(args):
    """Runs PyTorch in a separate process, so that the number of threads is set before any thread starts."""
    import torch
    import torch.nn as nn

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    shape, raw = read_idx(args.data, "train-images-idx3-ubyte")
    x = torch.frombuffer(bytearray(raw), dtype=torch.uint8).reshape(shape[0], 1, shape[1], shape[2])
    x = (x.float() / 255 - 0.1307) / 0.3081
    _, raw = read_idx(args.data, "train-labels-idx1-ubyte")
    labels = torch.frombuffer(bytearray(raw), dtype=torch.uint8).long()
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84),
        nn.ReLU(), nn.Linear(84, 10))
    layout = torch.channels_last if args.layout == "channels_last" else torch.contiguous_format
    model = model.to(memory_format=layout)
    x = x.contiguous(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()

    def step(batch, target):
        optimizer.zero_grad()
        loss = loss_of(model(batch), target)
        loss.backward()
        optimizer.step()

    for i in range(20):
        step(x[i * args.batch : (i + 1) * args.batch], labels[i * args.batch : (i + 1) * args.batch])
    start = time.perf_counter()
    order = torch.randperm(len(labels))
    for first in range(0, len(labels), args.batch):
        index = order[first : first + args.batch]
        step(x[index], labels[index])
    seconds = time.perf_counter() - start
    print(json.dumps({"epoch_s": seconds, "version": torch.__version__,
                      **torch_memory(torch, model, loss_of, x[: args.batch], labels[: args.batch])}))


def torch_memory(torch, model, loss_of, batch, target):
    """Returns the two memory columns of the report for one step: the growth in the forward, and the peak in the
    backward.

    The values are computed from PyTorch's allocation events. Gradients are allocated while events are recorded, but
    weights and the batch are allocated before. Their size is therefore added to the peak, as it counts in Convscope,
    too.
    """
    from torch.profiler import ProfilerActivity, profile, record_function

    def events(backward):
        for p in model.parameters():
            p.grad = None
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
            with record_function("forward_phase"):
                loss = loss_of(model(batch), target)
            if backward:
                loss.backward()
            kept = loss  # noqa: F841 (the graph must live until the profile ends)
        live = peak = 0
        for event in prof.profiler.kineto_results.events():
            if event.name() == "[memory]":
                live += event.nbytes()
                peak = max(peak, live)
        return live, peak

    events(True)
    held = sum(p.numel() * 4 for p in model.parameters()) + batch.numel() * 4
    forward_live, _ = events(False)
    _, peak = events(True)
    return {"avg_forward_mem": forward_live / 2**20, "avg_backward_mem": (peak + held) / 2**20}


def convscope_run(args, threads):
    with tempfile.TemporaryDirectory() as out:
        config = pathlib.Path(__file__).parents[1] / "configs" / "mnist_lenet5_baseline.yaml"
        command = [args.binary, "run", str(config), f"data.root={args.data}", f"threads={threads}",
                   f"data.batch_size={args.batch}", "train.epochs=1", "model.padding=0",
                   "expect.test_acc_min=0", "-o", out, *args.override]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        summary = json.loads(next(pathlib.Path(out).glob("**/summary.json")).read_text())
        return {"epoch_s": 60000 / summary["images_per_s"],
                "avg_forward_mem": summary["avg_forward_mem"],
                "avg_backward_mem": summary["avg_backward_mem"]}


def torch_run(args, threads, layout):
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(threads))
    command = [args.python, __file__, "--child", "--data", args.data, "--batch", str(args.batch),
               "--threads", str(threads), "--layout", layout]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder of the four MNIST files")
    parser.add_argument("--binary", default="build/release/bin/convscope")
    parser.add_argument("--python", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--override", action="append", default=[], help="key=value for Convscope")
    parser.add_argument("--layout", default="contiguous", help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        args.threads = args.threads[0]
        torch_child(args)
        return
    print(f"MNIST, LeNet-5, batch {args.batch}, one epoch; medians of {args.repeats} runs in turn")
    print("| threads | system | epoch s | [min, max] | times Convscope | forward MiB | backward MiB |")
    print("|---|---|---|---|---|---|---|")
    for threads in args.threads:
        systems = {"Convscope": lambda: convscope_run(args, threads),
                   "PyTorch NCHW": lambda: torch_run(args, threads, "contiguous"),
                   "PyTorch channels-last": lambda: torch_run(args, threads, "channels_last")}
        rows = {name: [] for name in systems}
        for _ in range(args.repeats):
            for name, run in systems.items():
                rows[name].append(run())
        ours = statistics.median(r["epoch_s"] for r in rows["Convscope"])
        for name, runs in rows.items():
            times = [r["epoch_s"] for r in runs]
            version = f" {runs[0]['version']}" if "version" in runs[0] else ""
            print(f"| {threads} | {name}{version} | {statistics.median(times):.3f} "
                  f"| [{min(times):.3f}, {max(times):.3f}] | {statistics.median(times) / ours:.2f} "
                  f"| {runs[0]['avg_forward_mem']:.2f} | {runs[0]['avg_backward_mem']:.2f} |")


if __name__ == "__main__":
    main()
