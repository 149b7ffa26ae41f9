"""The data of Faster R-CNN: scenes, COCO's layout, shards, and the metric against its authors' tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from suite.drivers.events import RunProblem
from tests.case_faster_rcnn import CASE, DIGITS, FEW, params, task, write_coco

Found, Truth = CASE.data.Found, CASE.data.Truth


def scenes(seed: int = 1, rank: int = 0, world: int = 1) -> Any:
    place = CASE.data.Place(rank, world)
    return CASE.scenes.Scenes(DIGITS, train=40, held_out=10, seed=seed, place=place)


# Scenes


def test_held_out_digits_are_in_no_training_scene() -> None:
    (train, _), (held_out, labels) = CASE.scenes.read_digits(DIGITS)
    assert (len(train), len(held_out)) == (1297, 500)
    seen = {image.tobytes() for image in train}
    assert not any(image.tobytes() in seen for image in held_out)
    assert set(labels.tolist()) == set(range(10))


def test_scenes_are_the_same_for_every_seed_of_a_run() -> None:
    first, second = scenes(seed=1), scenes(seed=2)
    for a, b in zip(first.train + first.held_out, second.train + second.held_out):
        assert np.array_equal(a.pixels, b.pixels) and np.array_equal(a.boxes, b.boxes)
    orders = [[picture.key for batch in data.batches(1, 8, 0) for picture in batch] for data in (first, second)]
    assert orders[0] != orders[1]


def test_boxes_are_tight_apart_and_inside() -> None:
    for scene in scenes().train:
        assert 1 <= len(scene.labels) <= 3
        assert scene.boxes.min() >= 0 and scene.boxes.max() <= 64
        assert set(scene.labels.tolist()) <= set(range(1, 11))
        overlaps = CASE.boxes.iou(torch.from_numpy(scene.boxes), torch.from_numpy(scene.boxes))
        assert torch.equal(overlaps, torch.eye(len(scene.boxes)))
        for left, top, right, bottom in scene.boxes.astype(int).tolist():
            patch = scene.pixels[top:bottom, left:right, 0]
            assert patch.max() > 200
            edges = (patch[0], patch[-1], patch[:, 0], patch[:, -1])
            assert all(edge.max() > 0.19 * 255 for edge in edges)


# Shards


@pytest.mark.parametrize("world", [1, 2, 4])
def test_global_batches_do_not_depend_on_the_number_of_ranks(world: int) -> None:
    ranks = [list(scenes(rank=rank, world=world).batches(3, 8, 0)) for rank in range(world)]
    together = [sorted(picture.key for part in parts for picture in part) for parts in zip(*ranks)]
    alone = [sorted(picture.key for picture in batch) for batch in scenes().batches(3, 8, 0)]
    assert together == alone
    assert len(alone) == 5 and len({key for batch in alone for key in batch}) == 40


def test_a_resumed_epoch_goes_on_where_it_was() -> None:
    keys = [[picture.key for picture in batch] for batch in scenes().batches(2, 8, 0)]
    assert [[picture.key for picture in batch] for batch in scenes().batches(2, 8, 3)] == keys[3:]


def test_a_global_batch_is_of_one_group_and_leftovers_are_left_out() -> None:
    groups = np.array([0, 1, 0, 0, 1, 0, 1, 0, 0])
    batches = list(CASE.data.global_batches(range(9), 3, groups))
    assert batches == [[0, 2, 3], [1, 4, 6], [5, 7, 8]]
    assert list(CASE.data.global_batches(range(9), 4, groups)) == [[0, 2, 3, 5]]
    with_leftover = [list(CASE.data.own_part([0, 2, 3, 5], CASE.data.Place(rank, 2))) for rank in (0, 1)]
    assert with_leftover == [[0, 2], [3, 5]]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_every_held_out_image_is_evaluated_once(world: int) -> None:
    seen = [
        index
        for rank in range(world)
        for indices, _, pictures in scenes(rank=rank, world=world).eval_batches(4)
        for index in indices
        if len(pictures) == len(indices)
    ]
    assert sorted(seen) == list(range(10))


# Batches


def test_random_batches_are_random_and_of_the_published_shape() -> None:
    one = task(params(train_batch_size=2, canvas=[64, 96]))
    stream = one.synthetic_batches()
    first, second = next(stream), next(stream)
    assert first["images"].shape == (2, 64, 96, 3) and first["images"].dtype == torch.uint8
    assert first["images"].float().std() > 70 and not torch.equal(first["images"], second["images"])
    real = first["labels"] > 0
    assert bool(real.any(1).all()) and bool((first["labels"] < 91).all())
    boxes = first["boxes"][real]
    assert bool((boxes[:, 2:] > boxes[:, :2]).all()) and bool((boxes[:, 2] <= 96).all())
    assert bool((boxes[:, 3] <= 64).all())
    other = task(params(train_batch_size=2, canvas=[64, 96]), rank=1, world=2)
    assert not torch.equal(next(other.synthetic_batches())["images"], first["images"])
    assert one.count(first) == {"samples": 2, "tokens": 0}


def test_shuffled_labels_are_the_same_ones_at_other_boxes() -> None:
    one = task(params("mini", **FEW))
    one.prepare_data()
    batch = next(one.train_batches(1))
    mixed = one.shuffle_labels(batch, torch.Generator().manual_seed(0))
    assert torch.equal(mixed["labels"] > 0, batch["labels"] > 0)
    assert torch.equal(mixed["labels"].flatten().sort()[0], batch["labels"].flatten().sort()[0])
    assert not torch.equal(mixed["labels"], batch["labels"])
    assert torch.equal(mixed["boxes"], batch["boxes"])


def test_an_image_lies_at_the_corner_of_a_canvas_that_is_grey_elsewhere() -> None:
    pixels, boxes = np.full((20, 30, 3), 9, np.uint8), np.array([[1.0, 2, 3, 4]] * 3)
    picture = CASE.data.Picture(pixels, boxes, np.array([7, 8, 9]), 5)
    batch = CASE.data.pack([picture], (32, 64), 2)
    assert bool((batch["images"][0, :20, :30] == 9).all())
    assert batch["images"][0, 31, 63].tolist() == batch["images"][0, 0, 30].tolist() == [124, 116, 104]
    assert batch["sizes"].tolist() == [[20, 30]]
    assert batch["labels"].tolist() == [[7, 8]] and batch["keys"].tolist() == [5]


# COCO's layout


def test_an_instances_file_is_read_with_crowds_only_for_evaluation(tmp_path: Path) -> None:
    rows = [[[1.0, 2, 10, 20, 90, 0], [0, 0, 5, 5, 3, 1]], [], [[0, 0, 0, 4, 1, 0]], [[5, 5, 6, 6, 1, 1]]]
    path = write_coco(tmp_path, split="val2017", sizes=[(64, 48), (48, 64), (9, 9), (9, 9)], boxes=rows)
    train = CASE.coco.read(path, 91, training=True)
    assert [entry.path for entry in train] == [tmp_path / "val2017" / "000000000000.jpg"]
    assert train[0].truth.boxes.tolist() == [[1, 2, 11, 22]] and train[0].truth.labels.tolist() == [90]
    every = CASE.coco.read(path, 91, training=False)
    assert [len(entry.truth.labels) for entry in every] == [2, 0, 1, 1]
    assert every[0].truth.crowd.tolist() == [False, True]
    assert [entry.upright for entry in every] == [False, True, False, False]


def test_a_category_beyond_the_class_count_is_refused(tmp_path: Path) -> None:
    path = write_coco(tmp_path, split="val2017", sizes=[(64, 48)], boxes=[[[1.0, 2, 10, 20, 21, 0]]])
    with pytest.raises(RunProblem, match="has category 21, num_classes is 21"):
        CASE.coco.read(path, 21, training=True)
    assert len(CASE.coco.read(path, 22, training=True)) == 1


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "instances.json").write_text('{"images": []}')
    with pytest.raises(RunProblem, match="is no COCO instances file"):
        CASE.coco.read(tmp_path / "instances.json", 91, training=True)
    with pytest.raises(RunProblem, match=r"instances_train2017.json \(train_data\) is missing"):
        task(params(), data_dir=tmp_path).prepare_data()


@pytest.fixture
def coco(tmp_path: Path) -> Any:
    """A task of the preset full on six images, wide and upright, each with a white box on black."""
    image = pytest.importorskip("PIL.Image")
    sizes = [(96, 64), (60, 90), (96, 64), (40, 40), (60, 90), (96, 20)]
    boxes = [[[10.0, 5, 20, 10, 1 + number, 0]] for number in range(6)]
    for split in ("train2017", "val2017"):
        write_coco(tmp_path, split=split, sizes=sizes, boxes=boxes)
        (tmp_path / split).mkdir()
        for number, (width, height) in enumerate(sizes):
            pixels = np.zeros((height, width, 3), np.uint8)
            pixels[5:15, 10:30] = 255
            image.fromarray(pixels).save(tmp_path / split / f"{number:012d}.jpg", quality=95)
    one = task(params(canvas=[128, 192], train_batch_size=2, eval_batch_size=2), data_dir=tmp_path)
    one.prepare_data()
    return one


def test_coco_images_fill_the_canvas_with_their_boxes(coco: Any) -> None:
    batches = [batch for epoch in range(1, 9) for batch in coco.train_batches(epoch)]
    assert {tuple(batch["images"].shape) for batch in batches} == {(2, 128, 192, 3), (2, 192, 128, 3)}
    mirrored = set()
    for batch in batches:
        for image, size, boxes, labels in zip(*(batch[name] for name in ("images", "sizes", "boxes", "labels"))):
            left, top, right, bottom = boxes[0].round().int().tolist()
            assert int((labels > 0).sum()) == 1 and bool((boxes[1:] == 0).all())
            bright = image[: int(size[0]), : int(size[1])].float().mean(-1) > 128
            inside = bright[top:bottom, left:right].float().mean()
            assert inside > 0.9 and bright.float().sum() < 1.2 * (bottom - top) * (right - left)
            mirrored.add(left > int(size[1]) / 2 - 1)
    assert mirrored == {True, False}


def test_coco_evaluation_is_in_the_images_own_pixels(coco: Any) -> None:
    class Oracle(torch.nn.Module):
        """Finds the bright box of every image."""

        def __init__(self) -> None:
            super().__init__()
            self.anchor = torch.nn.Parameter(torch.zeros(()))

        def forward(self, images: Any, sizes: Any) -> Any:
            rows = []
            for image, (height, width) in zip(images, sizes.int().tolist()):
                where = (image[:height, :width].float().mean(-1) > 128).nonzero()
                (top, left), (bottom, right) = where.amin(0).tolist(), (where.amax(0) + 1).tolist()
                rows.append([[left, top, right, bottom], [0, 0, 1, 1]])
            count = len(rows)
            scores = torch.tensor([[0.9, float("-inf")]] * count)
            return CASE.model.Detections(torch.tensor(rows).float(), scores, torch.ones(count, 2, dtype=torch.long))

    records = coco.evaluate(Oracle())
    assert sorted(index for index, _ in records) == list(range(6))
    for _, found in records:
        assert len(found.scores) == 1
        np.testing.assert_allclose(found.boxes[0], [10, 5, 30, 15], atol=1)


def test_a_broken_image_is_named(coco: Any) -> None:
    path = coco.data.train[0].path
    path.write_bytes(b"no image")
    with pytest.raises(RunProblem, match=r"000000000000\.jpg cannot be read"):
        coco.data.picture(coco.data.train[0], 0)


# The metric


def found(*rows: tuple[list[float], float, int]) -> Any:
    boxes = np.array([row[0] for row in rows], np.float32).reshape(-1, 4)
    return Found(boxes, np.array([row[1] for row in rows]), np.array([row[2] for row in rows], np.int64))


def truth(*rows: tuple[list[float], int, bool]) -> Any:
    boxes = np.array([row[0] for row in rows], np.float32).reshape(-1, 4)
    return Truth(boxes, np.array([row[1] for row in rows], np.int64), np.array([row[2] for row in rows], bool))


UNIT = [0.0, 0, 10, 10]
TALL = [0.0, 0, 10, 7]
"""Overlaps UNIT by 0.7."""


def test_precision_worked_by_hand() -> None:
    average = CASE.average_precision.mean_average_precision
    assert average([truth((UNIT, 1, False))], [found((UNIT, 0.9, 1))]) == {"mAP": 1.0, "mAP50": 1.0}
    result = average([truth((UNIT, 1, False))], [found((TALL, 0.9, 1))])
    assert result == {"mAP": pytest.approx(0.5), "mAP50": 1.0}, "thresholds .50 to .70 of ten"
    two = [truth((UNIT, 1, False), ([50.0, 50, 60, 60], 1, False))]
    half = average(two, [found((UNIT, 0.9, 1))])["mAP50"]
    assert half == pytest.approx(51 / 101), "recall 0 to .5 of 101 values"
    wrong_first = average([truth((UNIT, 1, False))], [found(([80.0, 80, 90, 90], 0.9, 1), (UNIT, 0.8, 1))])
    assert wrong_first["mAP"] == pytest.approx(0.5)
    twice = average([truth((UNIT, 1, False))], [found((UNIT, 0.9, 1), (UNIT, 0.8, 1))])
    assert twice["mAP"] == 1.0, "a second detection of one box comes after full recall"


def test_classes_and_crowds_count_as_they_should() -> None:
    average = CASE.average_precision.mean_average_precision
    wrong_class = average([truth((UNIT, 1, False))], [found((UNIT, 0.9, 2))])
    assert wrong_class["mAP"] == 0
    two_classes = average([truth((UNIT, 1, False), (UNIT, 2, False))], [found((UNIT, 0.9, 2))])
    assert two_classes["mAP"] == 0.5
    crowd = [truth((UNIT, 1, False), ([40.0, 40, 90, 90], 1, True))]
    assert average(crowd, [found(([50.0, 50, 60, 60], 0.95, 1), (UNIT, 0.9, 1))])["mAP"] == 1.0
    assert np.isnan(average([truth()], [found()])["mAP"])


def random_evaluation(images: int, seed: int) -> tuple[list[Any], list[Any]]:
    """Truths of five classes with crowds, and detections that are near them, doubled, wrong, and invented."""
    random = np.random.default_rng(seed)
    truths, detections = [], []
    for _ in range(images):
        count = int(random.integers(0, 9))
        corner = random.random((count, 2)) * 80
        boxes = np.concatenate([corner, corner + random.uniform(4, 40, (count, 2))], 1).astype(np.float32)
        labels = random.integers(1, 6, count)
        truths.append(Truth(boxes, labels, random.random(count) < 0.1))
        near = np.repeat(boxes, 2, 0) + random.normal(0, 1, (2 * count, 4))
        invented = random.random((int(random.integers(0, 130)), 2)) * 90
        every = np.concatenate([near, np.concatenate([invented, invented + 12], 1)]).astype(np.float32)
        guess = np.concatenate([np.repeat(labels, 2), random.integers(1, 6, len(invented))])
        guess = np.where(random.random(len(guess)) < 0.15, 1, guess)
        scores = random.random(len(guess)) + 0.5 * (np.arange(len(guess)) < 2 * count)
        detections.append(Found(every, (scores / 1.5).round(2), guess))
    return truths, detections


@pytest.mark.parametrize("seed", [1, 2])
def test_precision_on_a_hundred_images_is_that_of_cocos_authors(seed: int) -> None:
    pytest.importorskip("pycocotools")
    truths, detections = random_evaluation(100, seed)
    expected = CASE.average_precision.by_pycocotools(truths, detections)
    assert CASE.average_precision.mean_average_precision(truths, detections) == pytest.approx(expected, abs=1e-3)
    assert 0.05 < expected["mAP"] < expected["mAP50"] < 0.95


def test_nothing_found_is_no_precision() -> None:
    for measure in (CASE.average_precision.mean_average_precision, CASE.average_precision.by_pycocotools):
        assert measure([truth((UNIT, 1, False))], [found()])["mAP"] == 0


def test_without_the_authors_tools_the_own_ones_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CASE.average_precision, "COCO", None)
    truths, detections = random_evaluation(10, 3)
    own = CASE.average_precision.mean_average_precision(truths, detections)
    assert CASE.average_precision.by_pycocotools(truths, detections) == own


# prepare.py


def test_prepare_checks_that_all_images_are_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train2017", "val2017"):
        write_coco(tmp_path, split=split, sizes=[(9, 9), (9, 9)], boxes=[[[1.0, 1, 2, 2, 1, 0]]] * 2)
        (tmp_path / split).mkdir()
        (tmp_path / split / "000000000000.jpg").write_bytes(b"")
    assert CASE.prepare.main(["--data-dir", str(tmp_path)]) == 4
    assert "1 of the 2 images" in capsys.readouterr().err
    for split in ("train2017", "val2017"):
        (tmp_path / split / "000000000001.jpg").write_bytes(b"")
    assert CASE.prepare.main(["--data-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count(": 2 images") == 2
    assert CASE.prepare.main([]) == 4
    assert "--data-dir None is no folder" in capsys.readouterr().err
