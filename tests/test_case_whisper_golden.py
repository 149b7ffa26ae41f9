"""Whisper beside independent implementations: transformers' model and features, peft's adapters, jiwer's error rate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from suite.drivers.events import RunProblem
from tests.case_whisper import CASE, TINY_FULL, params, task

Shape = CASE.shape.Shape
SIZES = {
    "d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "vocab_size": 99, "num_mel_bins": 8,
    "max_source_positions": 30, "max_target_positions": 24, "pad_token_id": 91, "bos_token_id": 91,
    "eos_token_id": 91, "decoder_start_token_id": 90, "init_std": 0.2, "suppress_tokens": None,
    "begin_suppress_tokens": None,
}  # fmt: skip
"""TINY_FULL under transformers' names."""


def values(**changes: Any) -> dict[str, Any]:
    return params(**{**TINY_FULL, "lora_dropout": 0.0, **changes})


def data(labels: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    features = torch.rand((3, 8, 60), generator=generator) * 2 - 1
    return features, torch.randint(0, 90, (3, labels), generator=generator)


# Transformers and peft


def theirs_and_ours() -> tuple[Any, Any]:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    theirs = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**SIZES)).eval()
    for name, parameter in theirs.named_parameters():
        if "norm" in name or "bias" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    ours = CASE.model.make(Shape.of(values())).eval()
    CASE.checkpoint.fill(ours, theirs.state_dict(), "transformers")
    return theirs, ours


def test_transformers_agrees_with_the_same_weights() -> None:
    theirs, ours = theirs_and_ours()
    features, labels = data()
    with torch.no_grad():
        expected = theirs(input_features=features, labels=labels)
        torch.testing.assert_close(ours(features, labels).mean(), expected.loss, rtol=1e-5, atol=1e-5)
        heard = expected.encoder_last_hidden_state
        torch.testing.assert_close(ours.encode(features), heard, rtol=1e-4, atol=1e-5)
    assert sum(p.numel() for p in theirs.parameters()) == ours.shape.base_parameters()


def test_transformers_counts_the_same_parameters_of_large_v2() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.WhisperConfig(
        vocab_size=51865, num_mel_bins=80, encoder_layers=32, decoder_layers=32, encoder_attention_heads=20,
        decoder_attention_heads=20, encoder_ffn_dim=5120, decoder_ffn_dim=5120, d_model=1280,
    )  # fmt: skip
    with torch.device("meta"):
        model = transformers.WhisperForConditionalGeneration(config)
    assert sum(p.numel() for p in model.parameters()) == Shape.of(params()).base_parameters()


def test_transformers_writes_the_same_tokens() -> None:
    theirs, ours = theirs_and_ours()
    features, _ = data()
    prompt = torch.tensor([[90, 3, 5]] * 3)
    with torch.no_grad():
        written = CASE.generation.write(ours, features, [90, 3, 5], 8)
        row = prompt
        for step in range(written.shape[1]):
            best = theirs(input_features=features, decoder_input_ids=row).logits[:, -1].argmax(-1)
            assert torch.equal(best, written[:, step])
            row = torch.cat((row, best[:, None]), 1)


def peft_names(name: str) -> str:
    """`encoder.1.attention.query_adapter.down` under peft's names."""
    side, number, kind, adapter, matrix = name.split(".")
    attention = "self_attn" if kind == "attention" else "encoder_attn"
    projection = {"query_adapter": "q_proj", "value_adapter": "v_proj"}[adapter]
    lora = {"down": "lora_A", "up": "lora_B"}[matrix]
    return f"base_model.model.model.{side}.layers.{number}.{attention}.{projection}.{lora}.default.weight"


def test_peft_agrees_with_the_same_adapters_and_has_the_same_gradients() -> None:
    peft = pytest.importorskip("peft")
    theirs, ours = theirs_and_ours()
    config = peft.LoraConfig(r=4, lora_alpha=32, target_modules=["q_proj", "v_proj"], lora_dropout=0.0, bias="none")
    theirs = peft.get_peft_model(theirs, config).eval()
    trained = {name: p for name, p in theirs.named_parameters() if p.requires_grad}
    mine = {peft_names(name): p for name, p in ours.named_parameters() if p.requires_grad}
    assert set(trained) == set(mine)
    with torch.no_grad():
        for name, parameter in mine.items():
            trained[name].normal_(std=0.2)
            parameter.copy_(trained[name])
    features, labels = data()
    expected = theirs.base_model.model(input_features=features, labels=labels).loss
    loss = ours(features, labels).mean()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    expected.backward()
    loss.backward()
    for name, parameter in mine.items():
        torch.testing.assert_close(parameter.grad, trained[name].grad, rtol=1e-3, atol=1e-6, msg=name)


def test_adapters_start_as_pefts_do() -> None:
    peft = pytest.importorskip("peft")
    linear = torch.nn.ModuleDict({"q_proj": torch.nn.Linear(256, 256)})
    config = peft.LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj"], bias="none")
    wrapped = dict(peft.get_peft_model(linear, config).named_parameters())
    adapter = CASE.lora.Adapter(256, 256, rank=16, alpha=32.0, dropout=0.0)
    adapter.initialise()
    down = next(p for name, p in wrapped.items() if "lora_A" in name)
    assert adapter.down.std().item() == pytest.approx(down.std().item(), rel=0.1)
    assert adapter.down.abs().max().item() == pytest.approx(down.abs().max().item(), rel=0.05)
    assert not adapter.up.any()
    assert adapter.scale == 2.0


@pytest.mark.parametrize("seconds", [30, 4])
def test_features_are_those_of_the_published_extractor(seconds: int) -> None:
    transformers = pytest.importorskip("transformers")
    extractor = transformers.WhisperFeatureExtractor(feature_size=80)
    random = np.random.default_rng(seconds)
    time = np.arange(16000 * seconds) / 16000
    sounds = [0.3 * np.sin(2 * np.pi * 440 * time), 0.1 * random.standard_normal(len(time))]
    mel = CASE.mel.LogMel.of(params())
    clips = torch.tensor(np.stack([np.pad(one, (0, mel.samples - len(one))) for one in sounds]), dtype=torch.float32)
    expected = extractor([one.astype(np.float32) for one in sounds], sampling_rate=16000, return_tensors="pt")
    torch.testing.assert_close(mel(clips), expected["input_features"], rtol=1e-3, atol=1e-4)


# Word error rate


@pytest.mark.parametrize(
    ("said", "written", "errors"),
    [
        ("a b c", "a b c", 0),
        ("a b c", "", 3),
        ("", "a b", 2),
        ("a b c", "a c", 1),
        ("a b c", "a x b c", 1),
        ("a b c", "a x c", 1),
        ("a b c d", "b c d a", 2),
        ("one two", "two one", 2),
    ],
)
def test_word_errors_of_known_pairs(said: str, written: str, errors: int) -> None:
    assert CASE.wer.word_errors(said.split(), written.split()) == errors


def test_jiwer_counts_the_same_errors() -> None:
    jiwer = pytest.importorskip("jiwer")
    random = np.random.default_rng(0)
    for _ in range(200):
        said, written = (list(map(str, random.integers(0, 4, random.integers(1, 9)))) for _ in range(2))
        rate = jiwer.wer(" ".join(said), " ".join(written))
        assert CASE.wer.word_errors(said, written) == round(rate * len(said))


# Pre-trained weights


def published(model: Any) -> dict[str, torch.Tensor]:
    """The frozen weights under the published names, taken apart, without biases of keys and rows that round up."""
    weights = {}
    for name, value in model.named_parameters():
        if "_adapter." in name:
            continue
        parts = CASE.checkpoint.published_names(name)
        weights |= dict(zip(parts, value.detach().clone().chunk(len(parts))))
    weights["model.decoder.embed_tokens.weight"] = weights["model.decoder.embed_tokens.weight"][:99].clone()
    return {name: value for name, value in weights.items() if not name.endswith("k_proj.bias")}


def write_safetensors(path: Path, weights: dict[str, torch.Tensor]) -> None:
    """As the format's description says."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    content = b""
    for name, value in weights.items():
        raw = value.numpy().astype("<f4").tobytes()
        place = [len(content), len(content) + len(raw)]
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": place}
        content += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_published_weights_fill_all_but_the_adapters(tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    source = task(values()).build()
    weights = published(source)
    if name.endswith(".bin"):
        torch.save(weights, tmp_path / name)
    else:
        write_safetensors(tmp_path / name, weights)
    torch.manual_seed(1)
    loaded = task(values(init_checkpoint=name), data_dir=tmp_path).build()
    for (part, one), other in zip(source.named_parameters(), loaded.parameters()):
        assert torch.equal(one, other) == (not part.endswith("_adapter.down")), part


def test_half_of_a_file_and_another_model_are_sentences(tmp_path: Path) -> None:
    weights = published(task(values()).build())
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {key: value for key, value in weights.items() if "fc1" not in key})
    with pytest.raises(RunProblem, match=r"lacks 'model\.encoder\.layers\.0\.fc1\.weight'"):
        task(values(init_checkpoint=path.name), data_dir=tmp_path).build()
    write_safetensors(path, weights)
    with pytest.raises(RunProblem, match=r"parameter '.*' is \(.*\) in .*model.safetensors, .* in the model: set the"):
        task(values(init_checkpoint=path.name, feed_size=72), data_dir=tmp_path).build()
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(RunProblem, match="is no safetensors file of floating-point weights: fetch it again"):
        task(values(init_checkpoint=path.name), data_dir=tmp_path).build()
    path.unlink()
    with pytest.raises(RunProblem, match=r"\(init_checkpoint\) is missing: .*--set init_checkpoint"):
        task(values(init_checkpoint=path.name), data_dir=tmp_path).build()
