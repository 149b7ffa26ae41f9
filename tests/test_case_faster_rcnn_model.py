"""Faster R-CNN is what it says it is: sizes, operators, matching, and another implementation with the same weights."""

from __future__ import annotations

import itertools
import math
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from suite.drivers.events import RunProblem
from tests.case_faster_rcnn import CASE, CASE_DIR, FEW, losses, params, task

SEEDS = st.integers(0, 2**31 - 1)


def make(values: dict[str, Any]) -> Any:
    plain = {"suppress": CASE.operators.suppress, "pool": CASE.operators.pool}
    return CASE.model.FasterRCNN(CASE.model.Shape.of(values), **plain)


def random_boxes(count: int, seed: int, extent: float = 64.0, *, groups: tuple[int, ...] = ()) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(*groups, count, 2, generator=generator) * extent * 0.8
    return torch.cat([corner, corner + torch.rand(*groups, count, 2, generator=generator) * extent / 2], -1)


# Sizes


def sizes_by_formula(classes: int) -> int:
    """ResNet-50's convolutions, pyramid, proposals and head, from the papers' tables."""
    resnet, channels = 64 * 3 * 49, 64
    for inner, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            resnet += channels * inner + 9 * inner * inner + 4 * inner * inner
            resnet += 4 * channels * inner if block == 0 else 0
            channels = 4 * inner
    pyramid = sum(256 * width + 256 for width in (256, 512, 1024, 2048)) + 4 * (9 * 256 * 256 + 256)
    proposals = 9 * 256 * 256 + 256 + (3 + 12) * 257
    head = (49 * 256 + 1) * 1024 + 1025 * 1024 + 1025 * 5 * classes
    return resnet + pyramid + proposals + head


@pytest.mark.parametrize(("classes", "expected"), [(91, 41_755_286), (21, 41_396_536)])
def test_the_full_model_has_the_published_parameters(classes: int, expected: int) -> None:
    """41.8 M with 91 classes, as torchvision's fasterrcnn_resnet50_fpn; the class count is really used."""
    with torch.device("meta"):
        model = make(params(num_classes=classes))
    assert sum(parameter.numel() for parameter in model.parameters()) == expected == sizes_by_formula(classes)


def test_stem_and_first_stage_keep_their_weights() -> None:
    with torch.device("meta"):
        model = make(params())
    frozen = {name.split(".")[1] for name, weight in model.named_parameters() if not weight.requires_grad}
    assert frozen == {"conv1", "layer1"}
    assert sum(weight.numel() for weight in model.parameters() if not weight.requires_grad) == 9_408 + 212_992


@pytest.mark.parametrize("frozen", [0, 2])
def test_work_is_what_the_flop_counter_sees(frozen: int) -> None:
    changes = {"frozen_stages": frozen, "backbone_blocks": [1, 2, 1, 1], "norm": "frozen", "train_batch_size": 1}
    one = task(params("mini", **FEW, **changes))
    model = one.build()
    batch = next(one.synthetic_batches())
    counter = FlopCounterMode(display=False)
    with counter:
        losses(model, batch).sum().backward()
    seen = sum(
        count
        for operator, count in counter.get_flop_counts()["Global"].items()
        if not any(name in str(operator) for name in ("bmm", "baddbmm"))  # suppression is no work
    )
    expected, formula = one.flops_per_sample()
    assert formula == "counted"
    assert seen / len(batch["labels"]) == pytest.approx(expected, rel=1e-9)


def test_full_takes_a_teraflop_an_image() -> None:
    """190 G multiply-accumulates forward (ResNet-50's 4.09 G at 224 x 224 are 79 of them), less what is frozen."""
    flops, _ = task(params()).flops_per_sample()
    assert 0.9 < flops / (3 * 2 * 190e9) < 1


# Static shapes


def test_a_training_step_at_full_size_reads_no_value() -> None:
    """Tensors of the meta device have shapes and no values: whatever asks for one fails."""
    with torch.device("meta"):
        model = make(params())
        images = torch.empty(16, 800, 1216, 3, dtype=torch.uint8)
        sizes, boxes = torch.empty(16, 2), torch.empty(16, 100, 4)
        labels, keys = torch.empty(16, 100, dtype=torch.long), torch.empty(16, dtype=torch.long)
        found = model(images, sizes, boxes, labels, keys)
        assert found.shape == (16, 4)
        found.sum().backward()
    assert model.head.fc6.weight.grad.shape == (1024, 256 * 49)


def test_a_training_step_is_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in vars(CASE).items():
        monkeypatch.setitem(sys.modules, name, module)  # the compiler looks them up by name
    one = task(params("mini", **FEW, train_batch_size=2))
    one.prepare_data()
    torch.manual_seed(1)
    model = one.build()
    batch = next(one.train_batches(1))
    compiled = torch.compile(model, backend="eager", fullgraph=True, dynamic=False)
    torch.testing.assert_close(losses(compiled, batch), losses(model, batch), rtol=1e-3, atol=1e-4)


# Operators


def greedy(boxes: torch.Tensor, real: list[bool], threshold: float, labels: list[int]) -> list[bool]:
    """Non-maximum suppression as the textbook has it, best box first."""
    kept: list[int] = []
    for i in range(len(boxes)):
        rivals = [j for j in kept if labels[j] == labels[i]]
        overlap = CASE.boxes.iou(boxes[i : i + 1], boxes[rivals])[0] if rivals else torch.zeros(0)
        if real[i] and not bool((overlap > threshold).any()):
            kept.append(i)
    return [i in kept for i in range(len(boxes))]


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.floats(0.1, 0.7), st.integers(1, 24))
def test_suppression_is_the_greedy_one_for_all_groups_at_once(seed: int, threshold: float, count: int) -> None:
    boxes = random_boxes(count, seed, 30, groups=(2, 2))
    generator = torch.Generator().manual_seed(seed)
    real = torch.rand(2, 2, count, generator=generator) < 0.8
    labels = torch.randint(0, 2, (2, 2, count), generator=generator)
    kept = CASE.operators.suppress(boxes, real, threshold, 0, labels)
    quick = CASE.operators.suppress(boxes, real, threshold, 3, labels)
    for b, group in itertools.product(range(2), range(2)):
        expected = greedy(boxes[b, group], real[b, group].tolist(), threshold, labels[b, group].tolist())
        assert kept[b, group].tolist() == expected
    assert not bool((quick & ~kept).any()), "an odd number of rounds keeps nothing that must fall"


def test_a_chain_of_rivals_needs_as_many_rounds_as_it_is_long() -> None:
    left = torch.arange(12.0) * 4
    boxes = torch.stack([left, torch.zeros(12), left + 10, torch.full((12,), 10.0)], 1)[None, None]
    real = torch.ones(1, 1, 12, dtype=torch.bool)
    exact = CASE.operators.suppress(boxes, real, 0.4)
    assert exact[0, 0].tolist() == [True, False] * 6
    assert CASE.operators.suppress(boxes, real, 0.4, 3)[0, 0].tolist() == [True, False, True] + [False] * 9
    assert torch.equal(CASE.operators.suppress(boxes, real, 0.4, 13), exact)


def bilinear(features: torch.Tensor, y: float, x: float) -> torch.Tensor:
    height, width = features.shape[-2:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return torch.zeros(len(features))
    y, x = min(max(y, 0.0), height - 1.0), min(max(x, 0.0), width - 1.0)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    down, along = y - top, x - left
    above = features[:, top, left] * (1 - along) + features[:, top, right] * along
    below = features[:, bottom, left] * (1 - along) + features[:, bottom, right] * along
    return above * (1 - down) + below * down


def one_region(features: torch.Tensor, box: list[float], stride: int, size: int) -> torch.Tensor:
    """RoIAlign of one box, bin by bin and point by point: [size * size * channels]."""
    left, top, right, bottom = (edge / stride for edge in box)
    wide, high = max(right - left, 1.0) / size, max(bottom - top, 1.0) / size
    bins = []
    for row, column in itertools.product(range(size), range(size)):
        points = [
            bilinear(features, top + (row + a) * high, left + (column + b) * wide)
            for a, b in itertools.product((0.25, 0.75), repeat=2)
        ]
        bins.append(torch.stack(points).mean(0))
    return torch.cat(bins)


def pyramid_of(sides: tuple[int, ...], images: int = 2) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(images, 3, side, side, requires_grad=True) for side in sides]


def test_pooling_is_roi_align_from_the_level_of_each_box() -> None:
    pyramid = pyramid_of((16, 8, 4, 2))
    edges = torch.tensor([[0.0, 0, 64, 64], [60, 60, 64, 64], [63.9, 1, 64, 9], [0, 0, 0, 0], [10, 10, 50, 50]])
    boxes = torch.stack([torch.cat([random_boxes(6, seed), edges]) for seed in (1, 2)])
    pooled = CASE.operators.pool(pyramid, boxes, 3, 30.0).view(2, 11, -1)
    seen = set()
    for image, region in itertools.product(range(2), range(11)):
        box = boxes[image, region].tolist()
        side = math.sqrt((box[2] - box[0]) * (box[3] - box[1]))
        level = min(3, max(0, math.floor(2 + math.log2(side / 30) + 1e-6))) if side else 0
        seen.add(level)
        expected = one_region(pyramid[level][image], box, 4 * 2**level, 3)
        torch.testing.assert_close(pooled[image, region], expected, rtol=1e-4, atol=1e-5)
    assert seen == {0, 1, 2, 3}


def torchvision_operators() -> Any:
    """torchvision with its own kernels, or skip: a build for another device imports without them, or not at all."""
    try:
        ops = pytest.importorskip("torchvision", exc_type=ImportError).ops
        ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except (RuntimeError, AttributeError) as problem:
        pytest.skip(f"torchvision has no operators here: {problem}")
    return ops


def test_torchvisions_operators_give_the_same() -> None:
    torchvision_operators()
    boxes = random_boxes(60, 3, 40, groups=(2, 3))
    real = torch.rand(2, 3, 60, generator=torch.Generator().manual_seed(1)) < 0.9
    labels = torch.randint(1, 4, (2, 3, 60), generator=torch.Generator().manual_seed(2))
    for named in (None, labels):
        ours = CASE.operators.suppress(boxes, real, 0.5, 0, named)
        assert torch.equal(ours, CASE.kernels.suppress(boxes, real, 0.5, 0, named))
    results = []
    for pool in (CASE.operators.pool, CASE.kernels.pool):
        pyramid = pyramid_of((16, 8, 4, 2))
        pooled = pool(pyramid, random_boxes(40, 4, 90, groups=(2,)).clamp(max=64), 5, 12.0)
        pooled.square().sum().backward()
        results.append((pooled, *(level.grad for level in pyramid)))
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_operators_are_chosen_by_name_and_a_vendors_stay() -> None:
    mine = {"suppress": CASE.operators.suppress, "pool": len}
    assert CASE.kernels.choose("torch", mine) == mine
    assert CASE.kernels.choose("auto", mine)["pool"] is len
    with pytest.raises(RunProblem, match="operators = 'fast' is not one of auto, torch, torchvision"):
        CASE.kernels.choose("fast", mine)


def test_torchvision_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CASE.kernels, "ops", None)
    with pytest.raises(RunProblem, match="install it or set 'torch'"):
        CASE.kernels.choose("torchvision", CASE.train.Detect.default_slots())


# Boxes, anchors, matching


@settings(max_examples=25, deadline=None)
@given(SEEDS)
def test_offsets_lead_back_to_the_box(seed: int) -> None:
    references, wanted = random_boxes(9, seed) + torch.tensor([0, 0, 4.0, 4.0]), random_boxes(9, seed + 1)
    wanted = wanted + torch.tensor([0, 0, 4.0, 4.0])
    weights = CASE.model.REGION_WEIGHTS
    offsets = CASE.boxes.encode(references, wanted, weights)
    torch.testing.assert_close(CASE.boxes.decode(references, offsets, weights), wanted, rtol=1e-3, atol=1e-3)


def test_overlaps_worked_by_hand() -> None:
    boxes = torch.tensor([[0.0, 0, 10, 10], [5, 0, 15, 10], [20, 20, 30, 30], [3, 3, 3, 3]])
    expected = [1, 1 / 3, 0, 0]
    torch.testing.assert_close(CASE.boxes.iou(boxes[:1], boxes)[0], torch.tensor(expected))
    assert CASE.boxes.iou(boxes[3:], boxes[3:]).item() == 0


def test_anchors_are_centred_on_their_places() -> None:
    shapes = CASE.anchors.shapes(32.0, (0.5, 1.0, 2.0))
    assert shapes.tolist() == [[-23, -11, 23, 11], [-16, -16, 16, 16], [-11, -23, 11, 23]]
    grid = CASE.anchors.grid(shapes, 2, 3, (16, 24))
    assert grid.view(2, 3, 3, 4)[1, 2, 1].tolist() == [0, -8, 32, 24]


def test_every_true_box_is_learnt_by_its_best_anchor() -> None:
    candidates = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 4], [40, 40, 50, 50]])
    boxes = torch.tensor([[[0.0, 0, 10, 5], [100, 100, 110, 110], [0, 0, 9, 9]]])
    real = torch.tensor([[True, True, False]])
    plain = CASE.matching.match(candidates, boxes, real, 0.3, 0.85, rescue=False)
    assert plain.positive[0].tolist() == [False, False, False]
    assert plain.negative[0].tolist() == [False, False, True]
    rescued = CASE.matching.match(candidates, boxes, real, 0.3, 0.85, rescue=True)
    assert rescued.positive[0].tolist() == [False, True, False], "no anchor touches the second box"
    none = CASE.matching.match(candidates, boxes, torch.zeros_like(real), 0.3, 0.85, rescue=True)
    assert none.negative.all()


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.integers(0, 30), st.integers(0, 30))
def test_drawing_takes_positives_up_to_their_share_and_fills_up(seed: int, positives: int, negatives: int) -> None:
    order = torch.randperm(60, generator=torch.Generator().manual_seed(seed))
    positive, negative = torch.zeros(2, 1, 60, dtype=torch.bool)
    positive[0, order[:positives]] = True
    negative[0, order[positives : positives + negatives]] = True
    drawn = CASE.matching.draw(positive, negative, torch.tensor([seed]), 16, 4)
    chosen = drawn.index[drawn.real]
    assert len(set(chosen.tolist())) == len(chosen) == min(4, positives) + min(negatives, 16 - min(4, positives))
    assert int(positive[0, chosen].sum()) == min(4, positives)
    assert bool((positive | negative)[0, chosen].all())


def test_lots_are_fair_and_depend_on_the_key_alone() -> None:
    keys = torch.tensor([5, 6, 2**31 - 1])
    lots = CASE.matching.lots(keys, 20_000)
    assert torch.equal(lots[1:2], CASE.matching.lots(keys[1:2], 20_000))
    assert lots.mean(1).sub(0.5).abs().max() < 0.01
    assert torch.corrcoef(lots).triu(1).abs().max() < 0.03
    assert torch.corrcoef(torch.stack([lots[0, :-1], lots[0, 1:]]))[0, 1].abs() < 0.03
    assert float(lots.min()) >= 0 and float(lots.max()) <= 1


# Another implementation


def their_name(name: str) -> str:
    """torchvision's name of a parameter -> ours."""
    pairs = {
        "backbone.body.": "backbone.", "backbone.fpn.inner_blocks.": "pyramid.inner.",
        "backbone.fpn.layer_blocks.": "pyramid.outer.", "rpn.head.conv.0.0.": "rpn.conv.",
        "rpn.head.cls_logits.": "rpn.objectness.", "rpn.head.bbox_pred.": "rpn.offsets.",
        "roi_heads.box_head.": "head.", "roi_heads.box_predictor.cls_score.": "head.scores.",
        "roi_heads.box_predictor.bbox_pred.": "head.offsets.",
    }  # fmt: skip
    start = next(start for start in pairs if name.startswith(start))
    ours = pairs[start] + name.removeprefix(start)
    return ours.replace(".0.", ".") if ours.startswith("pyramid.") else ours


def theirs() -> Any:
    """torchvision's model of 21 classes with random weights and statistics that find something."""
    torchvision_operators()
    from torchvision.models import resnet50
    from torchvision.models.detection import FasterRCNN
    from torchvision.models.detection.backbone_utils import _resnet_fpn_extractor
    from torchvision.ops.misc import FrozenBatchNorm2d

    torch.manual_seed(0)
    backbone = _resnet_fpn_extractor(resnet50(weights=None, norm_layer=FrozenBatchNorm2d), 3)
    model = FasterRCNN(backbone, 21, rpn_post_nms_top_n_test=50, min_size=128, max_size=192).eval()
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("running_var"):
                buffer.uniform_(0.5, 2)
            elif name.endswith("running_mean"):
                buffer.normal_(0, 0.1)
            elif name.endswith("bn3.weight"):
                buffer.fill_(0.4)
        model.roi_heads.box_predictor.cls_score.weight.mul_(30)
        model.rpn.head.cls_logits.weight.mul_(5)
        model.rpn.head.bbox_pred.weight.mul_(5)
    return model


def test_torchvisions_model_with_the_same_weights_finds_the_same() -> None:
    reference = theirs()
    weights = {their_name(name): value for name, value in reference.state_dict().items()}
    first = weights["head.fc6.weight"].view(1024, 256, 7, 7)
    weights["head.fc6.weight"] = first.permute(0, 2, 3, 1).reshape(1024, -1)  # ours pools with channels last
    model = make(params(num_classes=21, eval_proposals=50)).eval()
    model.load_state_dict(weights)
    images = torch.randint(0, 256, (2, 128, 192, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        expected = reference([image.permute(2, 0, 1).float() / 255 for image in images])
        found = model(images, torch.tensor([[128.0, 192.0]] * 2))
    for image, other in enumerate(expected):
        real = found.scores[image] > 0
        assert int(real.sum()) == len(other["scores"]) > 10
        torch.testing.assert_close(found.scores[image][real], other["scores"], rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(found.boxes[image][real], other["boxes"], rtol=1e-3, atol=1e-2)
        assert torch.equal(found.labels[image][real], other["labels"])


# Pre-trained weights


def test_published_weights_fill_the_backbone(tmp_path: Any) -> None:
    source = task(params("mini", norm="frozen", **FEW)).build().backbone
    weights = {name: value + 1 for name, value in source.state_dict().items()}
    extra = {"fc.weight": torch.zeros(10, 3), "fc.bias": torch.zeros(10), "bn1.num_batches_tracked": torch.zeros(())}
    torch.save(weights | extra, tmp_path / "weights.pth")
    one = task(params("mini", norm="frozen", init_checkpoint="weights.pth", **FEW), data_dir=tmp_path)
    for name, value in one.build().backbone.state_dict().items():
        assert torch.equal(value, weights[name]), name
    torch.save({**weights, "conv1.weight": torch.zeros(8, 3, 7, 7)}, tmp_path / "weights.pth")
    with pytest.raises(RunProblem, match=r"'conv1\.weight' is \[8, 3, 7, 7\], not \[16, 3, 7, 7\]"):
        one.build()
    del weights["layer1.0.conv1.weight"]
    torch.save(weights, tmp_path / "weights.pth")
    with pytest.raises(RunProblem, match=r"lacks 'layer1\.0\.conv1\.weight'"):
        one.build()
    (tmp_path / "weights.pth").write_bytes(b"no weights")
    with pytest.raises(RunProblem, match="is no file of weights"):
        one.build()
    (tmp_path / "weights.pth").unlink()
    with pytest.raises(RunProblem, match=r"weights.pth \(init_checkpoint\) is missing: .*--set init_checkpoint"):
        one.build()


def test_a_canvas_that_the_strides_do_not_divide_is_refused() -> None:
    with pytest.raises(RunProblem, match=r"canvas = \[800, 1200\] is not two multiples of 32"):
        task(params(canvas=[800, 1200]))


def test_a_device_is_named_nowhere() -> None:
    for path in CASE_DIR.glob("*.py"):
        assert "cuda" not in path.read_text(encoding="utf-8").lower(), path.name
