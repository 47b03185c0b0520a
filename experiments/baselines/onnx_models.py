#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every built-in model, at its full width, has the same logits in ONNX Runtime.

    python3 experiments/baselines/onnx_models.py --program build/release/bin/convscope
    ... --only lenet5,resnet18 --json onnx_models.json

Trains each model for some steps on built-in digits, so that batch norms have statistics. Exports the model
unchanged and with folded batch norms (`export --onnx`, `--fold-batch-norm`). Computes the logits of the same
random images by `convscope op net` from the run's weights, and by ONNX Runtime from the file, with all
optimisations and with none. `difference` is the largest difference of a logit / the largest logit.

Exit code 0: every difference is at most 1e-5; 1: a difference is larger; 77: ONNX Runtime is not installed.
Quantised networks: onnx_vs_convscope.py.
"""
import json
import pathlib
import sys
import tempfile

from processes import run as call

try:
    import numpy as np
    import onnxruntime
    from onnx_vs_convscope import check_model, ours, parsed_options, theirs
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

LIMIT = 1e-5
STEPS = ["data.set=synthetic_digits", "data.train_size=128", "data.test_size=32", "data.batch_size=32",
         "train.epochs=1", "optim={type: adam, lr: 0.001}", "expect=null", "threads=2"]
MODELS = {
    "lenet5": "model={type: lenet5}",
    "resnet18": "model={type: resnet18, stem: imagenet}",
    "resnet18 cifar": "model={type: resnet18, stem: cifar}",
    "mobilenet_v1": "model={type: mobilenet_v1, stem: imagenet}",
    "mobilenet_v1 cifar": "model={type: mobilenet_v1, stem: cifar}",
    "mobilenet_v2": "model={type: mobilenet_v2, stem: imagenet}",
    "mobilenet_v2 cifar": "model={type: mobilenet_v2, stem: cifar}",
    "resnet50": "model={type: resnet50, stem: cifar}",
    "googlenet": "model={type: googlenet, stem: cifar}",
    "densenet121": "model={type: densenet121, stem: cifar}",
    "efficientnet_b0": "model={type: efficientnet_b0, stem: cifar}",
    "convnext_tiny": "model={type: convnext_tiny, stem: cifar}",
    "branches": "layers=[{type: conv2d, name: a, out_channels: 8, kernel_size: 3, padding: 1}, {type: batch_norm2d, "
                "name: norm}, {type: relu, name: r}, {type: split, name: s, sizes: [3, 5]}, {type: conv2d, name: b, "
                "from: s.0, out_channels: 5, kernel_size: 1}, {type: batch_norm2d, name: norm_b}, {type: mul, name: m, "
                "from: [norm_b, s.1]}, {type: add, name: sum, from: [m, b]}, {type: concat, from: [sum, r]}, "
                "{type: conv_transpose2d, out_channels: 4, kernel_size: 2, stride: 2}, {type: flatten}, {type: linear, "
                "out_features: 10}]",
    "other layers": "layers=[{type: conv2d, out_channels: 12, kernel_size: 3, stride: 2}, {type: layer_norm}, "
                    "{type: gelu}, {type: upsample, scale: 1.5, mode: bilinear}, {type: group_norm, groups: 3}, "
                    "{type: silu}, {type: squeeze_excitation}, {type: upsample, scale: 2}, "
                    "{type: channel_shuffle, groups: 4}, {type: hard_swish}, {type: adaptive_max_pool2d, "
                    "output_size: 19}, {type: upsample, size: [23, 17], mode: bilinear, align_corners: true}, "
                    "{type: layer_scale, init: 3}, {type: stochastic_depth}, {type: conv2d, out_channels: 6, "
                    "kernel_size: 3}, {type: layer_norm, eps: 0.01}, {type: flatten}, {type: linear, "
                    "out_features: 20}, {type: layer_norm}, {type: linear, out_features: 10}, {type: softmax}]",
}


def compare(program, model, images, folder):
    call([program, "run", "quickstart", *STEPS, model, "name=onnx", "-o", folder / "runs", "-q"])
    run = folder / "runs/onnx/latest"
    x = np.random.default_rng(1).standard_normal((images, 1, 28, 28)).astype(np.float32)
    want = ours(program, run, x, folder)
    rows = []
    for form, option in (("as trained", []), ("folded", ["--fold-batch-norm"])):
        path = folder / "net.onnx"
        said = call([program, "export", run, "--weights", "best", "--onnx", path, *option]).stdout
        check_model(path)
        row = {"form": form, "bytes": path.stat().st_size, "operators": said.split("\n")[0].split(maxsplit=1)[1]}
        for name, optimised in (("plain", False), ("optimised", True)):
            got = theirs(path, x, optimised)
            row[name] = float(np.abs(got - want).max() / np.abs(want).max())
        rows.append(row)
    return rows


def main():
    args = parsed_options(__doc__, 16, "models")
    rows, worst = [], 0
    print(f"ONNX Runtime {onnxruntime.__version__}, {args.images} images, limit {LIMIT:g}")
    print(f"{'model':20} {'batch norm':11} {'not optimised':>13} {'optimised':>10}  MB of the file")
    for name, model in MODELS.items():
        if args.only and name not in args.only.split(","):
            continue
        with tempfile.TemporaryDirectory() as folder:
            for row in compare(args.program, model, args.images, pathlib.Path(folder)):
                rows.append({"model": name, **row})
                worst = max(worst, row["plain"], row["optimised"])
                print(f"{name:20} {row['form']:11} {row['plain']:13.1e} {row['optimised']:10.1e}  "
                      f"{row['bytes'] / 1e6:.2f}", flush=True)
    print(f"largest difference {worst:.1e} of the largest logit: {'agrees' if worst <= LIMIT else 'WRONG'}")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    return 0 if rows and worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
