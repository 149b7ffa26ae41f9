"""COCO's mean average precision: by pycocotools where it is wanted, and the same numbers without it.

For each class, and each of ten thresholds of overlap (.50, .55 … .95), detections in the order of their scores take the
true boxes that they overlap; precision, made monotone, is averaged at 101 values of recall. Crowds are neither.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence

import numpy as np
from data import Found, Truth

THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
MOST = 100
"""Detections of one class in one image that count, the best ones."""

try:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval
except ImportError:
    COCO = None


def mean_average_precision(truths: Sequence[Truth], found: Sequence[Found]) -> dict[str, float]:
    """`mAP` (the mean over all thresholds) and `mAP50`, both over the classes that occur; the i-th belong together."""
    classes = sorted({int(label) for truth in truths for label in truth.labels[~truth.crowd]})
    if not classes:
        return {"mAP": float("nan"), "mAP50": float("nan")}
    table = np.array([_class_precisions(label, truths, found) for label in classes])
    return {"mAP": float(table.mean()), "mAP50": float(table[:, 0].mean())}


def by_pycocotools(truths: Sequence[Truth], found: Sequence[Found]) -> dict[str, float]:
    """The same by the tools of COCO's authors, or by the above where they are not installed."""
    if COCO is None:
        return mean_average_precision(truths, found)
    with contextlib.redirect_stdout(io.StringIO()):
        true = COCO()
        true.dataset = _annotations(truths)
        true.createIndex()
        rows = _rows(found)
        evaluation = COCOeval(true, true.loadRes(rows) if len(rows) else _nothing(true), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return {"mAP": float(evaluation.stats[0]), "mAP50": float(evaluation.stats[1])}


def _class_precisions(label: int, truths: Sequence[Truth], found: Sequence[Found]) -> np.ndarray:
    """[thresholds]: the average precision of one class."""
    scores, hits, misses, total = [], [], [], 0
    for truth, detected in zip(truths, found):
        mine, own = truth.labels == label, np.flatnonzero(detected.labels == label)
        total += int((mine & ~truth.crowd).sum())
        order = own[np.argsort(-detected.scores[own], kind="stable")][:MOST]
        crowd = truth.crowd[mine]
        taken = _take(_overlaps(detected.boxes[order], truth.boxes[mine], crowd), crowd)
        scores.append(detected.scores[order])
        hits.append(taken == HIT)
        misses.append(taken == MISS)
    order = np.argsort(-np.concatenate(scores), kind="stable")
    hit = np.concatenate(hits, 1)[:, order].cumsum(1)
    miss = np.concatenate(misses, 1)[:, order].cumsum(1)
    return np.array([_average(h, m, total) for h, m in zip(hit, miss)])


def _average(hit: np.ndarray, miss: np.ndarray, total: int) -> float:
    """The mean over RECALLS of the best precision at that recall or a higher one."""
    precision = hit / np.maximum(hit + miss, np.spacing(1))
    best = np.maximum.accumulate(precision[::-1])[::-1]
    place = np.searchsorted(hit / total, RECALLS, side="left")
    return float(np.append(best, 0.0)[place].mean())


MISS, HIT, NEITHER = 0, 1, 2


def _take(overlaps: np.ndarray, crowd: np.ndarray) -> np.ndarray:
    """[thresholds, detections]: MISS, HIT or NEITHER, the detections of [detections, true boxes] taking in turn."""
    result = np.full((len(THRESHOLDS), len(overlaps)), MISS)
    plain, crowds = np.flatnonzero(~crowd), np.flatnonzero(crowd)
    for t, threshold in enumerate(THRESHOLDS):
        free = np.ones(len(crowd), bool)
        for d, row in enumerate(overlaps):
            best, least = None, min(threshold, 1 - 1e-10)
            for g in plain[free[plain]]:
                if row[g] >= least:  # of equal ones the last, as COCO's own tools
                    best, least = g, row[g]
            if best is not None:
                free[best] = False
                result[t, d] = HIT
            elif (row[crowds] >= threshold).any():
                result[t, d] = NEITHER
    return result


def _overlaps(boxes: np.ndarray, true: np.ndarray, crowd: np.ndarray) -> np.ndarray:
    """[detections, true boxes]: intersection over union; over the detection alone where the true one is a crowd."""
    a, b = boxes[:, None].astype(np.float64), true[None].astype(np.float64)
    sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    shared = sides.clip(min=0).prod(-1)
    own, other = ((box[..., 2:] - box[..., :2]).prod(-1) for box in (a, b))
    whole = np.where(crowd, own, own + other - shared)
    return np.divide(shared, whole, out=np.zeros_like(shared), where=whole > 0)


def _annotations(truths: Sequence[Truth]) -> Mapping[str, list[dict[str, object]]]:
    annotations = []
    for image, truth in enumerate(truths):
        for box, label, crowd in zip(truth.boxes.tolist(), truth.labels.tolist(), truth.crowd.tolist()):
            size = [box[0], box[1], box[2] - box[0], box[3] - box[1]]
            entry = {"image_id": image, "category_id": label, "bbox": size, "area": size[2] * size[3]}
            annotations.append({**entry, "id": len(annotations) + 1, "iscrowd": int(crowd)})
    labels = sorted({int(label) for truth in truths for label in truth.labels})
    images = [{"id": image} for image in range(len(truths))]
    return {"images": images, "annotations": annotations, "categories": [{"id": label} for label in labels]}


def _rows(found: Sequence[Found]) -> np.ndarray:
    """[n, 7]: image, left, top, width, height, score, label."""
    rows = []
    for image, one in enumerate(found):
        boxes = one.boxes.astype(np.float64)
        corners, sides = boxes[:, :2].T, (boxes[:, 2:] - boxes[:, :2]).T
        rows.append(np.stack([np.full(len(boxes), image), *corners, *sides, one.scores, one.labels], 1))
    return np.concatenate(rows) if rows else np.zeros((0, 7))


def _nothing(true: object) -> object:
    empty = COCO()
    empty.dataset = {**true.dataset, "annotations": []}
    empty.createIndex()
    return empty
