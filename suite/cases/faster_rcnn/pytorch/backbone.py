"""ResNet and the feature pyramid above it (He et al. 2015, Lin et al. 2017).

Names follow the weights that are published for torchvision, so that they load without a table of names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EXPANSION = 4
"""A bottleneck's output is this many times as wide as its inner layers."""
STAGES = ("layer1", "layer2", "layer3", "layer4")
RESIDUAL_SCALE = 0.3
"""Of a block's last norm without pre-trained statistics: sixteen blocks then grow a signal twofold, not 256-fold."""


class FrozenNorm(nn.Module):
    """Batch normalisation by fixed statistics: a factor and a shift of each channel."""

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        for name, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, torch.full((channels,), value))

    def folded(self) -> tuple[Tensor, Tensor]:
        """(factor, shift)."""
        factor = self.weight * (self.running_var + self.eps).rsqrt()
        return factor, self.bias - self.running_mean * factor


def make_norm(kind: str, channels: int) -> nn.Module:
    """`frozen`, or `group` for training from random weights: it knows no batch, so ranks may share one."""
    return FrozenNorm(channels) if kind == "frozen" else nn.GroupNorm(max(1, channels // 8), channels)


def normed(convolution: nn.Conv2d, norm: nn.Module, x: Tensor) -> Tensor:
    """norm(convolution(x)). A frozen norm is multiplied into the weights: the activations are not read again for it."""
    if not isinstance(norm, FrozenNorm):
        return norm(convolution(x))
    factor, shift = norm.folded()
    weight = convolution.weight * factor[:, None, None, None]
    return F.conv2d(x, weight, shift, convolution.stride, convolution.padding)


class Bottleneck(nn.Module):
    """1x1, 3x3 (which takes the stride) and 1x1, around a shortcut."""

    def __init__(self, channels: int, width: int, stride: int, norm: str) -> None:
        super().__init__()
        wide = width * EXPANSION
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = make_norm(norm, width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = make_norm(norm, width)
        self.conv3 = nn.Conv2d(width, wide, 1, bias=False)
        self.bn3 = make_norm(norm, wide)
        self.downsample = None
        if stride != 1 or channels != wide:
            shortcut = nn.Conv2d(channels, wide, 1, stride, bias=False)
            self.downsample = nn.ModuleList([shortcut, make_norm(norm, wide)])

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu_(normed(self.conv1, self.bn1, x))
        out = F.relu_(normed(self.conv2, self.bn2, out))
        out = normed(self.conv3, self.bn3, out)
        shortcut = x if self.downsample is None else normed(*self.downsample, x)
        return F.relu_(out + shortcut)


class ResNet(nn.Module):
    """Images in, the outputs of the four stages out (strides 4, 8, 16, 32). The first `frozen` of stem and stages
    keep their weights."""

    def __init__(self, width: int, blocks: Sequence[int], norm: str, frozen: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = make_norm(norm, width)
        channels = width
        for number, (name, count) in enumerate(zip(STAGES, blocks)):
            inner, stage = width * 2**number, []
            for block in range(count):
                stage.append(Bottleneck(channels, inner, 2 if number and not block else 1, norm))
                channels = inner * EXPANSION
            setattr(self, name, nn.Sequential(*stage))
        self._initialise()
        for part in (self.conv1, self.bn1, *map(self.get_submodule, STAGES))[: frozen + 1 if frozen else 0]:
            part.requires_grad_(False)

    def forward(self, x: Tensor) -> list[Tensor]:
        x = F.relu_(normed(self.conv1, self.bn1, x))
        x = F.max_pool2d(x, 3, 2, 1)
        outputs = []
        for name in STAGES:
            x = self.get_submodule(name)(x)
            outputs.append(x)
        return outputs

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, Bottleneck):
                nn.init.constant_(module.bn3.weight, RESIDUAL_SCALE)


class Pyramid(nn.Module):
    """The stages' outputs brought to one width, each with what the coarser ones see; a fifth level by subsampling."""

    def __init__(self, widths: Sequence[int], channels: int) -> None:
        super().__init__()
        self.inner = nn.ModuleList(nn.Conv2d(width, channels, 1) for width in widths)
        self.outer = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in widths)
        for convolution in (*self.inner, *self.outer):
            nn.init.kaiming_uniform_(convolution.weight, a=1)
            nn.init.zeros_(convolution.bias)

    def forward(self, stages: list[Tensor]) -> list[Tensor]:
        merged = self.inner[-1](stages[-1])
        levels = [self.outer[-1](merged)]
        for number in range(len(stages) - 2, -1, -1):
            lateral = self.inner[number](stages[number])
            merged = lateral + F.interpolate(merged, size=lateral.shape[-2:], mode="nearest")
            levels.insert(0, self.outer[number](merged))
        return [*levels, levels[-1][:, :, ::2, ::2]]


def halved(size: int, times: int) -> int:
    """A side of the image after `times` layers of stride 2, each rounding up."""
    return math.ceil(size / 2**times)
