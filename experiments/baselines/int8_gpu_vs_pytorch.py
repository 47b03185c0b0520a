#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times integer convolutions on a GPU, compared with Convscope's f32 and PyTorch's f16 (cuDNN) in the same run.

For each problem, four times are measured: int8_gemm or int8_depthwise, Convscope's `auto` in f32 and in f16, and
PyTorch's f16 channels-last without bias, with cudnn.benchmark on. The int8 algorithm multiplies u8 by i8 and writes y
as u8 with bias, ReLU and rounding; its weights are prepared in advance. All calls run in CUDA graphs and are timed by
events; the table shows medians.

    python3 experiments/baselines/int8_gpu_vs_pytorch.py --shapes experiments/shapes/resnet18.txt --batch 32

With --density 0.2,0.1 the script times pruned layers of Convscope only: int8_block_sparse with random blocks of 16x1,
and of 16x4 in 1x1 layers. It is compared with int8_gemm on the same layer without pruning.
"""
import sys

import torch
from conv2d_gpu_vs_pytorch import bench, geometric_mean, layers_parser, lines_of, parse, pytorch_us, save


def rows_by_problem(arguments, lines, *options, direction="forward", weights="often"):
    """Returns rows of `convscope bench conv2d`, by problem without its types."""
    found = {}
    for row in bench(arguments, lines, direction, weights, "--min-time", 0.01, *options):
        kept = [word for word in row["problem"].split(",")
                if word.split("=")[0] not in ("types", "dtype", "layout", "precision")]
        found.setdefault(",".join(kept), []).append(row)
    return found


def lines_with_blocks(shapes, rows=16):
    """Returns the problems of the files whose weights consist of blocks of so many rows."""
    return [line for line in lines_of(shapes) if parse(line)["k"] % rows == 0 and parse(line)["groups"] == 1]


def best(rows):
    """Returns the fastest correct row, in microseconds."""
    return min((1000 * row["median_ms"] for row in rows if row["status"] == "ok"), default=float("nan"))


def wrong_of(*groups):
    """Returns names of algorithms whose results were wrong."""
    return sorted({row["algorithm"] for rows in groups for row in rows if row["status"] != "ok"})


def blocks_of(line, density):
    """Returns the problem with block-sparse weights of this density; the block size depends on the kernel."""
    z = parse(line)
    columns = z["c"] * z["r"] * z["s"]
    found = {}
    for wide in (1, 4):
        if columns % wide == 0 and (wide == 1 or z["r"] * z["s"] == 1):
            blocks = round(density * (z["k"] // 16) * (columns // wide))
            found[f"16x{wide}"] = f"{line},weights=blocks16x{wide}:{blocks}"
    return found


def pruned(arguments, densities):
    """Returns the rows of pruned layers, each with the time of int8_gemm on the dense layer."""
    def rows_of(problems, algorithm):
        return list(rows_by_problem(arguments, problems, "--types", "u8:i8:i32:u8", "--algorithm", algorithm).values())

    lines = lines_with_blocks(arguments.shapes)
    dense = rows_of(lines, "int8_gemm")
    wanted = [(i, f"{shape}, {1 - density:.0%} zeros", problem) for i, line in enumerate(lines)
              for density in densities for shape, problem in blocks_of(line, density).items()]
    sparse = rows_of([problem for _, _, problem in wanted], "int8_block_sparse")
    rows = [{"problem": line, "wrong": wrong_of(dense[i]), "int8_gemm_us": best(dense[i]), "int8_block_sparse_us": {}}
            for i, line in enumerate(lines)]
    for (i, name, _), found in zip(wanted, sparse):
        rows[i]["int8_block_sparse_us"][name] = best(found)
        rows[i]["wrong"] = sorted({*rows[i]["wrong"], *wrong_of(found)})
    for row in rows:
        beside = "  ".join(f"{name} {us:6.1f} ({row['int8_gemm_us'] / us:4.2f})"
                           for name, us in row["int8_block_sparse_us"].items())
        print(f"{row['problem']:50s} int8_gemm {row['int8_gemm_us']:6.1f}  {beside}"
              f"{' WRONG: ' + ','.join(row['wrong']) if row['wrong'] else ''}", flush=True)
    for name in dict.fromkeys(name for _, name, _ in wanted):
        ratios = [row["int8_gemm_us"] / row["int8_block_sparse_us"][name] for row in rows
                  if name in row["int8_block_sparse_us"]]
        print(f"{name}: int8_gemm / int8_block_sparse: geometric mean {geometric_mean(ratios):.2f}, least "
              f"{min(ratios):.2f}, {len(ratios)} problems")
    return rows


def dense_layers(arguments):
    """Returns the rows of layers without pruning."""
    torch.backends.cudnn.benchmark = True
    lines = lines_of(arguments.shapes)
    ask = lambda *options: rows_by_problem(arguments, lines, *options)
    bytes_rows = ask("--types", "u8:i8:i32:u8")
    f32_rows = ask("--algorithm", "auto")
    f16_rows = ask("--algorithm", "auto", "--precision", "f16")
    print(f"microseconds; PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, "
          f"{torch.cuda.get_device_name()}")
    rows = []
    for problem, here in bytes_rows.items():
        ours, f32, f16 = best(here), best(f32_rows.get(problem, [])), best(f16_rows.get(problem, []))
        baseline = pytorch_us(parse(problem), "forward", "f16", True)
        torch.cuda.empty_cache()
        wrong = wrong_of(here, f32_rows.get(problem, []), f16_rows.get(problem, []))
        rows.append({"problem": problem, "wrong": wrong, "int8_us": ours, "f32_us": f32, "f16_us": f16, "pytorch_f16_us": baseline})
        print(f"{problem:70s} int8 {ours:7.1f}  own f32 {f32:7.1f} ({f32 / ours:5.2f})  own f16 {f16:7.1f} "
              f"({f16 / ours:5.2f})  PyTorch f16 {baseline:7.1f} ({baseline / ours:5.2f})"
              f"{' WRONG: ' + ','.join(wrong) if wrong else ''}", flush=True)
    for what in ("f32_us", "f16_us", "pytorch_f16_us"):
        ratios = [row[what] / row["int8_us"] for row in rows if row[what] > 0]
        print(f"{what[:-3]:12s} / int8: geometric mean {geometric_mean(ratios):.2f}, least {min(ratios):.2f}, "
              f"{len(ratios)} problems")
    return rows


def main():
    parser = layers_parser(__doc__, batch=32)
    parser.add_argument("--density", help="shares of the weights that are kept: only pruned layers")
    arguments = parser.parse_args()
    if arguments.density:
        rows = pruned(arguments, [float(word) for word in arguments.density.split(",")])
    else:
        rows = dense_layers(arguments)
    save(arguments, rows)
    return 1 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
