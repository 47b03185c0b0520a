#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that ONNX Runtime computes the same logits from an exported file as Convscope.

    build/baselines/bin/python experiments/baselines/onnx_vs_convscope.py --program build/release/bin/convscope

Trains each network a little on built-in digits, exports it, and computes the logits of the same images
twice: by `convscope op net` from the run's weights, and by ONNX Runtime from the file.

Tolerance, f32: in Convscope, a sum of products has an error of at most 8 eps (eps = 2^-23) times the sum of the
products' magnitudes (experiments/check/matrix/convolution_case.h); ONNX Runtime has an error of the same size. The
products have random signs, so the sum of their magnitudes is at most sqrt(C R S) times as large as the outputs that
decide the next layer. The errors of L layers add up to 16 eps L sqrt(largest C R S) of the largest logit.

Quantised: both programs round the same numbers with the same scales, half to even. But the above error may move a
number across a rounding boundary, so that its quantised value differs by one. The logits of such an image then differ
by much more than rounding errors. The column "own" shows how many such images Convscope itself has when another of its
algorithms adds in another order. ONNX Runtime may have 3 times as many, plus 2 percent of the images. On such an image
the predicted class must still agree, unless the two largest logits are closer than twice the largest difference of the
image's logits. LeNet-5 has so few quantised values near a boundary that all its logits must agree.

Exit code 0: all networks agree; 1: a network does not.
"""
import argparse
import json
import pathlib
import sys
import tempfile

import numpy as np
from processes import run as call

QUICK = ["data.set=synthetic_digits", "data.train_size=1024", "data.test_size=64", "data.batch_size=32",
         "train.epochs=2", "expect=null", "threads=2"]
LENET = ["model={type: lenet5}", "optim={type: adam, lr: 0.003}"]
RESNET = ["model={type: resnet18, stem: cifar, widths: [8, 16, 32, 64]}", "optim={type: adam, lr: 0.003}"]
V1 = ["model={type: mobilenet_v1, stem: cifar, width_multiplier: 0.25}", "optim={type: adam, lr: 0.003}"]
V2 = ["model={type: mobilenet_v2, stem: cifar, width_multiplier: 0.25, dropout: 0}",
      "optim={type: adam, lr: 0.003}"]
W4A4 = ["quant={w_bits: 4, a_bits: 4, begin: 0.5, lr_scale: 0.1}"]
W8A8 = ["quant={w_bits: 8, a_bits: 8, per_channel: true, begin: 0.5, lr_scale: 0.1}"]
W2A3 = ["quant={w_bits: 2, a_bits: 3, per_channel: true, begin: 0.5, lr_scale: 0.1}"]

OTHER_ORDER = "im2col_gemm_eigen"

# Name, overrides, layers with weights on the longest path, largest C R S.
CASES = [("lenet5", LENET, 5, 400), ("resnet18", RESNET, 18, 576),
         ("mobilenet_v1", V1, 28, 256), ("mobilenet_v2", V2, 53, 240)]
FORMS = [("f32", []), ("w8a8 per channel", W8A8), ("w4a4", W4A4), ("w2a3 per channel", W2A3)]


def ours(program, run, images, folder, *overrides):
    np.save(folder / "x.npy", images)
    call([program, "op", "net", run / "config.yaml", *overrides, "--x", folder / "x.npy", "--weights",
          run / "ckpt/best.safetensors", "--out-y", folder / "y.npy"])
    return np.load(folder / "y.npy")


def check_model(path):
    """Checks the structure of a file, if the package onnx is installed."""
    try:
        import onnx
        onnx.checker.check_model(str(path), full_check=True)
    except ImportError:
        pass


def theirs(path, images, optimised):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(["logits"], {"images": images})[0]


def judged(want, got, layers, terms):
    """Returns how well two sets of logits agree. Differences are divided by the largest logit."""
    eps = 2.0 ** -23
    scale = np.abs(want).max()
    tolerance = 16 * eps * layers * terms ** 0.5
    by_image = np.abs(want - got).max(axis=1) / scale
    flipped = by_image > tolerance
    top = np.sort(want, axis=1)
    gap = (top[:, -1] - top[:, -2]) / scale
    other = want.argmax(axis=1) != got.argmax(axis=1)
    return {"tolerance": tolerance, "largest": float(by_image.max()),
            "largest_unflipped": float(by_image[~flipped].max(initial=0)),
            "flipped_images": int(flipped.sum()), "other_class": int(other.sum()),
            "wrong_class": int((other & (gap > 2 * by_image)).sum())}


def compare(args, folder, name, form, overrides, layers, terms):
    call([args.program, "run", "quickstart", *QUICK, *overrides, "name=onnx", "-o", folder / "runs", "-q"])
    run = folder / "runs/onnx/latest"
    path = folder / "net.onnx"
    call([args.program, "export", run, "--onnx", path, "--weights", "best"])
    check_model(path)
    images = np.random.default_rng(1).normal(size=(args.images, 1, 28, 28)).astype(np.float32)
    want = ours(args.program, run, images, folder)
    again = ours(args.program, run, images, folder, f"conv.algorithm={OTHER_ORDER}")
    own = judged(want, again, layers, terms)["flipped_images"]
    rows = []
    for optimised in (False, True):
        row = {"network": name, "form": form, "optimised": optimised, "images": args.images,
               "own_flips": own}
        row.update(judged(want, theirs(path, images, optimised), layers, terms))
        most = 0 if form == "f32" else 3 * own + 0.02 * args.images
        row["agrees"] = row["flipped_images"] <= most and row["wrong_class"] == 0
        rows.append(row)
    return rows


def parsed_options(doc, images, cases):
    """Returns the options of the comparisons with ONNX Runtime."""
    words = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--program", type=pathlib.Path, required=True)
    words.add_argument("--images", type=int, default=images)
    words.add_argument("--only", default="", help=f"{cases}, joined by commas")
    words.add_argument("--json", type=pathlib.Path)
    args = words.parse_args()
    args.program = args.program.resolve()
    return args


def main():
    args = parsed_options(__doc__, 256, "networks")
    rows = []
    print(f"{'network':13} {'form':17} {'ONNX Runtime':13} {'tolerance':>10} {'difference':>11} "
          f"{'unflipped':>10} {'flipped':>8} {'own':>4} {'class':>6}  agrees")
    for name, model, layers, terms in CASES:
        if args.only and name not in args.only.split(","):
            continue
        for form, quant in FORMS:
            with tempfile.TemporaryDirectory() as folder:
                for row in compare(args, pathlib.Path(folder), name, form, model + quant, layers, terms):
                    rows.append(row)
                    print(f"{name:13} {form:17} {'optimised' if row['optimised'] else 'as written':13} "
                          f"{row['tolerance']:10.1e} {row['largest']:11.1e} {row['largest_unflipped']:10.1e} "
                          f"{row['flipped_images']:8} {row['own_flips']:4} {row['other_class']:6}  {'yes' if row['agrees'] else 'NO'}",
                          flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    return 0 if all(row["agrees"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
