"""Frozen products with 8-bit weights (Dettmers et al., LLM.int8(), 2022), by the library bitsandbytes."""

from __future__ import annotations

import torch
from torch import nn

from suite.drivers.pytorch.device import EnvironmentProblem

THRESHOLD = 6.0
"""Columns with an activation beyond it are multiplied in 16 bits: the library's and the guide's default."""


def quantise(model: nn.Module) -> None:
    """Replace the products of all layers by 8-bit ones; they are rounded when the model moves to its device.

    Raises EnvironmentProblem without the library: 8 bits are never replaced by others in silence.
    """
    try:
        import bitsandbytes
    except ImportError:
        raise EnvironmentProblem(
            'base_weights = "int8" needs the package bitsandbytes, which is not installed:'
            ' pip install bitsandbytes, or set base_weights = "compute"'
        ) from None
    for parent in list(model.modules()):
        for name, module in list(parent.named_children()):
            if isinstance(module, nn.Linear):
                setattr(parent, name, _rounded(bitsandbytes.nn, module))


def _rounded(library, linear: nn.Linear) -> nn.Module:
    made = library.Linear8bitLt(
        linear.in_features, linear.out_features, bias=True, has_fp16_weights=False, threshold=THRESHOLD, device="meta"
    )
    made.weight = library.Int8Params(linear.weight.data.to(torch.float16), requires_grad=False, has_fp16_weights=False)
    made.bias = nn.Parameter(linear.bias.data, requires_grad=False)
    return made
