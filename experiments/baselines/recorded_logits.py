#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints PyTorch's logits of networks with fixed weights, which tests/layers/models/recorded_logits_test.cpp
compares with those of Convscope's models. The logits are computed in float64, in eval mode.

    python3 experiments/baselines/recorded_logits.py
"""
import sys

try:
    import numpy as np
    import torch
    import torch_networks as baselines
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

# name, size of the images, classes, network
CASES = [
    ("resnet50", 64, 10, lambda: baselines.MODELS["resnet50"](10)),
    ("googlenet", 64, 10, lambda: baselines.googlenet(10, dropout=0)),
    ("densenet121", 64, 10, lambda: baselines.MODELS["densenet121"](10)),
    ("efficientnet_b0", 64, 10, lambda: baselines.MODELS["efficientnet_b0"](10)),
    ("convnext_tiny", 64, 10, lambda: baselines.ConvNeXt(10)),
    ("mobilenet_v2", 64, 10, lambda: baselines.mobilenet_v2(classes=10)),
    ("unet", 32, 3, lambda: baselines.UNet(3, width=4)),
]


def mixed(shape, seed):
    """Returns numbers from -0.5 to 0.5 that depend on the position and the seed only."""
    bits = np.arange(int(np.prod(shape)), dtype=np.uint64) * 2654435761 + seed * 97
    for _ in range(2):
        bits = (bits ^ bits >> 16) * 0x45D9F3B & 0xFFFFFFFF
    return torch.from_numpy((bits / 2**32 - 0.5).reshape(shape))


def set_weights(network):
    """Weights have the variance 2 / fan_in, so that activations keep their size."""
    for name, parameter in network.named_parameters():
        value = mixed(parameter.shape, len(name))
        if parameter.dim() > 1:
            value *= (24 / parameter[0].numel()) ** 0.5
        else:
            value = (1 if name.endswith("weight") else 0) + 0.5 * value
        parameter.data = value


for case, size, classes, make in CASES:
    model = make().double().eval()
    set_weights(model)
    with torch.no_grad():
        logits = model(4 * mixed((1, 3, size, size), 0)).flatten()
    chosen = logits[torch.arange(10) * logits.numel() // 10]
    texts = ", ".join(f"{value:.7g}" for value in chosen.tolist())
    print(f'{{"{case}", {size}, {classes}, {{{texts}}}}},')
