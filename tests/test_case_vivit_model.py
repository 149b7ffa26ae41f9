"""ViViT the model: its size, what it computes, what that costs, and Hugging Face's own as the golden reference."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from suite.drivers.events import RunProblem
from suite.flops import FORMULAS
from tests.case_vivit import CASE, TINY, one_thread, params, task

Shape, ViViT = CASE.model.Shape, CASE.model.ViViT

FACTORISED = {"attention": "factorised", "temporal_layers": 2}


@pytest.fixture(autouse=True)
def alone() -> Any:
    """One thread."""
    with one_thread():
        yield


def tiny(**changes: Any) -> Any:
    return Shape.of(params(**TINY | changes))


def net(seed: int = 0, **changes: Any) -> Any:
    torch.manual_seed(seed)
    model = ViViT(tiny(**changes))
    for name, parameter in model.named_parameters():  # nothing is zero, so nothing is hidden
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.1)
    return model


def clips(count: int = 2, frames: int = 4, size: int = 32, channels: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(0, 256, (count, frames, size, size, channels), dtype=torch.uint8, generator=generator)


# Its size


@pytest.mark.parametrize(("changes", "expected"), [({}, 88_654_090), ({"num_classes": 400}, 88_954_000)])
def test_the_published_model_has_its_published_size(
    changes: dict[str, Any], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = Shape.of(params(**changes))
    # On meta, drawing numbers imports for seconds.
    monkeypatch.setattr(torch.nn.init, "normal_", lambda weight, **_: weight)
    monkeypatch.setattr(torch.nn.Linear, "reset_parameters", lambda self: None)
    with torch.device("meta"):
        model = ViViT(shape)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected == shape.parameters()
    assert shape.moments * shape.places + 1 == 3137


def test_mini_is_the_factorised_model() -> None:
    shape = Shape.of(params("mini"))
    assert sum(parameter.numel() for parameter in ViViT(shape).parameters()) == 210_376 == shape.parameters()
    assert (shape.attention, shape.moments, shape.places) == ("factorised", 4, 16)


def test_shapes_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(RunProblem, match="attention = 'divided' is not one of joint, factorised"):
        tiny(attention="divided")
    with pytest.raises(RunProblem, match="image_size = 30 is no multiple of tubelet_size = 8"):
        tiny(image_size=30)


# What it computes


def test_cutting_and_a_product_are_the_papers_convolution() -> None:
    model = net()
    weight = model.tubelets.weight.unflatten(1, (2, 8, 8, 3)).permute(0, 4, 1, 2, 3)
    pixels = (clips().permute(0, 4, 1, 2, 3) / 255 - 0.5) / 0.5
    expected = F.conv3d(pixels, weight, model.tubelets.bias, stride=(2, 8, 8)).flatten(3).permute(0, 2, 3, 1)
    torch.testing.assert_close(model.tubelets(model._cut(clips())), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("changes", [{}, FACTORISED], ids=["joint", "factorised"])
def test_a_last_layer_for_the_class_token_alone_changes_nothing(changes: dict[str, Any]) -> None:
    """Scores and gradients are those of a model that computes all tokens and then takes the first."""
    model = net(**changes).double()

    def gradients() -> list[torch.Tensor]:
        model.zero_grad()
        scores = model(clips().double())
        F.cross_entropy(scores, torch.tensor([0, 2])).backward()
        return [scores.detach(), *(parameter.grad.clone() for parameter in model.parameters())]

    short = gradients()
    for layer in [module for module in model.modules() if isinstance(module, CASE.model.Layer)]:
        whole = type(layer).forward
        layer.forward = lambda x, class_only=False, layer=layer, whole=whole: whole(layer, x)
    torch.testing.assert_close(short, gradients(), rtol=1e-9, atol=1e-10)


def test_joint_attention_mixes_moments_and_the_order_of_time_matters() -> None:
    for changes in ({}, FACTORISED):
        model = net(init_std=0.3, **changes).eval()
        backwards = clips().flip(1)
        assert (model(clips()) - model(backwards)).abs().max() > 1e-3


def test_checkpointed_activations_give_the_same_gradients() -> None:
    found = []
    for on in (False, True):
        model = net(activation_checkpointing=on, **FACTORISED)
        F.cross_entropy(model(clips()), torch.tensor([0, 2])).backward()
        found.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(*found)


# What it costs


@pytest.mark.parametrize("changes", [{}, FACTORISED, {"num_layers": 1}], ids=["joint", "factorised", "one layer"])
def test_flops_are_those_that_are_counted(changes: dict[str, Any]) -> None:
    one = task(params(**TINY | changes))
    model = one.build()
    counter = FlopCounterMode(display=False)
    batch = {"clips": clips(), "labels": torch.tensor([0, 2])}
    with sdpa_kernel(SDPBackend.MATH), counter:
        one.loss(model, batch).backward()
    flops, formula = one.flops_per_sample()
    assert counter.get_total_flops() == 2 * flops
    assert formula in FORMULAS


def test_full_size_costs_2_5_teraflop_a_clip() -> None:
    """11 x 74.64 and 7.42 GFLOP of the layers three times, 7.40 of the tubelets twice."""
    assert Shape.of(params()).training_flops() == pytest.approx(2.5001e12, rel=1e-4)


# Pre-trained weights


def weights_of(model: Any, newer: bool) -> dict[str, torch.Tensor]:
    """The joint model's weights under the published names, or under those of newer versions of that library."""
    state, d = model.state_dict(), model.shape.hidden_size
    found = {
        "vivit.embeddings.cls_token": state["encoder.class_token"].view(1, 1, d),
        "vivit.embeddings.position_embeddings": state["encoder.positions"][None],
        "vivit.embeddings.patch_embeddings.projection.weight": model.tubelets.weight.unflatten(
            1, (model.shape.tubelet_frames, model.shape.tubelet_size, model.shape.tubelet_size, 3)
        ).permute(0, 4, 1, 2, 3),
        "vivit.embeddings.patch_embeddings.projection.bias": state["tubelets.bias"],
        "classifier.weight": torch.zeros(400, d),
        "classifier.bias": torch.zeros(400),
    }
    for leaf in ("weight", "bias"):
        found[f"vivit.layernorm.{leaf}"] = state[f"norm.{leaf}"]
        for number in range(model.shape.num_layers):
            ours, theirs = f"encoder.layers.{number}", f"vivit.encoder.layer.{number}"
            for name, published in CASE.checkpoint.LAYERS.items():
                found[f"{theirs}.{published}.{leaf}"] = state[f"{ours}.{name}.{leaf}"]
            parts = state[f"{ours}.query_key_value.{leaf}"].chunk(3)
            found |= {f"{theirs}.{name}.{leaf}": part for name, part in zip(CASE.checkpoint.QUERY_KEY_VALUE, parts)}
    if newer:
        for published, name in CASE.checkpoint.RENAMED:
            found = {key.replace(published, name): value for key, value in found.items()}
    return {name: value.detach().clone().contiguous() for name, value in found.items()}


def write_safetensors(path: Path, weights: dict[str, torch.Tensor]) -> None:
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    content = b""
    for name, value in weights.items():
        raw = value.numpy().tobytes()
        table[name] = {
            "dtype": "F32",
            "shape": list(value.shape),
            "data_offsets": [len(content), len(content) + len(raw)],
        }
        content += raw
    head = json.dumps(table).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(struct.pack("<Q", len(head)) + head + content)


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize("ending", [".bin", ".safetensors"])
def test_published_weights_fill_all_but_the_classifier(newer: bool, ending: str, tmp_path: Path) -> None:
    source, path = net(seed=5), tmp_path / f"weights{ending}"
    if ending == ".bin":
        torch.save(weights_of(source, newer), path)
    else:
        write_safetensors(path, weights_of(source, newer))
    loaded = task(params(**TINY | {"init_checkpoint": path.name}), data_dir=tmp_path).build()
    for name, value in source.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value) != name.startswith("classifier."), name


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    weights = weights_of(net(), False)
    with pytest.raises(RunProblem, match=r"'encoder\.positions' is \(33, 32\) in w.bin, \(65, 32\) in the model"):
        CASE.checkpoint.fill(net(num_frames=8), weights, "w.bin")
    weights.pop("vivit.layernorm.bias")
    with pytest.raises(RunProblem, match=r"w.bin lacks 'vivit.layernorm.bias': it is no checkpoint of ViViT"):
        CASE.checkpoint.fill(net(), weights, "w.bin")
    (tmp_path / "w.safetensors").write_bytes(b"<html>not found</html>")
    (tmp_path / "w.bin").write_bytes(b"<html>not found</html>")
    for name in ("w.safetensors", "w.bin"):
        with pytest.raises(RunProblem, match=rf"{name} cannot be loaded as plain weights: fetch it again"):
            CASE.checkpoint.read_weights(tmp_path / name)
    with pytest.raises(RunProblem, match="is of the joint model: set attention = joint"):
        task(params(**TINY | FACTORISED | {"init_checkpoint": "w.bin"}), data_dir=tmp_path).build()
    with pytest.raises(RunProblem, match=r"absent.bin \(init_checkpoint\) is missing: .*--set init_checkpoint"):
        task(params(**TINY | {"init_checkpoint": "absent.bin"}), data_dir=tmp_path).build()


def test_it_computes_what_hugging_faces_model_computes() -> None:
    """Scores, loss and every gradient, with copied weights."""
    transformers = pytest.importorskip("transformers")
    shape = tiny()
    config = transformers.VivitConfig(
        image_size=32, num_frames=4, tubelet_size=[2, 8, 8], hidden_size=32, num_hidden_layers=2,
        num_attention_heads=2, intermediate_size=48, num_labels=3, problem_type="single_label_classification",
    )  # fmt: skip
    theirs = transformers.VivitForVideoClassification(config)
    ours = net()
    state = weights_of(ours, newer="vivit.layers.0.layernorm_before.weight" in theirs.state_dict())
    state |= {f"classifier.{leaf}": getattr(ours.classifier, leaf).detach() for leaf in ("weight", "bias")}
    theirs.load_state_dict(state)
    pixels = (clips().permute(0, 1, 4, 2, 3) / 255 - 0.5) / 0.5
    labels = torch.tensor([0, 2])
    expected = theirs(pixel_values=pixels, labels=labels)
    scores = ours(clips())
    torch.testing.assert_close(scores, expected.logits, rtol=1e-4, atol=1e-5)
    loss = F.cross_entropy(scores, labels)
    torch.testing.assert_close(loss, expected.loss, rtol=1e-5, atol=1e-6)
    loss.backward()
    expected.loss.backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    carrier = ViViT(shape)
    CASE.checkpoint.fill(carrier, gradients, "the gradients of Hugging Face's model")
    named = dict(carrier.named_parameters())
    for name, parameter in ours.named_parameters():
        wanted = gradients[name] if name.startswith("classifier.") else named[name].detach()
        torch.testing.assert_close(parameter.grad, wanted, rtol=1e-3, atol=1e-6)
