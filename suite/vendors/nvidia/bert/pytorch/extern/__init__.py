"""NVIDIA's parts of BERT: what lies between its products, by kernels of their own (docs/speed.md)."""

from importlib.util import find_spec

import torch


def fill(slots):
    """Replace what lies between the products; what the kernels do not take stays standard.

    Where neither the kernels' language nor a CUDA device is, nothing is replaced. Raises RuntimeError for a device
    whose environment cannot run the kernels.
    """
    if lacking := _lacking():
        if torch.cuda.is_available():
            raise RuntimeError(
                f"nvidia/bert/pytorch/extern: its kernels need {lacking}: "
                "take an image with PyTorch 2.6 or later for CUDA and the triton that comes with it"
            )
        return
    from extern import parts

    slots["embedding"] = parts.embedding_with_kernels(slots["embedding"])
    slots["self_attention"] = parts.self_attention_with_kernels(slots["self_attention"])
    slots["residual_norm"] = parts.residual_norm_with_kernels(slots["residual_norm"])
    slots["feed_in"] = parts.feed_in_with_kernels(slots["feed_in"])
    slots["loss"] = parts.loss_with_kernels(slots["loss"])


def _lacking():
    """What the kernels need and this environment has not; empty: nothing."""
    if find_spec("triton") is None:
        return "triton, which is not installed here"
    if not hasattr(torch.library, "triton_op"):
        return f"torch.library.triton_op, which PyTorch {torch.__version__} has not"
    return ""
