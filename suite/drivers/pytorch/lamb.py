"""LAMB: Adam whose step is scaled, layer by layer, to the size of the weights it changes (You et al., ICLR 2020)."""

import torch


class Lamb(torch.optim.Optimizer):
    """With m, v Adam's corrected means: u = m / (sqrt(v) + eps) + decay * w; w -= lr * |w| / |u| * u.

    The ratio is 1 where either norm is 0, and in groups without weight decay (biases and norms), as apex has it;
    its clipping of the global norm is the driver's own. Nothing here waits for the device.
    """

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01, fused=False):
        if fused:
            raise NotImplementedError("LAMB has no fused kernel: all tensors of a group are updated together")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        """One update of every group. `closure` is as in torch.optim."""
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                self._step_group(group, weights)
        return loss

    def _step_group(self, group, weights):
        states = [self._state_of(weight) for weight in weights]
        means, squares = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
        gradients = [weight.grad for weight in weights]
        (first, second), count = group["betas"], states[0]["step"] + 1
        for state in states:
            state["step"] = count
        torch._foreach_lerp_(means, gradients, 1 - first)
        torch._foreach_mul_(squares, second)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - second)
        updates = torch._foreach_sqrt(squares)
        torch._foreach_div_(updates, (1 - second**count) ** 0.5)
        torch._foreach_add_(updates, group["eps"])
        torch._foreach_reciprocal_(updates)
        torch._foreach_mul_(updates, means)
        torch._foreach_div_(updates, 1 - first**count)
        if group["weight_decay"]:
            torch._foreach_add_(updates, weights, alpha=group["weight_decay"])
            torch._foreach_mul_(updates, _ratios(weights, updates))
        torch._foreach_add_(weights, updates, alpha=-group["lr"])

    def _state_of(self, weight):
        state = self.state[weight]
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(weight, memory_format=torch.preserve_format)
            state["exp_avg_sq"] = torch.zeros_like(weight, memory_format=torch.preserve_format)
        return state


def _ratios(weights, updates):
    """|w| / |u| of each tensor, 1 where either is 0; tensors, so that no norm is read by the host."""
    norms = torch.stack(torch._foreach_norm(weights)), torch.stack(torch._foreach_norm(updates))
    usable = (norms[0] > 0) & (norms[1] > 0)
    return list(torch.where(usable, norms[0] / norms[1], 1.0).unbind())
