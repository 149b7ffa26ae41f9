"""ALMA against the libraries that its recipe is published for: the same weights give the same numbers."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.case_alma import CASE, TINY, params, task  # noqa: E402

PARTS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def published(transformers: Any) -> Any:
    """The library's Llama in the sizes of TINY, with random weights."""
    config = transformers.LlamaConfig(
        vocab_size=101, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=48, rms_norm_eps=1e-5, initializer_range=0.2,
        tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, 1.0, 0.1)
    return model


def ours(theirs: Any, **changes: Any) -> tuple[Any, Any]:
    """Our task, and our model with the same weights."""
    one = task(params(**{**TINY, **changes}))
    model = one.build()
    CASE.checkpoint.fill(model, theirs.state_dict().items(), "the library's model")
    return one, model


def their_losses(model: Any, batch: Any) -> Any:
    """-log p of the answers' tokens by the library's own scores."""
    scores = model(batch["tokens"]).logits.log_softmax(-1)
    places = batch["first"][:, None] + torch.arange(batch["labels"].shape[1])
    rows = torch.arange(len(places))[:, None]
    return -scores[rows, places].gather(2, batch["labels"][..., None])[..., 0]


def test_the_library_scores_alike() -> None:
    transformers = pytest.importorskip("transformers")
    theirs = published(transformers)
    one, model = ours(theirs, lora_rank=0)
    batch = next(one.synthetic_batches())
    mine = model(batch["tokens"], batch["first"], batch["labels"])
    torch.testing.assert_close(mine, their_losses(theirs, batch), rtol=1e-4, atol=1e-4)
    labels = batch["tokens"].clone()
    whole = theirs(batch["tokens"], labels=labels).loss
    asked = model(batch["tokens"], torch.zeros(4, dtype=torch.int64), labels[:, 1:])
    torch.testing.assert_close(asked.mean(), whole, rtol=1e-4, atol=1e-4)


def test_the_library_translates_alike() -> None:
    transformers = pytest.importorskip("transformers")
    theirs = published(transformers).eval()
    _, model = ours(theirs, lora_rank=0)
    prompt = torch.tensor([[1, 4, 9, 22, 80]])
    wanted = theirs.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=12,
        do_sample=False,
        eos_token_id=2,
        pad_token_id=2,
    )[0, 5:].tolist()
    answer = CASE.decoding.greedy(model, prompt, torch.tensor([5]), 12, 2)[0].tolist()
    assert answer[: len(wanted)] == wanted


@pytest.mark.parametrize("targets", [("down_proj",), PARTS])
def test_adapters_have_the_librarys_loss_and_gradients(targets: tuple[str, ...]) -> None:
    transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
    theirs = published(transformers)
    one, model = ours(theirs, lora_targets=list(targets), lora_alpha=8.0)
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=list(targets), lora_dropout=0.0)
    adapted = peft.get_peft_model(theirs, config)
    named = dict(adapted.named_parameters())
    pairs = []
    with torch.no_grad():
        for number, layer in enumerate(model.layers):
            for module, (_, parts) in one.shape.projections.items():
                product = getattr(layer, module)
                low = dict(zip(product.adapted, range(len(product.adapted))))
                for part in (part for part in parts if part in low):
                    place = f"base_model.model.model.layers.{number}.{CASE.checkpoint.INNER[module]}.{part}"
                    a, b = named[f"{place}.lora_A.default.weight"], named[f"{place}.lora_B.default.weight"]
                    torch.nn.init.normal_(b, std=0.1)
                    rows = slice(4 * low[part], 4 * low[part] + 4)
                    product.lora_a[rows].copy_(a)
                    product.lora_b[part].copy_(b)
                    pairs.append((product, part, rows, a, b))
    batch = next(one.synthetic_batches())
    mine, wanted = one.loss(model, batch), their_losses(adapted, batch).mean()
    torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-5)
    mine.backward()
    wanted.backward()
    for product, part, rows, a, b in pairs:
        torch.testing.assert_close(product.lora_a.grad[rows], a.grad, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(product.lora_b[part].grad, b.grad, rtol=1e-3, atol=1e-5)
    trained = sum(parameter.numel() for parameter in adapted.parameters() if parameter.requires_grad)
    assert trained == CASE.work.trained_parameters(one.shape)


def test_the_guides_count_is_the_librarys_at_full_size() -> None:
    transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig())  # its defaults are Llama 2 7B's sizes
        adapted = peft.get_peft_model(model, peft.LoraConfig(r=16, target_modules=["down_proj"]))
    assert sum(one.numel() for one in adapted.parameters() if one.requires_grad) == 7_733_248


def test_chrf_is_that_of_the_fields_standard_tool() -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    pairs = [
        ("24. Mai 2003", "24. Mai 2003"),
        ("vor 2 Wochen", "vor 3 Wochen"),
        ("in 17 Tagen und mehr", "in 17 Tagen"),
        ("", "leer"),
        ("ab", "x"),
        ("人口 12 百万", "人口 13 百万"),
        ("a b c d e f g h", "abcdefgh ijk"),
    ]
    for chosen in (pairs, pairs[:1], pairs[1:3], pairs[3:5], pairs[5:], [pairs[3]]):
        ours_, theirs = [list(side) for side in zip(*chosen)]
        assert CASE.chrf.corpus(ours_, theirs) == pytest.approx(sacrebleu.corpus_chrf(ours_, [theirs]).score, abs=1e-9)
