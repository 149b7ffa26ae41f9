"""Pre-trained weights of the joint model, under the names of the published checkpoint."""

from __future__ import annotations

import json
import math
import pickle
import struct
from collections.abc import Mapping
from pathlib import Path

import torch
from model import ViViT
from torch import Tensor

from suite.drivers.events import RunProblem

LAYERS = {
    "attention_norm": "layernorm_before",
    "attention_out": "attention.output.dense",
    "feed_norm": "layernorm_after",
    "feed_in": "intermediate.dense",
    "feed_out": "output.dense",
}
"""Our name of a part of a layer -> the published one."""
QUERY_KEY_VALUE = tuple(f"attention.attention.{part}" for part in ("query", "key", "value"))
RENAMED = (
    (".encoder.layer.", ".layers."),
    (".attention.attention.query.", ".attention.q_proj."),
    (".attention.attention.key.", ".attention.k_proj."),
    (".attention.attention.value.", ".attention.v_proj."),
    (".attention.output.dense.", ".attention.o_proj."),
    (".intermediate.dense.", ".mlp.fc1."),
    (".output.dense.", ".mlp.fc2."),
)
"""The published names, and what newer versions of the same library write instead."""
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def load_pretrained(model: ViViT, path: Path) -> None:
    """Fill all but the classifier, whose classes are others. Raises RunProblem."""
    if model.shape.attention != "joint":
        raise RunProblem(
            f"{path} (init_checkpoint) is of the joint model: set attention = joint, or init_checkpoint = ''"
        )
    fill(model, read_weights(path), str(path))


def fill(model: ViViT, weights: Mapping[str, Tensor], where: str) -> None:
    """Fill the model from weights under published names; every parameter but the classifier's must be found."""
    weights = {_published(name): value for name, value in weights.items()}
    for name, parameter in model.named_parameters():
        if name.startswith("classifier."):
            continue
        value = _value(name, weights, where, model)
        if value.shape != parameter.shape:
            shapes = f"{tuple(value.shape)} in {where}, {tuple(parameter.shape)} in the model"
            raise RunProblem(f"parameter {name!r} is {shapes}: set the sizes of the checkpoint")
        with torch.no_grad():
            parameter.copy_(value)


def _value(name: str, weights: Mapping[str, Tensor], where: str, model: ViViT) -> Tensor:
    """What the checkpoint says of one of our parameters."""

    def get(published: str) -> Tensor:
        if published not in weights:
            raise RunProblem(f"{where} lacks {published!r}: it is no checkpoint of ViViT for video classification")
        return weights[published]

    module, _, leaf = name.rpartition(".")
    if module == "tubelets":
        value = get(f"vivit.embeddings.patch_embeddings.projection.{leaf}")
        # A convolution's [out, channels, frames, y, x], in the order in which model.py cuts.
        return value.permute(0, 2, 3, 4, 1).flatten(1) if value.dim() == 5 else value
    if name == "encoder.class_token":
        return get("vivit.embeddings.cls_token").flatten()
    if name == "encoder.positions":
        return get("vivit.embeddings.position_embeddings").flatten(0, 1)
    if module == "norm":
        return get(f"vivit.layernorm.{leaf}")
    _, _, number, part = module.split(".")
    layer = f"vivit.encoder.layer.{number}"
    if part == "query_key_value":
        return torch.cat([get(f"{layer}.{one}.{leaf}") for one in QUERY_KEY_VALUE])
    return get(f"{layer}.{LAYERS[part]}.{leaf}")


def _published(name: str) -> str:
    for published, newer in RENAMED:
        name = name.replace(newer, published)
    return name


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint file, by its ending: .safetensors, or torch's own format. Raises RunProblem."""
    try:
        if path.suffix == ".safetensors":
            return _read_safetensors(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, struct.error, OSError) as problem:
        raise RunProblem(f"{path} cannot be loaded as plain weights: fetch it again") from problem


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    """The format is a length, a table in JSON, and the numbers."""
    content = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", content[:8])
    table = json.loads(content[8 : 8 + length])
    table.pop("__metadata__", None)
    tensors = {}
    for name, entry in table.items():
        first, last = entry["data_offsets"]
        count = math.prod(entry["shape"])
        flat = torch.frombuffer(content, dtype=DTYPES[entry["dtype"]], count=count, offset=8 + length + first)
        if flat.nbytes != last - first:
            raise ValueError(f"{name} has {last - first} bytes for {count} numbers")
        tensors[name] = flat.view(entry["shape"])
    return tensors
