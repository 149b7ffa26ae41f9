"""Faster R-CNN on a feature pyramid: regions are proposed at five scales, then each is classified and refined.

Ren et al., "Faster R-CNN", 2015; Lin et al., "Feature Pyramid Networks", 2017. Every tensor has a shape that follows
from the parameters alone: true boxes are padded, proposals are the best so many, and masks say what is real. So one
graph serves all steps and the host never waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

import anchors
import boxes
import torch
from backbone import EXPANSION, Pyramid, ResNet
from matching import draw, match
from torch import Tensor, nn
from torch.nn import functional as F

LEVELS = 5
REGION_WEIGHTS = (10.0, 10.0, 5.0, 5.0)
"""Of the offsets of regions, so that they vary as much as those of anchors, whose weights are 1."""
ANCHOR_WEIGHTS = (1.0, 1.0, 1.0, 1.0)
BEND = 1 / 9
"""Where the loss of an offset turns from a square to a line."""
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's colours, as the pre-trained weights expect."""
ANCHOR_LOW, ANCHOR_HIGH = 0.3, 0.7
REGION_OVERLAP = 0.5
PROPOSAL_NMS, DETECTION_NMS = 0.7, 0.5
SMALLEST_PROPOSAL, SMALLEST_DETECTION = 1e-3, 1e-2
DETECTION_SCORE = 0.05
NOTHING = float("-inf")
"""Score of what only fills the shape."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes that make one Faster R-CNN; every field is a parameter of case.toml."""

    num_classes: int
    """With the background, which is class 0."""
    backbone_width: int
    backbone_blocks: tuple[int, ...]
    norm: str
    frozen_stages: int
    pyramid_channels: int
    head_width: int
    pool_size: int
    canonical_size: float
    anchor_sizes: tuple[float, ...]
    anchor_ratios: tuple[float, ...]
    train_candidates: int
    train_proposals: int
    eval_candidates: int
    eval_proposals: int
    anchors_per_image: int
    anchors_positive: float
    regions_per_image: int
    regions_positive: float
    detection_candidates: int
    detections_per_image: int
    nms_rounds: int

    @classmethod
    def of(cls, params: Mapping[str, object]) -> Shape:
        """The shape that the planned parameters describe; TOML's lists arrive as lists or tuples."""
        values = {field.name: params[field.name] for field in fields(cls)}
        return cls(**{name: tuple(v) if isinstance(v, (list, tuple)) else v for name, v in values.items()})

    def stage_widths(self) -> list[int]:
        """Channels of the four stages' outputs."""
        return [self.backbone_width * 2**number * EXPANSION for number in range(4)]


class Detections(NamedTuple):
    """What was found in each image, best first: [B, D, 4], [B, D], [B, D]. A score of -inf only fills the shape."""

    boxes: Tensor
    scores: Tensor
    labels: Tensor


class Proposals(NamedTuple):
    """[B, P, 4] and which of them are real."""

    boxes: Tensor
    real: Tensor


class RegionProposals(nn.Module):
    """At every place of every level: is there something, and where exactly? For each shape of anchor."""

    def __init__(self, channels: int, shapes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.objectness = nn.Conv2d(channels, shapes, 1)
        self.offsets = nn.Conv2d(channels, 4 * shapes, 1)
        for convolution in (self.conv, self.objectness, self.offsets):
            nn.init.normal_(convolution.weight, std=0.01)
            nn.init.zeros_(convolution.bias)

    def forward(self, pyramid: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """([B, n] and [B, n, 4] of each level, in the order of its anchors), in float32."""
        scores, offsets = [], []
        for features in pyramid:
            hidden = F.relu_(self.conv(features))
            scores.append(self.objectness(hidden).permute(0, 2, 3, 1).flatten(1).float())
            offsets.append(self.offsets(hidden).permute(0, 2, 3, 1).reshape(len(hidden), -1, 4).float())
        return scores, offsets


class Head(nn.Module):
    """A region's pooled features to its class, and to offsets for each class."""

    def __init__(self, inputs: int, width: int, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.fc6 = nn.Linear(inputs, width)
        self.fc7 = nn.Linear(width, width)
        self.scores = nn.Linear(width, classes)
        self.offsets = nn.Linear(width, 4 * classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """([N, classes], [N, classes, 4]), in float32."""
        x = F.relu_(self.fc7(F.relu_(self.fc6(x))))
        return self.scores(x).float(), self.offsets(x).float().view(len(x), self.classes, 4)


class FasterRCNN(nn.Module):
    """Images in; in training the losses out, else detections."""

    def __init__(self, shape: Shape, suppress: Callable[..., Tensor], pool: Callable[..., Tensor]) -> None:
        super().__init__()
        self.shape, self.suppress, self.pool = shape, suppress, pool
        self.backbone = ResNet(shape.backbone_width, shape.backbone_blocks, shape.norm, shape.frozen_stages)
        self.pyramid = Pyramid(shape.stage_widths(), shape.pyramid_channels)
        self.rpn = RegionProposals(shape.pyramid_channels, len(shape.anchor_ratios))
        self.head = Head(shape.pyramid_channels * shape.pool_size**2, shape.head_width, shape.num_classes)
        shapes = torch.stack([anchors.shapes(size, shape.anchor_ratios) for size in shape.anchor_sizes])
        self.register_buffer("anchor_shapes", shapes, persistent=False)
        for name, value in (("mean", MEAN), ("deviation", DEVIATION)):
            self.register_buffer(name, 255 * torch.tensor(value).view(1, 3, 1, 1), persistent=False)

    def forward(
        self,
        images: Tensor,
        sizes: Tensor,
        true_boxes: Tensor | None = None,
        labels: Tensor | None = None,
        keys: Tensor | None = None,
    ) -> Tensor | Detections:
        """`images` [B, H, W, 3] in bytes, of which (height, width) `sizes` [B, 2] are real.

        In training, `true_boxes` [B, G, 4] with `labels` [B, G] (0 where there is none) and `keys` [B] for the lots
        give [B, 4]: the losses of objectness, anchors, classes and regions of each image.
        """
        x = (images.permute(0, 3, 1, 2).float() - self.mean) / self.deviation
        pyramid = self.pyramid(self.backbone(x))
        scores, offsets = self.rpn(pyramid)
        grids = [
            anchors.grid(shapes, *f.shape[-2:], images.shape[1:3]) for shapes, f in zip(self.anchor_shapes, pyramid)
        ]
        proposals = self._propose(scores, offsets, grids, sizes)
        if not self.training:
            return self._detect(pyramid[:-1], proposals, sizes)
        real = labels > 0
        first = self._anchor_losses(
            torch.cat(scores, 1), torch.cat(offsets, 1), torch.cat(grids), true_boxes, real, keys
        )
        second = self._region_losses(pyramid[:-1], proposals, true_boxes, labels, keys + 1)
        return torch.stack([*first, *second], 1)

    @torch.no_grad()
    def _propose(self, scores: list[Tensor], offsets: list[Tensor], grids: list[Tensor], sizes: Tensor) -> Proposals:
        """The best of every level, without near copies, then the best of all."""
        shape, kept_scores, kept = self.shape, [], []
        candidates = shape.train_candidates if self.training else shape.eval_candidates
        for level_scores, level_offsets, grid in zip(scores, offsets, grids):
            count = min(candidates, len(grid))
            top, index = level_scores.topk(count)
            chosen = level_offsets.gather(1, index[..., None].expand(-1, -1, 4))
            found = boxes.clip(boxes.decode(grid[index], chosen, ANCHOR_WEIGHTS), sizes)
            top = torch.where(boxes.at_least(found, SMALLEST_PROPOSAL), top, NOTHING)
            kept_scores.append(F.pad(top, (0, candidates - count), value=NOTHING))
            kept.append(F.pad(found, (0, 0, 0, candidates - count)))
        found, top = torch.stack(kept, 1), torch.stack(kept_scores, 1)
        rounds = shape.nms_rounds if self.training else 0
        survives = self.suppress(found, top > NOTHING, PROPOSAL_NMS, rounds)
        top = torch.where(survives, top, NOTHING).flatten(1)
        count = min(shape.train_proposals if self.training else shape.eval_proposals, top.shape[1])
        top, index = top.topk(count)
        return Proposals(found.flatten(1, 2).gather(1, index[..., None].expand(-1, -1, 4)), top > NOTHING)

    def _anchor_losses(
        self, scores: Tensor, offsets: Tensor, grid: Tensor, true_boxes: Tensor, real: Tensor, keys: Tensor
    ) -> tuple[Tensor, Tensor]:
        """([B], [B]): is there something, and where exactly, at anchors drawn by lot."""
        count = self.shape.anchors_per_image
        with torch.no_grad():
            matched = match(grid, true_boxes, real, ANCHOR_LOW, ANCHOR_HIGH, rescue=True)
            drawn = draw(matched.positive, matched.negative, keys, count, int(count * self.shape.anchors_positive))
            positive = matched.positive.gather(1, drawn.index) & drawn.real
            target = _take(true_boxes, matched.which.gather(1, drawn.index))
            wanted = boxes.encode(grid[drawn.index], target, ANCHOR_WEIGHTS)
        said = F.binary_cross_entropy_with_logits(scores.gather(1, drawn.index), positive.float(), reduction="none")
        share = drawn.real / drawn.real.sum(1, keepdim=True).clamp(min=1)
        return (said * share).sum(1), _offset_loss(_take(offsets, drawn.index), wanted, positive, share)

    def _region_losses(
        self, pyramid: list[Tensor], proposals: Proposals, true_boxes: Tensor, labels: Tensor, keys: Tensor
    ) -> tuple[Tensor, Tensor]:
        """([B], [B]): the class, and the offsets of that class, of proposals and true boxes drawn by lot."""
        count, present = self.shape.regions_per_image, labels > 0
        with torch.no_grad():
            regions = torch.cat([proposals.boxes, true_boxes], 1)
            real = torch.cat([proposals.real, present], 1)
            matched = match(regions, true_boxes, present, REGION_OVERLAP, REGION_OVERLAP, rescue=False)
            positive, negative = matched.positive & real, matched.negative & real
            drawn = draw(positive, negative, keys, count, int(count * self.shape.regions_positive))
            regions, which = _take(regions, drawn.index), matched.which.gather(1, drawn.index)
            positive = positive.gather(1, drawn.index) & drawn.real
            target = torch.where(positive, labels.gather(1, which), 0)
            wanted = boxes.encode(regions, _take(true_boxes, which), REGION_WEIGHTS)
        scores, offsets = self.head(self.pool(pyramid, regions, self.shape.pool_size, self.shape.canonical_size))
        said = F.cross_entropy(scores, target.flatten(), reduction="none").view(target.shape)
        own = target.flatten()[:, None, None].expand(-1, 1, 4)
        share = drawn.real / drawn.real.sum(1, keepdim=True).clamp(min=1)
        return (said * share).sum(1), _offset_loss(offsets.gather(1, own).view(wanted.shape), wanted, positive, share)

    def _detect(self, pyramid: list[Tensor], proposals: Proposals, sizes: Tensor) -> Detections:
        """The best boxes of every class, without near copies."""
        shape, (images, regions) = self.shape, proposals.real.shape
        pooled = self.pool(pyramid, proposals.boxes, shape.pool_size, shape.canonical_size)
        scores, offsets = (out.view(images, regions, *out.shape[1:]) for out in self.head(pooled))
        found = boxes.clip(boxes.decode(proposals.boxes[:, :, None], offsets, REGION_WEIGHTS), sizes)[:, :, 1:]
        scores = scores.softmax(-1)[:, :, 1:]
        good = (scores > DETECTION_SCORE) & proposals.real[..., None] & boxes.at_least(found, SMALLEST_DETECTION)
        scores = torch.where(good, scores, NOTHING).flatten(1)
        scores, index = scores.topk(min(shape.detection_candidates, scores.shape[1]))
        found, labels = _take(found.flatten(1, 2), index), index % (shape.num_classes - 1) + 1
        survives = self.suppress(found[:, None], (scores > NOTHING)[:, None], DETECTION_NMS, 0, labels[:, None])[:, 0]
        scores = torch.where(survives, scores, NOTHING)
        scores, index = scores.topk(min(shape.detections_per_image, scores.shape[1]))
        return Detections(_take(found, index), scores, labels.gather(1, index))


def _take(values: Tensor, index: Tensor) -> Tensor:
    """values [B, N, 4] at index [B, K] -> [B, K, 4]."""
    return values.gather(1, index[..., None].expand(-1, -1, values.shape[-1]))


def _offset_loss(said: Tensor, wanted: Tensor, counts: Tensor, share: Tensor) -> Tensor:
    """[B]: smooth L1 of [B, K, 4] where `counts` [B, K], each candidate with its share of the image's loss.

    Selected, not multiplied: what fills the shape may be far off, and 0 times infinity is not 0.
    """
    error = F.smooth_l1_loss(said, wanted, beta=BEND, reduction="none").sum(-1)
    return torch.where(counts, error * share, 0.0).sum(1)
