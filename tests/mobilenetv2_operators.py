"""How far the operators of NVIDIA's extern/ for MobileNetV2 are from the same in float64 (`operator_errors.report`)."""

from __future__ import annotations

import contextlib
import copy
from dataclasses import replace
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.operator_errors import DEVICE, Measure, draw, error, exact, not_asked, report

EPS = 1e-5


def flow_of(truth: Tensor, dtype: torch.dtype) -> Tensor:
    """A gradient for ReLU6 of `truth`: none near 0 and 6, where a convolution in bf16 may lie on the other side."""
    near = ((truth.detach() - 6).abs() < 0.1) | (truth.detach().abs() < 0.1)
    return draw(*truth.shape, dtype=dtype).masked_fill(near, 0.0)


def few_programs(measure: Measure) -> Measure:
    """`measure` with programs that take several tiles, as with the sizes of a training: small inputs have too few."""

    def measure_so(dtype: torch.dtype) -> dict[str, float]:
        from extern import norm, stem, tiling

        loads = {name: load for name, load in vars(norm).items() if isinstance(load, tiling.Load)}
        with contextlib.ExitStack() as stack:
            for name, load in loads.items():
                stack.enter_context(mock.patch.object(norm, name, replace(load, programs=2)))
            stack.enter_context(mock.patch.multiple(stem, PROGRAMS=2, PARTS=2))
            return measure(dtype)

    return measure_so


def norm(count: int, channels: int, activate: bool) -> Measure:
    """`count` rows, with means that are large beside the spread."""

    def measure(dtype: torch.dtype) -> dict[str, float]:
        from extern.norm import norm_relu6

        x = (2 * draw(count, channels) + 3 * draw(channels) + 1).to(dtype).requires_grad_()
        weight, bias = (2 + draw(channels)).requires_grad_(), (2 * draw(channels)).requires_grad_()
        y, mean, variance, _ = norm_relu6(x, weight, bias, EPS, activate)
        x64, weight64, bias64 = exact(x), exact(weight), exact(bias)
        line = F.batch_norm(x64, None, None, weight64, bias64, True, 0.1, EPS)
        y64 = F.hardtanh(line, 0, 6) if activate else line
        flow = flow_of(line, dtype)
        y.backward(flow)
        y64.backward(flow.double())
        return {
            "y": error(y, y64), "mean": error(mean, x64.mean(0)), "variance": error(variance, x64.var(0, False)),
            "x.grad": error(x.grad, x64.grad), "weight.grad": error(weight.grad, weight64.grad),
            "bias.grad": error(bias.grad, bias64.grad),
        }  # fmt: skip

    return measure


def depthwise(images: int, high: int, wide: int, channels: int, stride: int) -> Measure:
    """A convolution of single channels."""

    def measure(dtype: torch.dtype) -> dict[str, float]:
        from extern.depthwise import depthwise as operator

        x = draw(images, high, wide, channels, dtype=dtype).requires_grad_()
        weight = draw(channels, 9, dtype=dtype).float().requires_grad_()
        y = operator(x, weight, stride)
        x64, weight64 = exact(x), exact(weight)
        kernel = weight64.view(channels, 1, 3, 3)
        y64 = F.conv2d(x64.permute(0, 3, 1, 2), kernel, stride=stride, padding=1, groups=channels)
        y64 = y64.permute(0, 2, 3, 1)
        flow = draw(*y64.shape, dtype=dtype)
        y.backward(flow)
        y64.backward(flow.double())
        assert x.grad is not None and weight.grad is not None
        return {
            "y": error(y, y64), "x.grad": error(x.grad, x64.grad), "weight.grad": error(weight.grad, weight64.grad)
        }  # fmt: skip

    return measure


def stem(images: int, high: int, wide: int, channels: int, outputs: int, stride: int = 2) -> Measure:
    """The convolution of images."""

    def measure(dtype: torch.dtype) -> dict[str, float]:
        from extern.stem import stem as operator

        x = draw(images, high, wide, channels, dtype=dtype)
        weight = draw(outputs, 9 * channels, dtype=dtype).float().requires_grad_()
        y = operator(x, weight, stride)
        weight64 = exact(weight)
        kernel = weight64.view(outputs, 3, 3, channels).permute(0, 3, 1, 2)
        y64 = F.conv2d(x.double().permute(0, 3, 1, 2), kernel, stride=stride, padding=1).permute(0, 2, 3, 1)
        flow = draw(*y64.shape, dtype=dtype)
        y.backward(flow)
        y64.backward(flow.double())
        assert weight.grad is not None
        return {"y": error(y, y64), "weight.grad": error(weight.grad, weight64.grad)}

    return measure


def unit(inputs: int, outputs: int, kernel: int, stride: int, groups: int = 1, *, of_images: bool = False) -> Measure:
    """A convolution, its norm and ReLU6, in training; `of_images`: no gradient is asked of what comes in."""

    def measure(dtype: torch.dtype) -> dict[str, float]:
        from extern.conv_norm import with_kernels
        from extern.stem import takes
        from model import standard_conv_norm

        conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        conv = conv.to(DEVICE, memory_format=torch.channels_last)
        assert takes(conv) == (kernel == 3 and groups == 1 and outputs >= 16)  # a product of matrices has 16 columns
        conv.weight.data = conv.weight.data.to(dtype).float()
        batch_norm = nn.BatchNorm2d(outputs, device=DEVICE)
        batch_norm.weight.data, batch_norm.bias.data = 2 + draw(outputs), 2 * draw(outputs)
        conv64, batch_norm64 = copy.deepcopy(conv).double(), copy.deepcopy(batch_norm).double()
        x = draw(2, inputs, 9, 11, dtype=dtype).contiguous(memory_format=torch.channels_last)
        x.requires_grad_(not of_images)
        x64 = exact(x)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=dtype == torch.bfloat16):
            y = with_kernels(not_asked)(x, conv, batch_norm, True)
        line = standard_conv_norm(x64, conv64, batch_norm64, False)
        y64 = F.hardtanh(line, 0, 6)
        flow = flow_of(line, dtype)
        y.backward(flow)
        y64.backward(flow.double())
        pairs = {"y": (y, y64), "weight.grad": (conv.weight.grad, conv64.weight.grad)}
        if not of_images:
            pairs["x.grad"] = (x.grad, x64.grad)
        for name, tensor in batch_norm.named_parameters():
            pairs[f"norm.{name}.grad"] = (tensor.grad, batch_norm64.get_parameter(name).grad)
        for name in ("running_mean", "running_var"):
            pairs[name] = (batch_norm.get_buffer(name), batch_norm64.get_buffer(name))
        return {name: error(*pair) for name, pair in pairs.items()}

    return measure


OPERATORS = {
    "norm": norm(7 * 9, 24, False),
    "norm_relu6": norm(2 * 5 * 7, 16, True),
    "norm_relu6 of few rows": norm(13, 64, True),
    "norm_relu6 by few programs": few_programs(norm(133, 16, True)),
    "depthwise": depthwise(2, 9, 11, 24, 1),
    "depthwise of stride 2": depthwise(2, 9, 11, 24, 2),
    "depthwise of stride 2, even": depthwise(1, 6, 8, 16, 2),
    "stem": stem(1, 9, 11, 3, 32),
    "stem, even": stem(3, 10, 24, 3, 16),
    "stem of one colour and stride 1": stem(3, 9, 11, 1, 64, stride=1),
    "stem broader than a tile": stem(1, 3, 263, 3, 32),
    "stem by few programs": few_programs(stem(3, 9, 11, 3, 32)),
}
UNITS = {
    "stem": unit(3, 32, 3, 2, of_images=True),
    "stem whose images ask for a gradient": unit(3, 32, 3, 2),
    "stem of 8 channels": unit(3, 8, 3, 2, of_images=True),
    "stem of 8 channels and one colour": unit(1, 8, 3, 2, of_images=True),
    "pointwise": unit(24, 16, 1, 1),
    "depthwise": unit(16, 16, 3, 1, 16),
    "depthwise of stride 2": unit(16, 16, 3, 2, 16),
}


CASES = {
    f"{kind} {name}": case for kind, cases in (("operator", OPERATORS), ("unit", UNITS)) for name, case in cases.items()
}


def allow_device() -> None:
    """The kernels run here, whatever this is."""
    from extern import conv_norm

    conv_norm.DEVICES = (DEVICE,)


if __name__ == "__main__":
    report("mobilenetv2", CASES, allow_device)
