#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `convscope op lsq` with LSQ in PyTorch, written with round-pass and grad-scale.

Both programs get the same numbers as .npy files, in float64 and in float32. In PyTorch the straight-through
estimator is written with detach(), and autograd computes the gradients:

    s = grad_scale(s, g);  y = round_pass(clamp(v / s, -Qn, Qp)) * s

y must agree exactly. In float32 a quotient could fall on the other side of a rounding boundary only if the two
divisions differed, but both are correctly rounded. For dx, PyTorch multiplies dy by s and divides by s again, while
Convscope copies dy. The difference is two roundings in float32, and none in float64, where s and dy have few digits.
The gradient of a step size is a sum of N terms. PyTorch's float32 sum has a rounding error, so the gradient is compared
with PyTorch's float64 gradient. Exit code 1 when a difference exceeds its bound, 77 without PyTorch.

    python3 experiments/baselines/lsq_vs_pytorch.py --program build/release/bin/convscope
"""
import argparse
import pathlib
import sys
import tempfile

from processes import files_of, run

try:
    import numpy as np
    import torch
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)


def grad_scale(x, scale):
    return (x - x * scale).detach() + x * scale


def round_pass(x):
    return (x.round() - x).detach() + x


def pytorch(v, step, dy, low, high, g):
    v, step, dy = (torch.from_numpy(a) for a in (v, step, dy))
    v.requires_grad_(True)
    step.requires_grad_(True)
    s = grad_scale(step, g)
    if step.numel() > 1:
        s = s.reshape(-1, *[1] * (v.dim() - 1))
    y = round_pass(torch.clamp(v / s, low, high)) * s
    y.backward(dy)
    return y.detach().numpy(), v.grad.numpy(), step.grad.numpy()


def convscope(program, folder, v, step, dy, bits, unsigned):
    for name, array in (("v", v), ("step", step), ("dy", dy)):
        np.save(folder / f"{name}.npy", array)
    results = ("y", "dv", "dstep")
    run([program, "op", "lsq", "--bits", bits, *["--unsigned"] * unsigned,
         *files_of(folder, ("v", "step", "dy"), results)])
    return [np.load(folder / f"out_{name}.npy") for name in results]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="build/release/bin/convscope")
    program = parser.parse_args().program
    rng = np.random.default_rng(1)
    worst = {}
    cases = 0
    with tempfile.TemporaryDirectory() as name:
        for bits in range(2, 9):
            for unsigned in (False, True):
                for channels in (1, 6):
                    low = 0 if unsigned else -2 ** (bits - 1)
                    high = 2 ** bits - 1 if unsigned else 2 ** (bits - 1) - 1
                    v = rng.standard_normal((6, 16, 5, 5))
                    dy = rng.standard_normal(v.shape)
                    # Some values are beyond the range of the quantiser, and some step sizes are not powers of two.
                    step = 2.0 / high * rng.uniform(0.5, 1.5, channels)
                    v, dy, step = (a.astype(np.float32).astype(np.float64) for a in (v, dy, step))
                    g = 1 / np.sqrt(v.size / channels * high)
                    want = pytorch(v, step, dy, low, high, g)
                    for dtype, eps in (("f8", 2.0 ** -52), ("f4", 2.0 ** -23)):
                        arrays = [a.astype(dtype) for a in (v, step, dy)]
                        got = convscope(program, pathlib.Path(name), *arrays, bits, unsigned)
                        y, dv, _ = pytorch(*arrays, low, high, g)
                        # The bound uses the sum of the magnitudes of the terms of a step size's gradient. Each quotient
                        # has an error of at most eps * |Qp|.
                        terms = g * np.abs(dy).sum() / channels * max(high, -low)
                        errors = {
                            "y": np.abs(got[0] - y).max() / (eps * np.abs(y).max()),
                            "dv": np.abs(got[1] - dv).max() / (eps * np.abs(dy).max()),
                            "dstep": np.abs(got[2] - want[2]).max() / (eps * terms)}
                        for tensor, error in errors.items():
                            key = (dtype, tensor)
                            worst[key] = max(worst.get(key, 0.0), float(error))
                        cases += 1
    print(f"{cases} cases: 2-8 bits, signed and unsigned, one step and one for each channel")
    print(f"{'type':5} {'tensor':7} {'largest error, in eps':>22}   (bound 4)")
    failed = False
    for (dtype, tensor), error in worst.items():
        print(f"{dtype:5} {tensor:7} {error:22.3g}")
        failed |= not error <= 4
    print("FAILED" if failed else "agrees")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
