#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times a training step of LeNet-5 on a GPU: Convscope's step, replayed as a CUDA graph, and PyTorch's variants.

The step is forward, loss, backward and SGD with momentum on data in GPU memory. Convscope's step also gathers and
normalises its next batch. The variants of PyTorch use the same batch in every step:

    eager               as a plain program runs it
    CUDA graph          the eager step, captured
    compile + graph     torch.compile(mode="reduce-overhead") of forward, loss and backward
    autotune + graph    torch.compile(mode="max-autotune-no-cudagraphs") of the same functions, and the whole
                        step captured

Both programs compute in f32: TF32 is switched off in cuDNN and cuBLAS. Times are medians in microseconds,
measured by CUDA events over many steps.

    python3 experiments/baselines/lenet_step_gpu_vs_pytorch.py --program build/release/bin/convscope
    ... --json out.json --seconds 300; ... --json out.json --go-on   # in two runs; exit code 75: stopped by
    --seconds
"""
import argparse
import statistics
import sys

import portions
from processes import bench

CASES = [(1, 28, 5, 64), (1, 28, 5, 256), (1, 28, 5, 1024), (3, 32, 7, 4), (3, 32, 7, 8)]
KINDS = ["eager", "CUDA graph", "compile + graph", "autotune + graph"]


def median_us(run, seconds):
    """Returns the median time of run() in microseconds.

    A sample is the mean of 10 runs. At least 5 samples are taken, and more until `seconds` have passed.
    """
    from torch_timing import mean_ms

    per_sample, samples, total = 10, [], 0.0
    while total < seconds * 1e6 or len(samples) < 5:
        samples.append(1e3 * mean_ms(run, per_sample))
        total += samples[-1] * per_sample
    return statistics.median(samples)


def torch_us(torch, kind, channels, size, kernel, batch, seconds):
    from torch_networks import lenet5
    from torch_timing import captured

    torch.manual_seed(0)
    model = lenet5(channels, size, kernel=kernel).cuda()
    x = torch.randn(batch, channels, size, size, device="cuda")
    labels = torch.randint(0, 10, (batch,), device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5, momentum=0.9, foreach=True)
    loss_of = torch.nn.CrossEntropyLoss()
    forward = lambda a, b: loss_of(model(a), b)
    if kind == "compile + graph":
        forward = torch.compile(forward, mode="reduce-overhead")
    elif kind == "autotune + graph":
        forward = torch.compile(forward, mode="max-autotune-no-cudagraphs")

    def step():
        optimizer.zero_grad(set_to_none=True)
        forward(x, labels).backward()
        optimizer.step()

    for _ in range(5):
        step()
    run = captured(step, 11).replay if kind in ("CUDA graph", "autotune + graph") else step
    return median_us(run, seconds)


def ours(program, channels, size, kernel, batch, seconds):
    row, = bench([program, "bench", "net", "lenet5", "--device", "cuda", f"model.kernel_size={kernel}", "--image",
                  f"{channels}x{size}x{size}", "--classes", 10, "--mode", "train", "--batch", batch, "--min-time",
                  seconds, "-q"])["rows"]
    return row["median_ms"] * 1e3, row["execution"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/release/bin/convscope")
    parser.add_argument("--min-time", type=float, default=0.2, help="seconds for each figure")
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS, metavar="KIND",
                        help=", ".join(KINDS))
    parser.add_argument("--json", help="where to write the figures")
    portions.add_options(parser)
    args = parser.parse_args()
    deadline = portions.Deadline(args.seconds)
    rows = portions.read(args.json) or [] if args.go_on and args.json else []
    rows = [row for row in rows if row.keys() >= set(args.kinds)]
    import torch

    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    print(f"LeNet-5, one training step, {torch.cuda.get_device_name()}, PyTorch {torch.__version__}; "
          "us, in brackets times Convscope")
    print("| image | kernel | batch | Convscope | " + " | ".join(args.kinds) + " | best / ours |")
    print("|---|---|---|---|" + "---|" * (len(args.kinds) + 1))
    for channels, size, kernel, batch in CASES:
        image = f"{channels}x{size}x{size}"
        if any((row["image"], row["kernel"], row["batch"]) == (image, kernel, batch) for row in rows):
            continue
        if deadline.is_over():
            return portions.STOPPED
        own, execution = ours(args.program, channels, size, kernel, batch, args.min_time)
        row = {"image": image, "kernel": kernel, "batch": batch,
               "convscope_us": own, "execution": execution}
        for kind in args.kinds:
            try:
                row[kind] = torch_us(torch, kind, channels, size, kernel, batch, args.min_time)
            except Exception as error:  # for example a missing compiler
                print(f"{kind}: {str(error).splitlines()[0]}", file=sys.stderr)
                row[kind] = None
        times = [row[kind] for kind in args.kinds if row[kind]]
        best = min(times) / own if times else float("nan")
        cells = [f"{row[k]:.1f} ({row[k] / own:.2f})" if row[k] else "-" for k in args.kinds]
        print(f"| {row['image']} | {kernel} | {batch} | {own:.1f} | {' | '.join(cells)} | {best:.2f} |",
              flush=True)
        rows.append(row)
        portions.write(args.json, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
