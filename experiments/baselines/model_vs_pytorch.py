#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares outputs, loss and every gradient of whole networks with PyTorch.

The networks are those of Convscope. Convscope draws the weights and writes them as
safetensors (`convscope op net --out-weights`); PyTorch loads them into the same network (torch_networks.py) by
their names. Both programs run the same images in train and in eval mode. PyTorch's float64 result is the
reference. The table shows the largest relative L2 error over all tensors of a kind, for Convscope and for
PyTorch's float32. In train mode the updated running statistics of batch norm are compared too.

Outputs and running statistics may have an error of `--factor` times PyTorch's own error, or 2e-5, whichever is
larger (Winograd convolutions round more than direct ones). Gradients jump where rounding makes a ReLU or a
pooling window choose differently. A single such flip in a small batch changes a tensor by up to a few percent,
in PyTorch's float32 as in Convscope. So gradients may also have an error of 5e-2, which any missing or wrong
term exceeds. Values that are 0 except for rounding, such as the gradient of a shift that the next batch norm
undoes, are measured against 1e-5 of the largest tensor of their kind. Exit code 1 when an error exceeds its
bound, 77 without PyTorch.

    python3 experiments/baselines/model_vs_pytorch.py --program build/release/bin/convscope
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import torch_networks as baselines
    from weights import load, read_safetensors
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

CONFIGS = pathlib.Path(__file__).parents[1] / "configs"
CASES = [
    # name, config, overrides, image, classes, batch, network
    ("lenet5", "mnist_lenet5_baseline.yaml", [], (1, 28, 28), 10, 16,
     lambda: baselines.lenet5(padding=2)),
    ("resnet18 small", "synthetic_resnet18_small.yaml", [], (3, 32, 32), 10, 8,
     lambda: baselines.resnet18("cifar", (8, 16, 32, 64), 10)),
    ("resnet18 CIFAR", "cifar10_resnet18.yaml", [], (3, 32, 32), 10, 8,
     lambda: baselines.resnet18("cifar", classes=10)),
    ("resnet18 224", "cifar10_resnet18.yaml", ["model.stem=imagenet"], (3, 224, 224), 1000, 4,
     lambda: baselines.resnet18()),
    ("mobilenet_v1 CIFAR", "cifar10_mobilenet_v1.yaml", [], (3, 32, 32), 10, 16,
     lambda: baselines.mobilenet_v1("cifar", classes=10)),
    ("mobilenet_v1 224", "cifar10_mobilenet_v1.yaml", ["model.stem=imagenet"], (3, 224, 224), 1000,
     4, lambda: baselines.mobilenet_v1()),
    # The networks have no dropout, because each system has its own random numbers.
    ("mobilenet_v2 CIFAR", "cifar10_mobilenet_v2.yaml", ["model.dropout=0"], (3, 32, 32), 10, 16,
     lambda: baselines.mobilenet_v2("cifar", classes=10, dropout=0)),
    ("mobilenet_v2 0.35", "cifar10_mobilenet_v2.yaml",
     ["model.dropout=0", "model.width_multiplier=0.35"], (3, 32, 32), 10, 16,
     lambda: baselines.mobilenet_v2("cifar", 0.35, classes=10, dropout=0)),
    ("mobilenet_v2 224", "cifar10_mobilenet_v2.yaml", ["model.stem=imagenet", "model.dropout=0"],
     (3, 224, 224), 1000, 4, lambda: baselines.mobilenet_v2(dropout=0)),
    ("resnet50 224", "cifar10_resnet50.yaml", ["model.stem=imagenet"], (3, 224, 224), 1000, 2,
     lambda: baselines.MODELS["resnet50"]()),
    ("googlenet 224", "cifar10_googlenet.yaml", ["model.stem=imagenet", "model.dropout=0"],
     (3, 224, 224), 1000, 2, lambda: baselines.googlenet(dropout=0)),
    ("googlenet 3x3 224", "cifar10_googlenet.yaml",
     ["model.stem=imagenet", "model.dropout=0", "model.wide_kernel=3"], (3, 224, 224), 1000, 2,
     lambda: baselines.googlenet(dropout=0, wide_kernel=3)),
    ("densenet121 224", "cifar10_densenet121.yaml", ["model.stem=imagenet", "model.growth=32"],
     (3, 224, 224), 1000, 2, lambda: baselines.MODELS["densenet121"]()),
    ("efficientnet_b0 224", "cifar10_efficientnet_b0.yaml",
     ["model.stem=imagenet", "model.dropout=0", "model.stochastic_depth=0"], (3, 224, 224), 1000, 2,
     lambda: baselines.MODELS["efficientnet_b0"](dropout=0, stochastic_depth_prob=0)),
    ("convnext_tiny 224", "cifar10_convnext_tiny.yaml",
     ["model.stem=imagenet", "model.stochastic_depth=0"], (3, 224, 224), 1000, 2,
     lambda: baselines.ConvNeXt(stochastic_depth=0)),
    ("unet 96", "synthetic_inception_small.yaml", ["model={type: unet, width: 16}"], (3, 96, 96), 5, 2,
     lambda: baselines.UNet(5, width=16)),
]


def relative(got, want):
    """Returns errors by name. `got` and `want` hold tensors of one kind, such as gradients."""
    want = {name: np.asarray(tensor, dtype=np.float64) for name, tensor in want.items()}
    least = max(1e-30, 1e-5 * max(np.linalg.norm(tensor) for tensor in want.values()))
    return {name: float(np.linalg.norm(np.asarray(got[name], dtype=np.float64) - tensor)
                        / max(np.linalg.norm(tensor), least)) for name, tensor in want.items()}


def pytorch(network, weights, x, labels, dtype, train):
    network = network.to(dtype)
    load(network, weights).train(train)
    x = torch.from_numpy(x).to(dtype).requires_grad_(True)
    y = network(x)
    loss = torch.nn.functional.cross_entropy(y, torch.from_numpy(labels).long())
    loss.backward()
    array = lambda t: t.detach().numpy()
    return {"y": {"y": array(y)}, "dx": {"dx": array(x.grad)},
            "gradients": {name: array(p.grad) for name, p in network.named_parameters()},
            "buffers": {name: array(b) for name, b in network.named_buffers()
                        if not name.endswith("num_batches_tracked")}}


def convscope(program, folder, config, overrides, classes, mode, weights):
    command = [program, "op", "net", str(CONFIGS / config), *overrides, "data.root=.",
               "--x", folder / "x.npy", "--labels", folder / "labels.npy", "--classes", str(classes),
               "--mode", mode, "--out-y", folder / "y.npy", "--out-dx", folder / "dx.npy",
               "--out-gradients", folder / "g.safetensors", "--out-weights", folder / "after.safetensors"]
    if "synthetic" in config:
        command.remove("data.root=.")
    command += ["--weights", folder / "w.safetensors"] if weights else []
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = read_safetensors(folder / "after.safetensors")
    gradients = read_safetensors(folder / "g.safetensors")
    return after, {"y": {"y": np.load(folder / "y.npy")}, "dx": {"dx": np.load(folder / "dx.npy")},
                   "gradients": gradients,
                   "buffers": {n: v for n, v in after.items() if n not in gradients}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/release/bin/convscope")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--override", action="append", default=[], help="key=value for Convscope")
    parser.add_argument("--factor", type=float, default=12.0)
    args = parser.parse_args()
    torch.manual_seed(0)
    rng = np.random.default_rng(1)
    failed = False
    print(f"PyTorch {torch.__version__}; relative L2 errors to its float64, the worst tensor")
    print(f"{'network':20} {'mode':6} {'tensors':10} {'ours':>9} {'PyTorch f32':>12}  worst of ours")
    for name, config, overrides, image, classes, batch, network in CASES:
        if args.only not in name:
            continue
        with tempfile.TemporaryDirectory() as text:
            folder = pathlib.Path(text)
            x = rng.standard_normal((batch, *image)).astype(np.float32)
            pixels = image[1:] if name.startswith("unet") else ()
            labels = rng.integers(0, classes, (batch, *pixels)).astype(np.int32)
            np.save(folder / "x.npy", x)
            np.save(folder / "labels.npy", labels)
            overrides = overrides + args.override
            # A step in train mode updates the running statistics, which eval mode then uses.
            weights, _ = convscope(args.program, folder, config, overrides, classes, "train", False)
            (folder / "after.safetensors").rename(folder / "w.safetensors")
            for mode in ("train", "eval"):
                _, ours = convscope(args.program, folder, config, overrides, classes, mode, True)
                exact = pytorch(network(), weights, x, labels, torch.float64, mode == "train")
                single = pytorch(network(), weights, x, labels, torch.float32, mode == "train")
                for kind in ("y", "dx", "gradients", "buffers"):
                    if not exact[kind]:
                        continue
                    assert exact[kind].keys() == ours[kind].keys(), (exact[kind].keys(), ours[kind].keys())
                    own = relative(ours[kind], exact[kind])
                    theirs = max(relative(single[kind], exact[kind]).values())
                    worst = max(own, key=own.get)
                    floor = 5e-2 if kind in ("dx", "gradients") else 2e-5
                    bad = not own[worst] <= max(args.factor * theirs, floor)
                    failed |= bad
                    print(f"{name:20} {mode:6} {kind:10} {own[worst]:9.2e} {theirs:12.2e}  {worst}"
                          f"{'   TOO LARGE' if bad else ''}", flush=True)
    print("FAILED" if failed else "agrees")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
