"""Published weights of a Llama: where each stands under its published name, and the files that hold them."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from lora import is_adapter
from model import Llama
from torch import Tensor

from suite.drivers.events import RunProblem

OUTER = {"words": "model.embed_tokens.weight", "head": "lm_head.weight", "norm.weight": "model.norm.weight"}
INNER = {
    "attention_in": "self_attn",
    "attention_out": "self_attn",
    "feed_in": "mlp",
    "feed_out": "mlp",
    "attention_norm": "input_layernorm",
    "feed_norm": "post_attention_layernorm",
}


def places(model: Llama) -> dict[str, Tensor]:
    """Published name -> the part of our parameters that holds it. Adapters are published with no base."""
    found = {}
    for name, parameter in model.named_parameters():
        if name in OUTER:
            found[OUTER[name]] = parameter.data
        elif not is_adapter(name):
            _, number, module, _ = name.split(".")
            layer, inner = f"model.layers.{number}", INNER[module]
            parts = getattr(model.layers[int(number)], module)
            if hasattr(parts, "parts"):
                pieces = parameter.data.split(list(parts.parts.values()))
                found |= {f"{layer}.{inner}.{part}.weight": piece for part, piece in zip(parts.parts, pieces)}
            else:
                found[f"{layer}.{inner}.weight"] = parameter.data
    return found


@torch.no_grad()
def fill(model: Llama, weights: Iterable[tuple[str, Tensor]], where: str) -> None:
    """Fill everything but the adapters from weights under published names; every one must be there."""
    wanted = places(model)
    for name, value in weights:
        target = wanted.pop(name, None)
        if target is None:
            continue
        if target.shape != value.shape:
            shapes = f"{tuple(value.shape)} in {where}, {tuple(target.shape)} in the model"
            raise RunProblem(f"parameter {name!r} is {shapes}: set the sizes of the checkpoint")
        target.copy_(value)
    if wanted:
        raise RunProblem(f"{where} lacks {min(wanted)!r}: it is no checkpoint of this Llama")


def read_weights(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Name and tensor, one after the other, of a file or of all files of weights in a folder. Raises RunProblem."""
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors")) or sorted(path.glob("pytorch_model*.bin"))
    if not files:
        raise RunProblem(f"{path} holds no *.safetensors and no pytorch_model*.bin: name the folder of the checkpoint")
    for file in files:
        yield from _read_safe(file) if file.suffix == ".safetensors" else _read_plain(file)


def _read_safe(path: Path) -> Iterator[tuple[str, Tensor]]:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise RunProblem(f"{path} needs the package safetensors: pip install safetensors") from error
    try:
        with safe_open(path, framework="pt") as content:
            names = list(content.keys())
            for name in names:
                yield name, content.get_tensor(name)
    except SafetensorError as error:
        raise RunProblem(f"{path} cannot be read ({error}): fetch it again") from error


def _read_plain(path: Path) -> Iterator[tuple[str, Tensor]]:
    try:
        yield from torch.load(path, map_location="cpu", weights_only=True, mmap=True).items()
    except (pickle.UnpicklingError, RuntimeError, EOFError, AttributeError) as error:
        raise RunProblem(f"{path} cannot be loaded as plain weights: save the model's state_dict alone") from error
