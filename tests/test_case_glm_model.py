"""GLM the model: its size, what each token sees, what it predicts, and what that costs."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests.case_glm import CASE, TINY_FULL, params

GLM, Shape = CASE.model.GLM, CASE.model.Shape


PLAIN = {"dropout": 0.0, "attention_dropout": 0.0, "activation_checkpointing": False}


def tiny(**changes: Any) -> Any:
    return Shape.of(params(**{**TINY_FULL, **PLAIN, **changes}))


@pytest.fixture
def net() -> Any:
    torch.manual_seed(0)
    return GLM(tiny())


def rows(count: int = 3, length: int = 20, answer: int = 4) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    separator = torch.tensor([9, 12, length - answer])[:count]
    return {
        "tokens": torch.randint(1, 200, (count, length), generator=generator),
        "separator": separator,
        "blank": separator // 2,
        "answer": torch.randint(1, 200, (count, answer), generator=generator),
    }


def test_full_has_glm_larges_parameters() -> None:
    shape = Shape.of(params())
    with torch.device("meta"):
        counted = sum(parameter.numel() for parameter in GLM(shape).parameters())
    assert counted == shape.parameters() == 334_688_256


def test_mini_has_the_same_architecture() -> None:
    shape = Shape.of(params("mini"))
    with torch.device("meta"):
        small = dict(GLM(shape).named_parameters())
        large = dict(GLM(Shape.of(params())).named_parameters())
    assert sum(parameter.numel() for parameter in small.values()) == shape.parameters() == 671_104
    assert set(small) == {name for name in large if not re.match(r"layers\.([3-9]|\d\d)\.", name)}


def test_bias_shows_all_of_part_a_and_the_past_of_part_b() -> None:
    bias = CASE.model.prefix_bias(torch.tensor([2, 3]), 4, torch.float32)
    visible = (bias == 0).int()[:, 0].tolist()
    assert visible[0] == [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    assert visible[1] == [[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1]]


def test_part_b_stands_at_the_blank() -> None:
    in_context, in_span = CASE.model.two_positions(torch.tensor([3]), torch.tensor([1]), 6)
    assert in_context.tolist() == [[0, 1, 2, 1, 1, 1]]
    assert in_span.tolist() == [[0, 0, 0, 1, 2, 3]]


def test_a_later_token_of_the_answer_is_unseen_and_an_earlier_one_seen(net: Any) -> None:
    batch = rows(1)
    with torch.no_grad():
        before = net(**batch)
        batch["tokens"][0, 9 + 2] = 7  # the third token of part B
        after = net(**batch)
    changed = ((before - after).abs() > 1e-7)[0].tolist()
    assert changed == [False, False, True, True]


def test_the_end_of_the_context_reaches_the_first_prediction(net: Any) -> None:
    batch = rows(1)
    with torch.no_grad():
        before = net(**batch)
        batch["tokens"][0, 8] = 7
        assert (before - net(**batch)).abs().min() > 1e-7


def test_padding_changes_nothing(net: Any) -> None:
    short = rows(2, length=16)
    wide = dict(short, tokens=torch.nn.functional.pad(short["tokens"], (0, 8), value=0))
    with torch.no_grad():
        torch.testing.assert_close(net(**short), net(**wide), rtol=1e-5, atol=1e-6)


def test_log_probabilities_are_those_of_the_full_head(net: Any) -> None:
    """Scoring the vocabulary at the answer alone gives what scoring it everywhere gives."""
    batch = rows(3)
    with torch.no_grad():
        x = net.words(batch["tokens"])
        place, span = CASE.model.two_positions(batch["separator"], batch["blank"], 20)
        x = x + net.positions(place) + net.span_positions(span)
        bias = CASE.model.prefix_bias(batch["separator"], 20, x.dtype)
        for layer in net.layers:
            x = layer(x, bias)
        everywhere = (net.norm(x) @ net.words.weight.T).log_softmax(-1)
        expected = [
            [everywhere[n, batch["separator"][n] + m, batch["answer"][n, m]].item() for m in range(4)] for n in range(3)
        ]
        torch.testing.assert_close(net(**batch), torch.tensor(expected), rtol=1e-4, atol=1e-5)


def test_recomputing_activations_changes_no_gradient(net: Any) -> None:
    other = GLM(tiny(activation_checkpointing=True))
    other.load_state_dict(net.state_dict())
    for model in (net, other):
        model(**rows()).sum().backward()
    for mine, theirs in zip(net.parameters(), other.parameters()):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_attention_is_a_slot() -> None:
    seen = []

    def spy(query: Any, key: Any, value: Any, bias: Any, dropout: float) -> Any:
        seen.append((tuple(query.shape), tuple(bias.shape), dropout))
        return CASE.model.standard_attention(query, key, value, bias, dropout)

    GLM(tiny(attention_dropout=0.1), spy)(**rows())
    assert seen == [((3, 2, 20, 16), (3, 1, 20, 20), 0.1)] * 2


def test_dropout_ends_with_training() -> None:
    net = GLM(tiny(dropout=0.5, attention_dropout=0.5)).eval()
    with torch.no_grad():
        torch.testing.assert_close(net(**rows()), net(**rows()))
        net.train()
        assert not torch.equal(net(**rows()), net(**rows()))


def test_bf16_scores_come_out_in_float32(net: Any) -> None:
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        scores = net(**rows())
    assert scores.dtype == torch.float32
    assert bool(scores.isfinite().all())


def test_one_graph_without_breaks(net: Any) -> None:
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(**rows()), net(**rows()))


@pytest.mark.parametrize(("layers", "width", "length", "answer"), [(1, 32, 16, 3), (3, 48, 24, 8)])
def test_flop_formula_equals_a_count(layers: int, width: int, length: int, answer: int) -> None:
    """Counted with the dense kernel: all pairs of the frame, the vocabulary at all places of the longest answer."""
    shape = tiny(num_layers=layers, hidden_size=width)
    net = GLM(shape)
    batch = rows(2, length, answer)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        net(**batch).sum().backward()
    assert counter.get_total_flops() == 2 * shape.training_flops(length, length**2, answer)


def test_full_costs_what_the_literature_says() -> None:
    """6 N a token, with N the weights of the layers, is within the attention's share of the count."""
    shape = Shape.of(params())
    nominal = 6 * 24 * 12 * 1024**2 * 512
    counted = shape.training_flops(512, 512 * 512, 0)
    assert counted - nominal == 3 * 24 * 4 * 1024 * 512**2
    assert 1.0 < counted / nominal < 1.1
