"""FLOP of training, as counted for what is really computed: two for each multiply-accumulate.

Without adapters everything trains, and the backward pass is twice the forward pass. With adapters a frozen matrix has
no weight gradient, and where nothing before it trains, it has no input gradient either: the backward pass ends at the
first adapter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from model import Shape

ATTENTION = ("q_proj", "k_proj", "v_proj")


class Product(NamedTuple):
    """One projection of a layer."""

    inputs: int
    outputs: int
    adapted: bool
    reached: bool
    """Something before it trains, so its input has a gradient."""


def training_flops(shape: Shape, tokens: float, pairs: float, asked: float) -> float:
    """FLOP of one sequence: `tokens` pass the layers, `pairs` of places are attended, `asked` places are scored."""
    head = 2 * shape.hidden_size * shape.vocab_size * asked
    if not shape.lora_rank:
        products = sum(2 * one.inputs * one.outputs for one in _products(shape, True)) * tokens
        attention = 4 * shape.hidden_size * pairs
        return 3 * (shape.num_layers * (products + attention) + head)
    # The head is frozen: a score costs its forward pass and the gradient of its input.
    layers = _adapted_layer(shape, tokens, pairs, False)
    layers += (shape.num_layers - 1) * _adapted_layer(shape, tokens, pairs, True)
    return layers + 2 * head


def trained_parameters(shape: Shape) -> int:
    """Parameters of the adapters: rank x (inputs + outputs) of each adapted projection, in every layer."""
    adapted = [one for one in _products(shape, True) if one.adapted]
    return shape.num_layers * shape.lora_rank * sum(one.inputs + one.outputs for one in adapted)


def parameters(shape: Shape) -> int:
    """All parameters but those of the adapters."""
    layer = sum(one.inputs * one.outputs for one in _products(shape, True)) + 2 * shape.hidden_size
    words = (1 if shape.tied_words else 2) * shape.vocab_size * shape.hidden_size
    return shape.num_layers * layer + words + shape.hidden_size


def _adapted_layer(shape: Shape, tokens: float, pairs: float, reached: bool) -> float:
    """FLOP of one layer with adapters; `reached`: a layer before it trains too."""
    rank = shape.lora_rank
    flops = 0.0
    for one in _products(shape, reached):
        flops += 2 * one.inputs * one.outputs * (1 + one.reached) * tokens
        if one.adapted:
            # Forward; weight gradients of both; the gradient between them; that of the input where it is wanted.
            small = 2 * (one.inputs + one.outputs) + one.outputs + one.inputs * one.reached
            flops += 2 * rank * small * tokens
    return flops + 2 * shape.hidden_size * (2 + _attention_gradients(shape, reached)) * pairs


def _attention_gradients(shape: Shape, reached: bool) -> int:
    """Products over pairs in the backward pass: of the scores, and of each of query, key and value that has one."""
    wanted = {name for name in ATTENTION if reached or name in shape.lora_targets}
    return len(wanted) + bool(wanted - {"v_proj"})


def _products(shape: Shape, reached: bool) -> Iterator[Product]:
    """The projections of a layer in the order of their use; adapters of one make the next ones reached."""
    for inputs, parts in shape.projections.values():
        adapted = {name: bool(shape.lora_rank) and name in shape.lora_targets for name in parts}
        for name, outputs in parts.items():
            yield Product(inputs, outputs, adapted[name], reached)
        reached = reached or any(adapted.values())
