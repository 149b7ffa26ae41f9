"""The parts of BERT's layers that this folder's kernels compute, where they apply."""

import torch
from torch.nn import functional as F

from extern.gelu import bias_gelu
from extern.norm import residual_norm as kernel_norm

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
DEVICES = ("cuda",)
"""Types of device that the kernels run on."""


def residual_norm_with_kernels(standard):
    """norm(residual + dropout(product(x))) by one kernel after the product; elsewhere `standard` itself."""

    def residual_norm(x, product, residual, norm, dropout):
        if not _taken(x) or residual.dtype != _dtype(x):
            return standard(x, product, residual, norm, dropout)
        y = F.linear(x, product.weight).flatten(0, -2)
        seed = torch.randint(2**62, (1 if dropout > 0 else 0,), device=x.device)
        y, *_ = kernel_norm(y, product.bias, residual.flatten(0, -2), norm.weight, norm.bias, seed, norm.eps, dropout)
        return y.view(residual.shape)

    return residual_norm


def feed_in_with_kernels(standard):
    """gelu(product(x)) by one kernel after the product; elsewhere `standard` itself."""

    def feed_in(x, product):
        if not _taken(x):
            return standard(x, product)
        y = F.linear(x, product.weight)
        return bias_gelu(y.flatten(0, -2), product.bias).view(y.shape)

    return feed_in


def _taken(x):
    return x.device.type in DEVICES and _dtype(x) in DTYPES


def _dtype(x):
    """The dtype in which a product is computed: autocast's, where it is on."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
