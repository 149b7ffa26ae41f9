"""Cross entropy of rows of scores, as one operator with a gradient."""

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

from extern import loss_kernels as kernels

FORWARD_BLOCK, STAGES = 2048, 4
BACKWARD_BLOCK = 4096
WARPS = 4
"""Of a program, as measured on an H200."""


@triton_op("trainmark::token_loss", mutates_args={})
def token_loss(scores: Tensor, labels: Tensor, absent: int) -> tuple[Tensor, Tensor]:
    """-log p of labels [N] by scores [N, classes], in float32; 0 where a label is `absent`. Then log sum exp [N]."""
    rows, classes = scores.shape
    loss, logs = (scores.new_empty(rows, dtype=torch.float32) for _ in range(2))
    wrap_triton(kernels.forward_kernel)[(rows,)](
        scores, labels, loss, logs, classes, absent, BLOCK=FORWARD_BLOCK, STAGES=STAGES, num_warps=WARPS
    )
    return loss, logs


@triton_op("trainmark::token_loss_backward", mutates_args={})
def token_loss_backward(grad: Tensor, scores: Tensor, labels: Tensor, logs: Tensor, absent: int) -> Tensor:
    """Gradient of scores [N, classes]."""
    rows, classes = scores.shape
    score_grad = torch.empty_like(scores)
    wrap_triton(kernels.backward_kernel)[(rows, -(-classes // BACKWARD_BLOCK))](
        grad, scores, labels, logs, score_grad, classes, absent, BLOCK=BACKWARD_BLOCK, num_warps=WARPS
    )
    return score_grad


def _remember(ctx, inputs, output):
    scores, labels, ctx.absent = inputs
    _, logs = output
    ctx.save_for_backward(scores, labels, logs)
    ctx.mark_non_differentiable(logs)


def _backward(ctx, grad, _):
    return token_loss_backward(grad.contiguous(), *ctx.saved_tensors, ctx.absent), None, None


token_loss.register_autograd(_backward, setup_context=_remember)
