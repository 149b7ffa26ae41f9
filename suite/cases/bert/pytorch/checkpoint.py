"""Pre-trained weights under the names of the published checkpoints, converted to those of model.py."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from model import Bert
from torch import Tensor

from suite.drivers.events import RunProblem

OUTER = {
    "words.weight": "bert.embeddings.word_embeddings.weight",
    "positions.weight": "bert.embeddings.position_embeddings.weight",
    "segments.weight": "bert.embeddings.token_type_embeddings.weight",
    "embedding_norm": "bert.embeddings.LayerNorm",
    "pooler": "bert.pooler.dense",
    "next_sentence": "cls.seq_relationship",
    "masked_dense": "cls.predictions.transform.dense",
    "masked_norm": "cls.predictions.transform.LayerNorm",
    "masked_bias": "cls.predictions.bias",
}
"""Our name, or the module's, -> the published one."""
INNER = {
    "attention_out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_in": "intermediate.dense",
    "feed_out": "output.dense",
    "feed_norm": "output.LayerNorm",
}
"""The same inside a layer."""
GROWS = ("words.weight", "masked_bias")
"""May have fewer rows than the model's, which rounds the vocabulary up."""


def published_names(name: str) -> tuple[str, ...]:
    """Where a parameter's values stand in a published checkpoint; several are stacked."""
    if name in OUTER:
        return (OUTER[name],)
    module, _, leaf = name.rpartition(".")
    if not module.startswith("layers."):
        return (f"{OUTER[module]}.{leaf}",)
    _, number, part = module.split(".")
    layer = f"bert.encoder.layer.{number}"
    if part == "query_key_value":
        return tuple(f"{layer}.attention.self.{one}.{leaf}" for one in ("query", "key", "value"))
    return (f"{layer}.{INNER[part]}.{leaf}",)


def load_pretrained(model: Bert, path: Path) -> None:
    """Fill the model from a checkpoint file; every parameter must be found. Raises RunProblem."""
    fill(model, read_weights(path), str(path))


def fill(model: Bert, weights: Mapping[str, Tensor], where: str) -> None:
    """Fill the model from weights under published names."""
    for name, parameter in model.state_dict().items():
        parts = published_names(name)
        missing = [part for part in parts if part not in weights]
        if missing:
            raise RunProblem(f"{where} lacks {missing[0]!r}: it is no checkpoint of BERT with both heads")
        value = torch.cat([weights[part] for part in parts])
        short = name in GROWS and parameter.shape[0] - 8 < value.shape[0] <= parameter.shape[0]
        if value.shape[1:] != parameter.shape[1:] or (value.shape[0] != parameter.shape[0] and not short):
            shapes = f"{tuple(value.shape)} in {where}, {tuple(parameter.shape)} in the model"
            raise RunProblem(f"parameter {name!r} is {shapes}: set the sizes of the checkpoint")
        parameter[: value.shape[0]].copy_(value)


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint; `dense_act` is what NGC's example calls a dense layer with its activation."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise RunProblem(f"{path} cannot be loaded as plain weights: save the model's state_dict alone") from error
    weights = content.get("model", content)
    return {name.removeprefix("module.").replace("dense_act", "dense"): value for name, value in weights.items()}
