#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times submanifold sparse convolution, compared with spconv, on the CPU and on a GPU.

The sites are those of Convscope's synthetic clouds (`convscope sites --cloud ... --out-sites`), so both
programs compute the same layer: 3x3x3, C -> C. First y, dx and dw of both programs are exchanged as .npy files
and compared with float64 sums in PyTorch. Then they are timed alternately, --turns times: a process of
`bench sparse_conv`, then spconv. Each turn yields the median of its runs, and the fastest turn of each program
counts.

    ours      `bench sparse_conv`: each direction. The preparation of the weights is timed, the map is not. On a
              GPU each call is recorded once and replayed.
    spconv    the layer with existing indice pairs (forward), its backward (dx and dw together), and the layer
              with making the pairs (map). On a GPU spconv is timed by events and not recorded: its calls come
              from Python, and its users wait for the host between kernels, too. No TF32.

On a GPU spconv has three algorithms, native, implicit_gemm and split_mask (Native, MaskImplicitGemm and
MaskSplitImplicitGemm). On the CPU spconv has only native, and its backward first requests a CUDA stream, which fails
without a driver. The script replaces this request; the computation is unchanged.

The ratio is spconv's time / Convscope's time; above 1, Convscope is faster. Backward is dx and dw. --net times
the network of `bench sparse_net` in spconv and writes a file for the option --baseline of that command.

Exit code 1 when a result of Convscope exceeds the bound, 77 without PyTorch or spconv. When spconv's results differ, a
sentence says that its times are those of a wrong result. The CPU wheel of spconv 2.3.8 has wrong results with two
threads: y and dx differ by up to half of the largest number, differently in each run. With one thread its results are
right.

    build/baselines/bin/python experiments/baselines/sparse_conv_vs_spconv.py --program build/release/bin/convscope
    ... --threads 1 --clock cpu                    # on a busy machine
    ... --device cuda --precision f32,f16
    ... --device cuda --precision f32,f16 --net --json spconv.json
"""
import argparse
import json
import pathlib
import platform
import statistics
import sys
import tempfile
import warnings

import processes

try:
    import numpy as np
    import torch
    import spconv
    import spconv.pytorch as sp
    from spconv.pytorch import ops as spconv_ops
    from torch_timing import mean_ms
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

SHAPES = pathlib.Path(__file__).resolve().parents[1] / "shapes" / "sparse.txt"
ALGORITHMS = {"native": "Native", "implicit_gemm": "MaskImplicitGemm", "split_mask": "MaskSplitImplicitGemm"}
TYPES = {"f32": torch.float32, "f16": torch.float16}
BOUND = {"f32": 1e-5, "f16": 4e-3}  # largest difference / largest number


def lines_of(path):
    return [line.strip() for line in open(path) if line.strip() and not line.startswith("#")]


def words_of(line):
    return dict(word.split("=", 1) for word in line.split(","))


def run_ours(args, words):
    return processes.run([args.program, "--threads", args.threads, *words], env=processes.environment(args.threads))


def sites_of(args, cloud, folder):
    """Returns [n, 4] i4: (batch, t, h, w), sorted."""
    run_ours(args, ["sites", "--cloud", cloud, "--stages", 1, "--out-sites", folder / "sites.npy"])
    return np.load(folder / "sites.npy")


class Layer:
    """One layer of spconv on given sites."""

    def __init__(self, sites, c, k, algorithm, precision, args, pairs=None):
        self.args = args
        self.device = torch.device(args.device)
        self.shape = [int(size) + 1 for size in sites[:, 1:].max(axis=0)]
        self.batch = int(sites[:, 0].max()) + 1
        self.sites = torch.from_numpy(sites).to(self.device)
        self.conv = sp.SubMConv3d(c, k, 3, bias=False, indice_key="map",
                                  algo=getattr(sp.ConvAlgo, ALGORITHMS[algorithm]))
        self.conv = self.conv.to(self.device, TYPES[precision])
        self.pairs = pairs or {}  # found by indice_key

    def tensor(self, x, pairs):
        out = sp.SparseConvTensor(x, self.sites, self.shape, self.batch)
        out.indice_dict.update(pairs)
        return out

    def make_pairs(self, x):
        out = self.conv(self.tensor(x, {}))
        self.pairs = dict(out.indice_dict)
        return out.features

    def forward(self, x):
        return self.conv(self.tensor(x, self.pairs)).features

    def set_weights(self, w):  # w [K, C, 3, 3, 3]
        with torch.no_grad():
            self.conv.weight.copy_(w.permute(0, 2, 3, 4, 1).to(self.device))

    def gradients(self, x, dy):
        leaf = x.clone().requires_grad_(True)
        y = self.forward(leaf)
        dx, dw = torch.autograd.grad(y, [leaf, self.conv.weight], dy)
        return {"y": y.detach(), "dx": dx, "dw": dw.permute(0, 4, 1, 2, 3)}


def median_ms(run, args):
    """Returns the median of some runs, after a few uncounted ones."""
    if args.device == "cuda":
        times = []
        for _ in range(4):
            run()
        torch.cuda.synchronize()
        while len(times) < 10 or (sum(times) < 1e3 * args.min_time and len(times) < 500):
            times.append(mean_ms(run))
        return statistics.median(times)
    return processes.median_ms(run, args.min_time, args.clock, most=500)


def time_layer(layer, x, dy, args):
    """Returns {forward, backward, map: ms}. `map` is the time for making spconv's pairs of sites: the time of a layer
    that makes its pairs minus the time of a layer that gets them."""
    with torch.no_grad():
        forward = median_ms(lambda: layer.forward(x), args)
        both = median_ms(lambda: layer.make_pairs(x), args)
    leaf = x.clone().requires_grad_(True)
    y = layer.forward(leaf)
    wanted = [leaf, layer.conv.weight]
    backward = median_ms(lambda: torch.autograd.grad(y, wanted, dy, retain_graph=True), args)
    return {"forward": forward, "backward": backward, "map": max(0.0, both - forward)}


def exact(sites, x, w, dy):
    """Returns y, dx and dw in float64, tap by tap."""
    size = sites[:, 1:].max(axis=0).astype(np.int64) + 3
    grid = np.full((int(sites[:, 0].max()) + 1, *size), -1, np.int64)
    at = np.concatenate([sites[:, :1], sites[:, 1:] + 1], axis=1).astype(np.int64)
    grid[tuple(at.T)] = np.arange(len(sites))
    x, w, dy = x.double(), w.double(), dy.double()
    y = torch.zeros(len(sites), w.shape[0], dtype=torch.float64)
    dx, dw = torch.zeros_like(x), torch.zeros_like(w)
    for tap in np.ndindex(3, 3, 3):
        row = grid[tuple((at + np.array([0, *tap]) - np.array([0, 1, 1, 1])).T)]
        here = torch.from_numpy(np.flatnonzero(row >= 0))
        there = torch.from_numpy(row[row >= 0])
        matrix = w[(slice(None), slice(None), *tap)]  # [K, C]
        y.index_add_(0, here, x[there] @ matrix.T)
        dx.index_add_(0, there, dy[here] @ matrix)
        dw[(slice(None), slice(None), *tap)] = dy[here].T @ x[there]
    return {"y": y, "dx": dx, "dw": dw}


def error_of(got, right):
    return max(float((got[name].double().cpu() - right[name]).abs().max() / right[name].abs().max())
               for name in right)


def our_results(args, folder, algorithm, precision):
    run_ours(args, ["op", "sparse_conv", "--submanifold", "--algorithm", algorithm, "--device", args.device,
                    "--precision", precision,
                    *processes.files_of(folder, ("sites", "x", "w", "dy"), ("y", "dx", "dw"))])
    return {name: torch.from_numpy(np.load(folder / f"out_{name}.npy")) for name in ("y", "dx", "dw")}


def our_times(args, line, precision):
    """Returns {algorithm: {forward, backward, map: ms}} without algorithms that refuse."""
    rows = processes.bench([args.program, "--threads", args.threads, "bench", "sparse_conv", "--problem", line,
                            "--algorithm", args.algorithms or "all", "--device", args.device, "--precision",
                            precision, "--clock", args.clock, "--min-time", args.min_time],
                           env=processes.environment(args.threads))["rows"]
    out = {}
    for row in rows:
        if row["status"] == "ok":
            its_map = row["halo_ms"] if row["algorithm"] == "halo" else row["map_ms"]
            out.setdefault(row["algorithm"], {"map": its_map})[row["direction"]] = row["median_ms"]
            if row["auto_choice"]:  # the choice of auto, with all tables that it needs
                auto = out.setdefault("auto", {"map": row["map_ms"]})
                auto[row["direction"]] = row["median_ms"]
                if row["algorithm"] == "halo":
                    auto["map"] = row["map_ms"] + row["halo_ms"]
    for ms in out.values():
        if "backward_data" in ms and "backward_weight" in ms:
            ms["backward"] = ms["backward_data"] + ms["backward_weight"]
    return out


def baseline_algorithms(args):
    return list(ALGORITHMS) if args.device == "cuda" else ["native"]


def compare_line(line, precision, args):
    """Prints rows; returns whether all results are right."""
    words = words_of(line)
    c, k = int(words["c"]), int(words["k"])
    rng = np.random.default_rng(c)
    normal = lambda *shape: rng.standard_normal(shape, dtype=np.float32)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        sites = sites_of(args, line, folder)
        rounded = lambda values: values.astype(np.float16).astype(np.float32) if precision == "f16" else values
        x, dy = rounded(normal(len(sites), c)), rounded(normal(len(sites), k))
        w = rounded(normal(k, c, 3, 3, 3) / np.float32(27 * c) ** np.float32(0.5))
        for array, values in (("x", x), ("w", w), ("dy", dy)):
            np.save(folder / f"{array}.npy", values)
        x, w, dy = torch.from_numpy(x), torch.from_numpy(w), torch.from_numpy(dy)
        right = exact(sites, x, w, dy)
        there = lambda values: values.to(args.device, TYPES[precision])
        layers, theirs, errors = {}, {}, {}
        for algorithm in baseline_algorithms(args):
            layer = Layer(sites, c, k, algorithm, precision, args)
            layer.set_weights(w)
            with torch.no_grad():
                layer.make_pairs(there(x))
            errors["spconv " + algorithm] = error_of(layer.gradients(there(x), there(dy)), right)
            layers[algorithm], theirs[algorithm] = layer, []
        ours = []
        for _ in range(args.turns):
            ours.append(our_times(args, line, precision))
            for algorithm, layer in layers.items():
                theirs[algorithm].append(time_layer(layer, there(x), there(dy), args))
        names = [name for name in ours[0] if all(name in turn and "backward" in turn[name] and
                                                 "forward" in turn[name] for turn in ours)]
        for algorithm in names:
            errors[algorithm] = error_of(our_results(args, folder, algorithm, precision), right)
    best = lambda turns, what: min(turn[what] for turn in turns)
    baseline = {name: {what: best(turns, what) for what in ("forward", "backward", "map")}
            for name, turns in theirs.items()}
    title = f"{len(sites) // 1000}k, {c} | {precision}"
    for algorithm, ms in baseline.items():
        print(f"| {title} | spconv {algorithm} | {ms['forward']:.3f} | {ms['backward']:.3f} | {ms['map']:.3f} | "
              f"| | | {errors['spconv ' + algorithm]:.1e} |")
    fastest = {what: min(ms[what] for ms in baseline.values()) for what in ("forward", "backward")}
    both = min(ms["forward"] + ms["backward"] for ms in baseline.values())
    for algorithm in names:
        forward, backward, made = (best([turn[algorithm] for turn in ours], what)
                                   for what in ("forward", "backward", "map"))
        print(f"| {title} | {algorithm} | {forward:.3f} | {backward:.3f} | {made:.3f} | "
              f"{fastest['forward'] / forward:.2f} | {fastest['backward'] / backward:.2f} | "
              f"{both / (forward + backward):.2f} | {errors[algorithm]:.1e} |", flush=True)
    bad = {name: error for name, error in errors.items() if not error <= BOUND[precision]}
    for name, error in bad.items():
        print(f"WRONG: {name} on {line} differs by {error:.1e} of the largest number, {BOUND[precision]:.0e} is "
              "allowed", file=sys.stderr)
    return not any(name in names for name in bad)


def time_net(args):
    """Times the network of `bench sparse_net`: one map, forward, then dw and dx of each layer."""
    channels = [int(word) for word in args.channels.split(",")]
    rows = []
    with tempfile.TemporaryDirectory() as name:
        sites = sites_of(args, f"cloud=shell,sites={args.voxels},seed=1", pathlib.Path(name))
    print(f"{'-'.join(map(str, channels))}, 3x3x3, {len(sites)} sites\n")
    print("| precision | spconv | forward ms | backward ms |\n|---|---|---|---|")
    for precision in args.precision.split(","):
        for algorithm in baseline_algorithms(args):
            layers, pairs = [], None
            x = torch.randn(len(sites), channels[0]).to(args.device, TYPES[precision])
            dy = torch.randn(len(sites), channels[-1]).to(args.device, TYPES[precision])
            for c, k in zip(channels, channels[1:]):
                layers.append(Layer(sites, c, k, algorithm, precision, args, pairs))
                layers[-1].set_weights(torch.randn(k, c, 3, 3, 3) / (12.5 * c) ** 0.5)
                if pairs is None:
                    with torch.no_grad():
                        layers[-1].make_pairs(x)
                    pairs = layers[-1].pairs

            def forward(values):
                for layer in layers:
                    values = layer.forward(values)
                return values
            turns = []
            for _ in range(args.turns):
                with torch.no_grad():
                    ahead = median_ms(lambda: forward(x), args)
                leaf = x.clone().requires_grad_(True)
                y = forward(leaf)
                wanted = [leaf] + [layer.conv.weight for layer in layers]
                back = median_ms(lambda: torch.autograd.grad(y, wanted, dy, retain_graph=True), args)
                turns.append((ahead, back))
            ahead, back = (min(turn[i] for turn in turns) for i in (0, 1))
            rows.append({"precision": precision, "algorithm": algorithm, "forward_ms": ahead,
                         "backward_ms": back})
            print(f"| {precision} | {algorithm} | {ahead:.3f} | {back:.3f} |", flush=True)
    if args.json:
        device = torch.cuda.get_device_name() if args.device == "cuda" else platform.processor() or "cpu"
        content = {"format": "convscope baseline sparse_net 1", "baseline": f"spconv {spconv.__version__}",
                   "device": device, "threads": args.threads, "clock": args.clock, "recorded": False,
                   "torch": torch.__version__, "voxels": args.voxels, "channels": channels, "rows": rows}
        pathlib.Path(args.json).write_text(json.dumps(content, indent=1) + "\n")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--precision", default="f32", help="f32, f16 (cuda), or both: f32,f16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", default="wall", choices=("wall", "cpu"))
    parser.add_argument("--shapes", default=str(SHAPES), help="lines of clouds, 3x3x3, submanifold")
    parser.add_argument("--problem", action="append", help="such a line, instead of --shapes")
    parser.add_argument("--algorithms", default="", help="ours, joined by commas; default: all")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--min-time", type=float, default=0.3, help="seconds for each time")
    parser.add_argument("--net", action="store_true", help="a network, only by spconv")
    parser.add_argument("--voxels", type=int, default=120000, help="of --net")
    parser.add_argument("--channels", default="16,32,32,64,64,64,64", help="of --net")
    parser.add_argument("--json", help="of --net: where to write what `bench sparse_net --baseline` reads")
    args = parser.parse_args()
    for precision in args.precision.split(","):
        if precision not in TYPES or (precision != "f32" and args.device == "cpu"):
            parser.error(f"expected --precision f32, or f16 with --device cuda, got {precision}")
    if args.clock == "cpu" and (args.threads != 1 or args.device != "cpu"):
        parser.error("expected --clock cpu with --threads 1 and --device cpu")
    if args.device == "cuda" and not torch.cuda.is_available():
        print("skipped: PyTorch sees no GPU")
        return 77
    warnings.filterwarnings("ignore")
    torch.set_num_threads(args.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if args.device == "cpu" and not torch.cuda.is_available():
        spconv_ops.get_current_stream = lambda: 0
    torch.manual_seed(1)
    if args.net:
        return time_net(args)
    device = torch.cuda.get_device_name() if args.device == "cuda" else f"{args.threads} threads"
    recorded = "; ours recorded, spconv's calls come from Python" if args.device == "cuda" else ""
    print(f"spconv {spconv.__version__}, PyTorch {torch.__version__}, {device}{recorded}\n")
    print("| sites, C = K | precision | | forward ms | backward ms | map ms | forward ratio | backward ratio | "
          "both ratio | error |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    good = True
    for line in args.problem or lines_of(args.shapes):
        for precision in args.precision.split(","):
            good = compare_line(line, precision, args) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
