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
import json
import pathlib
import statistics
import sys
import tempfile
import time

import processes
from images import mnist


def torch_child(args):
    """Runs PyTorch in a separate process, so that the number of threads is set before any thread starts."""
    import torch
    import torch_networks as baselines

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    layout = baselines.layout_of(args.layout)
    x, labels = mnist(args.data, "train", layout)
    model = baselines.lenet5().to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = torch.nn.CrossEntropyLoss()

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
        processes.run(command)
        summary = json.loads(next(pathlib.Path(out).glob("**/summary.json")).read_text())
        return {"epoch_s": 60000 / summary["images_per_s"],
                "avg_forward_mem": summary["avg_forward_mem"],
                "avg_backward_mem": summary["avg_backward_mem"]}


def torch_run(args, threads, layout):
    command = [args.python, __file__, "--child", "--data", args.data, "--batch", str(args.batch),
               "--threads", str(threads), "--layout", layout]
    done = processes.run(command, env=processes.environment(threads))
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
