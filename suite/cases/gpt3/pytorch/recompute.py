"""Activation checkpointing: a block's activations are computed again for the gradient instead of being kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

KINDS = ("none", "selective", "full")

_KEPT = ("mm", "addmm", "bmm", "baddbmm", "linear")
"""Products: dear to compute again. Norms, activations and sums are cheap, and half of what a block keeps."""
_ATTENTION = "scaled_dot_product"


def recomputed(run: Callable[..., Tensor], kind: str, *inputs: Tensor | None) -> Tensor:
    """run(*inputs); `selective` keeps the results of products and attention, `full` the inputs alone."""
    contexts = {"context_fn": partial(create_selective_checkpoint_contexts, _policy)} if kind == "selective" else {}
    return checkpoint(run, *inputs, use_reentrant=False, preserve_rng_state=True, **contexts)


def _policy(context: object, operator: object, *args: object, **kwargs: object) -> CheckpointPolicy:
    name = getattr(operator, "_opname", "")
    kept = name in _KEPT or _ATTENTION in name
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
