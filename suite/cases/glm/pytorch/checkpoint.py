"""Pre-trained weights: the published blank-filling GLM-Large, under the names of model.py."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from model import GLM
from torch import Tensor

from suite.drivers.events import RunProblem

OUTER = {
    "word_embeddings.weight": "words.weight",
    "transformer.position_embeddings.weight": "positions.weight",
    "transformer.block_position_embeddings.weight": "span_positions.weight",
    "transformer.final_layernorm.": "norm.",
}
"""Published name (or the start of it, where it ends in a dot) -> ours."""
INNER = {
    "input_layernorm.": "attention_norm.",
    "attention.query_key_value.": "query_key_value.",
    "attention.dense.": "attention_out.",
    "post_attention_layernorm.": "feed_norm.",
    "mlp.dense_h_to_4h.": "feed_in.",
    "mlp.dense_4h_to_h.": "feed_out.",
}
"""The same inside a layer."""


def our_name(published: str) -> str:
    """`transformer.layers.3.mlp.dense_h_to_4h.bias` -> `layers.3.feed_in.bias`; an unknown name stays as it is."""
    prefix = "transformer.layers."
    names, head, rest = OUTER, "", published
    if published.startswith(prefix):
        number, _, rest = published.removeprefix(prefix).partition(".")
        names, head = INNER, f"layers.{number}."
    for theirs, ours in names.items():
        if rest == theirs or (theirs.endswith(".") and rest.startswith(theirs)):
            return head + ours + rest.removeprefix(theirs)
    return published


def load_pretrained(model: GLM, path: Path) -> None:
    """Fill the model from a checkpoint; every parameter must be found. Raises RunProblem.

    A position table that is shorter than the model's fills its beginning: sequences may be longer than the pre-trained.
    """
    weights = {our_name(name): value for name, value in read_weights(path).items()}
    own = model.state_dict()
    missing = sorted(own.keys() - weights.keys())
    if missing:
        raise RunProblem(f"{path} lacks {len(missing)} of {len(own)} parameters of GLM, {missing[0]!r} for one")
    for name, parameter in own.items():
        value = weights[name]
        grows = name in ("positions.weight", "span_positions.weight") and value.shape[0] < parameter.shape[0]
        if value.shape[1:] != parameter.shape[1:] or (value.shape[0] != parameter.shape[0] and not grows):
            shapes = f"{tuple(value.shape)} in {path}, {tuple(parameter.shape)} in the model"
            raise RunProblem(f"parameter {name!r} is {shapes}: set the sizes of the checkpoint")
        parameter[: value.shape[0]].copy_(value)


def read_weights(path: Path, *, trust: bool = False) -> Mapping[str, Tensor]:
    """The tensors of a checkpoint, under the names in it.

    The published file also pickles the state of its training run, which is code to whoever loads it: only `trust`, said
    by a person to prepare.py, opens such a file; a benchmark run never does.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=not trust)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        remedy = "reduce it to its weights with prepare.py --what checkpoint" if not trust else "fetch it again"
        raise RunProblem(f"{path} cannot be loaded as plain weights; {remedy}") from error
    return content.get("module", content)
