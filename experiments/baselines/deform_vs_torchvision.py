#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `convscope op deform_conv2d` with torchvision.ops.deform_conv2d, results and times.

Results. Both programs get the same numbers on random problems with every option. The operator's definition rounds
sample positions to the type of the offsets. The expected results come from torchvision in float64, with offsets that
lead to exactly these rounded positions. Each result of Convscope must satisfy

    max |error| <= growth * eps * max(M),   eps = 2^-23

where M is the same sum with the absolute values of x, w, dy, the mask and the bias. The sum for doffset also contains
derivatives of the weights of the four corners, and M contains their absolute values. At a position (v,u), the absolute
values of the derivatives along v are the weights of samples at (floor v, u) and (floor v + 1, u), so the script
computes M from such samples. Files of float64 are compared as well. In float64 the bound includes torchvision's own
error: up to one eps for each term of its longest sum, and 8 for the products in a term. The table also shows
torchvision's float32 error.

Times on a CPU. On the cases of experiments/shapes/deform.txt, Convscope (in a new process) and torchvision (in this
process) are timed in turn, `--turns` times, with the same number of threads. Convscope's time is the median of `bench
deform_conv2d`, which checks the result before the timing. All cases take some minutes. Backward computes dx, doffset,
dmask and dw; Convscope's backward time is the sum of its two backward directions. The ratio is torchvision's median /
Convscope's median: above 1, Convscope is faster.

With --device cuda, the results of Convscope's GPU algorithms in f32 are checked. Times are measured once, in each type
of --precision, on experiments/shapes/gpu_deform.txt. `bench deform_conv2d --device cuda` checks the results of
Convscope, then times CUDA graphs by events. The times include the preparation of the weights, except with `--weights
often`. torchvision's time is the median of many measurements by events around ten consecutive calls, so that the GPU
always has work. (CUDA graphs are not used for torchvision: a captured graph does not contain its sampling kernels, so a
replay takes a fraction of the time.) torchvision's backward also computes db. f32 means f32 in both programs: PyTorch's
allow_tf32 is off, except for tf32. torchvision may lack kernels for a type. The file of --json is written after each
case. --go-on skips the cases that the file holds. With --seconds N, no case begins after N seconds.

Exit code 1 when a result exceeds its bound, 75 when the time limit --seconds stopped the script, 77 without
torchvision.

    build/baselines/bin/python experiments/baselines/deform_vs_torchvision.py --program build/release/bin/convscope
    ... --cases 0                        # results only
    ... --threads 1 --clock cpu          # on a busy machine
    ... --device cuda --problems 20 --precision f32,tf32,f16,bf16
"""
import argparse
import collections
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

import portions
import processes

try:
    import numpy as np
    import torch
    import torchvision
    from torch_timing import mean_ms
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

SHAPES = pathlib.Path(__file__).resolve().parents[1] / "shapes"
EPS = {np.float32: 2.0 ** -23, np.float64: 2.0 ** -52}
GROWTH = {"reference": 1.0, "im2col_gemm": 12.0, "fused": 12.0}
GPU_GROWTH = 12.0  # for sums of 160 terms; more where an algorithm adds all terms in one chain
TENSOR_CORE_GROWTH = 48.0  # for fused on a GPU: layers/deform_conv2d/fused/cuda/deform_fused_cuda.cu
CLASSES = {"f32": torch.float32, "tf32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
DB_GROWTH = 4.0
TENSORS = ("y", "dx", "doffset", "dmask", "dw", "db")
INPUTS = ("x", "offset", "mask", "w", "b", "dy")


def output_size(z):
    return tuple((z["x"][2 + i] + 2 * z["padding"][i] - z["dilation"][i] * (z["w"][2 + i] - 1) - 1)
                 // z["stride"][i] + 1 for i in (0, 1))


def random_problem(rng):
    """Returns random sizes of a valid problem. The channels are a multiple of both numbers of groups."""
    groups, offset_groups = rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2, 4])
    channels = groups * offset_groups * rng.randint(1, 9)
    kernel = (rng.choice([1, 2, 3, 3, 5]), rng.choice([1, 2, 3, 3, 5]))
    dilation = (rng.choice([1, 1, 2]), rng.choice([1, 1, 2]))
    padding = (rng.choice([0, 1, 2]), rng.choice([0, 1, 2]))
    reach = [dilation[i] * (kernel[i] - 1) + 1 - 2 * padding[i] for i in (0, 1)]
    return {"x": (rng.choice([1, 2, 3]), channels, max(1, reach[0]) + rng.randint(0, 14),
                  max(1, reach[1]) + rng.randint(0, 20)),
            "w": (groups * rng.randint(1, 20), channels // groups, *kernel),
            "stride": (rng.choice([1, 1, 2]), rng.choice([1, 1, 3])), "padding": padding,
            "dilation": dilation, "groups": groups, "offset_groups": offset_groups,
            "mask": rng.random() < 0.7, "bias": rng.random() < 0.7}


def random_numbers(z, numbers):
    """Returns offsets of about a pixel and a half, some of them far outside."""
    n, taps = z["x"][0], z["offset_groups"] * z["w"][2] * z["w"][3]
    normal = lambda shape: numbers.standard_normal(shape, dtype=np.float32)
    out = {"x": normal(z["x"]), "w": normal(z["w"]), "b": normal(z["w"][0]),
           "mask": normal((n, taps, *output_size(z))),
           "dy": normal((n, z["w"][0], *output_size(z)))}
    offset = 1.5 * normal((n, 2 * taps, *output_size(z)))
    far = numbers.random(offset.shape) < 0.05
    out["offset"] = np.where(far, 8 * offset, offset).astype(np.float32)
    return out


def bases(z):
    """Returns the positions (v, u) of the taps without offsets: [O R S, 2, P, Q]."""
    (p, q), (r, s) = output_size(z), z["w"][2:]
    v = (np.arange(p) * z["stride"][0] - z["padding"][0])[None, :] + np.arange(r)[:, None] * z["dilation"][0]
    u = (np.arange(q) * z["stride"][1] - z["padding"][1])[None, :] + np.arange(s)[:, None] * z["dilation"][1]
    out = np.empty((r, s, 2, p, q))
    out[:, :, 0] = v[:, None, :, None]
    out[:, :, 1] = u[None, :, None, :]
    return np.tile(out.reshape(r * s, 2, p, q), (z["offset_groups"], 1, 1, 1))


def places(z, offset):
    """Returns v and u [N, O R S, 2, P, Q] in float64, after rounding to the type of the offsets."""
    base = bases(z)
    offset = offset.reshape(offset.shape[0], *base.shape)
    return (base.astype(offset.dtype)[None] + offset).astype(np.float64)


def deform(z, t):
    return torchvision.ops.deform_conv2d(t["x"], t["offset"], t["w"], t["b"] if z["bias"] else None,
                                         stride=z["stride"], padding=z["padding"],
                                         dilation=z["dilation"], mask=t["mask"] if z["mask"] else None)


def torchvision_results(z, arrays):
    """Returns {tensor: float64 array}, computed in the type of the arrays."""
    t = {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in arrays.items()}
    for name in INPUTS[:-1]:
        t[name].requires_grad_(True)
    y = deform(z, t)
    y.backward(t["dy"])
    out = {"y": y, "dx": t["x"].grad, "doffset": t["offset"].grad, "dw": t["w"].grad,
           "db": t["dy"].sum((0, 2, 3))}
    if z["mask"]:
        out["dmask"] = t["mask"].grad
    return {name: a.detach().to(torch.float64).numpy() for name, a in out.items()}


def expected(z, arrays):
    """Returns the expected results for positions that are rounded to the type of the arrays, and for each output the
    largest sum over magnitudes (M)."""
    at = places(z, arrays["offset"])
    exact = {name: a.astype(np.float64) for name, a in arrays.items()}
    as_offset = lambda moved: (moved - bases(z)[None]).reshape(arrays["offset"].shape)
    exact["offset"] = as_offset(at)
    values = torchvision_results(z, exact)
    sizes = {name: np.abs(a) for name, a in exact.items()}
    sizes["offset"] = exact["offset"]
    if not z["mask"]:  # a mask of 1, whose gradient is that of the samples
        sizes["mask"] = np.ones_like(sizes["mask"])
    with_mask = {**z, "mask": True}
    bounds = torchvision_results(with_mask, sizes)
    offset_bound = np.zeros_like(at)
    for axis in (0, 1):
        for step in (0, 1):
            moved = at.copy()
            moved[:, :, axis] = np.floor(moved[:, :, axis]) + step
            samples = torchvision_results(with_mask, {**sizes, "offset": as_offset(moved)})["dmask"]
            offset_bound[:, :, axis] += sizes["mask"] * samples
    bounds["doffset"] = offset_bound
    return values, {name: float(np.max(bounds[name])) for name in values}


def convscope(program, folder, z, algorithm, device):
    pair = lambda name: ",".join(str(v) for v in z[name])
    command = [program, "op", "deform_conv2d", "--stride", pair("stride"), "--padding", pair("padding"),
               "--dilation", pair("dilation"), "--groups", z["groups"], "--offset-groups",
               z["offset_groups"], "--algorithm", algorithm, "--device", device]
    left_out = {"mask": not z["mask"], "b": not z["bias"], "dmask": not z["mask"]}
    inputs, wanted = ([name for name in names if not left_out.get(name)] for names in (INPUTS, TENSORS))
    command += processes.files_of(folder, inputs, wanted)
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if f"but '{algorithm}' expects" in done.stderr:
        return None  # refused
    if done.returncode != 0:
        sys.exit(f"failed: {' '.join(str(word) for word in command)}\n{done.stderr}")
    return {name: np.load(folder / f"out_{name}.npy").astype(np.float64) for name in wanted}


def longest_sum(z):
    """Returns the number of terms in the longest sum of any output."""
    taps, pixels = z["w"][2] * z["w"][3], output_size(z)[0] * output_size(z)[1]
    k = z["w"][0] // z["groups"]
    # In this order: y; dw and db; doffset and dmask (four corners of each channel); dx (at most every tap of every
    # pixel).
    return max(z["w"][1] * taps + 1, z["x"][0] * pixels, 4 * k * z["x"][1] // z["offset_groups"],
               4 * k * taps * pixels)


def growth_on_gpu(z):
    return GPU_GROWTH * max(1.0, longest_sum(z) / 160) ** 0.5


def algorithms_on_gpu(program):
    done = processes.run([program, "info", "--json"])
    return list(json.loads(done.stdout)["deform_conv2d_algorithms"]["cuda"])


class Results:
    def __init__(self, args):
        self.args = args
        on_gpu = args.device != "cpu"
        # The allowed error growth of each algorithm, for a problem.
        tensor_cores = lambda z: max(TENSOR_CORE_GROWTH, growth_on_gpu(z))
        self.growth = ({name: tensor_cores if name.startswith("fused") and "lesson" not in name
                        else growth_on_gpu for name in algorithms_on_gpu(args.program)} if on_gpu
                       else {name: lambda z, most=most: most for name, most in GROWTH.items()})
        self.types = (np.float32,) if on_gpu else (np.float32, np.float64)
        self.refused = collections.Counter()
        self.worst, self.wrong, self.used = {}, [], dict.fromkeys(
            ("stride", "padding", "dilation", "groups", "offset groups", "no mask", "no bias"), 0)

    def compare(self, label, index, z, got, values, sizes, eps, growth):
        for tensor, right in values.items():
            error = float(np.max(np.abs(got[tensor] - right))) if right.size else 0.0
            error = error / (eps * sizes[tensor]) if sizes[tensor] > 0 else error
            key = (label, tensor)
            self.worst[key] = max(self.worst.get(key, 0.0), error)
            allowed = DB_GROWTH if tensor == "db" else 0  # db has a separate kernel
            if got[tensor].shape != right.shape or (growth and not error <= max(growth, allowed)):
                self.wrong.append(f"{label} {tensor} of problem {index} {z}: error {error:.2f} eps max(M)")

    def run(self):
        rng, numbers = random.Random(self.args.seed), np.random.default_rng(self.args.seed)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for index in range(self.args.problems):
                z = random_problem(rng)
                for key in ("stride", "dilation"):
                    self.used[key] += z[key] != (1, 1)
                self.used["padding"] += z["padding"] != (0, 0)
                self.used["groups"] += z["groups"] > 1
                self.used["offset groups"] += z["offset_groups"] > 1
                self.used["no mask"] += not z["mask"]
                self.used["no bias"] += not z["bias"]
                arrays = random_numbers(z, numbers)
                for dtype in self.types:
                    arrays = {tensor: a.astype(dtype) for tensor, a in arrays.items()}
                    for tensor, a in arrays.items():
                        np.save(folder / f"{tensor}.npy", a)
                    values, sizes = expected(z, arrays)
                    if dtype == np.float64:
                        got = convscope(self.args.program, folder, z, "reference", "cpu")
                        self.compare("reference, f8", index, z, got, values, sizes, EPS[dtype],
                                     longest_sum(z) + 8)
                        continue
                    for algorithm, growth in self.growth.items():
                        got = convscope(self.args.program, folder, z, algorithm, self.args.device)
                        if got is None:
                            self.refused[algorithm] += 1
                            continue
                        self.compare(algorithm, index, z, got, values, sizes, EPS[dtype], growth(z))
                    self.compare("torchvision, f4", index, z, torchvision_results(z, arrays), values,
                                 sizes, EPS[dtype], None)
        print(f"{self.args.problems} random problems (seed {self.args.seed}), with "
              + ", ".join(f"{name}: {count}" for name, count in self.used.items()))
        if self.refused:
            print("refused: " + ", ".join(f"{label} {count}" for label, count in self.refused.items()))
        print("largest error in units of eps * max(M), against float64\n")
        print("| algorithm | " + " | ".join(TENSORS) + " | bound |")
        print("|---|" + "---|" * (len(TENSORS) + 1))
        by_length = f"{GPU_GROWTH:g} sqrt(terms / 160)"
        for label in (*self.growth, "torchvision, f4", *(["reference, f8"] if len(self.types) > 1 else [])):
            bound = ("terms + 8" if "f8" in label else "-" if label not in self.growth
                     else f"{GROWTH[label]:g}" if self.args.device == "cpu"
                     else f"{TENSOR_CORE_GROWTH:g}, or {by_length}" if "lesson" not in label and "fused" in label
                     else by_length)
            cells = [f"{self.worst[label, t]:.3f}" if (label, t) in self.worst else "-" for t in TENSORS]
            print(f"| {label} | " + " | ".join(cells) + f" | {bound} |")
        for line in self.wrong[:20]:
            print(line, file=sys.stderr)
        print(f"\n{len(self.wrong)} beyond the bound")
        return not self.wrong


def sizes_of(text):
    z = dict(n=1, c=1, h=1, w=1, k=1, r=1, s=1, pad=0, dilation=1)
    z.update((key, int(value)) for key, value in (word.split("=") for word in text.split(",")))
    return {"x": (z["n"], z["c"], z["h"], z["w"]), "w": (z["k"], z["c"], z["r"], z["s"]),
            "stride": (1, 1), "padding": (z["pad"], z["pad"]),
            "dilation": (z["dilation"], z["dilation"]), "groups": 1,
            "offset_groups": 1, "mask": True, "bias": False}


def our_times(args, problem):
    """Returns {direction: median ms} of one process."""
    rows = processes.bench([args.program, "--threads", args.threads, "bench", "deform_conv2d", "--problem", problem,
                            "--algorithm", args.algorithm, "--clock", args.clock, "--min-time", args.min_time],
                           env=processes.environment(args.threads))["rows"]
    return {row["direction"]: row["median_ms"] for row in rows}


def their_times(args, problem):
    z = sizes_of(problem)
    arrays = random_numbers(z, np.random.default_rng(1))
    t = {name: torch.from_numpy(a) for name, a in arrays.items()}
    timed = lambda call: processes.median_ms(call, args.min_time, args.clock, least=5)
    with torch.no_grad():
        forward = timed(lambda: deform(z, t))
    leaves = [t[name].requires_grad_(True) for name in ("x", "offset", "mask", "w")]
    y = deform(z, t)
    return forward, timed(lambda: torch.autograd.grad(y, leaves, t["dy"], retain_graph=True))


def times(args):
    torch.set_num_threads(args.threads)
    problems = cases(args)
    print(f"\n{args.algorithm} compared with torchvision {torchvision.__version__}, {args.threads} "
          f"thread{'s' if args.threads > 1 else ''}, {args.clock} time, medians of {args.turns} turns, ms\n")
    print("| problem | forward ours | torchvision | ratio | backward ours | torchvision | ratio |")
    print("|---|---|---|---|---|---|---|")
    rows, ratios = [], ([], [])
    for problem in problems:
        ours, theirs = [], []
        for _ in range(args.turns):
            one = our_times(args, problem)
            ours.append((one["forward"], one["backward_data"] + one["backward_weight"]))
            theirs.append(their_times(args, problem))
        middle = lambda samples, i: statistics.median(sample[i] for sample in samples)
        cells = []
        for i in (0, 1):
            a, b = middle(ours, i), middle(theirs, i)
            ratios[i].append(b / a)
            cells += [f"{a:.1f}", f"{b:.1f}", f"{b / a:.2f}"]
        print(f"| {problem} | " + " | ".join(cells) + " |", flush=True)
        rows.append({"problem": problem, "ours_ms": ours, "torchvision_ms": theirs})
    means = [statistics.geometric_mean(of) for of in ratios]
    print(f"\nratio, geometric mean and least: forward {means[0]:.2f}, {min(ratios[0]):.2f}; "
          f"backward {means[1]:.2f}, {min(ratios[1]):.2f}")
    return rows


def cases(args):
    """Returns the problems of the device's file of shapes."""
    text = (SHAPES / ("deform.txt" if args.device == "cpu" else "gpu_deform.txt")).read_text()
    return [line for line in text.split("\n") if line and line[0] != "#"][:args.cases]


def queued_us(run, calls=10, times=15):
    """Returns the microseconds of a call: the median of `times` measurements, each the mean of `calls` consecutive
    calls."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    return 1000 * statistics.median(mean_ms(run, calls) for _ in range(times))


def torchvision_us(problem, precision):
    """Returns forward and backward times on the GPU, or None if torchvision has no kernel of this type."""
    z = sizes_of(problem)
    arrays = random_numbers(z, np.random.default_rng(1))
    t = {name: torch.from_numpy(a).cuda().to(CLASSES[precision]) for name, a in arrays.items()}
    sizes = (*z["stride"], *z["padding"], *z["dilation"], z["groups"], z["offset_groups"])
    forward = lambda: deform(z, t)
    backward = lambda: torch.ops.torchvision._deform_conv2d_backward(
        t["dy"], t["x"], t["w"], t["offset"], t["mask"], t["b"], *sizes, True)
    with torch.no_grad():
        try:
            forward(), backward()
        except RuntimeError as error:
            if "not implemented for" in str(error):
                return None
            raise
        return queued_us(forward), queued_us(backward)


def our_rows(args, precision, problems):
    """Returns for each problem {direction: row of `bench deform_conv2d`}, with the choice of `auto` or with
    --algorithm."""
    command = [args.program, "bench", "deform_conv2d", "--device", args.device, "--algorithm", args.algorithm,
               "--precision", precision, "--weights", args.weights, "--min-time", 0.05]
    for problem in problems:
        command += ["--problem", problem]
    rows = processes.bench(command, codes=(0, 1))["rows"]
    texts = list(dict.fromkeys(row["problem"] for row in rows))  # in the order of the problems
    return [{row["direction"]: row for row in rows if row["problem"] == text} for text in texts]


def gpu_row(args, precision, problem):
    """Prints and returns the row of one case in one type."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    here, theirs = our_rows(args, precision, [problem])[0], torchvision_us(problem, precision)
    us = {direction: 1000 * row["median_ms"] for direction, row in here.items()}
    wrong = [f"{row['algorithm']} {direction}" for direction, row in here.items() if row["status"] != "ok"]
    row = {"problem": problem, "precision": precision, "wrong": wrong,
           "algorithms": {direction: row["algorithm"] for direction, row in here.items()},
           "forward": {"ours_us": us["forward"]},
           "backward": {"ours_us": us["backward_data"] + us["backward_weight"]}}
    cells = []
    for i, part in enumerate(("forward", "backward")):
        row[part]["torchvision_us"] = theirs and theirs[i]
        cells.append(f"{row[part]['ours_us']:.1f}")
        cells += [f"{theirs[i]:.1f}", f"{theirs[i] / row[part]['ours_us']:.2f}"] if theirs else ["-", "-"]
    print(f"| {problem} | " + " | ".join(cells) + " |" + (f" WRONG: {', '.join(wrong)}" if wrong else ""),
          flush=True)
    torch.cuda.empty_cache()
    return row


def gpu_times(args, deadline, out, done, rows):
    """Measures all cases and writes the file after each. Returns whether all cases are done."""
    problems = cases(args)
    print(f"\n{args.algorithm} compared with torchvision {torchvision.__version__}, PyTorch {torch.__version__}, "
          f"{torch.cuda.get_device_name()}, microseconds; {len(done)} were there")
    wanted = [f"{precision} {problem}" for precision in args.precision for problem in problems]
    for precision in args.precision:
        print(f"\n{precision}\n\n| problem | forward ours | torchvision | ratio | backward ours | "
              "torchvision | ratio |\n|---|---|---|---|---|---|---|")
        for problem in problems:
            case = f"{precision} {problem}"
            if case in done:
                continue
            if deadline.is_over():
                return False
            rows.append(gpu_row(args, precision, problem))
            done.append(case)
            portions.write(args.json, {**out, "complete": set(done) >= set(wanted), "done": done, "rows": rows})
        means = []
        for part in ("forward", "backward"):  # includes the cases of an earlier run
            ratios = [row[part]["torchvision_us"] / row[part]["ours_us"] for row in rows
                      if row["precision"] == precision and row[part]["torchvision_us"]]
            if ratios:
                means.append(f"{part} {statistics.geometric_mean(ratios):.2f}, {min(ratios):.2f}")
        if means:
            print(f"\nratio, geometric mean and least: {'; '.join(means)}", flush=True)
    return True


def main_on_gpu(args):
    deadline = portions.Deadline(args.seconds)
    out = {"torchvision": torchvision.__version__, "pytorch": torch.__version__,
           "device": torch.cuda.get_device_name(), "algorithm": args.algorithm, "weights": args.weights,
           "random_problems": args.problems}
    done, rows = portions.rows_before(args, out)
    # Cases are timed only after the results were found correct, so a file with cases proves that the results were
    # checked.
    if args.problems > 0 and not done and not Results(args).run():
        return 1
    if args.cases > 0 and not gpu_times(args, deadline, out, done, rows):
        return portions.STOPPED
    return 1 if any(row["wrong"] for row in rows) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="build/release/bin/convscope")
    parser.add_argument("--problems", type=int, default=60, help="random ones, for results")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=99,
                        help="the first ones of experiments/shapes/deform.txt (cuda: gpu_deform.txt), for times")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--min-time", type=float, default=0.5, help="seconds of each side in each turn")
    parser.add_argument("--algorithm", default="auto", help="of ours, for times")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--precision", default="f32,tf32,f16,bf16", help="of times on cuda")
    parser.add_argument("--weights", choices=("once", "often"), default="once",
                        help="cuda: whether the preparation of w counts")
    parser.add_argument("--json", type=pathlib.Path, help="where to write all times")
    portions.add_options(parser)
    args = parser.parse_args()
    args.precision = args.precision.split(",")
    if not set(args.precision) <= set(CLASSES):
        parser.error(f"expected --precision of {', '.join(CLASSES)}, got {','.join(args.precision)}")
    if args.clock == "cpu" and args.threads != 1:
        parser.error("--clock cpu counts one thread's time: it needs --threads 1")
    if args.device != "cpu":
        return main_on_gpu(args)
    good = Results(args).run() if args.problems > 0 else True
    if args.cases > 0:
        rows = times(args)
        if args.json:
            args.json.write_text(json.dumps({"threads": args.threads, "clock": args.clock,
                                             "torchvision": torchvision.__version__, "rows": rows}, indent=1))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
