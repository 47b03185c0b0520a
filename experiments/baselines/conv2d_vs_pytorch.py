#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `convscope op conv2d` with PyTorch on random problems with every option.

Both programs get the same float32 numbers. Each result is compared with the sum that PyTorch computes in float64. The
bound is that of the project's tests:

    max |error| <= GROWTH * eps * max(conv(|x|, |w|)),   eps = 2^-23

The table shows, for each algorithm and tensor, the largest error of Convscope and of PyTorch's float32, in
units of eps * max(conv(|x|, |w|)). Exit code 1 when an error of Convscope exceeds the bound.

    python3 experiments/baselines/conv2d_vs_pytorch.py --program build/release/bin/convscope
"""
import argparse
import pathlib
import random
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from processes import files_of, run

EPS = 2.0 ** -23
GROWTH = {"reference": 1.0, "im2col_gemm": 4.0, "im2col_gemm_eigen": 4.0, "direct": 4.0,
          "direct_batch_lanes": 4.0, "gemm_1x1": 4.0, "depthwise": 4.0, "fft": 4.0,
          "winograd_f2x3": 4.0, "winograd_f4x3": 16.0, "winograd_f6x3": 128.0}
REFUSED = 5  # exit code: the algorithm refuses the problem
TENSORS = ("y", "dx", "dw", "db")


def random_problem(rng):
    """Returns random sizes for which the image is at least as large as the dilated kernel."""
    kind = rng.choice(["any", "any", "3x3", "3x3", "1x1", "depthwise", "large"])
    groups = rng.choice([1, 1, 1, 2, 3])
    channels = groups * rng.randint(1, 6 if kind == "any" else 24)
    kernels = groups * rng.randint(1, 8 if kind == "any" else 24)
    if kind == "depthwise":
        groups = channels
        kernels = channels * rng.randint(1, 2)
    r, s = rng.choice([1, 2, 3, 5, 7]), rng.choice([1, 2, 3, 5, 7])
    dilation = (rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2, 3]))
    if kind in ("3x3", "1x1"):
        r = s = int(kind[0])
        dilation = (1, 1)
    if kind == "large":
        r, s = rng.randint(5, 31), rng.randint(5, 31)
        dilation = (1, 1)
    reach = (dilation[0] * (r - 1) + 1, dilation[1] * (s - 1) + 1)
    pad = tuple(rng.choice([0, 0, 1, 2, 3]) for _ in range(4))  # top, bottom, left, right
    if kind == "1x1":
        pad = (0, 0, 0, 0)
    return {
        "x": (rng.choice([1, 2, 3, 8]), channels,
              max(1, reach[0] - pad[0] - pad[1]) + rng.randint(0, 20),
              max(1, reach[1] - pad[2] - pad[3]) + rng.randint(0, 40)),
        "w": (kernels, channels // groups, r, s),
        "stride": (1, 1) if kind in ("3x3", "large") else (rng.choice([1, 1, 2, 3]),
                                                           rng.choice([1, 1, 2, 3])),
        "padding": pad, "dilation": dilation, "groups": groups, "bias": rng.random() < 0.8,
    }


def pytorch(problem, x, w, b, dy, dtype):
    """Returns y, dx, dw, db as float64 arrays, computed in `dtype`."""
    x, w, dy = (torch.from_numpy(a).to(dtype) for a in (x, w, dy))
    b = torch.from_numpy(b).to(dtype)
    for leaf in (x, w, b):
        leaf.requires_grad_(True)
    top, bottom, left, right = problem["padding"]
    y = F.conv2d(F.pad(x, (left, right, top, bottom)), w, b if problem["bias"] else None,
                 stride=problem["stride"], dilation=problem["dilation"], groups=problem["groups"])
    y.backward(dy)
    db = b.grad if problem["bias"] else dy.sum((0, 2, 3))
    return [t.detach().to(torch.float64).numpy() for t in (y, x.grad, w.grad, db)]


def convscope(program, folder, problem, algorithm, has_bias):
    listing = lambda values: ",".join(str(v) for v in values)
    command = [program, "op", "conv2d", *files_of(folder, ("x", "w", "dy", *["b"] * has_bias), TENSORS),
               "--stride", listing(problem["stride"]),
               "--padding", listing(problem["padding"]), "--dilation", listing(problem["dilation"]),
               "--groups", problem["groups"], "--algorithm", algorithm]
    if run(command, codes=(0, REFUSED)).returncode == REFUSED:
        return None
    return [np.load(folder / f"out_{name}.npy").astype(np.float64) for name in TENSORS]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="build/release/bin/convscope")
    parser.add_argument("--problems", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--algorithms", default=",".join(GROWTH))
    args = parser.parse_args()
    rng = random.Random(args.seed)
    numbers = np.random.default_rng(args.seed)
    algorithms = args.algorithms.split(",")
    worst = {(a, t): 0.0 for a in algorithms + ["pytorch"] for t in TENSORS}
    used = {"stride": 0, "dilation": 0, "asymmetric padding": 0, "groups": 0, "depthwise": 0,
            "no bias": 0}
    taken = dict.fromkeys(algorithms + ["pytorch"], 0)
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for index in range(args.problems):
            problem = random_problem(rng)
            x = numbers.standard_normal(problem["x"], dtype=np.float32)
            w = numbers.standard_normal(problem["w"], dtype=np.float32)
            b = numbers.standard_normal(problem["w"][0], dtype=np.float32)
            top, bottom, left, right = problem["padding"]
            y_shape = F.conv2d(F.pad(torch.from_numpy(x), (left, right, top, bottom)),
                               torch.from_numpy(w), stride=problem["stride"],
                               dilation=problem["dilation"], groups=problem["groups"]).shape
            dy = numbers.standard_normal(tuple(y_shape), dtype=np.float32)
            for tensor, value in (("x", x), ("w", w), ("b", b), ("dy", dy)):
                np.save(folder / f"{tensor}.npy", value)
            exact = pytorch(problem, x, w, b, dy, torch.float64)
            size = [float(np.max(np.abs(t))) if t.size else 0.0 for t in pytorch(
                problem, *(np.abs(a) for a in (x, w, b, dy)), torch.float64)]
            pair = lambda key: problem[key] != (1, 1)
            used["stride"] += pair("stride")
            used["dilation"] += pair("dilation")
            used["asymmetric padding"] += top != bottom or left != right
            used["groups"] += problem["groups"] > 1
            used["depthwise"] += problem["groups"] > 1 and problem["w"][1] == 1
            used["no bias"] += not problem["bias"]
            for algorithm in algorithms + ["pytorch"]:
                if algorithm == "pytorch":
                    results = pytorch(problem, x, w, b, dy, torch.float32)
                else:
                    results = convscope(args.program, folder, problem, algorithm, problem["bias"])
                    if results is None:
                        continue
                taken[algorithm] += 1
                for tensor, ours, theirs, largest in zip(TENSORS, results, exact, size):
                    if ours.shape != theirs.shape:
                        wrong.append(f"{algorithm} {tensor} of problem {index} {problem}: shape "
                                     f"{ours.shape}, expected {theirs.shape}")
                        continue
                    error = float(np.max(np.abs(ours - theirs))) if ours.size else 0.0
                    error = error / (EPS * largest) if largest > 0 else error
                    key = (algorithm, tensor)
                    worst[key] = max(worst[key], error)
                    if algorithm != "pytorch" and not error <= GROWTH.get(algorithm, 4.0):
                        wrong.append(f"{algorithm} {tensor} of problem {index} {problem}: "
                                     f"error {error:.2f} eps * max(conv(|x|,|w|))")
    print(f"{args.problems} random problems (seed {args.seed}), with "
          + ", ".join(f"{name}: {count}" for name, count in used.items()))
    print("largest error in units of eps * max(conv(|x|,|w|)), against float64\n")
    print("| algorithm | problems | " + " | ".join(TENSORS) + " | bound |")
    print("|---|" + "---|" * (len(TENSORS) + 2))
    for algorithm in algorithms + ["pytorch"]:
        bound = "-" if algorithm == "pytorch" else f"{GROWTH.get(algorithm, 4.0):g}"
        print(f"| {algorithm} | {taken[algorithm]} | " + " | ".join(f"{worst[algorithm, t]:.3f}" for t in TENSORS)
              + f" | {bound} |")
    for line in wrong[:20]:
        print(line, file=sys.stderr)
    never = [algorithm for algorithm in algorithms if taken[algorithm] == 0]
    print(f"\n{len(wrong)} beyond the bound"
          + (f"; took none of the problems: {', '.join(never)}" if never else ""))
    return 1 if wrong or never else 0


if __name__ == "__main__":
    sys.exit(main())
