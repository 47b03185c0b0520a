#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares losses and their gradients with PyTorch.

`convscope op net` computes the loss and the gradient of the scores, in f32. The scores are those of a classifier
[N,K], and of a class for each pixel [N,K,H,W]. They are around 100, and each eighth score is far away from the
others. PyTorch computes the same in float64, which is the reference, and in float32. The table shows the relative
error of the loss, and the largest error of a gradient relative to the largest gradient. Convscope's errors may be
`--factor` times PyTorch's own errors in float32, or 2e-6, whichever is larger. PyTorch's gradient of the focal loss
with gamma < 1 is not a number where p rounds to 1. Exit code 1 when an error is larger, 77 without PyTorch.

    python3 experiments/baselines/losses_vs_pytorch.py --program build/release/bin/convscope
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    from torch.nn import functional
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

CLASSES = 10
WEIGHTS = [1, 2, 0.5, 0, 4, 1, 1, 0.1, 3, 1]


def one_hot(x, labels):
    return torch.movedim(functional.one_hot(labels, CLASSES), -1, 1).to(x.dtype)


def cross_entropy(x, labels, label_smoothing=0.0, class_weights=None):
    weight = None if class_weights is None else torch.tensor(class_weights, dtype=x.dtype)
    return functional.cross_entropy(x, labels, weight=weight, label_smoothing=label_smoothing)


def focal(x, labels, gamma=2.0, alpha=None, class_weights=None):
    log_p = torch.log_softmax(x, 1).gather(1, labels.unsqueeze(1)).squeeze(1)
    terms = -torch.pow(-torch.expm1(log_p), gamma) * log_p
    if alpha is not None:
        terms = terms * torch.where(labels == 0, 1 - alpha, alpha)
    if class_weights is None:
        return terms.mean()
    weights = torch.tensor(class_weights, dtype=x.dtype)[labels]
    return (weights * terms).sum() / weights.sum()


def bce(x, labels, pos_weight=None):
    shape = (1, CLASSES, *[1] * (x.dim() - 2))
    weight = None if pos_weight is None else torch.tensor(pos_weight, dtype=x.dtype).reshape(shape)
    return functional.binary_cross_entropy_with_logits(x, one_hot(x, labels), pos_weight=weight)


def mse(x, labels):
    return functional.mse_loss(x, one_hot(x, labels))


def dice(x, labels):
    p, t = torch.softmax(x, 1), one_hot(x, labels)
    axes = [axis for axis in range(x.dim()) if axis != 1]
    return (1 - (2 * (p * t).sum(axes) + 1) / ((p + t).sum(axes) + 1)).mean()


LOSSES = {"cross_entropy": cross_entropy, "focal": focal, "bce": bce, "mse": mse, "dice": dice}
CASES = [
    [{"type": "cross_entropy"}],
    [{"type": "cross_entropy", "label_smoothing": 0.1}],
    [{"type": "cross_entropy", "class_weights": WEIGHTS}],
    [{"type": "cross_entropy", "label_smoothing": 0.1, "class_weights": WEIGHTS}],
    [{"type": "focal"}],
    [{"type": "focal", "gamma": 0.5}],
    [{"type": "focal", "gamma": 1.5, "alpha": 0.25, "class_weights": WEIGHTS}],
    [{"type": "bce"}],
    [{"type": "bce", "pos_weight": WEIGHTS}],
    [{"type": "mse"}],
    [{"type": "dice"}],
    [{"type": "cross_entropy", "weight": 0.5, "class_weights": WEIGHTS}, {"type": "dice", "weight": 0.5}],
]


def pytorch(case, x, labels, dtype):
    x = torch.from_numpy(x).to(dtype).requires_grad_(True)
    loss = torch.zeros((), dtype=dtype)
    for term in case:
        options = {name: value for name, value in term.items() if name not in ("type", "weight")}
        loss = loss + term.get("weight", 1) * LOSSES[term["type"]](x, torch.from_numpy(labels).long(), **options)
    loss.backward()
    return loss.item(), x.grad.numpy().astype(np.float64)


def convscope(program, folder, case, x, labels):
    # The scores are positive, so the ReLU changes nothing.
    layers = [{"type": "relu"}] + ([{"type": "flatten"}] if labels.ndim == 1 else [])
    (folder / "scores.yaml").write_text(json.dumps(
        {"data": {"set": "synthetic_digits"}, "layers": layers, "train": {"loss": case}}))
    np.save(folder / "x.npy", x.reshape(x.shape if x.ndim == 4 else (*x.shape, 1, 1)))
    np.save(folder / "labels.npy", labels)
    done = subprocess.run([program, "op", "net", folder / "scores.yaml", "--x", folder / "x.npy", "--labels",
                           folder / "labels.npy", "--classes", str(CLASSES), "--out-dx", folder / "dx.npy"],
                          check=True, capture_output=True, text=True)
    return float(done.stdout.split("loss ")[1].split()[0]), np.load(folder / "dx.npy").reshape(x.shape)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/release/bin/convscope")
    parser.add_argument("--factor", type=float, default=4.0)
    args = parser.parse_args()
    rng = np.random.default_rng(1)
    failed = False
    print(f"PyTorch {torch.__version__}; errors relative to its float64")
    print(f"{'loss':86} {'scores':14} {'value':>9} {'PyTorch':>9} {'gradient':>9} {'PyTorch':>9}")
    for case in CASES:
        for shape in ((64, CLASSES), (2, CLASSES, 24, 20)):
            x = 3 * rng.standard_normal(shape)
            x[rng.random(shape) < 0.125] *= 5
            x = (x + 100).astype(np.float32)
            labels = rng.integers(0, CLASSES, (shape[0], *shape[2:])).astype(np.int32)
            with tempfile.TemporaryDirectory() as folder:
                ours = convscope(args.program, pathlib.Path(folder), case, x, labels)
            exact = pytorch(case, x, labels, torch.float64)
            single = pytorch(case, x, labels, torch.float32)
            errors = [(abs(got[0] - exact[0]) / abs(exact[0]),
                       np.abs(got[1] - exact[1]).max() / np.abs(exact[1]).max()) for got in (ours, single)]
            bad = any(not own <= max(args.factor * np.nan_to_num(theirs), 2e-6) for own, theirs in zip(*errors))
            failed |= bad
            name = " + ".join(json.dumps(term).replace('"', "").replace("type: ", "") for term in case)
            print(f"{name[:86]:86} {str(list(shape)):14} {errors[0][0]:9.2e} {errors[1][0]:9.2e} {errors[0][1]:9.2e} "
                  f"{errors[1][1]:9.2e}{'   TOO LARGE' if bad else ''}", flush=True)
    print("FAILED" if failed else "agrees")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
