#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `convscope op conv_transpose2d` and its times with PyTorch, for every output padding.

Both programs get the same float32 numbers. Each result may differ from the sum that PyTorch computes in float64 by
GROWTH * eps * max(conv(|x|, |w|)) with eps = 2^-23. Times are those of forward, dx and dw. The table shows how much
longer a call takes than with output padding 0. Exit code 1 when an error exceeds the bound.

    python3 experiments/baselines/conv_transpose2d_vs_pytorch.py --program build/release/bin/convscope
"""
import argparse
import pathlib
import sys
import tempfile

import numpy as np
import processes
import torch

EPS, GROWTH = 2.0 ** -23, 4.0
DIRECTIONS = ("forward", "backward_data", "backward_weight")
# n, c, h = w, k, kernel, stride, padding; the output padding goes from 0 to stride - 1
SHAPES = ((8, 64, 28, 32, 2, 2, 0), (8, 64, 28, 32, 3, 2, 1), (8, 64, 28, 32, 4, 2, 1),
          (2, 128, 14, 64, 3, 3, 1), (8, 16, 32, 16, 3, 3, 0), (1, 256, 16, 128, 4, 3, 1))


def arrays_of(shape, more):
    n, c, h, k, r, stride, pad = shape
    p = (h - 1) * stride - 2 * pad + r + more
    numbers = np.random.default_rng(1)
    return {name: numbers.standard_normal(size, dtype=np.float32)
            for name, size in {"x": (n, c, h, h), "w": (c, k, r, r), "dy": (n, k, p, p)}.items()}


def transposed(shape, more, x, w):
    return torch.nn.functional.conv_transpose2d(x, w, None, shape[5], shape[6], more)


def results_of(shape, more, arrays, dtype, change=lambda t: t):
    x, w, dy = (change(torch.from_numpy(arrays[name]).to(dtype)) for name in ("x", "w", "dy"))
    x.requires_grad_(True)
    w.requires_grad_(True)
    y = transposed(shape, more, x, w)
    return [y.detach(), *torch.autograd.grad(y, (x, w), dy)]


def error_of(args, shape, more):
    """Returns the largest error of y, dx and dw in units of the bound."""
    arrays = arrays_of(shape, more)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for key, value in arrays.items():
            np.save(folder / f"{key}.npy", value)
        processes.run([args.program, "op", "conv_transpose2d",
                       *processes.files_of(folder, arrays, ("y", "dx", "dw")), "--stride", shape[5],
                       "--padding", shape[6], "--output-padding", more])
        ours = [np.load(folder / f"out_{key}.npy") for key in ("y", "dx", "dw")]
    exact = results_of(shape, more, arrays, torch.float64)
    sizes = results_of(shape, more, arrays, torch.float64, torch.abs)
    return max(float((torch.from_numpy(a).double() - b).abs().max() / (EPS * GROWTH * size.max()))
               for a, b, size in zip(ours, exact, sizes))


def our_times(args, shape, more):
    n, c, h, k, r, stride, pad = shape
    problem = f"n={n},c={c},h={h},w={h},k={k},r={r},s={r},stride={stride},pad={pad},opad={more}"
    rows = processes.bench([args.program, "--threads", args.threads, "bench", "conv_transpose2d", "--problem", problem,
                            "--algorithm", "auto", "--clock", args.clock, "--min-time", args.min_time],
                           env=processes.environment(args.threads))["rows"]
    times = {row["direction"]: row["min_ms"] for row in rows}
    return [times[direction] for direction in DIRECTIONS]


def their_times(args, shape, more):
    x, w, dy = (torch.from_numpy(one) for one in arrays_of(shape, more).values())
    clock = processes.clock_of(args.clock)
    timed = lambda call: min(processes.repeated_ms(call, args.min_time, clock))
    gradient = lambda mask: torch.ops.aten.convolution_backward(
        dy, x, w, None, [shape[5]] * 2, [shape[6]] * 2, [1, 1], True, [more] * 2, 1, mask)
    with torch.no_grad():
        return [timed(lambda: transposed(shape, more, x, w)), timed(lambda: gradient([True, False, False])),
                timed(lambda: gradient([False, True, False]))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="build/release/bin/convscope")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--min-time", type=float, default=0.3)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"PyTorch {torch.__version__}, {args.threads} threads, {args.clock} time, minimum, ms; forward / dx / dw\n")
    print("| n, c, h, k, kernel, stride, padding | output padding | Convscope | time / that of 0 | PyTorch | time / that of "
          "0 | error / bound |")
    print("|---|---|---|---|---|---|---|")
    listing = lambda values, digits: " / ".join(f"{value:.{digits}f}" for value in values)
    worst = 0.0
    for shape in SHAPES:
        first = None
        for more in range(shape[5]):
            both = our_times(args, shape, more), their_times(args, shape, more)
            first = first or both
            error = error_of(args, shape, more)
            worst = max(worst, error)
            cells = [f"{listing(t, 3)} | {listing((a / b for a, b in zip(t, t0)), 2)}" for t, t0 in zip(both, first)]
            print(f"| {', '.join(map(str, shape))} | {more} | {cells[0]} | {cells[1]} | {error:.3f} |", flush=True)
    print(f"\nlargest error: {worst:.3f} of the bound")
    return 1 if not worst <= 1 else 0


if __name__ == "__main__":
    sys.exit(main())
