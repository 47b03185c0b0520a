#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times submanifold sparse convolution on the CPU, compared with PyTorch's gather-GEMM-scatter.

The cloud is the shell of a sphere with noise. It has --voxels sites of a 3-D grid, sorted so that neighbours
are near each other in memory for Convscope and for PyTorch. The kernel is 3x3x3. PyTorch has no sparse
convolution, so the script implements two variants with PyTorch's functions and compares with the faster one:

    taps      for each tap: index_select, mm, index_add_; the centre tap is a plain mm
    columns   all neighbours next to each other, with a row of zeros for missing ones; one mm

Both variants get prepared lists of neighbours, int64 as PyTorch needs them; making the lists is not timed. For
Convscope the script runs `op sparse_conv --repeats`, which also prints the times for generating the sites and building
the neighbour map; the preparation of the weights is timed. Both results are first compared with PyTorch in float64.
Backward computes dx and dw; in PyTorch, autograd of the variants computes them. The ratio is PyTorch's time /
Convscope's time; above 1, Convscope is faster. A turn is a process of Convscope, then PyTorch; there are --turns turns.
Each turn yields the median of its runs, and the fastest turn of each system counts.

Exit code 1 when results differ by more than 1e-5 of the largest number, 77 without PyTorch.

    build/baselines/bin/python experiments/baselines/sparse_conv_vs_pytorch.py --program build/release/bin/convscope
    ... --threads 1 --clock cpu          # on a busy machine
    ... --channels 32 --algorithms implicit_gemm
"""
import argparse
import pathlib
import sys
import tempfile

import processes

try:
    import numpy as np
    import torch
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TAPS = [(t, r, s) for t in (-1, 0, 1) for r in (-1, 0, 1) for s in (-1, 0, 1)]


def sphere_shell(voxels, seed):
    """Returns sites [n, 4] (batch, t, h, w) near the surface of a sphere, sorted."""
    rng = np.random.default_rng(seed)
    radius = (voxels / (4 * np.pi * 1.6)) ** 0.5  # about 1.6 sites deep
    points = np.zeros((0, 3), np.int64)
    while len(points) < voxels:
        normals = rng.standard_normal((2 * voxels, 3))
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        depth = radius + 0.6 * rng.standard_normal((len(normals), 1))
        found = np.floor(normals * depth + radius + 6).astype(np.int64)
        points = np.unique(np.concatenate([points, found]), axis=0)
    points = points[np.sort(rng.permutation(len(points))[:voxels])]
    return np.concatenate([np.zeros((voxels, 1), np.int64), points], axis=1).astype(np.int32)


def neighbours_of(sites):
    """Returns [27, n]: for each tap and site, the row of the neighbour, or -1."""
    size = int(sites.max()) + 3
    grid = np.full((size, size, size), -1, np.int64)
    at = sites[:, 1:].astype(np.int64) + 1
    grid[tuple(at.T)] = np.arange(len(sites))
    return np.stack([grid[tuple((at + tap).T)] for tap in TAPS])


class PyTorch:
    def __init__(self, neighbours):
        self.n = neighbours.shape[1]
        self.pairs = []
        for row in neighbours:
            here = np.flatnonzero(row >= 0)
            self.pairs.append((torch.from_numpy(here), torch.from_numpy(row[here])))
        self.columns_at = torch.from_numpy(np.where(neighbours < 0, self.n, neighbours).T.reshape(-1).copy())

    def taps(self, x, w):  # w [27, C, K]
        y = x @ w[13]
        for tap, (here, there) in enumerate(self.pairs):
            if tap != 13:
                y = y.index_add_(0, here, x.index_select(0, there) @ w[tap])
        return y

    def columns(self, x, w):
        padded = torch.cat([x, x.new_zeros(1, x.shape[1])])
        return padded.index_select(0, self.columns_at).reshape(self.n, -1) @ w.reshape(-1, w.shape[2])


def pytorch_times(baseline, x, w, dy, args):
    """Returns {(variant, direction): ms}."""
    timed = lambda call: processes.median_ms(call, args.min_time, args.clock)
    out = {}
    for form in (baseline.taps, baseline.columns):
        with torch.no_grad():
            out[form.__name__, "forward"] = timed(lambda: form(x, w))
        leaves = [x.clone().requires_grad_(True), w.clone().requires_grad_(True)]
        y = form(*leaves)
        out[form.__name__, "backward"] = timed(
            lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True))
    return out


def convscope(args, folder, algorithm):
    command = [args.program, "--threads", args.threads, "op", "sparse_conv", "--submanifold",
               "--algorithm", algorithm, "--repeats", args.repeats, "--clock", args.clock,
               *processes.files_of(folder, ("sites", "x", "w", "dy"), ("y", "dx", "dw"))]
    done = processes.run(command, env=processes.environment(args.threads))
    ms = {line.split(" ms: ")[0]: float(line.split(" ms: ")[1]) for line in done.stdout.splitlines()}
    ms["backward"] = ms["backward_data"] + ms["backward_weight"]
    return ms, {name: np.load(folder / f"out_{name}.npy") for name in ("y", "dx", "dw")}


def check(got, baseline, x, w, dy):
    """Returns the largest error against PyTorch's float64, relative to the largest number."""
    leaves = [x.double().requires_grad_(True), w.double().requires_grad_(True)]
    y = baseline.taps(*leaves)
    dx, dw = torch.autograd.grad(y, leaves, dy.double())
    right = {"y": y, "dx": dx, "dw": dw.permute(2, 1, 0).reshape(got["dw"].shape)}
    return max(float(np.abs(got[name] - right[name].detach().numpy()).max() / right[name].detach().abs().max())
               for name in got)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--voxels", type=int, default=100000)
    parser.add_argument("--channels", default="16,32,64", help="C = K")
    parser.add_argument("--algorithms", default="implicit_gemm,native")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=10, help="runs of ours in a process")
    parser.add_argument("--min-time", type=float, default=0.5, help="seconds for each time of PyTorch")
    parser.add_argument("--clock", default="wall", choices=("wall", "cpu"))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    sites = sphere_shell(args.voxels, args.seed)
    neighbours = neighbours_of(sites)
    baseline = PyTorch(neighbours)
    pairs = int((neighbours >= 0).sum())
    print(f"{len(sites)} sites, {pairs / len(sites):.1f} neighbours of each, {args.threads} threads, "
          f"PyTorch {torch.__version__}\n")
    print("| C = K | | forward ms | backward ms | forward ratio | backward ratio | both ratio | error |")
    print("|---|---|---|---|---|---|---|---|")
    good = True
    for channels in (int(word) for word in args.channels.split(",")):
        rng = np.random.default_rng(channels)
        normal = lambda *shape: rng.standard_normal(shape, dtype=np.float32)
        x, dy = normal(len(sites), channels), normal(len(sites), channels)
        w = normal(channels, channels, 3, 3, 3) / np.float32(27 * channels) ** np.float32(0.5)
        tx, tdy = torch.from_numpy(x), torch.from_numpy(dy)
        tw = torch.from_numpy(w.reshape(channels, channels, 27)).permute(2, 1, 0).contiguous()
        theirs, ours, errors = [], {name: [] for name in args.algorithms.split(",")}, {}
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for array, values in (("sites", sites), ("x", x), ("w", w), ("dy", dy)):
                np.save(folder / f"{array}.npy", values)
            for _ in range(args.turns):
                for algorithm in ours:
                    ms, got = convscope(args, folder, algorithm)
                    ours[algorithm].append(ms)
                    if algorithm not in errors:
                        errors[algorithm] = check(got, baseline, tx, tw, tdy)
                theirs.append(pytorch_times(baseline, tx, tw, tdy, args))
        fastest = lambda runs, key: min(run[key] for run in runs)
        forms = {form: [fastest(theirs, (form, direction)) for direction in ("forward", "backward")]
                 for form in ("taps", "columns")}
        best = [min(times) for times in zip(*forms.values())]
        for form, times in forms.items():
            print(f"| {channels} | PyTorch, {form} | {times[0]:.1f} | {times[1]:.1f} | | | | |")
        for algorithm, runs in ours.items():
            forward, backward = fastest(runs, "forward"), fastest(runs, "backward")
            print(f"| {channels} | {algorithm} | {forward:.2f} | {backward:.2f} | {best[0] / forward:.2f} | "
                  f"{best[1] / backward:.2f} | {sum(best) / (forward + backward):.2f} | "
                  f"{errors[algorithm]:.1e} |")
            good = good and errors[algorithm] < 1e-5
        runs = next(iter(ours.values()))
        print(f"| {channels} | sites; map | {fastest(runs, 'sites'):.2f}; {fastest(runs, 'map'):.2f} | | | | | |",
              flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
