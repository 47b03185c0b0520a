#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares whole networks with PyTorch eager, in both of PyTorch's memory layouts.

Each case (network, inference or training step, batch size) runs on random images in a steady state.
`convscope bench net` and PyTorch run in turn, `--repeats` times, every turn in a new process with the same
number of threads (with `--pin` on the same cores). Each process warms up before its runs count. In both
programs a training step is zero gradients, forward, softmax cross-entropy, backward, and SGD with momentum 0.9.
The table shows the median over all runs of all turns and the shortest run. `ratio` is the time of PyTorch's
faster layout / Convscope's time; above 1, Convscope is faster. Memory is the peak resident set of the process
(in brackets its size before the network was built) and, for Convscope, the allocator's peak.

    python3 experiments/baselines/net_vs_pytorch.py --program build/release/bin/convscope --threads 1 2
    ... --quick                  one short turn of each
    ... --threads 1 --clock cpu  on a busy machine: CPU time instead of wall time
    ... --only resnet18          cases whose name contains the text
    ... --compile                time torch.compile in PyTorch's faster layout, too
"""
import argparse
import json
import pathlib
import statistics
import sys

import processes

LAYOUTS = ("contiguous", "channels_last")
IMAGENET = {"image": "3x224x224", "classes": 1000}
CIFAR = {"image": "3x32x32", "classes": 10}


def cases():
    out = []
    for mode in ("train", "inference"):
        for batch in (4, 64, 256):
            out.append({"name": f"lenet5 {mode} N={batch}", "net": "lenet5", "mode": mode,
                        "batch": batch, "image": "1x28x28", "classes": 10, "options": {}})
    for net in ("resnet18", "mobilenet_v1", "mobilenet_v2", "resnet50", "googlenet", "densenet121",
                "efficientnet_b0", "convnext_tiny"):
        for mode, batch in (("inference", 1), ("inference", 8), ("train", 8)):
            out.append({"name": f"{net} 224 {mode} N={batch}", "net": net, "mode": mode,
                        "batch": batch, "options": {}, **IMAGENET})
    for mode, batch in (("inference", 1), ("inference", 8), ("train", 8)):
        out.append({"name": f"unet 128 {mode} N={batch}", "net": "unet", "mode": mode, "batch": batch,
                    "image": "3x128x128", "classes": 4, "options": {}})
    out.append({"name": "resnet18 CIFAR train N=64", "net": "resnet18", "mode": "train",
                "batch": 64, "options": {"stem": "cifar"}, **CIFAR})
    return out


def torch_child(case, layout_name, is_compiled, threads, seconds, clock):
    import torch
    import torch_networks as baselines

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    before = processes.peak_bytes()
    shape = [int(s) for s in case["image"].split("x")]
    layout = baselines.layout_of(layout_name)
    options = dict(case["options"])
    model = baselines.MODELS[case["net"]](classes=case["classes"], **options)
    model = model.to(memory_format=layout)
    x = torch.randn(case["batch"], *shape).contiguous(memory_format=layout)
    target = torch.randint(case["classes"], baselines.shape_of_labels(case["net"], tuple(x.shape)))
    if is_compiled:
        model.compile()
    if case["mode"] == "train":
        run = baselines.training_step(model, x, target)
    else:
        model.eval()

        def run():
            with torch.inference_mode():
                model(x)

    print(json.dumps({"ms": processes.repeated_ms(run, seconds, clock), "process": processes.peak_bytes(),
                      "before": before, "version": torch.__version__}))


def torch_run(args, case, layout, threads, is_compiled=False):
    command = [args.python, __file__, "--child", json.dumps(case), "--layout", layout,
               "--threads", str(threads), "--seconds", str(args.seconds), "--clock", args.clock]
    if is_compiled:
        command.append("--compile")
    done = processes.run(command, env=processes.environment(threads),
                         preexec_fn=processes.on_cores(threads, args.pin))
    return json.loads(done.stdout.splitlines()[-1])


def convscope_run(args, case, threads):
    command = [args.program, "bench", "net", case["net"], "--batch", case["batch"], "--mode", case["mode"],
               "--image", case["image"], "--classes", case["classes"], "--threads", threads, "--min-time",
               args.seconds, "--rounds", 3, "--clock", args.clock, "-q",
               *(f"model.{key}={value}" for key, value in case["options"].items()), *args.override]
    written = processes.bench(command, env=processes.environment(threads),
                              preexec_fn=processes.on_cores(threads, args.pin))
    row = written["rows"][0]
    return {"ms": [row["median_ms"]], "min": row["min_ms"], "process": row["process_peak_bytes"],
            "allocator": row["peak_bytes"], "machine": written["machine"]}


def mebibytes(value):
    return f"{value / 2**20:.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    processes.add_turn_options(parser, 3.0, 0.6, "PyTorch")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--compile", action="store_true", help="time torch.compile, too")
    parser.add_argument("--override", action="append", default=[], help="key=value for Convscope")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--layout", help=argparse.SUPPRESS)
    args = processes.parsed_turns(parser)
    if args.child:
        torch_child(json.loads(args.child), args.layout, args.compile, args.threads[0], args.seconds, args.clock)
        return 0
    chosen = [case for case in cases() if args.only in case["name"]]
    if not chosen:
        parser.error(f"expected --only to name one of: {', '.join(c['name'] for c in cases())}")
    rows = []
    header = ("| case | threads | ours ms | min | NCHW ms | min | channels-last ms | min "
              "| ratio | by min | compiled ms | ratio | ours MiB: allocator, process "
              "| PyTorch MiB: process (before) |")
    for threads in args.threads:
        for case in chosen:
            turns = {"ours": [], **{layout: [] for layout in LAYOUTS}}
            for _ in range(args.repeats):
                turns["ours"].append(convscope_run(args, case, threads))
                for layout in LAYOUTS:
                    turns[layout].append(torch_run(args, case, layout, threads))
            if not rows:
                machine = turns["ours"][0]["machine"]
                print(f"Convscope {machine.get('version', '')} compared with PyTorch "
                      f"{turns['contiguous'][0]['version']}; {machine.get('cpu', '')}; "
                      f"{args.repeats} turns of {args.seconds} s, {args.clock} time")
                print(header + "\n|" + "---|" * (header.count("|") - 1))
            median = {s: statistics.median([statistics.median(t["ms"]) for t in runs])
                      for s, runs in turns.items()}
            least = {s: min(min(t["ms"] + [t.get("min", 1e30)]) for t in runs)
                     for s, runs in turns.items()}
            better = min(LAYOUTS, key=median.get)
            row = {"case": case["name"], "threads": threads, "median_ms": median, "min_ms": least,
                   "ratio": median[better] / median["ours"],
                   "ratio_min": min(least[s] for s in LAYOUTS) / least["ours"],
                   "process_bytes": {s: max(t["process"] for t in runs) for s, runs in turns.items()},
                   "allocator_bytes": max(t["allocator"] for t in turns["ours"]),
                   "better_layout": better, "torch": turns["contiguous"][0]["version"]}
            compiled = " | "
            if args.compile:
                runs = [torch_run(args, case, better, threads, True) for _ in range(args.repeats)]
                row["compiled_ms"] = statistics.median([statistics.median(run["ms"]) for run in runs])
                row["ratio_compiled"] = row["compiled_ms"] / median["ours"]
                compiled = f"{row['compiled_ms']:.3f} | {row['ratio_compiled']:.2f}"
            rows.append(row)
            before = max(t["before"] for t in turns[better])
            print(f"| {case['name']} | {threads} | {median['ours']:.3f} | {least['ours']:.3f} "
                  f"| {median['contiguous']:.3f} | {least['contiguous']:.3f} "
                  f"| {median['channels_last']:.3f} | {least['channels_last']:.3f} "
                  f"| {row['ratio']:.2f} | {row['ratio_min']:.2f} | {compiled} "
                  f"| {mebibytes(row['allocator_bytes'])}, {mebibytes(row['process_bytes']['ours'])} "
                  f"| {mebibytes(row['process_bytes'][better])} ({mebibytes(before)}) |", flush=True)
            if args.json:
                pathlib.Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
