#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares two processes of one thread with one process of two threads: Convscope and PyTorch DDP (gloo).

Both systems train the same networks with SGD and momentum: LeNet-5 on images of 1x28x28, batch 256, and ResNet-18 with
the small stem on 3x32x32, batch 64. The batch size is the total of all processes; with two processes, each takes half
of the batch. Four variants run in turn, `--repeats` times, every turn in new processes:

    ours, 1 process     convscope run ... threads=2
    ours, 2 processes   convscope launch -n 2 run ... threads=1
    PyTorch, 1 process  2 threads
    PyTorch, 2          DistributedDataParallel over gloo, 1 thread each

A turn yields the mean time of its steps after the warm-up. Convscope's time includes the data loader; PyTorch's images
are in memory. The table shows the median, the smallest and the largest value of the turns. The column `2 : 1` is the
images per second of two processes / the images per second of one process in the same turn; the goal is at least 0.95.

    build/baselines/bin/python experiments/baselines/ranks_vs_pytorch.py --program build/release/bin/convscope
    ... --quick            one turn of a few steps: does it work?
    ... --only lenet5 --repeats 7

Exit code 77 without PyTorch, or without a program that starts processes (mpirun).
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from images import write_cifar
from processes import default_python, environment

HERE = pathlib.Path(__file__).resolve().parent
CONFIGS = HERE.parent / "configs"
WARM_UP = 5  # steps; `convscope run` leaves out as many
WANTED = 0.95
CASES = {
    "lenet5": {"title": "LeNet-5, batch 256", "batch": 256, "shape": (1, 28, 28), "options": {},
               "steps": 200, "config": "quickstart.yaml", "overrides": []},
    "resnet18": {"title": "ResNet-18 (CIFAR stem), batch 64", "batch": 64, "shape": (3, 32, 32),
                 "options": {"stem": "cifar"}, "steps": 15, "config": "cifar10_resnet18.yaml",
                 "overrides": ["data.augment={crop_padding: 0, mirror: false}"]},
}


# ---- PyTorch ----

def torch_child(args):
    """Runs one process of one turn. Rank 0 prints the mean milliseconds of a step."""
    import torch
    import torch_networks as baselines

    case = CASES[args.child]
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    layout = baselines.layout_of(args.layout)
    model = baselines.MODELS[args.child](classes=10, **case["options"]).to(memory_format=layout)
    together = args.ranks > 1
    if together:
        torch.distributed.init_process_group("gloo", init_method=f"file://{args.meet}",
                                             rank=args.rank, world_size=args.ranks)
        model = torch.nn.parallel.DistributedDataParallel(model)
    x = torch.randn(case["batch"] // args.ranks, *case["shape"]).contiguous(memory_format=layout)
    target = torch.randint(10, (len(x),))
    step = baselines.training_step(model, x, target)
    for _ in range(WARM_UP):
        step()
    if together:
        torch.distributed.barrier()
    start = time.perf_counter()
    for _ in range(args.steps):
        step()
    milliseconds = 1e3 * (time.perf_counter() - start) / args.steps
    if together:
        torch.distributed.destroy_process_group()
    if args.rank == 0:
        print(json.dumps({"ms": milliseconds, "version": torch.__version__}))


def torch_turn(args, name, ranks, steps):
    with tempfile.TemporaryDirectory() as folder:
        threads = 2 // ranks
        command = [args.python, __file__, "--child", name, "--ranks", str(ranks), "--threads",
                   str(threads), "--steps", str(steps), "--layout", args.layout, "--meet",
                   f"{folder}/meet"]
        children = [subprocess.Popen([*command, "--rank", str(rank)], env=environment(threads),
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                    for rank in range(ranks)]
        texts = [child.communicate() for child in children]
        for child, (_, error) in zip(children, texts):
            if child.returncode != 0:
                sys.exit(f"ranks_vs_pytorch: PyTorch on {ranks} processes ended with code "
                         f"{child.returncode}: {(error.strip().splitlines() or ['it said nothing'])[-1]}")
        return json.loads(texts[0][0].splitlines()[-1])


# ---- ours ----

def our_command(args, name, ranks, steps, folder):
    case = CASES[name]
    images = case["batch"] * steps
    command = [args.program] + (["launch", "-n", str(ranks)] if ranks > 1 else [])
    command += ["run", str(CONFIGS / case["config"]), f"threads={2 // ranks}", "-o", f"{folder}/runs",
                f"data.batch_size={case['batch']}", "train.eval_every=1000000",
                "checkpoint.every_epochs=0", "expect=null", "log.layers=false", *case["overrides"]]
    if name == "lenet5":  # 20 steps per epoch; each process draws the digits
        in_epoch = min(steps, 20)
        command += [f"data.train_size={case['batch'] * in_epoch}", "data.test_size=256",
                    f"train.epochs={-(-steps // in_epoch)}"]
    else:
        command += [f"data.root={args.cifar}", f"data.limit={images}", "train.epochs=1"]
    return [*command, *args.override]


def our_turn(args, name, ranks, steps):
    with tempfile.TemporaryDirectory() as folder:
        command = our_command(args, name, ranks, WARM_UP + steps, folder)
        done = subprocess.run(command, env=environment(2 // ranks), capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"ranks_vs_pytorch: {' '.join(command)} ended with code {done.returncode}: "
                     f"{(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
        # The links `latest` point to the same file.
        found = next(p for p in pathlib.Path(folder).glob("runs/**/summary.json"))
        summary = json.loads(found.read_text())
        env = json.loads((found.parent / "env.json").read_text())
        return {"ms": 1e3 * CASES[name]["batch"] / summary["images_per_s"],
                "version": str(env.get("version", "")), "cpu": str(env.get("cpu", "")),
                "others": env.get("cores_of_others", 0)}


# ---- the table ----

def spread(values, form):
    return f"{statistics.median(values):{form}} [{min(values):{form}}, {max(values):{form}}]"


def rows_of(case, turns):
    """Returns a row of the table for each system; turns: {system: {ranks: [milliseconds]}}."""
    out = []
    for system, by_ranks in turns.items():
        ratios = [one / two for one, two in zip(by_ranks[1], by_ranks[2])]
        out.append([case["title"], system, spread(by_ranks[1], ".2f"), spread(by_ranks[2], ".2f"),
                    *(f"{1e3 * case['batch'] / statistics.median(by_ranks[r]):.0f}" for r in (1, 2)),
                    spread(ratios, ".3f"), "yes" if statistics.median(ratios) >= WANTED else "no"])
    return out


def markdown(cells):
    return "| " + " | ".join(cells) + " |"


HEAD = ["network", "system", "1 process of 2 threads, ms", "2 processes of 1 thread, ms",
        "images/s, 1", "images/s, 2", "2 : 1", f"at least {WANTED}"]


def run_case(args, name):
    steps = args.steps or CASES[name]["steps"]
    systems = {"Convscope": our_turn}
    if not args.no_torch:
        systems["PyTorch DDP (gloo)"] = torch_turn
    turns = {system: {1: [], 2: []} for system in systems}
    facts = {}
    for number in range(args.repeats):
        for system, turn in systems.items():
            # The order alternates from turn to turn.
            for ranks in (1, 2) if number % 2 == 0 else (2, 1):
                one = turn(args, name, ranks, steps)
                turns[system][ranks].append(one["ms"])
                if ranks == 1:  # with two processes, each counts the other as another program
                    facts[system] = one
                print(f"{name}, turn {number + 1}: {system}, {ranks} process(es): {one['ms']:.2f} ms",
                      file=sys.stderr)
    return turns, facts


def has_torch(python):
    return subprocess.run([python, "-c", "import torch.distributed as d; assert d.is_gloo_available()"],
                          capture_output=True).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/release/bin/convscope")
    parser.add_argument("--python", default=default_python(),
                        help="a Python that has PyTorch (default: build/baselines/bin/python)")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each")
    parser.add_argument("--steps", type=int, default=0,
                        help="counted steps of a turn (default: 200 of LeNet-5, 15 of ResNet-18)")
    parser.add_argument("--quick", action="store_true", help="one turn of 3 steps")
    parser.add_argument("--only", choices=sorted(CASES), help="only this network")
    parser.add_argument("--no-torch", action="store_true", help="only ours")
    parser.add_argument("--layout", choices=["contiguous", "channels_last"], default="contiguous",
                        help="of PyTorch's images and weights")
    parser.add_argument("--override", action="append", default=[], help="key=value for Convscope")
    parser.add_argument("--json", help="where to write all times")
    for name in ("--child", "--meet"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    for name in ("--ranks", "--rank", "--threads"):
        parser.add_argument(name, type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        torch_child(args)
        return 0
    if args.quick:
        args.repeats, args.steps = 1, 3
    if args.repeats < 1 or args.steps < 0:
        parser.error("expected --repeats and --steps of at least 1")
    if not pathlib.Path(args.program).exists():
        parser.error(f"expected --program to be there, got {args.program}; build it first")
    if shutil.which("mpirun") is None and shutil.which("mpiexec") is None:
        print("skipped: no mpirun in PATH; Debian: apt-get install openmpi-bin", file=sys.stderr)
        return 77
    if not args.no_torch and not has_torch(args.python):
        print(f"skipped: {args.python} has no PyTorch with gloo; experiments/baselines/setup.py installs "
              "it, --no-torch leaves it out", file=sys.stderr)
        return 77
    names = [args.only] if args.only else list(CASES)
    written = {}
    with tempfile.TemporaryDirectory() as folder:
        args.cifar = str(pathlib.Path(folder) / "cifar")
        resnet = CASES["resnet18"]
        write_cifar(pathlib.Path(args.cifar), resnet["batch"] * (WARM_UP + (args.steps or resnet["steps"])), 64)
        for name in names:
            turns, facts = run_case(args, name)
            if not written:
                ours = facts["Convscope"]
                print(f"Convscope {ours['version']}; {ours['cpu']}, {os.cpu_count()} cores; "
                      f"{args.repeats} turns in changing order; medians [least, most]")
                print(markdown(HEAD))
                print(markdown(["---"] * len(HEAD)))
            for row in rows_of(CASES[name], turns):
                print(markdown(row), flush=True)
            written[name] = {"ms": turns, "facts": facts}
    for name, what in written.items():
        others = what["facts"]["Convscope"]["others"] or 0
        if others > 0.5:
            print(f"Other programs kept {others:.1f} cores busy during {name}: no comparison.")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(written, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
