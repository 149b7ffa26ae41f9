"""The operators through torchvision's kernels: the same numbers. They find how much there is, so the host waits."""

from __future__ import annotations

from collections.abc import Mapping

import operators
import torch
from torch import Tensor

from suite.drivers.events import RunProblem

try:
    from torchvision import ops
except (ImportError, RuntimeError):  # RuntimeError: built for another PyTorch
    ops = None

CHOICES = ("auto", "torch", "torchvision")


def choose(name: str, slots: Mapping[str, object]) -> dict[str, object]:
    """The slots after the parameter `operators` had its say: `auto` takes torchvision's where it can be imported.

    What a vendor put into a slot stays.
    """
    if name not in CHOICES:
        raise RunProblem(f"operators = {name!r} is not one of {', '.join(CHOICES)}: change params.operators")
    if name == "torchvision" and ops is None:
        raise RunProblem("operators = 'torchvision', which cannot be imported here: install it or set 'torch'")
    own = {} if name == "torch" or ops is None else {operators.suppress: suppress, operators.pool: pool}
    return {slot: own.get(filled, filled) for slot, filled in slots.items()}


def suppress(boxes: Tensor, real: Tensor, threshold: float, rounds: int = 0, labels: Tensor | None = None) -> Tensor:
    """As operators.suppress with `rounds` 0, one call an image."""
    kept = torch.zeros_like(real)
    count = boxes.shape[-2]
    for image in range(len(boxes)):
        level, place = real[image].nonzero(as_tuple=True)
        group = level if labels is None else level * (1 + labels.max()) + labels[image, level, place]
        best_first = torch.arange(count, 0, -1, device=boxes.device, dtype=torch.float32)
        survivors = ops.batched_nms(boxes[image, level, place], best_first[place], group, threshold)
        kept[image, level[survivors], place[survivors]] = True
    return kept


def pool(pyramid: list[Tensor], boxes: Tensor, size: int, canonical: float) -> Tensor:
    """As operators.pool, one call a level."""
    level = operators.levels(boxes, canonical, len(pyramid)).flatten()
    image = torch.arange(len(boxes), device=boxes.device).repeat_interleave(boxes.shape[1])
    regions = torch.cat([image[:, None].to(boxes.dtype), boxes.flatten(0, 1)], 1)
    pooled = None
    for number, features in enumerate(pyramid):
        mine = (level == number).nonzero()[:, 0]
        scale = 1 / (operators.FINEST_STRIDE * 2**number)
        bins = ops.roi_align(features.float(), regions[mine], size, scale, operators.SAMPLES).to(features.dtype)
        pooled = bins.new_zeros(len(regions), *bins.shape[1:]) if pooled is None else pooled
        pooled = pooled.index_copy(0, mine, bins)
    return pooled.permute(0, 2, 3, 1).flatten(1)
