"""Whisper the model: its size, what learns, what is seen, what it writes, and what that costs."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from suite.drivers.pytorch.device import EnvironmentProblem
from suite.drivers.pytorch.optimizer import decayed_groups
from tests.case_whisper import CASE, TINY_FULL, params, task

Shape, make = CASE.shape.Shape, CASE.model.make
IGNORED = CASE.model.IGNORED


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small models are slower with several threads, on a busy machine much slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tiny(**changes: Any) -> Any:
    return Shape.of(params(**{**TINY_FULL, "lora_dropout": 0.0, "init_std": 0.2, **changes}))


def made(kept_in: torch.dtype = torch.float32, **changes: Any) -> Any:
    """A model whose adapters have learnt something."""
    torch.manual_seed(0)
    net = make(tiny(**changes), kept_in)
    for module in net.modules():
        if isinstance(module, CASE.lora.Adapter):
            torch.nn.init.normal_(module.up, std=0.2)
    return net


def data(count: int = 3, labels: int = 9, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    features = torch.rand((count, 8, 60), generator=generator) * 2 - 1
    return features, torch.randint(0, 90, (count, labels), generator=generator)


# Size


def test_large_v2_has_the_published_parameters_and_the_guides_adapters() -> None:
    """1,543,304,960 as published; peft counts 7,864,320 for rank 16 on q_proj and v_proj."""
    shape = Shape.of(params())
    with torch.device("meta"):
        net = CASE.model.Whisper(shape)
        CASE.lora.freeze(net, torch.bfloat16)
    counts = {name: (p.numel(), p.requires_grad, p.dtype) for name, p in net.named_parameters()}
    assert shape.base_parameters() == 1_543_304_960
    assert sum(count for count, learns, _ in counts.values() if learns) == shape.adapter_parameters() == 7_864_320
    frozen = sum(count for count, learns, _ in counts.values() if not learns)
    assert frozen == shape.base_parameters() + shape.surplus_parameters()
    assert shape.surplus_parameters() == (96 + 7) * 1280
    assert {dtype for _, learns, dtype in counts.values() if learns} == {torch.float32}
    assert {dtype for name, (_, learns, dtype) in counts.items() if not learns and "norm" not in name} == {
        torch.bfloat16
    }


def test_mini_has_the_same_parts() -> None:
    with torch.device("meta"):
        small = dict(CASE.model.Whisper(Shape.of(params("mini"))).named_parameters())
        large = dict(CASE.model.Whisper(Shape.of(params())).named_parameters())
    assert set(small) == {name for name in large if not re.match(r"(en|de)coder\.([2-9]|\d\d)\.", name)}
    assert sum(p.numel() for name, p in small.items() if "_adapter" in name) == 24_576


# What learns


def test_only_adapters_have_gradients_and_optimizer_state() -> None:
    net = made()
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    groups = decayed_groups(net, 0.01)
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    net(*data()).mean().backward()
    optimizer.step()
    learnt = {name for name, p in net.named_parameters() if "_adapter." in name}
    assert {name for name, p in net.named_parameters() if p.grad is not None} == learnt
    assert len(optimizer.state) == len(learnt) == 2 * 2 * net.shape.attentions
    assert {name for name, p in net.named_parameters() if not torch.equal(p, before[name])} == learnt


def test_a_new_adapter_adds_nothing() -> None:
    torch.manual_seed(0)
    net = make(tiny()).eval()
    bare = make(tiny(lora_rank=0)).eval()
    bare.load_state_dict({name: p for name, p in net.state_dict().items() if "_adapter." not in name})
    assert torch.equal(net(*data()), bare(*data()))
    assert all(p.requires_grad for p in bare.parameters())


def test_nothing_before_the_first_adapter_has_a_gradient() -> None:
    net, seen = made(), {}
    for name in ("conv2", "encoder.0.attention_norm", "encoder.1.attention_norm", "tokens", "decoder.1.attention_norm"):
        net.get_submodule(name).register_forward_hook(
            lambda module, inputs, output, name=name: seen.__setitem__(name, output.requires_grad)
        )
    net(*data())
    assert {name for name, needs in seen.items() if needs} == {"encoder.1.attention_norm", "decoder.1.attention_norm"}


def test_merged_weights_say_the_same() -> None:
    """W + (alpha / r) B A in place of both."""
    net = made().eval()
    with torch.no_grad():
        expected = net(*data())
        for module in net.modules():
            if isinstance(module, CASE.attention.Attending):
                wide = module.query_key_value if hasattr(module, "query_key_value") else None
                value = wide or module.key_value
                (wide or module.query).weight[:32] += _product(module.query_adapter)
                value.weight[-32:] += _product(module.value_adapter)
                module.query_adapter = module.value_adapter = None
        torch.testing.assert_close(net(*data()), expected, rtol=1e-4, atol=1e-4)


def _product(adapter: Any) -> torch.Tensor:
    return adapter.scale * adapter.up @ adapter.down


# What is seen


def test_no_label_sees_a_later_one_and_padding_changes_nothing() -> None:
    net = made().eval()
    features, labels = data(labels=8)
    padded = torch.cat((labels, torch.full((3, 5), IGNORED)), 1)
    with torch.no_grad():
        torch.testing.assert_close(net(features, padded), net(features, labels))
        scores = [_scores(net, features, one) for one in (labels, torch.cat((labels[:, :5], labels[:, :3]), 1))]
    torch.testing.assert_close(scores[0][:, :6], scores[1][:, :6])
    assert not torch.allclose(scores[0][:, 6:], scores[1][:, 6:])


def _scores(net: Any, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    heard, x = net.encode(features), net.embed(net.inputs(labels), 0)
    for layer in net.decoder:
        x = layer(x, heard)
    return net.scores(x)


def test_every_frame_is_heard() -> None:
    net = made().eval()
    features, labels = data(1)
    with torch.no_grad():
        before = net(features, labels)
        for frame in (0, 59):
            changed = features.clone()
            changed[..., frame] += 1
            assert (net(changed, labels) - before).abs() > 1e-6


def test_a_row_that_only_rounds_the_table_up_is_never_likely() -> None:
    net = made().eval()
    with torch.no_grad():
        scores = _scores(net, *data())
    assert scores.shape[-1] == 104 and bool((scores[..., 99:] == -torch.inf).all())
    assert bool(scores[..., :99].isfinite().all())


# Writing


def test_kept_keys_and_values_write_what_anew_made_ones_do() -> None:
    net = made().eval()
    features, _ = data()
    prompt = [90, 3, 5]
    with torch.no_grad():
        written = CASE.generation.write(net, features, prompt, 10)
        row = torch.tensor([prompt] * 3)
        for step in range(written.shape[1]):
            follows = torch.cat((row[:, 1:], torch.full((3, 1), 0)), 1)
            best = _scores(net, features, follows)[:, -1].argmax(-1)
            assert torch.equal(best, written[:, step])
            row = torch.cat((row, best[:, None]), 1)


def test_writing_ends_where_all_have_ended_and_at_the_last_place() -> None:
    net = made().eval()
    with torch.no_grad():
        assert CASE.generation.write(net, data()[0], [90], 100).shape[1] <= net.shape.max_labels
        net.tokens.weight.zero_()[91] = 1.0
        net.decoder_norm.weight.zero_()
        net.decoder_norm.bias.fill_(1.0)
        assert CASE.generation.write(net, data()[0], [90], 100).tolist() == [[91]] * 3
    assert CASE.generation.until_end([4, 2, 91, 7], 91) == [4, 2]
    assert CASE.generation.until_end([4, 2], 91) == [4, 2]


def test_a_score_that_is_no_number_writes_no_word() -> None:
    net = made().eval()
    net.decoder_norm.weight.data.fill_(float("nan"))
    assert CASE.generation.write(net, data()[0], [90], 3).tolist() == [[-1] * 3] * 3
    assert CASE.digits.words_of([-1, 10, 3]) == ["?", "?", "three"]


# Precision, graph, memory


def test_bf16_agrees_with_fp32_within_three_percent() -> None:
    exact, rough = made(init_std=0.05), made(torch.bfloat16, init_std=0.05)
    rough.load_state_dict(exact.state_dict())
    features, labels = data()
    exact(features, labels).mean().backward()
    with torch.autocast("cpu", torch.bfloat16):
        loss = rough(features, labels)
    loss.mean().backward()
    assert loss.dtype == torch.float32
    with torch.no_grad():
        torch.testing.assert_close(loss, exact(features, labels), rtol=0.03, atol=0.03)
    mine, theirs = (
        torch.cat([p.grad.flatten() for p in net.parameters() if p.requires_grad]) for net in (exact, rough)
    )
    assert torch.nn.functional.cosine_similarity(mine, theirs, 0) > 0.99


def test_activations_between_layers_have_the_dtype_of_the_products() -> None:
    net, dtypes = made(torch.bfloat16), []
    for layer in (*net.encoder, *net.decoder):
        layer.register_forward_hook(lambda module, inputs, output: dtypes.append(output.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        net(*data())
    assert dtypes == [torch.bfloat16] * 4


def test_float16_is_kept_from_overflowing() -> None:
    bounded = CASE.model.bounded
    assert bounded(torch.tensor([7e4]).half()).isfinite()
    assert bounded(torch.tensor([7e4])) == 7e4


def test_one_graph_without_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in vars(CASE).items():  # the compiler looks functions up in the modules that train.py sees
        monkeypatch.setitem(sys.modules, name, module)
    net = made()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*data()), net(*data()))


def test_layers_of_one_kind_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice, to be exact: the first layer of a side has an input that needs no gradient, the others have one."""
    for name, module in vars(CASE).items():
        monkeypatch.setitem(sys.modules, name, module)
    counts = []
    for depth in (2, 4):
        torch.compiler.reset()
        net, counter = made(encoder_layers=depth, decoder_layers=depth), CompileCounter()
        expected = net(*data())
        net.compile_layers(backend=counter)
        for _ in range(2):
            torch.testing.assert_close(net(*data()), expected)
        counts.append(counter.frame_count)
    assert counts == [4, 4]


def test_recomputing_activations_changes_no_gradient() -> None:
    nets = [made(), made(activation_checkpointing=True)]
    for net in nets:
        net(*data()).mean().backward()
    for mine, theirs in zip(*(net.parameters() for net in nets)):
        if mine.requires_grad:
            torch.testing.assert_close(mine.grad, theirs.grad)


def test_dropout_of_the_adapters_ends_with_training() -> None:
    net = made(lora_dropout=0.5)
    with torch.no_grad():
        assert not torch.equal(net(*data()), net(*data()))
        net.eval()
        assert torch.equal(net(*data()), net(*data()))


def test_8_bits_without_the_library_are_a_sentence() -> None:
    try:
        import bitsandbytes  # noqa: F401
    except ImportError:
        with pytest.raises(EnvironmentProblem, match=r"pip install bitsandbytes, or set base_weights = \"compute\""):
            task(params(**{**TINY_FULL, "base_weights": "int8"})).build()
    else:
        pytest.skip("bitsandbytes is here")


def test_8_bits_come_near_16_and_only_adapters_learn() -> None:
    pytest.importorskip("bitsandbytes")
    torch.manual_seed(0)
    exact = task(params(**TINY_FULL)).build().eval()
    torch.manual_seed(0)
    rough = task(params(**{**TINY_FULL, "base_weights": "int8"})).build().to("cpu").eval()
    assert rough.encoder[0].feed_in.weight.dtype == torch.int8
    torch.testing.assert_close(rough(*data()), exact(*data()), rtol=0.02, atol=0.02)
    rough(*data()).mean().backward()
    assert all((p.grad is not None) == ("_adapter." in name) for name, p in rough.named_parameters())
    again = task(params(**{**TINY_FULL, "base_weights": "int8"})).build().to("cpu").eval()
    again.load_state_dict(rough.state_dict())
    assert torch.equal(again(*data()), rough(*data()))


# Work


@pytest.mark.parametrize(("encoder", "decoder", "width", "rank"), [(1, 1, 32, 4), (2, 3, 48, 2)])
def test_flop_formula_equals_a_count(encoder: int, decoder: int, width: int, rank: int) -> None:
    """Counted with the dense kernel, which computes all pairs; a vocabulary that needs no rounding up."""
    shape = tiny(
        encoder_layers=encoder, decoder_layers=decoder, hidden_size=width, lora_rank=rank, vocab_size=96, feed_size=72
    )
    net = make(shape)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        net(*data(3, 9)).mean().backward()
    assert counter.get_total_flops() == 3 * shape.training_flops(9, 9 * 9)


def test_large_costs_what_its_size_says() -> None:
    """4 FLOP a weight and place, since frozen weights have no gradient of their own; plus attention: 6.05 TFLOP."""
    counted = Shape.of(params()).training_flops(128, 128 * 129 / 2)
    weights = 4 * 32 * 12 * 1280**2 * 1500 + 4 * 32 * (14 * 1280**2 * 128 + 2 * 1280**2 * 1500)
    assert 1.1 < counted / weights < 1.4
    assert counted == pytest.approx(6.05e12, rel=0.005)
