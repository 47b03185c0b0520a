#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what 2:4 weights could gain on sparse tensor cores, layer by layer.

2:4 sparsity (two of four neighbouring weights are zero) is the only pattern that a GPU's sparse tensor cores support;
it needs half of the products. This script times the vendor's library, through PyTorch's to_sparse_semi_structured. The
library computes the matrix product of each layer, weights [k, c r s] times columns [c r s, n p q], with dense and with
2:4 weights, in f16. For a 1x1 layer the convolution is exactly this product. For larger kernels the columns are made in
memory before the timing, and reading them is part of both times. A time is the median of many replays of a CUDA graph.

    python3 experiments/baselines/sparse_2of4_gpu.py --shapes experiments/shapes/resnet18.txt --batch 32
"""
import argparse
import sys

import torch
from conv2d_gpu_vs_pytorch import captured_us, geometric_mean, lines_of, parse, save
from torch.sparse import SparseSemiStructuredTensor, to_sparse_semi_structured


def product_of(problem, batch):
    """Returns (k, c r s, n p q) of one layer."""
    z = parse(problem)
    p, q = ((z[side] + 2 * z["pad"][i] - z["dilation"][i] * (z[taps] - 1) - 1) // z["stride"][i] + 1
            for i, (side, taps) in enumerate((("h", "r"), ("w", "s"))))
    return z["k"], z["c"] * z["r"] * z["s"], (batch or z["n"]) * p * q


def times_of(rows, inner, columns):
    """Returns microseconds of the dense and of the 2:4 product, and the largest relative difference."""
    w = torch.randn(rows, inner, device="cuda", dtype=torch.float16)
    keep = torch.tensor([1, 0, 0, 1], device="cuda", dtype=torch.bool).repeat(rows, inner // 4)
    w = w * keep
    x = torch.randn(columns, inner, device="cuda", dtype=torch.float16).t()  # NHWC
    packed = to_sparse_semi_structured(w)
    dense_y, sparse_y = (w @ x).float(), (packed @ x).float()
    error = ((dense_y - sparse_y).abs().max() / dense_y.abs().max()).item()
    return captured_us(lambda: w @ x), captured_us(lambda: packed @ x), error


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shapes", action="append", required=True)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    SparseSemiStructuredTensor._FORCE_CUTLASS = False  # the vendor's library
    print(f"f16, microseconds; PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
    rows = []
    for problem in lines_of(arguments.shapes):
        k, inner, columns = product_of(problem, arguments.batch)
        # The library needs whole tiles: multiples of 32 rows, of 32 elements along the K dimension, and of 8 columns.
        if parse(problem)["groups"] != 1 or k % 32 or inner % 32 or columns % 8:
            continue
        dense, sparse, error = times_of(k, inner, columns)
        rows.append({"problem": problem, "dense_us": dense, "sparse_us": sparse, "error": error})
        print(f"{problem:72s} dense {dense:7.1f}  2:4 {sparse:7.1f} ({dense / sparse:5.2f})"
              f"{'' if error < 2e-3 else f'  WRONG by {error:.1e}'}", flush=True)
    if not rows:
        sys.exit("expected a layer of one group with 32 output channels and c r s in steps of 32, got none")
    ratios = [row["dense_us"] / row["sparse_us"] for row in rows]
    print(f"dense / 2:4: geometric mean {geometric_mean(ratios):.2f}, least {min(ratios):.2f}, "
          f"{len(ratios)} layers")
    print(f"whole list: {sum(row['dense_us'] for row in rows) / sum(row['sparse_us'] for row in rows):.2f}")
    save(arguments, rows)
    return 1 if any(row["error"] >= 2e-3 for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
