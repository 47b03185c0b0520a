#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times block-sparse convolutions on a GPU, compared with dense ones of Convscope and PyTorch (cuDNN).

Each problem of the shape files with 16 output channels or more is timed for each direction and density, all in the same
run. The candidates are `block_sparse` with random blocks of 16 x 1, Convscope's dense f32 (`auto`), and PyTorch's dense
f32 (allow_tf32 off, cudnn.benchmark on) in the faster of NCHW and channels-last. In the forward pass, Convscope's
weights are prepared in advance, as in inference. For dx they are prepared in each call, as in training. For dw,
block_sparse builds its lists of blocks in each call. All calls run in CUDA graphs and are timed by events; the table
shows medians.

    python3 experiments/baselines/sparse_gpu_vs_pytorch.py --shapes experiments/shapes/resnet18.txt --batch 32
"""
import sys

import torch
from conv2d_gpu_vs_pytorch import DIRECTIONS, geometric_mean, layers_parser, parse, pytorch_us, save
from int8_gpu_vs_pytorch import best, lines_with_blocks, rows_by_problem, wrong_of

ROWS = 16


def with_weights(line, density):
    z = parse(line)
    blocks = round(density * (z["k"] // ROWS) * z["c"] * z["r"] * z["s"])
    return f"{line},weights=blocks{ROWS}x1:{blocks}"


def rows_of_direction(arguments, direction, lines, densities):
    weights = "often" if direction == "forward" else "once"
    ask = lambda problems, algorithm: rows_by_problem(arguments, problems, "--algorithm", algorithm,
                                                      direction=direction, weights=weights)
    sparse = {density: list(ask([with_weights(line, density) for line in lines], "block_sparse").values())
              for density in densities}
    dense = ask(lines, "auto")
    rows = []
    for i, (problem, ours) in enumerate(dense.items()):
        z = parse(problem)
        baseline = min(pytorch_us(z, direction, "f32", last) for last in (False, True))
        torch.cuda.empty_cache()
        row = {"problem": problem, "direction": direction,
               "wrong": wrong_of(ours, *(sparse[density][i] for density in densities)),
               "dense_us": best(ours), "pytorch_us": baseline,
               "sparse_us": {density: best(sparse[density][i]) for density in densities}}
        rows.append(row)
        beside = "  ".join(f"{1 - density:.0%} {us:7.1f} (PyTorch/ {baseline / us:5.2f}, own dense/ "
                           f"{row['dense_us'] / us:5.2f})" for density, us in row["sparse_us"].items())
        print(f"{direction:15s} {problem:70s} PyTorch {baseline:7.1f}  own dense {row['dense_us']:7.1f}  {beside}",
              flush=True)
    return rows


def main():
    parser = layers_parser(__doc__, batch=32)
    parser.add_argument("--density", default="0.2,0.1")
    parser.add_argument("--directions", default="all", help="all, or some of " + ",".join(DIRECTIONS))
    arguments = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    densities = [float(word) for word in arguments.density.split(",")]
    lines = lines_with_blocks(arguments.shapes, ROWS)
    directions = DIRECTIONS if arguments.directions == "all" else arguments.directions.split(",")
    if unknown := set(directions) - set(DIRECTIONS):
        parser.error(f"--directions: expected all or some of {','.join(DIRECTIONS)}, got {','.join(unknown)}")
    print(f"f32, microseconds; PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, "
          f"{torch.cuda.get_device_name()}")
    rows = []
    for direction in directions:
        rows += rows_of_direction(arguments, direction, lines, densities)
        for density in densities:
            for what in ("pytorch_us", "dense_us"):
                ratios = [row[what] / row["sparse_us"][density] for row in rows if row["direction"] == direction]
                print(f"{direction}, {1 - density:.0%} zeros: {what[:-3]} / block_sparse: geometric mean "
                      f"{geometric_mean(ratios):.2f}, least {min(ratios):.2f}, {len(ratios)} problems", flush=True)
    save(arguments, rows)
    return 1 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
