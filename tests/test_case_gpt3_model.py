"""GPT-3's model: its sizes, what it sees, what it costs, and the same numbers as other people's code."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests.case_gpt3 import CASE, CASE_DIR, SMALL, params, task

IMPROVED = {"feed": "swiglu", "positions": "rotary", "tied": False, "bias": False}
CLASSIC = {"feed": "gelu", "positions": "learned", "tied": True, "bias": True, "feed_size": 128}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small models are slower with several threads, on a busy machine much slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def made(**changes: Any) -> Any:
    """A toy model in the shape of the full one."""
    torch.manual_seed(0)
    return task(params(**{**SMALL, **changes})).build()


def batch(count: int = 4, length: int = 32, seed: int = 0) -> tuple[Any, Any]:
    pair = torch.randint(0, 300, (count, length + 1), generator=torch.Generator().manual_seed(seed))
    return pair[:, :-1], pair[:, 1:]


def gradients(model: Any, *inputs: Any) -> list[Any]:
    model.zero_grad()
    model(*inputs).mean().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize(
    ("preset", "count"),
    [
        ("full", 6_838_296_576),
        ("126m", 125_262_336),
        ("1_3b", 1_315_819_520),
        ("5b", 5_047_558_144),
        ("mini", 478_720),
    ],
)
def test_the_models_have_their_published_sizes(preset: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted on parameters without content."""
    shape = CASE.model.Shape.of(params(preset))
    with monkeypatch.context() as only:
        only.setattr(torch.nn.Module, "to_empty", lambda module, device: module)
        only.setattr(CASE.model.Gpt, "_initialise", lambda model: None)
        with torch.device("meta"):
            model = CASE.model.Gpt(shape, CASE.model.standard_attention)
    assert sum(parameter.numel() for parameter in model.parameters()) == shape.parameters() == count


@pytest.mark.parametrize("kind", [IMPROVED, CLASSIC])
def test_no_token_sees_what_follows(kind: dict[str, Any]) -> None:
    model = made(**kind).eval()
    tokens, _ = batch(1)
    changed = tokens.clone()
    changed[:, 20:] = (changed[:, 20:] + 1) % 300

    def streams(given: Any) -> Any:
        seen = []
        hook = model.head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
        with torch.no_grad():
            model(given, given)
        hook.remove()
        return seen[0]

    before, after = streams(tokens), streams(changed)
    assert torch.equal(before[:, :20], after[:, :20])
    assert not torch.allclose(before[:, 20], after[:, 20])


@pytest.mark.parametrize("kind", [IMPROVED, CLASSIC])
def test_the_work_of_a_step_is_what_a_counter_sees(kind: dict[str, Any]) -> None:
    """The counter does not halve causal attention; neither does the formula."""
    model = made(**kind)
    # The counter knows no fused attention of the host; the plain one is products.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(*batch(3)).mean().backward()
    assert counter.get_total_flops() == 3 * model.shape.training_flops()


def test_the_formula_is_palms_without_the_look_up_of_tokens() -> None:
    from suite.flops import palm

    shape = CASE.model.Shape.of(params())
    norms = 32 * 4 * 4096 + 2 * 4096
    multiplying = shape.parameters() - shape.words * shape.hidden_size - norms
    assert shape.training_flops() / 2048 == palm(multiplying, 32, 32, 128, 2048)
    assert shape.training_flops() / 2048 == pytest.approx(43.01e9, rel=1e-3)


@pytest.mark.parametrize("kind", ["selective", "full"])
def test_recomputation_changes_no_gradient(kind: str) -> None:
    plain, spared = made(), made(activation_checkpointing=kind, loss_chunks=4)
    expected = gradients(plain, *batch())
    for one, other in zip(expected, gradients(spared, *batch())):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_selective_recomputation_repeats_no_product() -> None:
    work = {}
    for kind in ("none", "selective", "full"):
        model = made(activation_checkpointing=kind)
        with FlopCounterMode(display=False) as counter:
            model(*batch()).mean().backward()
        work[kind] = counter.get_total_flops()
    assert work["selective"] == work["none"] < work["full"]


def test_two_halves_have_the_gradient_of_the_whole() -> None:
    model = made()
    tokens, following = batch()
    whole = gradients(model, tokens, following)
    halves = [gradients(model, tokens[rows], following[rows]) for rows in (slice(0, 2), slice(2, 4))]
    for expected, *parts in zip(whole, *halves):
        torch.testing.assert_close(sum(parts) / 2, expected, rtol=1e-3, atol=1e-6)


def test_bf16_is_near_fp32() -> None:
    """Within 1 % of the loss, and gradients that point the same way."""
    model = made()
    inputs = batch()
    exact = gradients(model, *inputs)
    loss = model(*inputs).mean().item()
    with torch.autocast("cpu", torch.bfloat16):
        near, near_loss = gradients(model, *inputs), model(*inputs).mean().item()
    assert near_loss == pytest.approx(loss, rel=0.01)
    flat, near_flat = (torch.cat([gradient.flatten() for gradient in found]) for found in (exact, near))
    assert torch.nn.functional.cosine_similarity(flat, near_flat, 0) > 0.99
    assert not torch.equal(flat, near_flat)


def test_the_loss_at_the_start_is_that_of_guessing() -> None:
    model = made(init_std=0.01)
    assert model(*batch()).mean().item() / 32 == pytest.approx(math.log(320), rel=0.02)


def test_what_adds_to_the_stream_starts_smaller() -> None:
    model = made(hidden_size=128, feed_size=256, init_std=0.1)
    block = model.blocks[0]
    assert block.feed_in.weight.std().item() == pytest.approx(0.1, rel=0.05)
    assert block.feed_out.weight.std().item() == pytest.approx(0.1 / math.sqrt(4), rel=0.05)


# Golden checks: other people's code with these weights


def interleaved(weight: Any, heads: int) -> Any:
    """Rows by query, key and value, then head -> rows by head, then query, key, value."""
    return weight.unflatten(0, (3, heads, -1)).transpose(0, 1).flatten(0, 2)


def test_the_improved_model_is_stable_lm() -> None:
    """NeMo's 7b_improved has StableLM's parts: rotary halves, gated feed-forward, layer norms with biases."""
    transformers = pytest.importorskip("transformers")
    config = transformers.StableLmConfig(
        vocab_size=320, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, partial_rotary_factor=0.5, rope_theta=10000, use_qkv_bias=False,
        tie_word_embeddings=False, max_position_embeddings=32, layer_norm_eps=1e-5, attn_implementation="sdpa",
    )  # fmt: skip
    torch.manual_seed(1)
    theirs = transformers.StableLmForCausalLM(config).eval()
    ours = made().eval()
    names = {"words": "model.embed_tokens", "head.norm": "model.norm", "head.scores": "lm_head"}
    state = theirs.state_dict()
    copied = {f"{our}.weight": state[f"{their}.weight"] for our, their in names.items()}
    copied["head.norm.bias"] = state["model.norm.bias"]
    for i in range(2):
        block, layer = f"blocks.{i}", f"model.layers.{i}"
        parts = torch.cat([state[f"{layer}.self_attn.{part}_proj.weight"] for part in "qkv"])
        copied[f"{block}.query_key_value.weight"] = interleaved(parts, 4)
        for our, their in (
            ("attention_out.weight", "self_attn.o_proj.weight"), ("gate.weight", "mlp.gate_proj.weight"),
            ("feed_in.weight", "mlp.up_proj.weight"), ("feed_out.weight", "mlp.down_proj.weight"),
            ("attention_norm.weight", "input_layernorm.weight"), ("attention_norm.bias", "input_layernorm.bias"),
            ("feed_norm.weight", "post_attention_layernorm.weight"),
            ("feed_norm.bias", "post_attention_layernorm.bias"),
        ):  # fmt: skip
            copied[f"{block}.{our}"] = state[f"{layer}.{their}"]
    ours.load_state_dict(copied)
    check_against(ours, theirs)


def test_the_classic_model_is_gpt2() -> None:
    """126m, 1_3b and 5b: GPT-2's parts."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=320, n_positions=32, n_embd=32, n_layer=2, n_head=4, n_inner=128, resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0,
    )  # fmt: skip
    torch.manual_seed(1)
    theirs = transformers.GPT2LMHeadModel(config).eval()
    for parameter in theirs.parameters():  # their biases start at 0, which would hide a wrong one
        torch.nn.init.normal_(parameter, std=0.1)
    ours = made(**CLASSIC).eval()
    state = theirs.state_dict()
    copied = {
        "words.weight": state["transformer.wte.weight"], "places.weight": state["transformer.wpe.weight"],
        "head.norm.weight": state["transformer.ln_f.weight"], "head.norm.bias": state["transformer.ln_f.bias"],
    }  # fmt: skip
    names = {
        "query_key_value": "attn.c_attn", "attention_out": "attn.c_proj", "feed_in": "mlp.c_fc",
        "feed_out": "mlp.c_proj", "attention_norm": "ln_1", "feed_norm": "ln_2",
    }  # fmt: skip
    for i in range(2):
        for our, their in names.items():
            for kind in ("weight", "bias"):
                value = state[f"transformer.h.{i}.{their}.{kind}"]
                value = value.T if kind == "weight" and value.dim() == 2 else value
                copied[f"blocks.{i}.{our}.{kind}"] = interleaved(value, 4) if "query" in our else value
    ours.load_state_dict(copied)
    check_against(ours, theirs)


def check_against(ours: Any, theirs: Any) -> None:
    """Equal losses, and equal gradients of the table of words."""
    tokens, following = batch()
    loss = ours(tokens, following).sum() / following.numel()
    scores = theirs(input_ids=tokens).logits
    their_loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), following.flatten())
    assert loss.item() == pytest.approx(their_loss.item(), rel=1e-5)
    loss.backward()
    their_loss.backward()
    table = theirs.get_input_embeddings().weight.grad
    torch.testing.assert_close(ours.words.weight.grad, table, rtol=1e-3, atol=1e-6)


def test_a_device_is_named_nowhere() -> None:
    for path in CASE_DIR.glob("*.py"):
        assert "cuda" not in path.read_text(encoding="utf-8").lower(), path.name
