"""How far the operators of NVIDIA's extern/ for BERT are from the same in float64 (`operator_errors.report`)."""

from __future__ import annotations

import copy
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests import bert_attention
from tests.operator_errors import BOUNDS, DEVICE, Measure, draw, error, exact, gradient, not_asked, report

EPS = 1e-12


def residual_norm(count: int, width: int, dropout: float, programs: int = 0) -> Measure:
    """`count` rows of `width`; with dropout, the truth drops what the operator says that it did not keep."""

    def measure(dtype: torch.dtype) -> dict[str, float]:
        from extern import norm

        x, residual = (draw(count, width, dtype=dtype).requires_grad_() for _ in range(2))
        x_bias, weight, bias = (draw(width).requires_grad_() for _ in range(3))
        leaves = {"x": x, "x_bias": x_bias, "residual": residual, "weight": weight, "bias": bias}
        seed = torch.tensor([2**40 + 7], device=DEVICE)
        forward, backward = programs or norm.FORWARD_PROGRAMS, programs or norm.BACKWARD_PROGRAMS
        with mock.patch.multiple(norm, FORWARD_PROGRAMS=forward, BACKWARD_PROGRAMS=backward):
            y, total, mean, slope, kept = norm.residual_norm(x, x_bias, residual, weight, bias, seed, EPS, dropout)
            flow = draw(count, width, dtype=dtype)
            y.backward(flow)
        truth = {name: exact(leaf) for name, leaf in leaves.items()}
        added = truth["x"] + truth["x_bias"]
        if dropout:
            bits = kept[:, None, :] >> torch.arange(8, dtype=torch.uint8, device=DEVICE)[:, None] & 1
            keeps = bits.flatten(0, 1)[:count]
            added = added * keeps / (1 - dropout)
        total64 = truth["residual"] + added
        y64 = F.layer_norm(total64, (width,), truth["weight"], truth["bias"], EPS)
        y64.backward(flow.double())
        found = {
            "y": error(y, y64), "total": error(total, total64), "mean": error(mean, total64.mean(1)),
            "slope": error(slope, 1 / total64.var(1, correction=0).sqrt()),
        }  # fmt: skip
        return found | {f"{name}.grad": error(gradient(leaf), gradient(truth[name])) for name, leaf in leaves.items()}

    return measure


def rate(dropout: float) -> Measure:
    """Shares of what is dropped: over all, and in each of the eight rows of a group, in standard errors of six."""

    def measure(dtype: torch.dtype) -> dict[str, float]:
        from extern.norm import residual_norm as operator

        count, width = 1024, 128
        x = draw(count, width, dtype=dtype)
        zeros, ones = (torch.full((width,), value, device=DEVICE) for value in (0.0, 1.0))
        seed = torch.tensor([3], device=DEVICE)
        *_, kept = operator(x, zeros, x, ones, zeros, seed, EPS, dropout)
        bits = (kept[:, None, :] >> torch.arange(8, dtype=torch.uint8, device=DEVICE)[:, None] & 1).double()
        *_, other = operator(x, zeros, x, ones, zeros, seed + 1, EPS, dropout)
        assert not torch.equal(kept, other)  # another seed decides otherwise
        together = (bits[:, 0] * bits[:, 1]).mean() - (1 - dropout) ** 2
        spread = (dropout * (1 - dropout)) ** 0.5
        found = {"all": bits.mean() - (1 - dropout), "two rows": together}
        found |= {f"row {row}": bits[:, row].mean() - (1 - dropout) for row in range(8)}
        sizes = {name: bits.numel() if name == "all" else bits[:, 0].numel() for name in found}
        off = {name: abs(float(value)) / spread * sizes[name] ** 0.5 / 6 for name, value in found.items()}
        # As a share of the bound that this dtype is held to, so that one means six standard errors.
        return {name: value * BOUNDS[dtype] for name, value in off.items()}

    return measure


def bias_gelu(count: int, width: int, programs: int = 0) -> Measure:
    """Values out to six standard deviations, where almost nothing or almost all passes."""

    def measure(dtype: torch.dtype) -> dict[str, float]:
        from extern import gelu

        x, bias = (2 * draw(count, width)).to(dtype).requires_grad_(), draw(width).requires_grad_()
        forward, backward = programs or gelu.FORWARD_PROGRAMS, programs or gelu.BACKWARD_PROGRAMS
        with mock.patch.multiple(gelu, FORWARD_PROGRAMS=forward, BACKWARD_PROGRAMS=backward):
            y = gelu.bias_gelu(x, bias)
            flow = draw(count, width, dtype=dtype)
            y.backward(flow)
        x64, bias64 = exact(x), exact(bias)
        y64 = F.gelu(x64 + bias64)
        y64.backward(flow.double())
        return {
            "y": error(y, y64),
            "x.grad": error(gradient(x), gradient(x64)),
            "bias.grad": error(gradient(bias), gradient(bias64)),
        }

    return measure


def part(name: str) -> Measure:
    """What the case calls, with its product, under autocast; without dropout."""

    def measure(dtype: torch.dtype) -> dict[str, float]:
        import parts as standard
        from extern import parts

        product = nn.Linear(48, 96).to(DEVICE)
        product.weight.data, product.bias.data = product.weight.data.to(dtype).float(), draw(96)
        norm = standard.Norm(96, eps=EPS).to(DEVICE)
        x, residual = draw(3, 5, 48, dtype=dtype).requires_grad_(), draw(3, 5, 96, dtype=dtype).requires_grad_()
        given: tuple[Any, ...] = (x, product, residual, norm, 0.0) if name == "residual_norm" else (x, product)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=dtype == torch.bfloat16):
            y = _first(getattr(parts, f"{name}_with_kernels")(not_asked)(*given))
        same = tuple(exact(each) if isinstance(each, Tensor) else copy.deepcopy(each) for each in given)
        same = tuple(each.double() if isinstance(each, nn.Module) else each for each in same)
        y64 = _first(getattr(standard, f"standard_{name}")(*same))
        flow = draw(*y.shape, dtype=dtype)
        y.backward(flow)
        y64.backward(flow.double())
        found = {"y": error(y, y64), "x.grad": error(gradient(x), gradient(same[0]))}
        if name == "residual_norm":
            found["residual.grad"] = error(gradient(residual), gradient(same[2]))
        for which, other in zip(given, same, strict=True):
            if isinstance(which, nn.Module):
                for key, parameter in which.named_parameters():
                    found[f"{type(which).__name__}.{key}.grad"] = error(
                        gradient(parameter), gradient(other.get_parameter(key))
                    )
        return found

    return measure


def summed_embedding(rows: int, tokens: int, width: int, dropout: float, programs: int = 0) -> Measure:
    """With dropout, the truth drops what the operator says that it did not keep."""

    def measure(dtype: torch.dtype) -> dict[str, float]:
        from extern import embedding

        ids, segments = torch.randint(20, (rows, tokens)).to(DEVICE), torch.randint(2, (rows, tokens)).to(DEVICE)
        names, shapes = ("words", "places", "kinds", "weight", "bias"), ((20, width), (tokens, width), (2, width))
        leaves = {name: draw(*shape).requires_grad_() for name, shape in zip(names, (*shapes, (width,), (width,)))}
        seed, flow = torch.tensor([2**40 + 7], device=DEVICE), draw(rows, tokens, width, dtype=dtype)
        counts = {
            f"{name}_PROGRAMS": programs or getattr(embedding, f"{name}_PROGRAMS") for name in ("FORWARD", "BACKWARD")
        }
        with mock.patch.multiple(embedding, **counts):
            y, _, _, kept = embedding.summed_embedding(ids, segments, *leaves.values(), seed, EPS, dropout, dtype)
            y.backward(flow)
        truth = {name: exact(leaf) for name, leaf in leaves.items()}
        x64 = truth["words"][ids] + truth["places"] + truth["kinds"][segments]
        y64 = F.layer_norm(x64, (width,), truth["weight"], truth["bias"], EPS)
        if dropout:
            bits = kept[:, None] >> torch.arange(8, dtype=torch.uint8, device=DEVICE)[:, None, None] & 1
            keeps = bits.flatten(0, 1)[:rows].double()
            assert abs(float(keeps.mean()) - (1 - dropout)) < 6 * (dropout * (1 - dropout) / keeps.numel()) ** 0.5
            y64 = y64 * keeps / (1 - dropout)
        y64.backward(flow.double())
        found = {f"{name}.grad": error(gradient(leaf), gradient(truth[name])) for name, leaf in leaves.items()}
        return found | {"y": error(y, y64)}

    return measure


def part_embedding() -> Measure:
    """What the case calls, under autocast; without dropout."""

    def measure(dtype: torch.dtype) -> dict[str, float]:
        import parts as standard
        from extern import parts

        tables = standard.Tables(*(nn.Embedding(count, 48) for count in (20, 9, 2)), standard.Norm(48, eps=EPS))
        for module in tables:
            module.to(DEVICE)
        same = standard.Tables(*(copy.deepcopy(module).double() for module in tables))
        ids, segments = torch.randint(20, (3, 5)).to(DEVICE), torch.randint(2, (3, 5)).to(DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=dtype == torch.bfloat16):
            y = parts.embedding_with_kernels(not_asked)(ids, segments, None, tables, 0.0)
        assert y.dtype == dtype
        y64 = standard.standard_embedding(ids, segments, None, same, 0.0)
        flow = draw(*y.shape, dtype=dtype)
        y.backward(flow)
        y64.backward(flow.double())
        found = {"y": error(y, y64)}
        for name, module, truth in zip(tables._fields, tables, same):
            found[f"{name}.grad"] = error(gradient(module.weight), gradient(truth.weight))
        return found

    return measure


def token_loss(count: int, classes: int) -> Measure:
    """Every third label is absent; scores far apart, as of a model that is sure."""

    def measure(dtype: torch.dtype) -> dict[str, float]:
        from extern.loss import token_loss as operator

        scores = (9 * draw(count, classes)).to(dtype).requires_grad_()
        labels = torch.randint(classes, (count,)).to(DEVICE)
        labels[::3] = -1
        loss, _ = operator(scores, labels, -1)
        flow = draw(count)
        loss.backward(flow)
        scores64 = exact(scores)
        loss64 = F.cross_entropy(scores64, labels, ignore_index=-1, reduction="none")
        loss64.backward(flow.double())
        assert not loss[::3].any()
        unknown, _ = operator(scores.detach(), torch.full_like(labels, classes), -1)
        assert unknown.isnan().all()  # no score of a neighbour
        return {"loss": error(loss, loss64), "scores.grad": error(gradient(scores), gradient(scores64))}

    return measure


def _first(result: Any) -> Tensor:
    """What a part makes; beside it, its input may go on."""
    return result[0] if isinstance(result, tuple) else result


CASES = bert_attention.CASES | {
    "residual_norm": residual_norm(37, 96, 0.0),
    "residual_norm with dropout": residual_norm(37, 96, 0.25),
    "residual_norm by few programs": residual_norm(69, 64, 0.25, programs=2),
    "residual_norm of one row": residual_norm(1, 40, 0.5),
    "rate": rate(0.125),
    "bias_gelu": bias_gelu(21, 1100),
    "bias_gelu by few programs": bias_gelu(33, 64, programs=2),
    "summed_embedding": summed_embedding(11, 5, 48, 0.0),
    "summed_embedding with dropout": summed_embedding(19, 6, 64, 0.25),
    "summed_embedding by few programs": summed_embedding(35, 3, 40, 0.5, programs=2),
    "part embedding": part_embedding(),
    "token_loss": token_loss(7, 5000),
    "token_loss of two classes": token_loss(6, 2),
    "part residual_norm": part("residual_norm"),
    "part feed_in": part("feed_in"),
}


def allow_device() -> None:
    """The kernels run here, whatever this is."""
    from extern import parts

    parts.DEVICES = (DEVICE,)


if __name__ == "__main__":
    report("bert", CASES, allow_device)
