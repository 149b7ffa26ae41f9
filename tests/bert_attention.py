"""How far the attention of NVIDIA's extern/ for BERT is from the same in float64, and what it drops."""

from __future__ import annotations

import copy
from unittest import mock

import torch
from torch import Tensor, nn

from tests.operator_errors import BOUNDS, DEVICE, Measure, draw, error, exact, gradient, not_asked


def attention(
    rows: int,
    tokens: int,
    heads: int,
    size: int,
    dropout: float = 0.0,
    hidden: int = 0,
    programs: int = 0,
    asked: int = 0,
) -> Measure:
    """The last `hidden` keys of a row are hidden from all its queries; `programs` share out the rows of a head.

    `asked` queries a row, apart; or 0: those of all tokens, beside their keys and values.
    """

    def measure(dtype: torch.dtype) -> dict[str, float]:
        from extern import attention

        width = heads * size
        packed = draw(rows * tokens, (2 if asked else 3) * width, dtype=dtype).requires_grad_()
        query = draw(rows * asked, width, dtype=dtype).requires_grad_()
        added, seed = draw(3 * width).requires_grad_(), torch.tensor([2**40 + 7], device=DEVICE)
        bias = torch.zeros(rows if hidden else 0, tokens, device=DEVICE, dtype=dtype)
        bias[:, tokens - hidden :] = float("-inf")
        with mock.patch.object(attention, "PROGRAMS", programs * heads or attention.PROGRAMS):
            y, _ = attention.row_attention(query, packed, added, bias, seed, tokens, heads, dropout)
            flow = draw(*y.shape, dtype=dtype)
            y.backward(flow)
        keeps = kept_keys(seed, rows, tokens, heads, size, dropout, asked) / (1 - dropout) if dropout else 1.0
        packed64, query64 = exact(packed), exact(query)
        added64 = torch.zeros(3 * width, device=DEVICE, dtype=torch.float64).requires_grad_()
        apart = (query64, *packed64.chunk(2, 1)) if asked else packed64.chunk(3, 1)
        in_heads = (
            (part + of_part).view(rows, -1, heads, size).transpose(1, 2)
            for part, of_part in zip(apart, added64.chunk(3), strict=True)
        )
        asks, key, value = in_heads
        score = asks @ key.transpose(2, 3) * size**-0.5
        score = score + bias[:, None, None].double() if hidden else score
        y64 = (score.softmax(-1) * keeps @ value).transpose(1, 2).flatten(0, 1).flatten(1)
        y64.backward(flow.double())
        found = {"y": error(y, y64)} | ({"query.grad": error(gradient(query), gradient(query64))} if asked else {})
        names = ("key", "value") if asked else ("query", "key", "value")
        halves = (gradient(leaf).chunk(len(names), 1) for leaf in (packed, packed64))
        for name, of_values, of_truth in zip(names, *halves, strict=True):
            found[f"{name}.grad"] = error(of_values, of_truth)
        biases, truths = gradient(added).chunk(3), gradient(added64).chunk(3)
        assert not biases[1].any()
        assert truths[1].norm() < 1e-9 * truths[0].norm()  # so 0 is the truth for keys
        return found | {f"{name}.bias.grad": error(biases[at], truths[at]) for at, name in ((0, "query"), (2, "value"))}

    return measure


def kept_keys(seed: Tensor, rows: int, tokens: int, heads: int, size: int, dropout: float, asked: int = 0) -> Tensor:
    """[rows, heads, queries, keys] 1 where dropout keeps a key, read from values that are 1 in a place of their own."""
    from extern.attention import row_attention

    queries, width = asked or tokens, heads * size
    kept = torch.zeros(rows, heads, queries, tokens, device=DEVICE, dtype=torch.float64)
    query, none = (torch.zeros(rows * count, width, device=DEVICE) for count in (asked, 0))
    for first in range(0, tokens, size):
        packed = torch.zeros(rows, tokens, 2 if asked else 3, heads, size, device=DEVICE)
        count = min(size, tokens - first)
        for place in range(count):
            packed[:, first + place, -1, :, place] = 1.0
        given = packed.flatten(0, 1).flatten(1)
        added = torch.zeros(3 * width, device=DEVICE)
        y, _ = row_attention(query, given, added, none, seed, tokens, heads, dropout)
        kept[..., first : first + count] = (y.view(rows, queries, heads, size)[..., :count] > 0).transpose(1, 2)
    return kept


def attention_rate(dropout: float) -> Measure:
    """Shares of what is dropped: over all, of each stripe of keys, of pairs side by side; in standard errors of six."""

    def measure(dtype: torch.dtype) -> dict[str, float]:
        rows, tokens, heads, size = 4, 128, 2, 64
        seed = torch.tensor([3], device=DEVICE)
        kept = kept_keys(seed, rows, tokens, heads, size, dropout)
        other = kept_keys(seed + 1, rows, tokens, heads, size, dropout)
        assert not torch.equal(kept, other)
        both = (1 - dropout) ** 2
        found = {
            "all": (kept - (1 - dropout)), "two seeds": kept * other - both,
            "keys side by side": kept[..., 1:] * kept[..., :-1] - both,
            "keys of one call": kept[..., 16:] * kept[..., :-16] - both,
            "queries": kept[:, :, 1:] * kept[:, :, :-1] - both, "heads": kept[:, 0] * kept[:, 1] - both,
            "rows": kept[1:] * kept[:-1] - both,
        }  # fmt: skip
        found |= {f"stripe {at}": part - (1 - dropout) for at, part in enumerate(kept.split(16, -1))}
        spread = {name: value.numel() ** -0.5 * float(value.std()) for name, value in found.items()}
        off = {name: abs(float(value.mean())) / spread[name] / 6 for name, value in found.items()}
        return {name: value * BOUNDS[dtype] for name, value in off.items()}

    return measure


def part_self_attention(hidden: int, asked: int = 0) -> Measure:
    """What the case calls, with its product, under autocast; without dropout. `asked` other tokens ask, or 0: all."""

    def measure(dtype: torch.dtype) -> dict[str, float]:
        import parts as standard
        from extern import parts
        from model import PAD, visibility

        product = nn.Linear(32, 96).to(DEVICE)
        product.weight.data, product.bias.data = product.weight.data.to(dtype).float(), draw(96).to(dtype).float()
        x = draw(3, 5, 32, dtype=dtype).requires_grad_()
        asking = draw(3, asked, 32, dtype=dtype).requires_grad_() if asked else x
        owner = torch.ones(3, 5, dtype=torch.int64, device=DEVICE)
        owner[:, 5 - hidden :] = PAD
        bias = visibility(owner, False, dtype) if hidden else None
        with torch.autocast(DEVICE, torch.bfloat16, enabled=dtype == torch.bfloat16):
            y, beside = parts.self_attention_with_kernels(not_asked)(x, asking, product, 2, bias, 0.0, not_asked)
            y = y + 3 * beside
        x64, product64 = exact(x), copy.deepcopy(product).double()
        asking64 = exact(asking) if asked else x64
        bias64 = None if bias is None else bias.double()
        y64, beside64 = standard.standard_self_attention(
            x64, asking64, product64, 2, bias64, 0.0, standard.standard_attention
        )
        y64 = y64 + 3 * beside64
        flow = draw(*y.shape, dtype=dtype)
        y.backward(flow)
        y64.backward(flow.double())
        pairs = {name: (getattr(product, name), getattr(product64, name)) for name in ("weight", "bias")}
        pairs |= {"x": (x, x64)} | ({"asking": (asking, asking64)} if asked else {})
        found = {f"{name}.grad": error(gradient(leaf), gradient(leaf64)) for name, (leaf, leaf64) in pairs.items()}
        return found | {"y": error(y, y64)}

    return measure


CASES = {
    "attention": attention(2, 21, 3, 16),
    "attention of full rows": attention(2, 64, 2, 32),
    "attention with dropout": attention(3, 128, 2, 64, dropout=0.25),
    "attention with hidden keys": attention(2, 40, 2, 16, dropout=0.125, hidden=7),
    "attention by few programs": attention(3, 16, 3, 16, dropout=0.25, programs=2),
    "attention of two tokens": attention(2, 2, 1, 16),
    "attention of some": attention(2, 64, 2, 32, asked=21),
    "attention of some with dropout": attention(5, 40, 2, 16, dropout=0.125, hidden=7, asked=3, programs=2),
    "attention rate": attention_rate(0.125),
    "part self_attention": part_self_attention(hidden=0),
    "part self_attention with hidden keys": part_self_attention(hidden=2),
    "part self_attention of some": part_self_attention(hidden=1, asked=2),
}
