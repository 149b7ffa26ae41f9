"""MobileNetV2: cheap convolutions in inverted residual blocks.

Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018. A block widens its input by a 1x1
convolution, filters each channel alone, and narrows it again without an activation; where its ends have one shape, the
input is added. The network takes bytes as they come from the decoder and scales them itself, on the device.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

import paddle
from paddle import Tensor, nn
from paddle.nn import functional as F

STAGES = ((1, 16, 1), (6, 24, 2), (6, 32, 3), (6, 64, 4), (6, 96, 3), (6, 160, 3), (6, 320, 1))
"""(expansion, output channels at width 1, blocks) of each stage: table 2 of the paper."""

SMALL = 4
"""Pixels of a map on which channels are filtered by sums. The full size has none."""


class Unit(NamedTuple):
    """One convolution with its normalisation."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    groups: int
    activate: bool


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


class ConvNorm(nn.Layer):
    """A convolution, its batch normalisation and, where asked, ReLU6."""

    def __init__(self, unit: Unit) -> None:
        super().__init__()
        # After He et al. 2015: by the number of a kernel's outputs.
        spread = nn.initializer.Normal(std=math.sqrt(2 / (unit.outputs * unit.kernel**2)))
        self.convolution = nn.Conv2D(
            unit.inputs,
            unit.outputs,
            unit.kernel,
            stride=unit.stride,
            padding=unit.kernel // 2,
            groups=unit.groups,
            weight_attr=paddle.ParamAttr(initializer=spread),
            bias_attr=False,
        )
        self.norm = nn.BatchNorm2D(unit.outputs)
        self.activate = unit.activate
        self.by_channel, self.kernel, self.stride = unit.groups > 1, unit.kernel, unit.stride

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self._filter(x) if self.by_channel else self.convolution(x))
        return F.relu6(x) if self.activate else x

    def _filter(self, x: Tensor) -> Tensor:
        """Each channel alone. On the smallest maps a product of matrices a channel costs more than a sum of patches."""
        kernel, stride = self.kernel, self.stride
        count, channels, height, width = x.shape
        rows, columns = (height - 1) // stride + 1, (width - 1) // stride + 1
        if rows * columns > SMALL:
            return self.convolution(x)
        patches = F.unfold(x, kernel, strides=stride, paddings=kernel // 2)
        patches = patches.reshape([count, channels, kernel * kernel, rows * columns])
        weight = self.convolution.weight.reshape([1, channels, kernel * kernel, 1])
        return (patches * weight).sum(axis=2).reshape([count, channels, rows, columns])


class Block(nn.Layer):
    """Units one after the other; `residual`: the input is added where it has the output's shape."""

    def __init__(self, units: tuple[Unit, ...]) -> None:
        super().__init__()
        self.residual = (
            len(units) > 1 and units[0].inputs == units[-1].outputs and all(unit.stride == 1 for unit in units)
        )
        self.units = nn.Sequential(*(ConvNorm(unit) for unit in units))

    def forward(self, x: Tensor) -> Tensor:
        y = self.units(x)
        return x + y if self.residual else y


class MobileNetV2(nn.Layer):
    """Images in bytes [N, H, W, colours] in, scores of the classes [N, classes] out."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(units) for units in shape.blocks()))
        self.dropout = nn.Dropout(shape.dropout)
        small = paddle.ParamAttr(initializer=nn.initializer.Normal(std=0.01))
        self.classifier = nn.Linear(shape.last_channels, shape.num_classes, weight_attr=small)
        for name, values in (("white_mean", shape.pixel_mean), ("white_std", shape.pixel_std)):
            white = paddle.to_tensor(values, dtype="float32").reshape([1, -1, 1, 1]) * 255
            self.register_buffer(name, white, persistable=False)

    def forward(self, images: Tensor) -> Tensor:
        """Scale the bytes and classify."""
        x = images.transpose([0, 3, 1, 2]).astype("float32")
        x = self.blocks((x - self.white_mean) / self.white_std)
        return self.classifier(self.dropout(x.mean(axis=[2, 3])))
