"""The models of the paper and of our tables, in plain PyTorch without any code for packing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn


def mlp3(inputs: int = 3 * 32 * 32, hidden: int = 256, classes: int = 10) -> nn.Module:
    """MLP-3: three hidden layers."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(inputs, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )


def small_cnn(channels: int = 3, classes: int = 10, size: int = 32) -> nn.Module:
    """Three convolutions with batch norm, and a linear layer."""
    return nn.Sequential(
        *(layer for a, b in ((channels, 32), (32, 64), (64, 64)) for layer in (*_conv(a, b, 3), nn.MaxPool2d(2))),
        nn.Flatten(),
        nn.Linear(64 * (size // 8) ** 2, classes),
    )


def _conv(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1, last: bool = True) -> list[nn.Module]:
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs), *([nn.ReLU(inplace=True)] if last else [])]


class Residual(nn.Module):
    """A block and its shortcut."""

    def __init__(self, block: nn.Module, around: nn.Module) -> None:
        super().__init__()
        self.block, self.around, self.last = block, around, nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both, rectified."""
        out: Tensor = self.last(self.block(x) + self.around(x))
        return out


def _residual(inputs: int, width: int, outputs: int, stride: int) -> nn.Module:
    if width == outputs:  # a basic block: two convolutions
        block = [*_conv(inputs, width, 3, stride), *_conv(width, outputs, 3, last=False)]
    else:  # a bottleneck
        block = [*_conv(inputs, width, 1), *_conv(width, width, 3, stride), *_conv(width, outputs, 1, last=False)]
    same = stride == 1 and inputs == outputs
    around = nn.Identity() if same else nn.Sequential(*_conv(inputs, outputs, 1, stride, last=False))
    return Residual(nn.Sequential(*block), around)


def _resnet(blocks: tuple[int, ...], widen: int, small: bool, classes: int) -> nn.Module:
    layers = _conv(3, 64, 3) if small else [*_conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, count in enumerate(blocks):
        width = 64 << stage
        for number in range(count):
            layers.append(_residual(inputs, width, width * widen, 2 if stage and not number else 1))
            inputs = width * widen
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def resnet18(classes: int = 10, small: bool = True) -> nn.Module:
    """ResNet-18, for images of 32×32 unless not `small`."""
    return _resnet((2, 2, 2, 2), 1, small, classes)


def resnet50(classes: int = 1000, small: bool = False) -> nn.Module:
    """ResNet-50, for images of 224×224 unless `small`."""
    return _resnet((3, 4, 6, 3), 4, small, classes)


class Skip(nn.Module):
    """A block whose input is added to its output."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        """The sum."""
        out: Tensor = x + self.block(x)
        return out


def mobilenet_v2(classes: int = 1000, small: bool = False) -> nn.Module:
    """MobileNetV2: inverted residuals with depthwise convolutions."""
    layers = _conv(3, 32, 3, 1 if small else 2)
    inputs = 32
    plan = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expand, outputs, count, first in plan:
        for number in range(count):
            stride, width = first if not number else 1, inputs * expand
            block = nn.Sequential(
                *(_conv(inputs, width, 1) if expand > 1 else []),
                *_conv(width, width, 3, stride, groups=width),
                *_conv(width, outputs, 1, last=False),
            )
            layers.append(Skip(block) if stride == 1 and inputs == outputs else block)
            inputs = outputs
    head = [*_conv(inputs, 1280, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, classes)]
    return nn.Sequential(*layers, *head)


class Dense(nn.Module):
    """Its output is its input with a few channels more."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(inputs, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(inplace=True),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Both, one after the other."""
        return torch.cat([x, self.block(x)], 1)


def densenet121(classes: int = 1000, small: bool = False) -> nn.Module:
    """DenseNet-121."""
    layers = _conv(3, 64, 3) if small else [*_conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    channels, growth = 64, 32
    for stage, count in enumerate((6, 12, 24, 16)):
        for _ in range(count):
            layers.append(Dense(channels, growth))
            channels += growth
        if stage < 3:
            half = nn.Conv2d(channels, channels // 2, 1, bias=False)
            layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True), half, nn.AvgPool2d(2)]
            channels //= 2
    end = [nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *end, nn.Linear(channels, classes))


def with_activation(network: nn.Module, make: Callable[[], nn.Module]) -> nn.Module:
    """The same network with another activation in place of every ReLU."""
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.ReLU):
                setattr(module, name, make())
    return network


NETWORKS: dict[str, tuple[Callable[[], nn.Module], int, int]] = {  # how it is made, image size, batch of our tables
    "mlp-3": (mlp3, 32, 50),
    "small cnn": (small_cnn, 32, 50),
    "resnet-18": (resnet18, 32, 50),
    "resnet-18, 7×7 stem": (partial(resnet18, small=False), 32, 50),  # the network for large images, on small ones
    "mobilenet-v2": (mobilenet_v2, 224, 32),
    "resnet-50": (resnet50, 224, 32),
    "densenet-121": (densenet121, 224, 32),
}
