"""Pre-trained weights: files of the published checkpoints, and the small base of the preset `mini`."""

from __future__ import annotations

import json
import mmap
import pickle
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from model import Whisper
from torch import Tensor

from suite.drivers.events import RunProblem

OUTER = {
    "conv1": "model.encoder.conv1",
    "conv2": "model.encoder.conv2",
    "heard_places": "model.encoder.embed_positions.weight",
    "encoder_norm": "model.encoder.layer_norm",
    "tokens": "model.decoder.embed_tokens",
    "written_places": "model.decoder.embed_positions.weight",
    "decoder_norm": "model.decoder.layer_norm",
}
"""Our name, or the module's, -> the published one."""
INNER = {
    "attention_norm": ("self_attn_layer_norm",),
    "attention.query_key_value": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.out": ("self_attn.out_proj",),
    "cross_norm": ("encoder_attn_layer_norm",),
    "cross.query": ("encoder_attn.q_proj",),
    "cross.key_value": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross.out": ("encoder_attn.out_proj",),
    "feed_norm": ("final_layer_norm",),
    "feed_in": ("fc1",),
    "feed_out": ("fc2",),
}
"""The same inside a layer; several are stacked."""
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def published_names(name: str) -> tuple[str, ...]:
    """Where a parameter's values stand in a published checkpoint; several are stacked."""
    if name in OUTER:
        return (OUTER[name],)
    module, _, leaf = name.rpartition(".")
    if module in OUTER:
        return (f"{OUTER[module]}.{leaf}",)
    side, number, part = module.split(".", 2)
    return tuple(f"model.{side}.layers.{number}.{one}.{leaf}" for one in INNER[part])


def load_pretrained(model: Whisper, path: Path) -> None:
    """Fill all but the adapters from a file; every parameter must be found. Raises RunProblem."""
    if path.suffix == ".npz":
        fill(model, _read_arrays(path), str(path), ours=True)
    else:
        fill(model, _read_tensors(path) if path.suffix == ".safetensors" else _read_pickle(path), str(path))


@torch.no_grad()
def fill(model: Whisper, weights: Mapping[str, Tensor], where: str, *, ours: bool = False) -> None:
    """Fill all but the adapters from weights under published names, or under `ours`."""
    for name, parameter in model.named_parameters():
        if "_adapter." in name:
            continue
        parts = (name,) if ours else published_names(name)
        found = [_value(weights, part, parameter, len(parts)) for part in parts]
        if any(value is None for value in found):
            missing = parts[next(i for i, value in enumerate(found) if value is None)]
            raise RunProblem(f"{where} lacks {missing!r}: it is no checkpoint of Whisper")
        value = torch.cat(found)
        short = name == "tokens.weight" and value.shape[0] == model.shape.vocab_size
        if value.shape[1:] != parameter.shape[1:] or (value.shape[0] != parameter.shape[0] and not short):
            shapes = f"{tuple(value.shape)} in {where}, {tuple(parameter.shape)} in the model"
            raise RunProblem(f"parameter {name!r} is {shapes}: set the sizes of the checkpoint")
        parameter[: value.shape[0]].copy_(value)


def _value(weights: Mapping[str, Tensor], part: str, parameter: Tensor, parts: int) -> Tensor | None:
    """A part of a parameter. Keys have no biases in the published model."""
    if part not in weights and part.endswith("k_proj.bias"):
        return torch.zeros(parameter.shape[0] // parts)
    return weights.get(part)


def _read_arrays(path: Path) -> dict[str, Tensor]:
    with np.load(path) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def _read_pickle(path: Path) -> Mapping[str, Tensor]:
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise RunProblem(f"{path} cannot be loaded as plain weights: save the model's state_dict alone") from error


def _read_tensors(path: Path) -> dict[str, Tensor]:
    """A safetensors file, mapped: eight bytes of length, a JSON header, then the numbers."""
    with path.open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    try:
        start = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:start])
        header.pop("__metadata__", None)
        return {name: _tensor(content, start, entry) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError) as error:
        raise RunProblem(f"{path} is no safetensors file of floating-point weights: fetch it again") from error


def _tensor(content: mmap.mmap, start: int, entry: Mapping[str, object]) -> Tensor:
    first, last = entry["data_offsets"]
    dtype = DTYPES[entry["dtype"]]
    count = (last - first) // dtype.itemsize
    return torch.frombuffer(content, dtype=dtype, count=count, offset=start + first).view(entry["shape"])
