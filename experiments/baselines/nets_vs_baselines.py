#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares inference of whole networks with PyTorch, torch.compile, ONNX Runtime and OpenVINO.

All systems run in f32, with the same weights, images and number of threads. PyTorch runs in NCHW and
channels-last.

First the script checks results. Convscope draws the weights, and PyTorch loads and exports them (ONNX). Every
system must agree with PyTorch's float64, Convscope too (`convscope op net`); a system that does not is not
timed. Then the script times all systems in turn, `--repeats` times. Every turn is a new process, which is
checked and warmed up before its runs count; Convscope runs `convscope bench net`. The table shows the median
over the turns and the shortest run. A ratio is a system's time / Convscope's time: above 1, Convscope is
faster. * marks the best baseline of a case. MiB is the peak resident set of the process, `before` its resident
set before the network was loaded. A system that is not installed is skipped, with a sentence.

    python3 experiments/baselines/setup.py                                   # installs the systems
    python3 experiments/baselines/nets_vs_baselines.py --program build/release/bin/convscope
    ... --quick                  one short turn of each
    ... --threads 1 --clock cpu  on a busy machine: CPU time instead of wall time
    ... --only resnet18 --systems OpenVINO "ONNX Runtime"

Exit code 1 when a result is wrong, 77 when no baseline is installed. Training: net_vs_pytorch.py.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import net_table
import processes
from processes import bench, environment, on_cores

HERE = pathlib.Path(__file__).resolve().parent
CONFIGS = HERE.parent / "configs"
BASELINES = ("PyTorch NCHW", "PyTorch channels-last", "torch.compile", "ONNX Runtime", "OpenVINO")
BATCHES = (1, 8)
NETS = [
    # name, image, classes, config for `op net`, its overrides
    ("resnet18", "3x224x224", 1000, "cifar10_resnet18.yaml", ["model.stem=imagenet"]),
    ("mobilenet_v1", "3x224x224", 1000, "cifar10_mobilenet_v1.yaml", ["model.stem=imagenet"]),
    ("mobilenet_v2", "3x224x224", 1000, "cifar10_mobilenet_v2.yaml", ["model.stem=imagenet"]),
    ("lenet5", "1x28x28", 10, "mnist_lenet5_baseline.yaml", ["model.padding=0"]),
]


class Skipped(Exception):
    pass


class Wrong(Exception):
    pass


def called(command, what, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        sys.exit(f"nets_vs_baselines: {what} ended with code {done.returncode}: {last}")
    return done.stdout


def child(args, what, folder, *rest, threads=1, pin=False):
    """Returns the JSON of one process of net_systems.py."""
    text = called([args.python, HERE / "net_systems.py", what, folder, *rest], what,
                  env={**environment(threads), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")},
                  preexec_fn=on_cores(threads, pin))
    out = json.loads(text.splitlines()[-1])
    if "skipped" in out:
        raise Skipped(out["skipped"])
    if "error" in out and not out["error"] <= out["tolerance"]:
        raise Wrong(f"relative error {out['error']:.1e}, allowed {out['tolerance']:.0e}")
    return out


def op_net(args, net, folder, *rest):
    name, _, classes, config, overrides = net
    called([args.program, "op", "net", CONFIGS / config, *overrides, "data.root=.", "--x",
            folder / "x.npy", "--classes", classes, *rest], f"convscope op net {name}",
           env=environment(1))


def prepare(args, net, folder):
    """Writes images, weights with updated batch norm, outputs of Convscope and PyTorch, and ONNX files."""
    name, image, classes, _, _ = net
    child(args, "draw", folder, "--image", image, "--batch", max(BATCHES), "--classes", classes)
    weights = folder / "weights.safetensors"
    op_net(args, net, folder, "--mode", "train", "--labels", folder / "labels.npy",
           "--out-weights", weights)
    op_net(args, net, folder, "--mode", "eval", "--weights", weights, "--out-y", folder / "ours.npy")
    return child(args, "export", folder, "--net", name, "--batches", *BATCHES, "--options",
                 json.dumps({"classes": classes}))


def our_turn(args, net, batch, threads):
    name, image, classes, _, _ = net
    written = bench([args.program, "bench", "net", name, "--batch", batch, "--mode", "inference", "--image", image,
                     "--classes", classes, "--threads", threads, "--min-time", args.seconds, "--rounds", 3, "--clock",
                     args.clock, "-q", *args.override], env=environment(threads),
                    preexec_fn=on_cores(threads, args.pin))
    row = written["rows"][0]
    return {"ms": [row["median_ms"]], "min": row["min_ms"], "process": row["process_peak_bytes"],
            "machine": written["machine"]}


def baseline_turn(args, system, net, batch, threads, folder):
    return child(args, system, folder, "--net", net[0], "--batch", batch, "--threads", threads,
                 "--seconds", args.seconds, "--clock", args.clock, "--options",
                 json.dumps({"classes": net[2]}), threads=threads, pin=args.pin)


class Comparison:
    def __init__(self, args):
        self.args = args
        self.rows, self.skipped, self.wrong, self.versions, self.machine = [], {}, [], {}, {}
        self.others = {}  # by threads: largest number of cores that other programs kept busy

    def leave_out(self, system, sentence):
        self.skipped[system] = sentence
        print(f"skipped: {system}: {sentence}; experiments/baselines/setup.py installs it",
              file=sys.stderr)

    def turns(self, net, batch, threads, folder):
        """Returns {system: [turns]}, all systems once in each round."""
        turns = {net_table.OURS: []}
        for _ in range(self.args.repeats):
            turns[net_table.OURS].append(our_turn(self.args, net, batch, threads))
            for system in self.args.systems:
                if system in self.skipped or (system, net[0], batch) in self.wrong:
                    continue
                try:
                    one = baseline_turn(self.args, system, net, batch, threads, folder)
                except Skipped as error:
                    self.leave_out(system, error)
                except Wrong as error:
                    self.wrong.append((system, net[0], batch))
                    print(f"WRONG RESULT, not timed: {system}, {net[0]} N={batch}: {error}",
                          file=sys.stderr)
                else:
                    turns.setdefault(system, []).append(one)
                    self.versions[system] = one["version"]
        self.machine = turns[net_table.OURS][0]["machine"]
        busy = [turn["machine"].get("cores_of_others", 0) for turn in turns[net_table.OURS]]
        self.others[threads] = max(busy + [self.others.get(threads, 0)])
        return turns

    def run_net(self, net, folder):
        try:
            error = prepare(self.args, net, folder)["error"]
        except Skipped as what:
            # Without PyTorch, the weights cannot be exported for any other system.
            for system in self.args.systems:
                self.leave_out(system, f"PyTorch exports the networks, and: {what}")
            return
        except Wrong as what:
            self.wrong.append((net_table.OURS, net[0], max(BATCHES)))
            print(f"WRONG RESULT, not timed: {net_table.OURS}, {net[0]}: {what}", file=sys.stderr)
            return
        print(f"{net[0]}: Convscope agrees with PyTorch's float64 (relative error {error:.1e})",
              file=sys.stderr)
        for threads in self.args.threads:
            for batch in BATCHES:
                turns = self.turns(net, batch, threads, folder)
                if len(turns) > 1:
                    self.add(net_table.row_of(f"{net[0]} N={batch}", threads, turns))

    def add(self, row):
        if not self.rows:
            args, machine = self.args, self.machine
            print(f"Convscope {machine.get('version', '')}; {machine.get('cpu', '')}; {args.repeats} "
                  f"turns of {args.seconds} s, {args.clock} time\n{net_table.head()}")
        self.rows.append(row)
        for cells in net_table.cells_of(row):
            print(net_table.markdown(cells), flush=True)
        if self.args.json:
            settings = {name: getattr(self.args, name)
                        for name in ("repeats", "seconds", "clock", "pin", "override")}
            pathlib.Path(self.args.json).write_text(json.dumps(
                {"machine": self.machine, "settings": settings, "versions": self.versions,
                 "cores_of_others": self.others,
                 "skipped": {name: str(why) for name, why in self.skipped.items()},
                 "wrong": self.wrong, "rows": self.rows}, indent=1) + "\n")

    def close(self):
        if self.rows:
            print(net_table.closing(self.rows))
        for threads, others in self.others.items():
            remark = net_table.load_remark(others, threads, os.cpu_count())
            if remark and self.args.clock == "wall":
                print(remark)
        for system, version in self.versions.items():
            print(f"{system}: {version}")
        print(f"{len(self.versions)} systems compared with Convscope, {len(self.skipped)} skipped, "
              f"{len(self.wrong)} wrong")
        return 1 if self.wrong else 0 if self.rows else 77


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    processes.add_turn_options(parser, 2.0, 0.5, "the baselines")
    parser.add_argument("--only", default="", help="networks whose name contains this")
    parser.add_argument("--systems", nargs="+", choices=BASELINES, default=list(BASELINES))
    parser.add_argument("--override", action="append", default=[], help="key=value for Convscope")
    args = processes.parsed_turns(parser)
    chosen = [net for net in NETS if args.only in net[0]]
    if not chosen:
        parser.error(f"expected --only to name one of: {', '.join(net[0] for net in NETS)}")
    if not pathlib.Path(args.program).exists():
        parser.error(f"expected --program to be there, got {args.program}; build it first")
    comparison = Comparison(args)
    for net in chosen:
        with tempfile.TemporaryDirectory() as folder:
            comparison.run_net(net, pathlib.Path(folder))
    return comparison.close()


if __name__ == "__main__":
    sys.exit(main())
