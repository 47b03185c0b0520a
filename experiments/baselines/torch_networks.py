# SPDX-License-Identifier: Apache-2.0
"""Convscope's networks written in PyTorch, for the comparisons in this folder. Parameters and buffers have
their names in Convscope, so a state_dict and Convscope's safetensors hold the same keys (except PyTorch's
num_batches_tracked). The names of ResNet-18 and MobileNet v2 are those of torchvision."""
import collections

import torch
from torch import nn


def lenet5(channels=1, size=28, classes=10, padding=0, kernel=5):
    left = ((size + 2 * padding - kernel + 1) // 2 - kernel + 1) // 2
    return nn.Sequential(collections.OrderedDict([
        ("c1", nn.Conv2d(channels, 6, kernel, padding=padding)), ("r1", nn.ReLU()),
        ("p1", nn.MaxPool2d(2)), ("c2", nn.Conv2d(6, 16, kernel)), ("r2", nn.ReLU()),
        ("p2", nn.MaxPool2d(2)), ("flatten", nn.Flatten()), ("f3", nn.Linear(16 * left * left, 120)),
        ("r3", nn.ReLU()), ("f4", nn.Linear(120, 84)), ("r4", nn.ReLU()),
        ("f5", nn.Linear(84, classes))]))


def conv(channels, kernels, size=3, stride=1, groups=1):
    return nn.Conv2d(channels, kernels, size, stride, size // 2, groups=groups, bias=False)


class Block(nn.Module):
    """The basic block of He et al. 2016."""

    def __init__(self, channels, kernels, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(channels, kernels, 3, stride), nn.BatchNorm2d(kernels)
        self.conv2, self.bn2 = conv(kernels, kernels), nn.BatchNorm2d(kernels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or channels != kernels:
            self.downsample = nn.Sequential(conv(channels, kernels, 1, stride),
                                            nn.BatchNorm2d(kernels))

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


def resnet18(stem="imagenet", widths=(64, 128, 256, 512), classes=1000, channels=3):
    imagenet = stem == "imagenet"
    parts = [("conv1", conv(channels, widths[0], 7 if imagenet else 3, 2 if imagenet else 1)),
             ("bn1", nn.BatchNorm2d(widths[0])), ("relu", nn.ReLU(inplace=True))]
    if imagenet:
        parts.append(("maxpool", nn.MaxPool2d(3, 2, 1)))
    before = widths[0]
    for i, width in enumerate(widths):
        parts.append((f"layer{i + 1}", nn.Sequential(Block(before, width, 1 if i == 0 else 2),
                                                     Block(width, width, 1))))
        before = width
    parts += [("avgpool", nn.AdaptiveAvgPool2d(1)), ("flatten", nn.Flatten()),
              ("fc", nn.Linear(before, classes))]
    return nn.Sequential(collections.OrderedDict(parts))


def mobilenet_v1(stem="imagenet", width_multiplier=1.0, classes=1000, channels=3):
    blocks = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)] + [(512, 1)] * 5 + [
        (1024, 2), (1024, 1)]
    scaled = lambda c: max(8, int(c * width_multiplier + 0.5))
    now = scaled(32)
    parts = [("conv1", conv(channels, now, 3, 2 if stem == "imagenet" else 1)),
             ("bn1", nn.BatchNorm2d(now)), ("relu1", nn.ReLU(inplace=True))]
    for i, (width, stride) in enumerate(blocks):
        width = scaled(width)
        parts.append((f"block{i + 1}", nn.Sequential(collections.OrderedDict([
            ("depthwise", conv(now, now, 3, stride, groups=now)), ("bn1", nn.BatchNorm2d(now)),
            ("relu1", nn.ReLU(inplace=True)), ("pointwise", conv(now, width, 1)),
            ("bn2", nn.BatchNorm2d(width)), ("relu2", nn.ReLU(inplace=True))]))))
        now = width
    parts += [("avgpool", nn.AdaptiveAvgPool2d(1)), ("flatten", nn.Flatten()),
              ("fc", nn.Linear(now, classes))]
    return nn.Sequential(collections.OrderedDict(parts))


def conv_norm_relu6(channels, kernels, size=3, stride=1, groups=1):
    return nn.Sequential(conv(channels, kernels, size, stride, groups), nn.BatchNorm2d(kernels),
                         nn.ReLU6(inplace=True))


class InvertedResidual(nn.Module):
    """The inverted residual block of Sandler et al. 2018: its middle is wide, and its narrow input is added to its
    narrow output."""

    def __init__(self, channels, kernels, stride, expansion):
        super().__init__()
        wide = channels * expansion
        widen = [] if expansion == 1 else [conv_norm_relu6(channels, wide, 1)]
        self.conv = nn.Sequential(*widen, conv_norm_relu6(wide, wide, 3, stride, groups=wide),
                                  conv(wide, kernels, 1), nn.BatchNorm2d(kernels))
        self.adds = stride == 1 and channels == kernels

    def forward(self, x):
        return x + self.conv(x) if self.adds else self.conv(x)


def multiple_of_8(channels):
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near


def mobilenet_v2(stem="imagenet", width_multiplier=1.0, classes=1000, channels=3, dropout=0.2):
    stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
              (6, 160, 3, 2), (6, 320, 1, 1)]
    now = multiple_of_8(32 * width_multiplier)
    features = [conv_norm_relu6(channels, now, 3, 2 if stem == "imagenet" else 1)]
    for expansion, width, blocks, stride in stages:
        width = multiple_of_8(width * width_multiplier)
        for block in range(blocks):
            features.append(InvertedResidual(now, width, stride if block == 0 else 1, expansion))
            now = width
    last = multiple_of_8(1280 * max(1.0, width_multiplier))
    features.append(conv_norm_relu6(now, last, 1))
    return nn.Sequential(collections.OrderedDict([
        ("features", nn.Sequential(*features)), ("avgpool", nn.AdaptiveAvgPool2d(1)),
        ("flatten", nn.Flatten()),
        ("classifier", nn.Sequential(nn.Dropout(dropout), nn.Linear(last, classes)))]))


def of_torchvision(name, **fixed):
    """Returns a function that makes torchvision's network, whose parameters have the names of Convscope's."""
    def make(classes=1000, **options):
        import torchvision
        return getattr(torchvision.models, name)(num_classes=classes, **fixed, **options)
    return make


def googlenet(classes=1000, wide_kernel=5, dropout=0.2):
    """torchvision's network, with the 5x5 windows of the paper where torchvision has 3x3."""
    net = of_torchvision("googlenet", aux_logits=False, init_weights=False)(classes, dropout=dropout)
    for name, module in net.named_modules():
        if name.endswith("branch3.1.conv"):
            module.__init__(module.in_channels, module.out_channels, wide_kernel, padding=wide_kernel // 2,
                            bias=False)
    return net


class ConvNeXt(nn.Module):
    """torchvision's ConvNeXt-T with the names and shapes of Convscope: the layers after the depthwise convolution are
    1x1 convolutions instead of linear layers between permutations."""

    class Block(nn.Module):
        def __init__(self, block):
            super().__init__()
            layers = dict(block.block.named_children())
            self.block = nn.ModuleDict({
                "0": layers["0"], "2": layers["2"], "3": self.conv1x1(layers["3"]), "5": self.conv1x1(layers["5"])})
            self.layer_scale = nn.ParameterDict({"weight": nn.Parameter(block.layer_scale.detach().flatten())})
            self.skip = block.stochastic_depth

        @staticmethod
        def conv1x1(linear):
            return nn.Conv2d(linear.in_features, linear.out_features, 1)

        def forward(self, x):
            norm = self.block["2"]
            y = self.block["0"](x).permute(0, 2, 3, 1)
            y = nn.functional.layer_norm(y, norm.normalized_shape, norm.weight, norm.bias, norm.eps).permute(0, 3, 1, 2)
            y = self.block["5"](nn.functional.gelu(self.block["3"](y)))
            return x + self.skip(self.layer_scale["weight"][:, None, None] * y)

    def __init__(self, classes=1000, stochastic_depth=0.1):
        super().__init__()
        net = of_torchvision("convnext_tiny")(classes, stochastic_depth_prob=stochastic_depth)
        for stage in (1, 3, 5, 7):
            net.features[stage] = nn.Sequential(*(self.Block(block) for block in net.features[stage]))
        self.features, self.avgpool, self.classifier = net.features, net.avgpool, net.classifier

    def forward(self, x):
        return self.classifier(self.avgpool(self.features(x)))


class UNet(nn.Module):
    """U-Net with padded convolutions and batch norm."""

    class TwoConvs(nn.Module):
        def __init__(self, channels, kernels):
            super().__init__()
            self.conv1, self.bn1 = conv(channels, kernels), nn.BatchNorm2d(kernels)
            self.conv2, self.bn2 = conv(kernels, kernels), nn.BatchNorm2d(kernels)
            self.up = None

        def forward(self, x):
            x = nn.functional.relu(self.bn1(self.conv1(x)))
            return nn.functional.relu(self.bn2(self.conv2(x)))

    def __init__(self, classes=1000, channels=3, poolings=4, width=64):
        super().__init__()
        self.poolings = poolings
        self.add_module("down0", self.TwoConvs(channels, width))
        for i in range(1, poolings + 1):
            self.add_module(f"down{i}", self.TwoConvs(width << (i - 1), width << i))
        for i in range(poolings - 1, -1, -1):
            up = self.TwoConvs(2 * (width << i), width << i)
            up.up = nn.ConvTranspose2d(width << (i + 1), width << i, 2, 2)
            self.add_module(f"up{i}", up)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        levels = [self.down0(x)]
        for i in range(1, self.poolings + 1):
            levels.append(getattr(self, f"down{i}")(nn.functional.max_pool2d(levels[-1], 2)))
        x = levels.pop()
        for i in range(self.poolings - 1, -1, -1):
            up = getattr(self, f"up{i}")
            x = up(torch.cat([levels.pop(), up.up(x)], dim=1))
        return self.head(x)


MODELS = {"lenet5": lenet5, "resnet18": resnet18, "mobilenet_v1": mobilenet_v1,
          "mobilenet_v2": mobilenet_v2, "resnet50": of_torchvision("resnet50"), "googlenet": googlenet,
          "densenet121": of_torchvision("densenet121"),
          "efficientnet_b0": of_torchvision("efficientnet_b0"), "convnext_tiny": ConvNeXt, "unet": UNet}


def shape_of_labels(name, shape):
    """Returns the shape of the labels of a batch [N,C,H,W]: U-Net has a class for each pixel."""
    return (shape[0], *shape[2:]) if name == "unet" else shape[:1]


def training_step(model, x, labels):
    """Returns a function that makes a step of SGD with momentum on one batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad()
        loss_of(model(x), labels).backward()
        optimizer.step()
    return step


def layout_of(name):
    return torch.channels_last if name == "channels_last" else torch.contiguous_format
