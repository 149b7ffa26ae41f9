"""BERT the model: its size, what each token sees, what its heads judge, and what that costs."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests.case_bert import CASE, PLAIN, TINY_FULL, params

Bert, Parts, Shape, Frame = CASE.model.Bert, CASE.parts.Parts, CASE.model.Shape, CASE.data.Frame


def tiny(**changes: Any) -> Any:
    return Shape.of(params(**{**TINY_FULL, **PLAIN, **changes}))


def made(**changes: Any) -> Any:
    torch.manual_seed(0)
    return Bert(tiny(**{"init_std": 0.2, **changes}))


def sequences(lengths: list[int], seed: int = 0) -> Any:
    """Random sequences of these lengths, a tenth of each masked."""
    random = np.random.default_rng(seed)
    count, widest = len(lengths), max(lengths)
    tokens = random.integers(5, 200, (count, widest))
    length = np.array(lengths)
    allowed = (np.arange(widest) > 0) & (np.arange(widest) < length[:, None])
    words = CASE.masking.Words(4, 5, 200)
    hidden, places, ids = CASE.masking.hide(tokens, allowed, np.maximum(1, length // 10), words, random)
    segments = np.arange(widest) >= length[:, None] // 2
    return CASE.sequences.from_padded(hidden, segments, length, places, ids, random.integers(0, 2, count))


def laid(lengths: list[int], pack_multiple: int = 0, size: int = 0) -> dict[str, torch.Tensor]:
    frame = Frame(length=64, predictions=10, pack_multiple=pack_multiple)
    return {name: value for name, value in frame.lay(sequences(lengths), size).items() if name != "length"}


# Size


@pytest.mark.parametrize(
    ("preset", "encoder", "total"),
    [("base_s128", 109_482_240, 110_106_428), ("full", 335_141_888, 336_226_108)],
)
def test_the_published_sizes_have_the_published_parameters(preset: str, encoder: int, total: int) -> None:
    """110 M and 335 M as the paper counts them: the encoder with its pooler. The table has 6 rows more than words."""
    shape = Shape.of(params(preset))
    with torch.device("meta"):
        counts = {name: parameter.numel() for name, parameter in Bert(shape).named_parameters()}
    assert shape.words == 30528
    assert sum(counts.values()) == shape.parameters() == total + 6 * (shape.hidden_size + 1)
    heads = sum(count for name, count in counts.items() if name.startswith(("masked_", "next_sentence")))
    assert sum(counts.values()) - heads == encoder + 6 * shape.hidden_size


def test_mini_has_the_same_parts() -> None:
    shape = Shape.of(params("mini"))
    with torch.device("meta"):
        small = dict(Bert(shape).named_parameters())
        large = dict(Bert(Shape.of(params())).named_parameters())
    assert sum(parameter.numel() for parameter in small.values()) == shape.parameters()
    assert set(small) == {name for name in large if not re.match(r"layers\.([2-9]|\d\d)\.", name)}


# What is seen


def test_padding_changes_nothing() -> None:
    net, full = made().eval(), laid([40, 64])
    with torch.no_grad():
        before = net(**full)
        full["tokens"][0, 40:] = 17
        full["segments"][0, 40:] = 1
        after = net(**full)
    torch.testing.assert_close(before.masked_loss, after.masked_loss)
    torch.testing.assert_close(before.next_loss, after.next_loss)


def test_every_token_is_seen_in_both_directions() -> None:
    net, batch = made().eval(), laid([64])
    with torch.no_grad():
        before = net(**batch).next_loss
        for place in (1, 63):
            changed = dict(batch, tokens=batch["tokens"].clone())
            changed["tokens"][0, place] = 9
            assert (net(**changed).next_loss - before).abs() > 1e-6


def test_sequences_that_share_rows_are_judged_as_alone() -> None:
    """Same losses and same gradients, in fewer rows."""
    lengths = [40, 11, 64, 20, 9, 30, 23]
    apart, packed = laid(lengths), laid(lengths, pack_multiple=1)
    assert (apart["tokens"].shape[0], packed["tokens"].shape[0]) == (7, 4)
    nets = [made().train() for _ in range(2)]
    for net, batch in zip(nets, (apart, packed)):
        judged = net(**batch)
        (judged.masked_loss.sum() + judged.next_loss.sum()).backward()
    first, second = (net(**batch) for net, batch in zip(nets, (apart, packed)))
    torch.testing.assert_close(first.masked_loss, second.masked_loss, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(first.next_loss, second.next_loss, rtol=1e-4, atol=1e-5)
    for (name, mine), theirs in zip(nets[0].named_parameters(), nets[1].parameters()):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-4, msg=name)


def test_full_rows_need_no_bias() -> None:
    seen = []

    def spy(query: Any, key: Any, value: Any, bias: Any, dropout: float) -> Any:
        seen.append(None if bias is None else tuple(bias.shape))
        return CASE.parts.standard_attention(query, key, value, bias, dropout)

    net = Bert(tiny(num_layers=1), Parts(attention=spy))
    for batch in (laid([64, 64]), laid([64, 10]), laid([30, 30], pack_multiple=1)):
        net(**batch)
    assert seen == [None, (2, 1, 1, 64), (1, 1, 64, 64)]


# What is judged


def test_the_masked_head_gives_what_the_head_at_every_place_gives() -> None:
    net, batch = made().eval(), laid([50, 64])
    with torch.no_grad():
        x = net._embed(batch["tokens"], batch["segments"], None)
        bias = CASE.model.visibility(batch["owner"], False, x.dtype)
        for layer in net.layers:
            x = layer(x, bias)
        scores = F.gelu(net.masked_dense(x))
        everywhere = (net.masked_norm(scores) @ net.words.weight.T + net.masked_bias).flatten(0, 1)
        asked = everywhere[batch["masked_places"]]
        losses = F.cross_entropy(asked.transpose(1, 2), batch["masked_ids"], reduction="none")
        judged = net(**batch)
    real = batch["masked_ids"] > 0
    torch.testing.assert_close(judged.masked_loss, losses * real, rtol=1e-4, atol=1e-5)
    best = asked.argmax(-1) == batch["masked_ids"]
    assert torch.equal(judged.masked_right, best & real)


def test_absent_sequences_and_places_are_neither_loss_nor_right() -> None:
    net, batch = made().eval(), laid([50, 64], size=4)
    with torch.no_grad():
        judged = net(**batch)
    assert judged.masked_loss.shape == (4, 10)
    assert judged.masked_loss[2:].abs().sum() == judged.next_loss[2:].abs().sum() == 0
    assert not judged.masked_right[2:].any()
    assert not judged.next_right[2:].any()
    assert bool(judged.masked_loss.isfinite().all())


def test_a_score_that_is_not_a_number_is_never_right() -> None:
    net, batch = made().eval(), laid([64, 64])
    with torch.no_grad():
        net.words.weight.fill_(float("nan"))
        judged = net(**batch)
    assert not judged.masked_right.any()
    assert not judged.next_right.any()


# Precision, graph, dropout


def test_bf16_agrees_with_fp32_within_two_percent() -> None:
    net, batch = made(init_std=0.05).eval(), laid([50, 64, 64, 12])
    with torch.no_grad():
        exact = net(**batch)
        with torch.autocast("cpu", torch.bfloat16):
            rough = net(**batch)
    assert rough.masked_loss.dtype == torch.float32
    torch.testing.assert_close(rough.masked_loss, exact.masked_loss, rtol=0.02, atol=0.02)
    torch.testing.assert_close(rough.next_loss, exact.next_loss, rtol=0.02, atol=0.02)


def test_activations_between_layers_have_the_dtype_of_the_products() -> None:
    net, dtypes = made(), []
    for layer in net.layers:
        layer.register_forward_hook(lambda module, inputs, output: dtypes.append(output.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        net(**laid([64]))
    net(**laid([64]))
    assert dtypes == [torch.bfloat16] * 2 + [torch.float32] * 2


@pytest.mark.parametrize("pack_multiple", [0, 2])
def test_one_graph_without_breaks(pack_multiple: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "parts", CASE.parts)  # the compiler looks it up by name
    net, batch = made(), laid([50, 14, 64], pack_multiple=pack_multiple)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(**batch).masked_loss, net(**batch).masked_loss)


def test_recomputing_activations_changes_no_gradient() -> None:
    nets = [made(), made(activation_checkpointing=True)]
    for net in nets:
        net(**laid([50, 64])).masked_loss.sum().backward()
    for mine, theirs in zip(nets[0].parameters(), nets[1].parameters()):
        if mine.grad is not None:
            torch.testing.assert_close(mine.grad, theirs.grad)


def test_dropout_ends_with_training() -> None:
    torch.manual_seed(0)
    net, batch = Bert(tiny(dropout=0.5, attention_dropout=0.5)).eval(), laid([64])
    with torch.no_grad():
        torch.testing.assert_close(net(**batch).masked_loss, net(**batch).masked_loss)
        net.train()
        assert not torch.equal(net(**batch).masked_loss, net(**batch).masked_loss)


# Work


@pytest.mark.parametrize(("layers", "width", "feed"), [(1, 32, 64), (3, 48, 40)])
def test_flop_formula_equals_a_count(layers: int, width: int, feed: int) -> None:
    """Counted with the dense kernel; full rows, and the vocabulary at P places of each."""
    shape = tiny(num_layers=layers, hidden_size=width, feed_size=feed)
    net = Bert(shape)
    batch = next(
        CASE.data.synthetic_batches(
            Frame(length=64, predictions=10, pack_multiple=0),
            vocab_size=200,
            seed=0,
            batch_size=3,
            place=CASE.data.Place(0, 1),
        )
    )
    del batch["length"]
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        judged = net(**batch)
        (judged.masked_loss.sum() + judged.next_loss.sum()).backward()
    assert counter.get_total_flops() == 3 * shape.training_flops(64, 64**2, 10)


def test_base_costs_what_its_size_says() -> None:
    """6 FLOP a weight and token in the layers, plus attention and heads: 70 GFLOP a sequence of 128 tokens.

    Where a row is one sequence, five sixths of the last layer are computed at 21 of its 128 places: 66 GFLOP.
    """
    shape = Shape.of(params("base_s128"))
    layers = 6 * 12 * 12 * 768**2 * 128
    counted = shape.training_flops(128, 128 * 128, 20, shared=True)
    assert 1.0 < counted / layers < 1.1
    assert counted == pytest.approx(70.0e9, rel=0.01)
    spared = 5 / 6 * (107 / 128) * layers / 12
    assert shape.training_flops(128, 128 * 128, 20) == pytest.approx(counted - spared, rel=0.002)


# Against an independent implementation


def test_transformers_agrees_with_the_same_weights() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=200, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.2,
    )  # fmt: skip
    torch.manual_seed(3)
    theirs = transformers.BertForPreTraining(config).eval()
    mine = Bert(tiny()).eval()
    CASE.checkpoint.fill(mine, theirs.state_dict(), "transformers")
    batch = laid([50, 64, 9])
    labels = torch.full((3 * 64,), -100)
    real = batch["masked_ids"] > 0
    labels[batch["masked_places"][real]] = batch["masked_ids"][real]
    with torch.no_grad():
        judged = mine(**batch)
        answer = theirs(
            input_ids=batch["tokens"],
            attention_mask=(batch["owner"] > 0).long(),
            token_type_ids=batch["segments"],
            labels=labels.view(3, 64),
            next_sentence_label=batch["next_sentence"],
        )
    total = judged.masked_loss.sum() / real.sum() + judged.next_loss.mean()
    torch.testing.assert_close(total, answer.loss, rtol=1e-4, atol=1e-5)
