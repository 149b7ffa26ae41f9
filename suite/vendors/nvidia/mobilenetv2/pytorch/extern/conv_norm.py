"""A convolution, its batch norm and ReLU6, by this folder's kernels where they apply."""

import torch
from torch.nn import functional as F

from extern.depthwise import depthwise
from extern.norm import norm_relu6
from extern.stem import stem, takes

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
DEVICES = ("cuda",)
"""Types of device that the kernels run on."""


def with_kernels(standard):
    """The unit of the case, replaced in training on a CUDA device, channels last; elsewhere `standard` itself."""

    def conv_norm(x, convolution, norm, activate):
        dtype = _dtype(x)
        lies = x.is_contiguous(memory_format=torch.channels_last)
        taken = norm.training and len(x) > 1 and x.device.type in DEVICES and dtype in DTYPES and lies
        if not taken:
            return standard(x, convolution, norm, activate)
        rows = _convolve(x.to(dtype), convolution).permute(0, 2, 3, 1)
        count = rows.numel() // rows.shape[-1]
        y, mean, variance, _ = norm_relu6(
            rows.reshape(count, rows.shape[-1]), norm.weight, norm.bias, norm.eps, activate
        )
        with torch.no_grad():
            norm.running_mean.lerp_(mean, norm.momentum)
            norm.running_var.lerp_(variance * (count / (count - 1)), norm.momentum)
        return y.view(rows.shape).permute(0, 3, 1, 2)

    return conv_norm


def _convolve(x, convolution):
    """[N, C, H, W], channels last: single pixels by a product of matrices, single channels and images by kernels."""
    if convolution.kernel_size == (1, 1):
        return F.linear(x.permute(0, 2, 3, 1), convolution.weight.flatten(1)).permute(0, 3, 1, 2)
    if takes(convolution) and not x.requires_grad:
        (stride, _), pixels = convolution.stride, x.permute(0, 2, 3, 1).contiguous()
        return stem(pixels, convolution.weight.permute(0, 2, 3, 1).flatten(1), stride).permute(0, 3, 1, 2)
    single = convolution.groups == convolution.in_channels == convolution.out_channels
    if single and convolution.kernel_size == (3, 3):
        (stride, _), pixels = convolution.stride, x.permute(0, 2, 3, 1).contiguous()
        return depthwise(pixels, convolution.weight.flatten(1), stride).permute(0, 3, 1, 2)
    return convolution(x)


def _dtype(x):
    """The dtype in which a product is computed: autocast's, where it is on."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
