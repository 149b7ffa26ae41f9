"""MobileNetV2 in TensorFlow's own operators: cheap convolutions in inverted residual blocks.

Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018. The sizes are those of
mobilenetv2/pytorch; kernels lie as TensorFlow wants them. The network takes bytes and scales them itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

import tensorflow as tf

STAGES = ((1, 16, 1), (6, 24, 2), (6, 32, 3), (6, 64, 4), (6, 96, 3), (6, 160, 3), (6, 320, 1))
"""(expansion, output channels at width 1, blocks) of each stage: table 2 of the paper."""

EPSILON = 1e-5
MOMENTUM = 0.1
"""Share of a batch in the running statistics."""


class Unit(NamedTuple):
    """One convolution with its normalisation."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    depthwise: bool
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
        found = [(Unit(len(self.pixel_mean), width, 3, self.strides[0], False, True),)]
        for (expansion, outputs, repeats), first_stride in zip(STAGES, self.strides[1:], strict=True):
            outputs = channels(outputs * self.width)
            for index in range(repeats):
                hidden = width * expansion
                widen = (Unit(width, hidden, 1, 1, False, True),) if expansion != 1 else ()
                stride = first_stride if index == 0 else 1
                filters = Unit(hidden, hidden, 3, stride, True, True)
                found.append((*widen, filters, Unit(hidden, outputs, 1, 1, False, False)))
                width = outputs
        return [*found, (Unit(width, self.last_channels, 1, 1, False, True),)]

    def parameters(self) -> int:
        """How many parameters the model has: kernels, two a normalised channel, and the classifier."""
        units = [unit for block in self.blocks() for unit in block]
        kernels = sum((1 if unit.depthwise else unit.inputs) * unit.outputs * unit.kernel**2 for unit in units)
        return kernels + sum(2 * unit.outputs for unit in units) + (self.last_channels + 1) * self.num_classes

    def forward_flops(self) -> int:
        """FLOP of one image, two for each multiply-accumulate of the convolutions and the classifier."""
        size, total = self.image_size, 0
        for block in self.blocks():
            for unit in block:
                size = -(-size // unit.stride)
                total += 2 * (1 if unit.depthwise else unit.inputs) * unit.outputs * unit.kernel**2 * size**2
        return total + 2 * self.last_channels * self.num_classes


class ConvNorm(tf.Module):
    """A convolution, its batch normalisation and, where asked, ReLU6."""

    def __init__(self, unit: Unit, name: str, seed: int) -> None:
        super().__init__()
        self.unit = unit
        size, fan = unit.kernel, unit.kernel**2 * (1 if unit.depthwise else unit.outputs)
        shape = (size, size, unit.inputs, 1 if unit.depthwise else unit.outputs)
        # By the number of outputs, after He et al. 2015.
        normal = tf.random.stateless_normal(shape, (seed, zlib.crc32(name.encode()) >> 1), stddev=(2 / fan) ** 0.5)
        self.kernel = tf.Variable(normal, name=f"{name}/kernel")
        self.scale = tf.Variable(tf.ones(unit.outputs), name=f"{name}/scale")
        self.shift = tf.Variable(tf.zeros(unit.outputs), name=f"{name}/shift")
        self.mean = tf.Variable(tf.zeros(unit.outputs), trainable=False, name=f"{name}/mean")
        self.variance = tf.Variable(tf.ones(unit.outputs), trainable=False, name=f"{name}/variance")

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        x = self._normalise(self._convolve(x), training)
        return tf.nn.relu6(x) if self.unit.activate else x

    def _convolve(self, x: tf.Tensor) -> tf.Tensor:
        kernel, stride = tf.cast(self.kernel, x.dtype), self.unit.stride
        edge = self.unit.kernel // 2
        if stride > 1:  # SAME pads an even size at its far side only: not the published network
            x = tf.pad(x, ((0, 0), (edge, edge), (edge, edge), (0, 0)))
        padding = "VALID" if stride > 1 else "SAME"
        if self.unit.depthwise:
            return tf.nn.depthwise_conv2d(x, kernel, (1, stride, stride, 1), padding)
        return tf.nn.conv2d(x, kernel, stride, padding)

    def _normalise(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        norm = tf.compat.v1.nn.fused_batch_norm
        if not training:
            mean, variance = tf.identity(self.mean), tf.identity(self.variance)
            return norm(x, self.scale, self.shift, mean, variance, epsilon=EPSILON, is_training=False)[0]
        x, mean, variance = norm(x, self.scale, self.shift, epsilon=EPSILON, is_training=True)
        self.mean.assign((1 - MOMENTUM) * self.mean + MOMENTUM * mean)
        self.variance.assign((1 - MOMENTUM) * self.variance + MOMENTUM * variance)
        return x


class Block(tf.Module):
    """Units one after the other; `residual`: the input is added where it has the output's shape."""

    def __init__(self, units: tuple[Unit, ...], name: str, seed: int) -> None:
        super().__init__()
        self.units = [ConvNorm(unit, f"{name}.{number}", seed) for number, unit in enumerate(units)]
        inner = len(units) > 1 and units[0].inputs == units[-1].outputs
        self.residual = inner and all(unit.stride == 1 for unit in units)

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        y = x
        for unit in self.units:
            y = unit(y, training)
        return x + y if self.residual else y


class MobileNetV2(tf.Module):
    """Images in bytes [N, H, W, colours] in, scores of the classes [N, classes] out, in float32."""

    def __init__(self, shape: Shape, dtype: tf.DType, seed: int) -> None:
        super().__init__()
        self.dtype, self.rate = dtype, shape.dropout
        units = enumerate(shape.blocks())
        self.blocks = [Block(units, f"block{number:02d}", seed) for number, units in units]
        self.white_mean = 255 * tf.constant(shape.pixel_mean)
        self.white_std = 255 * tf.constant(shape.pixel_std)
        drawn = tf.random.stateless_normal((shape.last_channels, shape.num_classes), (seed, 0), stddev=0.01)
        self.classifier = tf.Variable(drawn, name="classifier/kernel")
        self.bias = tf.Variable(tf.zeros(shape.num_classes), name="classifier/bias")

    def __call__(self, images: tf.Tensor, training: bool, chance: tf.Tensor | None = None) -> tf.Tensor:
        """`chance` seeds the dropout of a training step."""
        x = tf.cast((tf.cast(images, tf.float32) - self.white_mean) / self.white_std, self.dtype)
        for block in self.blocks:
            x = block(x, training)
        x = tf.reduce_mean(tf.cast(x, tf.float32), (1, 2))
        if training and self.rate:
            x = tf.nn.experimental.stateless_dropout(x, self.rate, seed=chance)
        return tf.linalg.matmul(tf.cast(x, self.dtype), tf.cast(self.classifier, self.dtype)) + self._bias()

    def _bias(self) -> tf.Tensor:
        return tf.cast(self.bias, self.dtype)
