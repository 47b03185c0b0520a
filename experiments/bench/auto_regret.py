#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the loss of `auto`: the time of the algorithm it chooses / the time of the fastest algorithm.

The cases are all shapes files and random layers with sizes typical of networks, which no cost function was fitted on.
Every case (problem, direction, layout, threads) is timed by `convscope bench conv2d`, all algorithms interleaved. The
loss of a case is the shortest time of the chosen algorithm / the shortest time of the fastest algorithm. A loss that is
smaller than the noise counts as no loss; the noise is two standard errors of the two medians, computed from their
blocks of samples.

    python3 experiments/bench/auto_regret.py --program build/release/bin/convscope --out regret
    ... --quick                       every fifth problem of each list, ten random layers, short timings
    ... --threads 1 --clock cpu       on a busy machine: CPU time instead of wall time
    ... --lists resnet18 random       only these lists
    ... --device cuda --precision f32 tf32 bf16 --layout nchw --batch 1 32 128 --weights often  on a GPU
    ... --device cuda --precision bf16 --layout nhwc  half precision in NHWC, as in compiled steps
    ... --from FOLDER                 times nothing: reads JSON files of `bench conv2d` from a folder

The folder holds one JSON file per part of the measurement. A part whose file exists is not timed again, so a stopped
run continues. Remove the folder when the program has changed. The summary is printed and written to summary.json.
"""
import argparse
import itertools
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys

SHAPES = pathlib.Path(__file__).resolve().parent.parent / "shapes"
LEFT_OUT = ("gpu_dense", "gpu_depthwise")
PART = 10  # problems of one call
MAPS = (7, 8, 10, 13, 14, 16, 19, 20, 27, 28, 32, 35, 38, 40, 52, 56, 64, 80, 96, 112)
WIDTHS = (16, 24, 32, 40, 48, 64, 72, 80, 96, 112, 128, 144, 160, 192, 224, 256, 288, 320, 384, 448,
          480, 512, 640, 672, 768, 960, 1024, 1280)
MOST_FLOPS = 1.2e9  # of one call


def random_layer(rng):
    """Returns a layer such as those of ResNet, ResNeXt, Inception, DeepLab, MobileNet and EfficientNet."""
    kind = rng.choices(("dense", "point", "depth", "group", "large", "line", "dilated", "stem"),
                       (28, 30, 16, 6, 6, 5, 5, 4))[0]
    h = rng.choice(MAPS)
    w = h if rng.random() < 0.8 else rng.choice(MAPS)
    c, k = rng.choice(WIDTHS), rng.choice(WIDTHS)
    r = s = 3
    stride = 2 if rng.random() < 0.25 else 1
    groups = dilation = 1
    if kind == "point":
        r = s = 1
        stride = 2 if rng.random() < 0.12 else 1
    elif kind == "depth":
        k = groups = c
        r = s = rng.choice((3, 3, 5, 7))
    elif kind == "group":
        groups = rng.choice((2, 4, 8, 32))
        c = k = groups * rng.choice((4, 8, 16, 32))
    elif kind == "large":
        r = s = rng.choice((5, 7))
    elif kind == "line":
        r, s = rng.choice(((1, 7), (7, 1), (1, 3), (3, 1)))
        stride = 1
    elif kind == "dilated":
        dilation, stride = rng.choice((2, 4)), 1
    elif kind == "stem":
        c, h, w = 3, rng.choice((96, 128, 160, 192, 224)), rng.choice((96, 128, 160, 192, 224))
        k, r, stride = rng.choice((16, 24, 32, 64)), rng.choice((3, 5, 7)), 2
        s = r
    top, left = dilation * (r - 1) // 2, dilation * (s - 1) // 2
    p, q = (h - 1) // stride + 1, (w - 1) // stride + 1
    flops = 2 * k * (c // groups) * r * s * p * q
    if flops > MOST_FLOPS or h + 2 * top <= dilation * (r - 1) or w + 2 * left <= dilation * (s - 1):
        return random_layer(rng)
    n = rng.choice([n for n in (1, 1, 2, 4, 8, 16) if n * flops <= MOST_FLOPS])
    pad = str(top) if top == left else f"{top}x{left}"
    return (f"n={n},c={c},h={h},w={w},k={k},r={r},s={s},stride={stride},pad={pad},"
            f"dilation={dilation},groups={groups}")


def lists_of(options):
    out = {}
    for path in sorted(SHAPES.glob("*.txt")):
        text = path.read_text()
        if "# operator: conv2d\n" not in text or (path.stem in LEFT_OUT and not options.device):
            continue
        lines = [line.split("#")[0].strip() for line in text.splitlines()]
        out[path.stem] = [line for line in lines if line and "n=0" not in line.split(",")]
    rng = random.Random(options.seed)
    drawn = []
    while len(drawn) < options.random:
        layer = random_layer(rng)
        if layer not in drawn:
            drawn.append(layer)
    out["random"] = drawn
    if options.lists:
        unknown = set(options.lists) - set(out)
        if unknown:
            sys.exit(f"auto_regret: expected lists of {', '.join(out)}, got {', '.join(sorted(unknown))}")
        out = {name: out[name] for name in options.lists}
    if options.quick:
        out = {name: lines if name == "random" else lines[::5] for name, lines in out.items()}
    return out


def time_part(options, lines, run, part):
    """Times one part with `convscope bench`. The JSON file gets its final name when the part is complete."""
    threads, precision, batch = run
    problems, partly = part.with_suffix(".txt"), part.with_suffix(".partly")
    problems.write_text("\n".join(lines) + "\n")
    command = [options.program, "bench", "conv2d", "--shapes", problems, "--layout", options.layout,
               "--threads", threads, "--min-time", options.min_time, "--json", partly]
    command += ["--clock", options.clock] if options.clock else []
    command += ["--batch", batch] if batch else []
    command += ["--weights", options.weights] if options.weights else []
    if options.device:
        command += ["--device", options.device, "--precision", precision]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0 or not partly.exists():
        said = (done.stderr.strip() or "it said nothing").splitlines()
        why = next((line for line in said if line.startswith("error:")), said[-1])
        sys.exit(f"auto_regret: bench of {problems} ended with code {done.returncode}: {why}")
    os.replace(partly, part)
    problems.unlink()


def noise_of(row):
    """Returns the standard error of a row's median, relative to the median."""
    blocks = row.get("block_medians_ms") or []
    if len(blocks) < 3:
        return 0.0
    return 1.2533 * statistics.stdev(blocks) / math.sqrt(len(blocks)) / statistics.fmean(blocks)


def value_of(problem, key, otherwise):
    for word in problem.split(","):
        if word.startswith(key + "="):
            return word.split("=")[1]
    return otherwise


def precision_of(problem):
    return value_of(problem, "dtype", value_of(problem, "precision", "f32"))


def cases_of(name, content):
    """Returns the loss of each case in which auto could choose between at least two algorithms."""
    rows = {}
    for row in content["rows"]:
        if row["status"] == "ok":
            key = (row["problem"], row["direction"], row["threads"])
            rows.setdefault(key, []).append(row)
    out = []
    for (problem, direction, threads), timed in rows.items():
        chosen = [row for row in timed if row["auto_choice"]]
        if len(timed) < 2 or not chosen:
            continue
        best = min(timed, key=lambda row: row["min_ms"])
        loss = chosen[0]["min_ms"] / best["min_ms"] - 1
        noise = 2 * math.hypot(noise_of(chosen[0]), noise_of(best))
        out.append({"list": name, "problem": problem, "direction": direction, "threads": threads,
                    "layout": value_of(problem, "layout", "nchw"),
                    "precision": precision_of(problem), "batch": int(value_of(problem, "n", 1)),
                    "chosen": chosen[0]["algorithm"], "fastest": best["algorithm"],
                    "chosen_ms": chosen[0]["min_ms"], "fastest_ms": best["min_ms"],
                    "loss": 0.0 if loss < noise else loss, "noise": noise})
    return out


def summary_of(cases, keys):
    groups = {}
    for case in cases:
        groups.setdefault(tuple(case[key] for key in keys), []).append(case)
    return [dict(zip(keys, group), cases=len(of),
                 within_10_percent=sum(case["loss"] <= 0.1 for case in of) / len(of),
                 mean_loss=math.exp(statistics.fmean(math.log1p(case["loss"]) for case in of)) - 1)
            for group, of in sorted(groups.items())]


def print_summary(lines, keys):
    print(f"{' / '.join(keys):44} {'cases':>6} {'within 10%':>11} {'mean loss':>10}")
    for line in lines:
        name = " / ".join(str(line[key]) for key in keys)
        print(f"{name:44} {line['cases']:6} {line['within_10_percent']:11.1%} {line['mean_loss']:10.1%}")
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", default="build/release/bin/convscope")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("auto_regret"))
    parser.add_argument("--from", dest="given", type=pathlib.Path)
    parser.add_argument("--lists", nargs="*")
    parser.add_argument("--random", type=int, default=100, help="number of random layers")
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--threads", type=int, nargs="*", default=[1])
    parser.add_argument("--layout", default="both", choices=("nchw", "nchw16c", "both", "nhwc"))
    parser.add_argument("--batch", type=int, nargs="+", default=[None], help="of all problems; several one after the other")
    parser.add_argument("--weights", choices=("once", "often"), help="prepared in each call, or before")
    parser.add_argument("--device", help="cuda: with --layout nchw or, in fp16/bf16, nhwc; and with gpu_dense\n"
                        "and gpu_depthwise too")
    parser.add_argument("--precision", nargs="+", default=["f32"],
                        choices=("f32", "tf32", "bf16", "f16"), help="with --device: of f32, tf32, bf16, f16")
    parser.add_argument("--clock", choices=("wall", "cpu"))
    parser.add_argument("--min-time", type=float, default=0.03)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.random, options.min_time = min(options.random, 10), min(options.min_time, 0.01)
    cases = []
    if options.given:
        for path in sorted(options.given.glob("*.json")):
            content = json.loads(path.read_text())
            if content.get("format") == "convscope bench conv2d 1":
                cases += cases_of(path.name.split(".")[0], content)
        options.out = options.given
    else:
        options.out.mkdir(parents=True, exist_ok=True)
        runs = itertools.product(options.threads, options.precision, options.batch)
        for run, (name, lines) in itertools.product(runs, lists_of(options).items()):
            for begin in range(0, len(lines), PART):
                part = options.out / f"{'.'.join(str(word) for word in (name, *run) if word)}.{begin}.json"
                if not part.exists():
                    print(f"{part.name} of {len(lines)} problems", file=sys.stderr, flush=True)
                    time_part(options, lines[begin:begin + PART], run, part)
                cases += cases_of(name, json.loads(part.read_text()))
    if not cases:
        sys.exit("auto_regret: expected cases with two algorithms at least, got none")
    summary = {"worst": sorted(cases, key=lambda case: -case["loss"])[:10], "cases": cases}
    shown = [("list",), ("layout", "direction")]
    shown += [("layout", "precision"), ("layout", "batch")] if options.device else []
    for keys in (*shown, ("layout", "direction", "threads", "list")):
        summary["by " + " ".join(keys)] = summary_of(cases, keys)
    summary["all"] = summary_of(cases, ())
    for keys in (*shown, ()):
        print_summary(summary[("by " + " ".join(keys)) if keys else "all"], keys)
    for case in summary["worst"]:
        print(f"{1 + case['loss']:6.2f}x  {case['problem']} {case['direction']}: {case['chosen']} "
              f"{case['chosen_ms']:.4f} ms, {case['fastest']} {case['fastest_ms']:.4f} ms")
    (options.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
