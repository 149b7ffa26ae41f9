"""MobileNetV2: cheap convolutions in inverted residual blocks.

Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018. A block widens its input by a 1x1
convolution, filters each channel alone, and narrows it again without an activation; where its ends have one shape, the
input is added. The network takes bytes as they come from the decoder and scales them itself, on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from suite.drivers.events import RunProblem

ConvNorm = Callable[[Tensor, nn.Conv2d, nn.BatchNorm2d, bool], Tensor]
"""(x, convolution, normalisation, activate) -> y: a convolution, its batch normalisation and, where asked, ReLU6."""

STAGES = ((1, 16, 1), (6, 24, 2), (6, 32, 3), (6, 64, 4), (6, 96, 3), (6, 160, 3), (6, 320, 1))
"""(expansion, output channels at width 1, blocks) of each stage: table 2 of the paper."""

MEMORY_FORMATS = {"channels_last": torch.channels_last, "contiguous": torch.contiguous_format}


class Unit(NamedTuple):
    """One convolution with its normalisation."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    groups: int
    activate: bool


def standard_conv_norm(x: Tensor, convolution: nn.Conv2d, norm: nn.BatchNorm2d, activate: bool) -> Tensor:
    """By the framework's own operators. The count of batches, which a fixed momentum never reads, is not kept."""
    x = _convolve(x, convolution)
    x = F.batch_norm(
        x, norm.running_mean, norm.running_var, norm.weight, norm.bias, norm.training, norm.momentum, norm.eps
    )
    return F.relu6(x, inplace=True) if activate else x


def _convolve(x: Tensor, convolution: nn.Conv2d) -> Tensor:
    """A convolution of single pixels is a product of matrices; where channels lie together it is computed as one."""
    if convolution.kernel_size == (1, 1) and x.is_contiguous(memory_format=torch.channels_last):
        return F.linear(x.permute(0, 2, 3, 1), convolution.weight.flatten(1)).permute(0, 3, 1, 2)
    return convolution(x)


def memory_format(name: str) -> torch.memory_format:
    """How activations and kernels lie in memory. Raises RunProblem for an unknown name."""
    if name not in MEMORY_FORMATS:
        raise RunProblem(
            f"memory_format = {name!r} is not one of {', '.join(MEMORY_FORMATS)}: change params.memory_format"
        )
    return MEMORY_FORMATS[name]


def channels(count: float) -> int:
    """`count` rounded to a multiple of 8, at least 8, and not below 90 % of it."""
    rounded = max(8, int(count + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * count else rounded + 8


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes that make one MobileNetV2; every field is a parameter of case.toml."""

    num_classes: int
    image_size: int
    width: float
    last_channels: int
    strides: tuple[int, ...]
    """Of the stem and of the seven stages."""
    dropout: float
    pixel_mean: tuple[float, ...]
    """Of each colour, as a fraction of white; their number is that of the colours."""
    pixel_std: tuple[float, ...]
    memory_format: str

    @classmethod
    def of(cls, params: Mapping[str, object]) -> Shape:
        """The shape that the planned parameters describe; JSON made lists of its tuples."""
        values = {field.name: params[field.name] for field in fields(cls)}
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})

    def blocks(self) -> list[tuple[Unit, ...]]:
        """The units of the stem, of the 17 inverted residual blocks, and of the last convolution."""
        width = channels(32 * self.width)
        found = [(Unit(len(self.pixel_mean), width, 3, self.strides[0], 1, True),)]
        for (expansion, outputs, repeats), first_stride in zip(STAGES, self.strides[1:], strict=True):
            outputs = channels(outputs * self.width)
            for index in range(repeats):
                hidden = width * expansion
                widen = (Unit(width, hidden, 1, 1, 1, True),) if expansion != 1 else ()
                stride = first_stride if index == 0 else 1
                filters = Unit(hidden, hidden, 3, stride, hidden, True)
                found.append((*widen, filters, Unit(hidden, outputs, 1, 1, 1, False)))
                width = outputs
        return [*found, (Unit(width, self.last_channels, 1, 1, 1, True),)]

    def parameters(self) -> int:
        """How many parameters the model has: kernels, two a normalised channel, and the classifier."""
        units = [unit for block in self.blocks() for unit in block]
        kernels = sum(unit.inputs // unit.groups * unit.outputs * unit.kernel**2 for unit in units)
        return kernels + sum(2 * unit.outputs for unit in units) + (self.last_channels + 1) * self.num_classes

    def forward_flops(self) -> int:
        """FLOP of one image, two for each multiply-accumulate of the convolutions and the classifier."""
        size, total = self.image_size, 0
        for block in self.blocks():
            for unit in block:
                size = -(-size // unit.stride)
                total += 2 * unit.inputs // unit.groups * unit.outputs * unit.kernel**2 * size**2
        return total + 2 * self.last_channels * self.num_classes


class Block(nn.Module):
    """Units one after the other; `residual`: the input is added where it has the output's shape."""

    def __init__(self, units: tuple[Unit, ...], conv_norm: ConvNorm) -> None:
        super().__init__()
        self.conv_norm = conv_norm
        self.activate = [unit.activate for unit in units]
        self.residual = (
            len(units) > 1 and units[0].inputs == units[-1].outputs and all(unit.stride == 1 for unit in units)
        )
        self.units = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(u.inputs, u.outputs, u.kernel, u.stride, u.kernel // 2, groups=u.groups, bias=False),
                nn.BatchNorm2d(u.outputs),
            )
            for u in units
        )

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for (convolution, norm), activate in zip(self.units, self.activate):
            y = self.conv_norm(y, convolution, norm, activate)
        return x + y if self.residual else y


class MobileNetV2(nn.Module):
    """Images in bytes [N, H, W, colours] in, scores of the classes [N, classes] out."""

    def __init__(self, shape: Shape, conv_norm: ConvNorm = standard_conv_norm) -> None:
        super().__init__()
        self.memory_format = memory_format(shape.memory_format)
        self.blocks = nn.ModuleList(Block(units, conv_norm) for units in shape.blocks())
        self.dropout = nn.Dropout(shape.dropout)
        self.classifier = nn.Linear(shape.last_channels, shape.num_classes)
        for name, values in (("white_mean", shape.pixel_mean), ("white_std", shape.pixel_std)):
            self.register_buffer(name, 255 * torch.tensor(values).view(1, -1, 1, 1), persistent=False)
        self._initialise()
        self.to(memory_format=self.memory_format)

    def forward(self, images: Tensor) -> Tensor:
        """Scale the bytes and classify. Bytes in rows of pixels are already channels-last: no copy is made."""
        x = images.permute(0, 3, 1, 2).contiguous(memory_format=self.memory_format)
        return self.classify((x.float() - self.white_mean) / self.white_std)

    def classify(self, x: Tensor) -> Tensor:
        """Scores of scaled images [N, colours, H, W]."""
        for block in self.blocks:
            x = block(x)
        return self.classifier(self.dropout(x.mean((2, 3))))

    def _initialise(self) -> None:
        """Kernels by the number of their outputs, after He et al. 2015; a small classifier without bias."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
        nn.init.normal_(self.classifier.weight, std=0.01)
        nn.init.zeros_(self.classifier.bias)
