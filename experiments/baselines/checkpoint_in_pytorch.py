#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads a checkpoint of Convscope into a PyTorch model; a table maps the names.

    python3 experiments/baselines/checkpoint_in_pytorch.py RUN/ckpt/best.safetensors --to lenet.pt
    python3 experiments/baselines/checkpoint_in_pytorch.py --check --program build/release/bin/convscope

The first command writes a state_dict that the model of the same name loads: a class of this file, or for
ResNet-18 and MobileNet v2 a model of torch_networks.py or torchvision. The second command trains LeNet-5,
ResNet-18, MobileNet v1 and v2 a little on built-in digits. It loads each network into PyTorch and compares the
logits of random images with those of `convscope op net`. Weights are [K,C/G,R,S] in both systems, so nothing is transposed. Exit code 1
when a logit differs by more than 1e-5 of the largest logit, or a name has no counterpart; 77 without PyTorch.
"""
import argparse
import pathlib
import re
import sys
import tempfile

try:
    import numpy as np
    import torch
    import torch_networks
    from onnx_vs_convscope import ours
    from processes import run as call
    from torch import nn
    from weights import load, read_safetensors
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

LIMIT = 1e-5

# Convscope's name of a layer -> PyTorch's. The suffixes weight, bias, running_mean and running_var are the same in
# both. LeNet-5 is that of PyTorch's tutorials. ResNet-18 and MobileNet v2 are those of torchvision, with the same
# names. MobileNet v1 is the single Sequential of its PyTorch ports.
NAMES = {
    "lenet5": [(r"c(\d)", r"conv\1"), (r"f3", "fc1"), (r"f4", "fc2"), (r"f5", "fc3")],
    "resnet18": [],
    "mobilenet_v1": [(r"conv1", "model.0.0"), (r"bn1", "model.0.1"),
                     (r"block(\d+)\.depthwise", r"model.\1.0"), (r"block(\d+)\.bn1", r"model.\1.1"),
                     (r"block(\d+)\.pointwise", r"model.\1.3"), (r"block(\d+)\.bn2", r"model.\1.4")],
    "mobilenet_v2": [],
}


class LeNet5(nn.Module):
    def __init__(self, classes=10, channels=1, left=4):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(channels, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2 = nn.Linear(16 * left * left, 120), nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, x):
        x = nn.functional.max_pool2d(self.conv1(x).relu(), 2)
        x = nn.functional.max_pool2d(self.conv2(x).relu(), 2).flatten(1)
        return self.fc3(self.fc2(self.fc1(x).relu()).relu())


class MobileNetV1(nn.Module):
    def __init__(self, classes=10, channels=1):
        super().__init__()
        def first(c, k, stride):
            return nn.Sequential(nn.Conv2d(c, k, 3, stride, 1, bias=False), nn.BatchNorm2d(k), nn.ReLU())

        def block(c, k, stride):
            return nn.Sequential(nn.Conv2d(c, c, 3, stride, 1, groups=c, bias=False), nn.BatchNorm2d(c),
                                 nn.ReLU(), nn.Conv2d(c, k, 1, bias=False), nn.BatchNorm2d(k), nn.ReLU())
        sizes = [(32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2)]
        sizes += [(512, 512, 1)] * 5 + [(512, 1024, 2), (1024, 1024, 1)]
        self.model = nn.Sequential(first(channels, 32, 2), *(block(*size) for size in sizes))
        self.fc = nn.Linear(1024, classes)

    def forward(self, x):
        return self.fc(self.model(x).mean((2, 3)))


MODELS = {"lenet5": LeNet5, "resnet18": lambda: torch_networks.resnet18(classes=10, channels=1),
          "mobilenet_v1": MobileNetV1,
          "mobilenet_v2": lambda: torch_networks.mobilenet_v2(classes=10, channels=1)}


def renamed(name, model):
    layer, part = name.rsplit(".", 1)
    for pattern, to in NAMES[model]:
        if re.fullmatch(pattern, layer):
            layer = re.sub(f"^{pattern}$", to, layer)
            break
    return f"{layer}.{part}"


def state_dict(path, model):
    return {renamed(name, model): value for name, value in read_safetensors(path).items()}


def model_of(path):
    """Returns which of the models a checkpoint holds."""
    names = read_safetensors(path).keys()
    for model, name in (("lenet5", "c1.weight"), ("mobilenet_v1", "block1.depthwise.weight"),
                        ("resnet18", "layer1.0.conv1.weight"),
                        ("mobilenet_v2", "features.1.conv.0.0.weight")):
        if name in names:
            return model
    sys.exit(f"expected a checkpoint of {', '.join(MODELS)}, got {path} with {', '.join(sorted(names)[:3])}, ...")


def networks(model):
    """Returns the networks into which the checkpoint is loaded, by name."""
    yield "the class in this file" if NAMES[model] else "torch_networks.py", MODELS[model]()
    try:
        import torchvision
    except ImportError:
        return
    if model == "resnet18":  # the digits have one channel
        network = torchvision.models.resnet18(num_classes=10)
        network.conv1 = nn.Conv2d(1, 64, 7, 2, 3, bias=False)
    elif model == "mobilenet_v2":
        network = torchvision.models.mobilenet_v2(num_classes=10)
        network.features[0][0] = nn.Conv2d(1, 32, 3, 2, 1, bias=False)
    else:
        return
    yield f"torchvision {torchvision.__version__}", network


def check(program):
    wrong = 0
    print(f"PyTorch {torch.__version__}; the largest difference of a logit by the largest logit")
    for model in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            call([program, "run", "quickstart", "data.train_size=128", "data.test_size=32",
                  "data.batch_size=32", "train.epochs=1", "optim={type: adam, lr: 0.001}", "expect=null",
                  f"model={{type: {model}}}", "name=torch", "-o", folder / "runs", "-q"])
            run = folder / "runs/torch/latest"
            x = np.random.default_rng(1).standard_normal((16, 1, 28, 28)).astype(np.float32)
            want = ours(program, run, x, folder)
            for name, network in networks(model):
                state = state_dict(run / "ckpt/best.safetensors", model)
                with torch.inference_mode():
                    got = load(network, state)(torch.from_numpy(x)).numpy()
                difference = float(np.abs(got - want).max() / np.abs(want).max())
                wrong += not difference <= LIMIT
                print(f"{model:13} {len(state):4} tensors into {name:24} {difference:.1e}")
    return 1 if wrong else 0


def main():
    words = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("checkpoint", nargs="?", type=pathlib.Path)
    words.add_argument("--to", type=pathlib.Path, help="the state_dict to write")
    words.add_argument("--check", action="store_true")
    words.add_argument("--program", type=pathlib.Path)
    args = words.parse_args()
    if args.check and args.program:
        return check(args.program.resolve())
    if args.checkpoint is None or args.to is None:
        words.error("expected CHECKPOINT and --to FILE, or --check and --program PROGRAM")
    model = model_of(args.checkpoint)
    state = state_dict(args.checkpoint, model)
    torch.save({name: torch.from_numpy(value.copy()) for name, value in state.items()}, args.to)
    print(f"{model}: {len(state)} tensors in {args.to}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
