"""The case mobilenetv2/paddle: its data in NumPy, and its mini through the real suite."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.paddle_toy import CASE_DIR, needs_paddle
from tests.spine import check_of, clone


@pytest.fixture(scope="module")
def case() -> Iterator[SimpleNamespace]:
    """The modules that need no framework, without leaving names like `data` behind."""
    names = ("data", "crops", "digits", "imagenet")
    shadowed = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.path.insert(0, str(CASE_DIR))
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    finally:
        sys.path.remove(str(CASE_DIR))
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(shadowed)


def test_the_digits_are_split_once_for_every_seed(case: SimpleNamespace) -> None:
    train, held_out = case.digits.split(1797)
    assert len(held_out) == 500 and sorted([*train, *held_out]) == list(range(1797))
    images, labels = case.digits.read_digits(CASE_DIR / "data/digits.npz")
    assert images.shape == (1797, 8, 8) and set(labels) == set(range(10))


def test_a_digit_is_drawn_as_bilinear_interpolation_says(case: SimpleNamespace) -> None:
    """Two by two pixels at their own size are themselves; at twice it, corners lie a quarter of the way to black."""
    image = np.array([[[16, 0], [0, 8]]], np.uint8)
    straight = np.eye(2, 3, dtype=np.float32)[None]
    assert case.digits.drawn(image, straight, 2)[0, :, :, 0].tolist() == [[255, 0], [0, 128]]
    large = case.digits.drawn(image, straight, 4)[0, :, :, 0]
    assert large[0].tolist() == [143, 143, 48, 0]
    aside = straight + np.array([[0, 0, 1], [0, 0, 0]], np.float32)  # one pixel to the right of two
    assert case.digits.drawn(image, aside, 2)[0, :, :, 0].tolist() == [[0, 0], [128, 0]]


def test_two_ranks_share_one_rank_s_batches(case: SimpleNamespace) -> None:
    def batches(rank: int, world: int, size: int, skip: int = 0) -> list[dict[str, np.ndarray]]:
        place = case.data.Place(rank, world)
        digits = case.digits.Digits(CASE_DIR / "data/digits.npz", image_size=16, seed=3, place=place)
        return list(digits.train_batches(2, size, skip))

    whole, first, second = batches(0, 1, 64), batches(0, 2, 32), batches(1, 2, 32)
    assert len(whole) == len(first) == len(second) == 1297 // 64
    for one, left, right in zip(whole, first, second, strict=True):
        assert all(np.array_equal(one[key], np.concatenate([left[key], right[key]])) for key in one)
    resumed = batches(0, 1, 64, skip=18)
    assert all(np.array_equal(one["images"], other["images"]) for one, other in zip(whole[18:], resumed, strict=True))


def test_every_held_out_digit_is_shown_once(case: SimpleNamespace) -> None:
    shown = 0
    for rank in range(3):
        place = case.data.Place(rank, 3)
        digits = case.digits.Digits(CASE_DIR / "data/digits.npz", image_size=8, seed=1, place=place)
        shown += sum(len(batch["labels"]) for batch in digits.eval_batches(64))
    assert shown == 500


def test_photographs_are_found_decoded_and_shared(case: SimpleNamespace, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for part, count in (("train", 6), ("val", 3)):
        for number, name in enumerate(("a", "b")):
            (tmp_path / part / name).mkdir(parents=True)
            for index in range(count):
                picture = np.full((40 + index, 50, 3), 60 + 120 * number, np.uint8)
                image.fromarray(picture).save(tmp_path / part / name / f"{index}.png")
    options = {"classes": 2, "image_size": 16, "seed": 1, "workers": 2}
    shown, heard = [], []
    for rank in (0, 1):
        place = case.data.Place(rank, 2)
        images = case.imagenet.ImageNet(tmp_path / "train", tmp_path / "val", place=place, **options)
        for batch in [*images.train_batches(1, 3), *images.eval_batches(2, lambda *asked: heard.append(asked))]:
            assert (batch["images"].reshape(len(batch["labels"]), -1).mean(1) == 60 + 120 * batch["labels"]).all()
            shown.append(len(batch["labels"]))
    assert sum(shown) == 12 + 6
    held_out = (tmp_path / "val").glob("*/*")
    assert sorted(name for name, _ in heard) == sorted(f"{path.parent.name}/{path.name}" for path in held_out)
    with pytest.raises(Exception, match=r"has 2 classes, not num_classes = 3"):
        case.imagenet.ImageNet(tmp_path / "train", tmp_path / "val", place=place, **options | {"classes": 3})


@needs_paddle
@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("topology", ["1x1", "1x2"])
def test_the_mini_reaches_its_target(tmp_path: Path, topology: str) -> None:
    """With parameters that agree at the end: no target tells whether gradients were averaged."""
    checkout = clone(tmp_path)
    argv = ("--model", "mobilenetv2", "--framework", "paddle", "--topology", topology, "--session", "s")
    code, out = checkout.run(*argv)
    assert code == 0, out
    result = checkout.result("s", f"mobilenetv2-paddle-cpu-host-mini-{topology}")
    assert result["outcome"]["status"] == "passed"
    for name in ("quality", "ledger", *(["ranks_in_sync"] if topology == "1x2" else [])):
        assert check_of(result, name)["status"] == "pass", name
