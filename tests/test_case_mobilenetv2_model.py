"""MobileNetV2 the model: its size, its cost, its agreement with an independent one, and its number formats."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from suite.drivers.events import RunProblem
from suite.flops import FORMULAS, convolution
from tests.case_mobilenetv2 import CASE, TINY, one_thread, params, task

MobileNetV2, Shape = CASE.model.MobileNetV2, CASE.model.Shape


@pytest.fixture(autouse=True, scope="module")
def alone() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture
def net() -> Any:
    torch.manual_seed(0)
    return MobileNetV2(Shape.of(params("mini")))


def pictures(count: int, shape: Any, seed: int = 3) -> torch.Tensor:
    size = (count, shape.image_size, shape.image_size, len(shape.pixel_mean))
    return torch.randint(0, 256, size, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def meta(shape: Any) -> Any:
    with torch.device("meta"):
        return MobileNetV2(shape)


def test_full_has_the_published_number_of_parameters() -> None:
    shape = Shape.of(params())
    counted = sum(parameter.numel() for parameter in meta(shape).parameters())
    assert counted == shape.parameters() == 3_504_872


def test_mini_is_the_same_network_but_narrower() -> None:
    shape = Shape.of(params("mini"))
    small, large = (dict(meta(one).named_parameters()) for one in (shape, Shape.of(params())))
    assert sum(parameter.numel() for parameter in small.values()) == shape.parameters() == 162_458
    assert list(small) == list(large)


def test_there_are_seventeen_blocks_and_ten_shortcuts() -> None:
    blocks = meta(Shape.of(params())).blocks
    assert len(blocks) == 1 + 17 + 1
    assert sum(block.residual for block in blocks) == 10


@pytest.mark.parametrize(
    "count, rounded", [(8.0, 8), (3.0, 8), (11.9, 16), (12.0, 16), (33.6, 32), (19.0, 24), (80.0, 80)]
)
def test_channels_are_multiples_of_eight_and_lose_at_most_a_tenth(count: float, rounded: int) -> None:
    assert CASE.model.channels(count) == rounded


@pytest.mark.parametrize("changes", [{}, TINY, {"width": 0.5, "image_size": 33}])
def test_flop_formula_equals_a_count(changes: dict[str, Any]) -> None:
    shape = Shape.of(params(**changes))
    with torch.device("meta"):
        model, images = MobileNetV2(shape), torch.empty(2, shape.image_size, shape.image_size, 3, dtype=torch.uint8)
        with FlopCounterMode(display=False) as counter:
            model(images)
    assert counter.get_total_flops() == 2 * shape.forward_flops()


def test_full_costs_what_the_paper_says() -> None:
    """300 million multiply-accumulates."""
    assert Shape.of(params()).forward_flops() == pytest.approx(2 * 300e6, rel=0.01)


def test_training_is_said_to_cost_three_times_the_forward_pass() -> None:
    """torch's own count of a backward pass leaves groups out of account, so it is no witness here."""
    flops, formula = task(params()).flops_per_sample()
    assert flops == convolution(Shape.of(params()).forward_flops())
    assert formula in FORMULAS


def test_bytes_are_scaled_as_a_decoder_would() -> None:
    shape = Shape.of(params(**TINY))
    model = MobileNetV2(shape).eval()
    images = pictures(2, shape)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (shape.pixel_mean, shape.pixel_std))
    scaled = (images.permute(0, 3, 1, 2).float() / 255 - mean) / std
    with torch.no_grad():
        torch.testing.assert_close(model(images), model.classify(scaled), rtol=1e-4, atol=1e-5)


def test_the_layout_in_memory_changes_no_score(net: Any) -> None:
    shape = Shape.of(params("mini", memory_format="contiguous"))
    other = MobileNetV2(shape).eval()
    other.load_state_dict(net.state_dict())
    images = pictures(4, shape)
    with torch.no_grad():
        torch.testing.assert_close(net.eval()(images), other(images), rtol=1e-4, atol=1e-5)
    assert net.blocks[0].units[0][0].weight.is_contiguous(memory_format=torch.channels_last)


def test_an_unknown_layout_is_refused() -> None:
    with pytest.raises(RunProblem, match=r"memory_format = 'nchw' is not one of channels_last, contiguous"):
        MobileNetV2(Shape.of(params("mini", memory_format="nchw")))


def copied(model: Any, other: torch.nn.Module) -> torch.nn.Module:
    """`other` with the weights and statistics of `model`, which come in the same order."""
    ours, theirs = model.state_dict(), other.state_dict()
    assert [value.shape for value in ours.values()] == [value.shape for value in theirs.values()]
    other.load_state_dict(dict(zip(theirs, ours.values())))
    return other


def with_statistics(model: Any, images: torch.Tensor) -> Any:
    """The model after two training passes, so that its running statistics say something."""
    with torch.no_grad():
        for _ in range(2):
            model.train()(images)
    return model


def test_torchvisions_model_with_our_weights_gives_our_scores() -> None:
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(1)
    shape = Shape.of(params(image_size=96))
    model = with_statistics(MobileNetV2(shape), pictures(4, shape))
    other = copied(model, torchvision.models.mobilenet_v2(num_classes=1000))
    images = pictures(3, shape, seed=9)
    scaled = (images.permute(0, 3, 1, 2) - model.white_mean) / model.white_std
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(images), other.eval()(scaled), rtol=1e-3, atol=1e-4)


class Plain(torch.nn.Module):
    """The paper's network once more, in a few lines that share nothing with the case's."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        width, stages = 32, "1 16 1 1, 6 24 2 2, 6 32 3 2, 6 64 4 2, 6 96 3 1, 6 160 3 2, 6 320 1 1"
        self.layers = torch.nn.ModuleList([self.cell(3, 32, 3, 2)])
        for stage in stages.split(","):
            t, c, n, s = map(int, stage.split())
            for i in range(n):
                cells = [self.cell(width, width * t, 1)] if t > 1 else []
                cells += [self.cell(width * t, width * t, 3, s if i == 0 else 1, width * t)]
                self.layers.append(torch.nn.Sequential(*cells, self.cell(width * t, c, 1, relu=False)))
                width = c
        self.layers.append(self.cell(320, 1280, 1))
        self.out = torch.nn.Linear(1280, classes)
        self.shortcuts = {3, 5, 6, 8, 9, 10, 12, 13, 15, 16}

    @staticmethod
    def cell(i: int, o: int, k: int, s: int = 1, g: int = 1, relu: bool = True) -> torch.nn.Sequential:
        parts = [torch.nn.Conv2d(i, o, k, s, k // 2, groups=g, bias=False), torch.nn.BatchNorm2d(o)]
        return torch.nn.Sequential(*parts, *([torch.nn.ReLU6()] if relu else []))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            x = x + layer(x) if number in self.shortcuts else layer(x)
        return self.out(torch.nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


def test_a_second_writing_of_the_paper_gives_the_same_scores_and_gradients() -> None:
    torch.manual_seed(1)
    shape = Shape.of(params(image_size=32, num_classes=7, dropout=0.0))
    model = MobileNetV2(shape)
    other = copied(model, Plain(7)).double()
    model = model.double()
    images, labels = pictures(4, shape), torch.tensor([0, 3, 6, 2])
    scaled = (images.permute(0, 3, 1, 2) - model.white_mean) / model.white_std
    ours, theirs = model.classify(scaled), other(scaled)
    torch.testing.assert_close(ours, theirs)
    for scores in (ours, theirs):
        F.cross_entropy(scores, labels).backward()
    for mine, its in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(mine.grad, its.grad)
    for (name, mine), its in zip(model.state_dict().items(), other.state_dict().values()):
        if "running" in name:
            torch.testing.assert_close(mine, its)


def test_bf16_scores_stay_near_those_of_fp32(net: Any) -> None:
    """Within 2 % of the scores' spread; what that does to training is measured in the tests of training."""
    shape = Shape.of(params("mini"))
    net = with_statistics(net, pictures(64, shape)).eval()
    images = pictures(64, shape, seed=8)
    with torch.no_grad():
        scores = net(images)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = net(images).float()
    assert (rounded - scores).abs().max() < 0.02 * (scores.max() - scores.min())


def test_each_convolution_goes_through_the_slot(net: Any) -> None:
    seen = []

    def watched(x: Any, convolution: Any, norm: Any, activate: bool) -> Any:
        seen.append((convolution.kernel_size[0], convolution.groups > 1, activate))
        return CASE.model.standard_conv_norm(x, convolution, norm, activate)

    other = MobileNetV2(Shape.of(params("mini")), watched).eval()
    other.load_state_dict(net.state_dict())
    images = pictures(2, Shape.of(params("mini")))
    with torch.no_grad():
        assert torch.equal(other(images), net.eval()(images))
    assert len(seen) == 52
    assert sum(depthwise for _, depthwise, _ in seen) == 17
    assert sum(not activate for _, _, activate in seen) == 17


def test_dropout_and_batch_statistics_end_with_training(net: Any) -> None:
    images = pictures(4, Shape.of(params("mini")))
    net.eval()
    before = copy.deepcopy(net.state_dict())
    with torch.no_grad():
        alone, together = net(images[:1]), net(images)[:1]
    torch.testing.assert_close(alone, together, rtol=1e-4, atol=1e-5)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    net.train()
    with torch.no_grad():
        net(images)
    assert not torch.equal(
        net.state_dict()["blocks.0.units.0.1.running_mean"], before["blocks.0.units.0.1.running_mean"]
    )


def test_one_graph_without_breaks(net: Any) -> None:
    explained = torch._dynamo.explain(net)(pictures(2, Shape.of(params("mini"))))
    assert explained.graph_break_count == 0
