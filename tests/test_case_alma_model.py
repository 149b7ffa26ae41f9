"""ALMA's model: its size, what trains, what is computed, and that it translates as it scores."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from suite.catalog import load_catalog  # noqa: E402
from suite.drivers.pytorch.optimizer import decayed_groups  # noqa: E402
from suite.flops import FORMULAS  # noqa: E402
from tests.case_alma import CASE, CASE_DIR, TINY, params, task  # noqa: E402
from tests.one_case import ROOT  # noqa: E402

CATALOG = load_catalog(ROOT / "suite")
PARTS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small models are slower with several threads, on a busy machine much slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def explicit(query: Any, key: Any, value: Any) -> Any:
    """Attention over all pairs by two plain products, whose work a counter sees."""
    groups = query.shape[1] // key.shape[1]
    key, value = (one.repeat_interleave(groups, dim=1) for one in (key, value))
    scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ value


def tiny(seed: int = 0, attention: Any = None, **changes: Any) -> tuple[Any, Any]:
    """A task of toy sizes and its model, the adapters' B filled so that they matter."""
    one = task(params(**{**TINY, **changes}))
    torch.manual_seed(seed)
    one.slots = {"attention": attention or CASE.model.standard_attention}
    model = one.build()
    for name, parameter in model.named_parameters():
        if "lora_b" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    return one, model


# Sizes


def counted(preset: str) -> tuple[int, int]:
    """(parameters but the adapters', trainable parameters) of a preset at full size, without its memory."""
    with torch.device("meta"):
        model = CASE.model.Llama(CASE.model.Shape.of(params(preset)))
    if params(preset)["lora_rank"]:
        CASE.lora.train_only_adapters(model)
    named = list(model.named_parameters())
    plain = sum(one.numel() for name, one in named if not CASE.lora.is_adapter(name))
    return plain, sum(one.numel() for _, one in named if one.requires_grad)


@pytest.mark.parametrize(
    ("preset", "plain", "trainable"),
    [
        ("full", 6_738_415_616, 7_733_248),  # Llama 2 7B as published, and the guide's log
        ("llama_1_1b", 1_100_048_384, 1_100_048_384),  # TinyLlama as published
        ("mini", 568_192, 107_520),
    ],
)
def test_parameters_at_full_size(preset: str, plain: int, trainable: int) -> None:
    shape = CASE.model.Shape.of(params(preset))
    assert counted(preset) == (plain, trainable)
    assert CASE.work.parameters(shape) == plain
    assert not shape.lora_rank or CASE.work.trained_parameters(shape) == trainable


def test_one_projection_of_the_feed_forward_gives_the_guides_count_and_nothing_else_does() -> None:
    found = [
        targets
        for size in range(1, len(PARTS) + 1)
        for targets in itertools.combinations(PARTS, size)
        if CASE.work.trained_parameters(CASE.model.Shape.of(params(lora_targets=list(targets)))) == 7_733_248
    ]
    assert found == [("gate_proj",), ("up_proj",), ("down_proj",)]


# What trains


def test_frozen_weights_get_no_gradient_and_no_state() -> None:
    one, model = tiny(lora_targets=list(PARTS))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    groups = decayed_groups(model, 0.01)
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    one.loss(model, next(one.synthetic_batches())).backward()
    optimizer.step()
    adapters = {name for name, _ in model.named_parameters() if CASE.lora.is_adapter(name)}
    assert len(adapters) == 2 * (4 + 7)  # of each layer: an A for each product, a B for each projection
    assert {name for name, one in model.named_parameters() if one.grad is not None} == adapters
    assert len(optimizer.state) == len(adapters)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == adapters


def test_new_adapters_change_nothing_and_old_ones_do() -> None:
    one = task(params(**TINY))
    torch.manual_seed(0)
    model = one.build()
    batch = next(one.synthetic_batches())
    new = one.loss(model, batch)
    CASE.lora.train_all_but_adapters(model)
    assert torch.equal(one.loss(model, batch), new)
    assert not any(p.requires_grad for name, p in model.named_parameters() if CASE.lora.is_adapter(name))
    CASE.lora.train_only_adapters(model)
    torch.nn.init.ones_(model.layers[0].feed_out.lora_b["down_proj"])
    assert not torch.equal(one.loss(model, batch), new)


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", "bfloat16"), ("fp16", "float16"), ("tf32", "float32")])
def test_frozen_matrices_lie_in_the_dtype_of_the_products(precision: str, dtype: str) -> None:
    _, model = tiny(precision=precision)
    for name, parameter in model.named_parameters():
        wide = CASE.lora.is_adapter(name) or parameter.dim() == 1
        assert parameter.dtype == (torch.float32 if wide else getattr(torch, dtype)), name
    _, model = tiny(precision=precision, frozen_weights="fp32")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_bf16_differs_from_fp32_by_its_rounding_alone() -> None:
    """Of the loss 1 %, of the adapters' gradient 10 %, weights being rounded too; another scale of them is far off."""
    found = []
    for precision, alpha in (("fp32", 32.0), ("bf16", 32.0), ("fp32", 48.0)):
        one, model = tiny(seed=1, precision=precision, lora_targets=list(PARTS), init_std=0.1, lora_alpha=alpha)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = one.loss(model, next(one.synthetic_batches()))
        loss.backward()
        found.append((loss.item(), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])))
    (exact, wanted), (rough, gradient), (_, other) = found
    assert rough != exact and rough == pytest.approx(exact, rel=0.01)
    assert float((gradient - wanted).norm() / wanted.norm()) < 0.1
    assert float((other - wanted).norm() / wanted.norm()) > 0.3


# What is computed


@pytest.mark.parametrize(
    ("rank", "targets"),
    [
        (0, []),
        (4, ["down_proj"]),
        (4, ["q_proj", "v_proj"]),
        (4, ["v_proj"]),
        (4, ["o_proj", "up_proj"]),
        (4, list(PARTS)),
    ],
)
def test_flop_are_those_that_are_computed(rank: int, targets: list[str]) -> None:
    one, model = tiny(attention=explicit, lora_rank=rank, lora_targets=targets)
    batch = next(one.synthetic_batches())
    with FlopCounterMode(display=False) as counter:
        one.loss(model, batch).backward()
    length, asked = batch["tokens"].shape[1], batch["labels"].shape[1]
    counted = CASE.work.training_flops(one.shape, length, length**2, asked)
    assert counter.get_total_flops() == counted * len(batch["tokens"])


def test_flop_at_full_size() -> None:
    """Of full rows of 512 tokens with 256 asked: near the guide's rule, 4 N a token less the layers that end early."""
    one = task(params())
    flops, formula = one.flops_per_sample()
    shape = one.shape
    layer = 4 * 4096**2 + 3 * 4096 * 11008
    small = 16 * (4096 + 11008)  # of the lowest adapter: forward, both weights, and the gradient between them
    pairs = 512 * 513 / 2
    head = 4 * 4096 * 32000 * 256
    above = 31 * (4 * layer * 512 + 6 * small * 512 + 12 * 4096 * pairs)
    lowest = 2 * layer * 512 + 2 * 16 * (2 * (11008 + 4096) + 4096) * 512 + 4 * 4096 * pairs
    assert flops == head + above + lowest
    assert formula in FORMULAS and shape.lora_rank == 16
    assert flops / (4 * 6.74e9 * 512) == pytest.approx(0.97, abs=0.02)
    whole, formula = task(params("llama_1_1b")).flops_per_sample()
    assert formula in FORMULAS
    assert whole == 3 * 2048 * (2 * 22 * (2 * 2048**2 + 2 * 2048 * 256 + 3 * 2048 * 5632) + 2 * 2048 * 32000) + (
        3 * 22 * 4 * 2048 * (2048 * 2049 / 2)
    )


# The pieces


def test_rotary_positions_tell_distances_only() -> None:
    _, model = tiny()
    query, key = torch.randn(2, 8), torch.randn(2, 8)
    turn = CASE.model.rotated

    def product(i: int, j: int) -> Any:
        return (turn(query, model.cosine[i], model.sine[i]) * turn(key, model.cosine[j], model.sine[j])).sum(-1)

    torch.testing.assert_close(product(7, 3), product(24, 20), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(product(7, 3), product(7, 4), rtol=1e-3)


def test_heads_share_keys_alike_with_and_without_the_kernels_help(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 4, 9, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 8)
    whole = explicit(query, key, value)
    torch.testing.assert_close(CASE.model.standard_attention(query, key, value), whole, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(CASE.model, "GROUPED", False)
    torch.testing.assert_close(CASE.model.standard_attention(query, key, value), whole, rtol=1e-4, atol=1e-5)


def test_no_token_sees_a_later_one_or_the_padding() -> None:
    one, model = tiny()
    example = CASE.data.Example((1, 5, 6, 7), (8, 9, 10, 2))
    longer = CASE.data.Example((1, 5, 6, 7, 30, 31, 32), (8, 9, 10, 11, 12, 2))
    alone = one.frame.pack([example])
    beside = one.frame.pack([example, longer])
    first = model(alone["tokens"], alone["first"], alone["labels"])
    second = model(beside["tokens"], beside["first"], beside["labels"])
    torch.testing.assert_close(first[0], second[0])
    assert (first[0] != 0).sum() == 4
    changed = alone["tokens"].clone()
    changed[0, 6] = 50
    torch.testing.assert_close(model(changed, alone["first"], alone["labels"])[0, :3], first[0, :3])


def test_a_sequence_that_is_asked_everywhere_is_scored_from_its_start() -> None:
    one, model = tiny(max_answer=48)
    batch = next(one.synthetic_batches())
    assert batch["labels"].shape == batch["tokens"].shape and int(batch["first"].max()) == 0
    assert torch.equal(batch["labels"][:, :-1], batch["tokens"][:, 1:])
    fewer = model(batch["tokens"], batch["first"], batch["labels"][:, :47])
    torch.testing.assert_close(model(batch["tokens"], batch["first"], batch["labels"])[:, :47], fewer)


def test_checkpointed_activations_give_the_same_gradient() -> None:
    gradients = []
    for again in (False, True):
        one, model = tiny(activation_checkpointing=again, lora_targets=list(PARTS))
        one.loss(model.train(), next(one.synthetic_batches())).backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    for plain, recomputed in zip(*gradients):
        torch.testing.assert_close(plain, recomputed)


@pytest.mark.parametrize(("rank", "targets"), [(0, []), (4, ["down_proj"])])
def test_a_step_is_one_graph(rank: int, targets: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in it waits for the device or leaves the compiler; it computes what is computed without one."""
    for name, module in vars(CASE).items():
        monkeypatch.setitem(sys.modules, name, module)  # as they are while train.py runs
    one, model = tiny(lora_rank=rank, lora_targets=targets)
    batch = next(one.synthetic_batches())
    plain = one.loss(model, batch)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(one.loss(compiled, batch), plain, rtol=1e-5, atol=1e-6)


# Translating


def by_heart(model: Any, prompt: list[int], limit: int, end: int) -> list[int]:
    """The likeliest answer, every token from scratch."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + limit:
        text = torch.tensor([tokens])
        width = len(tokens)
        attends = [model.attention] * len(model.layers)
        state = model.hidden(text, model.cosine[:width], model.sine[:width], attends)
        tokens.append(int(model.scores(state)[0, -1].argmax()))
        if tokens[-1] == end:
            break
    return tokens[len(prompt) :]


def test_translating_with_a_memory_is_translating_from_scratch() -> None:
    """Also where prompts of a batch differ in length: what pads the shorter one is never seen."""
    _, model = tiny(seed=3, lora_targets=list(PARTS))
    prompts = [[1, 4, 9], [1, 33, 20, 21, 22, 80, 3, 5], [1, 60, 61, 7, 99]]
    wanted = [by_heart(model, prompt, 12, 2) for prompt in prompts]
    padded = torch.tensor([prompt + [0] * (8 - len(prompt)) for prompt in prompts])
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    answers = CASE.decoding.greedy(model, padded, lengths, 12, 2).tolist()
    assert [answer[: len(one)] for answer, one in zip(answers, wanted)] == wanted
    ends = wanted[0][4]  # now a token that comes early is the end: what follows it is only ends
    answer = CASE.decoding.greedy(model, padded, lengths, 12, ends).tolist()[0]
    stop = answer.index(ends)
    assert answer[:stop] == wanted[0][:stop] and set(answer[stop:]) == {ends}


def test_a_translation_ends_where_the_positions_do() -> None:
    _, model = tiny(seed=3)
    prompt = torch.arange(1, 41)[None]
    wanted = by_heart(model, prompt[0].tolist(), 9, 0)  # 48 positions: the ninth token is never read
    end = next(token for token in range(2, 101) if token not in wanted)
    answer = CASE.decoding.greedy(model, prompt, torch.tensor([40]), 20, end).tolist()[0]
    assert answer[:9] == wanted and set(answer[9:]) == {end}


# The case's contract


def test_slots_are_those_that_case_toml_declares() -> None:
    slots = CASE.train.Translate.default_slots()
    assert set(slots) | {"optimizer"} == set(CATALOG.case("alma", "pytorch").spec.extern.slots)
    called = []

    def attention(*heads: Any) -> Any:
        called.append([tuple(one.shape) for one in heads])
        return CASE.model.standard_attention(*heads)

    one, model = tiny(attention=attention)
    one.loss(model, next(one.synthetic_batches()))
    assert called == [[(4, 4, 48, 8), (4, 2, 48, 8), (4, 2, 48, 8)]] * 2


def test_a_device_is_named_nowhere() -> None:
    for path in CASE_DIR.glob("*.py"):
        assert "cuda" not in path.read_text(encoding="utf-8").lower(), path.name
