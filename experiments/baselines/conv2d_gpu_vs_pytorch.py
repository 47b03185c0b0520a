#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times convolutions on a GPU, compared with PyTorch (cuDNN) in the same run.

Each problem of the shape files is timed in each direction. `convscope bench conv2d --device cuda` checks the results of
Convscope and times CUDA graphs by events. PyTorch runs in NCHW and channels-last with cudnn.benchmark on: several runs
are captured in a CUDA graph, many replays of the graph are timed by events, and the median counts. f32 means f32 in
both systems: PyTorch's allow_tf32 is off, except for --precision tf32. With --layout nhwc Convscope runs in NHWC, too,
and its rows `auto` and `best` are compared with PyTorch's channels-last. PyTorch's weights are converted before the
timing. Convscope's weights are prepared in each call, as in a step with f32 weights; with --weights often they are
prepared before the timing, too.

The problems are timed a few at a time (--portion), first by Convscope and then by PyTorch. The results
are written to the JSON file after each such portion, so a stopped run loses at most one portion. --go-on
continues a stopped run: it skips the problems that the JSON file contains. With --seconds N, no portion
begins after N seconds.

    python3 experiments/baselines/conv2d_gpu_vs_pytorch.py --shapes experiments/shapes/gpu_dense.txt \\
        --precision f32 --json out.json
    ... --seconds 300; ... --go-on       # in two runs

Exit code 1: some results are wrong; 75: stopped by --seconds.
"""
import argparse
import json
import math
import pathlib
import statistics
import sys
import tempfile

import portions
import processes
import torch
from torch_timing import captured, mean_ms

DIRECTIONS = ("forward", "backward_data", "backward_weight")
DTYPES = {"f32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
REPEATS, REPLAYS = 10, 15


def parse(text):
    z = dict(n=1, c=1, h=1, w=1, k=1, r=1, s=1, stride="1", pad="0", dilation="1", groups=1)
    for word in text.split(","):
        key, value = word.split("=")
        texts = ("stride", "pad", "dilation", "dtype", "precision", "weights", "layout", "types")
        z[key] = value if key in texts else int(value)
    for key in ("stride", "pad", "dilation"):
        numbers = [int(part) for part in z[key].split("x")]
        if len(numbers) == 4:
            if numbers[0] != numbers[1] or numbers[2] != numbers[3]:
                sys.exit(f"PyTorch has no such padding: {text}")
            numbers = [numbers[0], numbers[2]]
        z[key] = (numbers[0], numbers[-1])
    return z


def captured_us(run):
    """Returns the median time of one run, in microseconds."""
    graph = captured(lambda: [run() for _ in range(REPEATS)], 1)
    return statistics.median(1000 * mean_ms(graph.replay) / REPEATS for _ in range(REPLAYS))


def pytorch_us(z, direction, precision, channels_last):
    dtype = DTYPES[precision]
    layout = torch.channels_last if channels_last else torch.contiguous_format
    p = (z["h"] + 2 * z["pad"][0] - z["dilation"][0] * (z["r"] - 1) - 1) // z["stride"][0] + 1
    q = (z["w"] + 2 * z["pad"][1] - z["dilation"][1] * (z["s"] - 1) - 1) // z["stride"][1] + 1
    make = lambda *shape: torch.randn(shape, device="cuda").to(dtype).contiguous(memory_format=layout)
    x = make(z["n"], z["c"], z["h"], z["w"])
    w = make(z["k"], z["c"] // z["groups"], z["r"], z["s"])
    dy = make(z["n"], z["k"], p, q)
    options = (z["stride"], z["pad"], z["dilation"])
    if direction == "forward":
        run = lambda: torch.conv2d(x, w, None, *options, z["groups"])
    else:
        mask = (direction == "backward_data", direction == "backward_weight", False)
        run = lambda: torch.ops.aten.convolution_backward(
            dy, x, w, None, *options, False, (0, 0), z["groups"], mask)
    return captured_us(run)


def lines_of(shapes):
    """Returns the problems of the files, without duplicates. A name without a folder is a file of
    experiments/shapes."""
    lines = []
    for name in shapes:
        path = pathlib.Path(name)
        if not path.exists():
            path = pathlib.Path(__file__).resolve().parents[1] / "shapes" / f"{name}.txt"
        lines += [line.split("#")[0].strip() for line in path.read_text().splitlines()]
    return list(dict.fromkeys(line for line in lines if line))


def bench(arguments, lines, direction, weights, *options):
    """Returns rows of `convscope bench conv2d` for the lines."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as shapes:
        shapes.write("\n".join(lines) + "\n")
        shapes.flush()
        command = [arguments.program, "bench", "conv2d", "--device", "cuda", "--direction", direction, "--weights",
                   weights, "--shapes", shapes.name, *options]
        command += ["--batch", arguments.batch] if arguments.batch else []
        return processes.bench(command, codes=(0, 1))["rows"]


def ours(arguments, lines):
    """Returns rows of `convscope bench conv2d` for the lines, by problem and direction."""
    groups = {}
    for row in bench(arguments, lines, arguments.direction, arguments.weights, "--algorithm", arguments.algorithm,
                     "--precision", arguments.precision, "--min-time", arguments.min_time,
                     *(["--layout", arguments.layout] if arguments.layout != "nchw" else [])):
        groups.setdefault((row["problem"], row["direction"]), []).append(row)
    return groups


def row_of(arguments, problem, direction, ours_here):
    """Prints and returns one problem and direction of both systems."""
    right = sorted((row for row in ours_here if row["status"] == "ok"), key=lambda row: row["median_ms"])
    wrong = [row["algorithm"] for row in ours_here if row["status"] != "ok"]
    baseline = {layout: pytorch_us(parse(problem), direction, arguments.precision, layout == "nhwc")
            for layout in ("nchw", "nhwc")}
    torch.cuda.empty_cache()
    best = right[0] if right else None
    chosen = next((row for row in right if row["auto_choice"]), None)
    us = lambda row: 1000 * row["median_ms"] if row else float("nan")
    beside = baseline["nhwc" if arguments.layout == "nhwc" else "nchw"]
    others = " ".join(f"{row['algorithm']} {us(row):.1f}" for row in right[1:])
    print(f"{problem:62s} {direction:15s} torch nchw {baseline['nchw']:7.1f} nhwc "
          f"{baseline['nhwc']:7.1f} | auto {us(chosen):7.1f} ({beside / us(chosen):.2f}x) best "
          f"{best['algorithm'] if best else '-'} {us(best):.1f} ({beside / us(best):.2f}x) "
          f"| {others}{' WRONG: ' + ','.join(wrong) if wrong else ''}", flush=True)
    return {"problem": problem, "direction": direction, "precision": arguments.precision,
            "ours_us": {row["algorithm"]: us(row) for row in right}, "wrong": wrong,
            "best": best and best["algorithm"], "best_us": best and us(best),
            "auto": chosen and chosen["algorithm"], "auto_us": chosen and us(chosen),
            "pytorch_nchw_us": baseline["nchw"], "pytorch_nhwc_us": baseline["nhwc"]}


def save(arguments, rows):
    if arguments.json:
        out = {"device": torch.cuda.get_device_name(), "pytorch": torch.__version__, "rows": rows}
        pathlib.Path(arguments.json).write_text(json.dumps(out, indent=1) + "\n")


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def print_summary(rows, directions):
    for direction in directions:
        here = [row for row in rows if row["direction"] == direction and row["auto_us"]]
        for name, what in (("auto", "auto_us"), ("best", "best_us")):
            for layout in ("nchw", "nhwc"):
                ratios = [row[f"pytorch_{layout}_us"] / row[what] for row in here]
                if ratios:
                    print(f"{direction:15s} {name} against PyTorch {layout}: geometric mean "
                          f"{geometric_mean(ratios):.2f}x, least {min(ratios):.2f}x, "
                          f"{len(ratios)} problems")


def layers_parser(doc, batch):
    """Returns a parser of the options that comparisons of layers have in common."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--program", default="build/release/bin/convscope")
    parser.add_argument("--shapes", action="append", required=True)
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--json")
    return parser


def main():
    parser = layers_parser(__doc__, batch=0)
    parser.add_argument("--precision", default="f32", choices=tuple(DTYPES))
    parser.add_argument("--layout", default="nchw", choices=("nchw", "nhwc"))
    parser.add_argument("--algorithm", default="all")
    parser.add_argument("--direction", default=",".join(DIRECTIONS))
    parser.add_argument("--min-time", type=float, default=0.01)
    parser.add_argument("--weights", default="once", choices=("once", "often"),
                        help="ours: prepared in each call, or before it")
    parser.add_argument("--portion", type=int, default=4, help="problems that are timed in one go")
    portions.add_options(parser)
    arguments = parser.parse_args()
    deadline = portions.Deadline(arguments.seconds)

    torch.backends.cudnn.benchmark = True
    tf32 = arguments.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32

    out = {"precision": arguments.precision, "layout": arguments.layout, "weights": arguments.weights,
           "batch": arguments.batch, "directions": arguments.direction, "pytorch": torch.__version__,
           "cudnn": torch.backends.cudnn.version(), "device": torch.cuda.get_device_name()}
    lines = lines_of(arguments.shapes)
    done, rows = portions.rows_before(arguments, out)
    print(f"{arguments.precision}; microseconds; PyTorch {out['pytorch']}, cuDNN {out['cudnn']}, {out['device']}",
          flush=True)
    if done:
        print(f"{len(done)} of {len(lines)} problems were there", flush=True)
    left = [line for line in lines if line not in done]
    while left and not deadline.is_over():
        portion, left = left[:arguments.portion], left[arguments.portion:]
        for (problem, direction), ours_here in ours(arguments, portion).items():
            rows.append(row_of(arguments, problem, direction, ours_here))
        done += portion
        portions.write(arguments.json, {**out, "complete": not left, "done": done, "rows": rows})
    print_summary(rows, arguments.direction.split(","))
    if left:
        print(f"stopped after {len(done)} of {len(lines)} problems", flush=True)
        return portions.STOPPED
    return 1 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
