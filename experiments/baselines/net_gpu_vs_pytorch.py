#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times whole networks on a GPU, compared with PyTorch in captured graphs in the same run.

Each case is a training step or an inference on random images in device memory. Convscope runs in `convscope bench net
--device cuda`, which replays the step as a CUDA graph. PyTorch runs with cudnn.benchmark on, captured in a CUDA graph
and timed by events, in NCHW and channels-last. In both programs a training step is forward, softmax cross-entropy,
backward, and SGD with momentum 0.9. f32 means f32 in both (allow_tf32 off); tf32 sets allow_tf32; bf16 is autocast in
PyTorch. `ratio` is the time of PyTorch's faster layout / Convscope's time. With --compile, the network in this layout
is also compiled by torch.compile, then captured like the others.

    python3 experiments/baselines/net_gpu_vs_pytorch.py --program build/cuda/bin/convscope --json out.json
    ... --only 'resnet18 224' --precision f32 bf16
    ... --only unet --compile
    ... --seconds 300; ... --go-on       # in two runs; exit code 75: stopped by --seconds
"""
import argparse
import statistics
import sys

import portions
from processes import bench

# name, network, its options, image, classes, mode, batch
CASES = [
    ("resnet18 CIFAR train", "resnet18", {"stem": "cifar"}, "3x32x32", 10, "train", 128),
    ("resnet18 224 inference", "resnet18", {}, "3x224x224", 1000, "inference", 1),
    ("resnet18 224 inference", "resnet18", {}, "3x224x224", 1000, "inference", 32),
    ("resnet18 224 train", "resnet18", {}, "3x224x224", 1000, "train", 32),
    ("mobilenet_v1 224 inference", "mobilenet_v1", {}, "3x224x224", 1000, "inference", 32),
    ("mobilenet_v1 224 train", "mobilenet_v1", {}, "3x224x224", 1000, "train", 32),
    *((f"{network} 224 {mode}", network, {}, "3x224x224", 1000, mode, 32)
      for network in ("resnet50", "googlenet", "densenet121", "efficientnet_b0", "convnext_tiny")
      for mode in ("inference", "train")),
    *((f"unet 128 {mode}", "unet", {}, "3x128x128", 4, mode, 32) for mode in ("inference", "train")),
]
LAYOUTS = ("contiguous", "channels_last")


def replayed_ms(step, seconds):
    """Returns the median time of a captured step, in milliseconds."""
    from torch_timing import captured, mean_ms

    replay = captured(step, 4).replay
    mean_ms(replay, 3)
    count = max(1, int(seconds * 1e3 / 10 / max(mean_ms(replay, 3), 1e-3)))
    return statistics.median(mean_ms(replay, count) for _ in range(10))


def torch_ms(torch, case, precision, layout, seconds, is_compiled=False):
    import torch_networks as baselines

    _, network, options, image, classes, mode, batch = case
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.manual_seed(0)
    order = baselines.layout_of(layout)
    model = baselines.MODELS[network](classes=classes, **options).cuda().to(memory_format=order)
    shape = (batch, *map(int, image.split("x")))
    x = torch.randn(*shape, device="cuda").contiguous(memory_format=order)
    labels = torch.randint(classes, baselines.shape_of_labels(network, shape), device="cuda")
    if is_compiled:
        torch._dynamo.reset()
        model.compile()
    half_type = {"bf16": torch.bfloat16, "f16": torch.float16}.get(precision)
    cast = lambda: torch.autocast("cuda", dtype=half_type, enabled=half_type is not None, cache_enabled=False)
    if mode == "inference":
        model.eval()

        def step():
            with torch.no_grad(), cast():
                model(x)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-5, momentum=0.9, foreach=True)
        loss_of = torch.nn.CrossEntropyLoss()

        def step():
            optimizer.zero_grad(set_to_none=True)
            with cast():
                loss = loss_of(model(x), labels)
            loss.backward()
            optimizer.step()
    return replayed_ms(step, seconds)


def ours(program, case, precision, seconds):
    _, network, options, image, classes, mode, batch = case
    row, = bench([program, "bench", "net", network, "--device", "cuda", f"precision={precision}",
                  *(f"model.{key}={value}" for key, value in options.items()), "--image", image, "--classes", classes,
                  "--mode", mode, "--batch", batch, "--min-time", seconds, "-q"])["rows"]
    return row["median_ms"], row["execution"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/release/bin/convscope")
    parser.add_argument("--min-time", type=float, default=0.2, help="seconds for each figure")
    parser.add_argument("--precision", nargs="+", default=["f32", "tf32", "bf16"])
    parser.add_argument("--only", default="", help="cases whose name contains the text")
    parser.add_argument("--compile", action="store_true", help="time torch.compile, too")
    parser.add_argument("--json", help="where to write the figures")
    portions.add_options(parser)
    args = parser.parse_args()
    deadline = portions.Deadline(args.seconds)
    rows = portions.read(args.json) or [] if args.go_on and args.json else []
    import torch

    torch.backends.cudnn.benchmark = True
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, captured graphs; ms")
    print("| network | N | precision | Convscope | PyTorch NCHW | channels-last | ratio | compiled | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for case in CASES:
        if args.only not in case[0]:
            continue
        for precision in args.precision:
            if any((row["network"], row["batch"], row["precision"]) == (case[0], case[-1], precision) for row in rows):
                continue
            if deadline.is_over():
                return portions.STOPPED
            own, execution = ours(args.program, case, precision, args.min_time)
            row = {"network": case[0], "batch": case[-1], "precision": precision,
                   "convscope_ms": own, "execution": execution}
            for layout in LAYOUTS:
                row[layout] = torch_ms(torch, case, precision, layout, args.min_time)
            faster = min(LAYOUTS, key=row.get)
            row["ratio"] = row[faster] / own
            compiled = ""
            if args.compile:
                row["compiled"] = torch_ms(torch, case, precision, faster, args.min_time, is_compiled=True)
                row["ratio_compiled"] = row["compiled"] / own
                compiled = f"{row['compiled']:.3f} | {row['ratio_compiled']:.2f}"
            print(f"| {case[0]} | {case[-1]} | {precision} | {own:.3f} | {row['contiguous']:.3f} | "
                  f"{row['channels_last']:.3f} | {row['ratio']:.2f} | {compiled or ' | '} |", flush=True)
            rows.append(row)
            portions.write(args.json, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
