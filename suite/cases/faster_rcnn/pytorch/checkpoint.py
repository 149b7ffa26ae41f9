"""Pre-trained weights of the ResNet, as torchvision publishes them (resnet50-0676ba61.pth and its like)."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch
from torch import nn

from suite.drivers.events import RunProblem

UNUSED = ("fc.weight", "fc.bias")
"""The classifier of ImageNet."""


@torch.no_grad()
def load_backbone(backbone: nn.Module, path: Path) -> None:
    """Fill every weight and statistic of the backbone. No other pickled thing is loaded."""
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, pickle.UnpicklingError, EOFError) as problem:
        raise RunProblem(f"{path} is no file of weights ({problem}): fetch it again (data.toml)") from problem
    own = backbone.state_dict()
    given = {name: tensor for name, tensor in weights.items() if name not in UNUSED and not name.endswith("tracked")}
    for name in sorted(own.keys() ^ given.keys()):
        where = "lacks" if name in own else "has"
        raise RunProblem(
            f"{path} {where} {name!r}, unlike this backbone: use ResNet-50's weights or other backbone_blocks"
        )
    for name, tensor in own.items():
        if tensor.shape != given[name].shape:
            sizes = f"{list(given[name].shape)}, not {list(tensor.shape)}"
            raise RunProblem(f"{path}: {name!r} is {sizes}: use the weights of this backbone_width")
        tensor.copy_(given[name])
