"""MobileNetV2's data: the digits of mini, photographs in ImageNet's layout, crops, shards and random bytes."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import multiprocessing
import tomllib
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from suite.drivers.events import RunProblem
from tests.case_mobilenetv2 import CASE, CASE_DIR, DATA_DIR, TINY, params, task, write_photographs

Place = CASE.data.Place
DIGITS = DATA_DIR / "digits.npz"


def opened(values: dict[str, Any], **more: Any) -> Any:
    one = task(values, **more)
    one.prepare_data()
    return one


# The digits


def test_held_out_digits_are_never_trained_on() -> None:
    train, held_out = CASE.digits.split(1797)
    assert (len(train), len(held_out)) == (1297, 500)
    assert sorted([*train, *held_out]) == list(range(1797))
    images, _ = CASE.digits.read_digits(DIGITS)
    flat = [bytes(image.numpy()) for image in images]
    assert {flat[i] for i in train}.isdisjoint(flat[i] for i in held_out), "no digit occurs twice either"


def test_every_digit_is_asked_for_about_as_often() -> None:
    counts = torch.bincount(opened(params("mini")).images.held_out["labels"], minlength=10)
    assert int(counts.min()) >= 35
    assert int(counts.max()) <= 65


def test_held_out_digits_are_fixed() -> None:
    first, second = (opened(params("mini"), seed=seed).images.held_out for seed in (1, 99))
    assert torch.equal(first["images"], second["images"])
    assert torch.equal(first["labels"], second["labels"])


def test_an_enlarged_digit_keeps_its_ink() -> None:
    images, _ = CASE.digits.read_digits(DIGITS)
    straight = torch.eye(2, 3).expand(20, 2, 3)
    seen = CASE.digits.drawn(images[:20], straight, 32)
    assert seen.shape == (20, 32, 32, 1)
    assert seen.dtype == torch.uint8
    ink = seen.float().mean((1, 2, 3)) / 255
    torch.testing.assert_close(ink, images[:20].float().mean((1, 2)) / 16, rtol=0.1, atol=0.02)


def test_distortions_are_those_of_the_epoch_and_small() -> None:
    first, second, other = (CASE.digits.distortions(50, 1, epoch) for epoch in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert float(first[:, :, 2].abs().max()) <= CASE.digits.SHIFT
    scale = torch.linalg.det(first[:, :, :2]).sqrt()
    assert float((scale - 1).abs().max()) <= CASE.digits.RESIZE + 1e-6


def test_data_toml_knows_the_shipped_file() -> None:
    entries = {entry["path"]: entry for entry in tomllib.loads((CASE_DIR / "data.toml").read_text())["file"]}
    entry, content = entries["case:digits.npz"], DIGITS.read_bytes()
    assert (entry["bytes"], entry["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    assert [path.name for path in DATA_DIR.iterdir() if path.suffix != ".md"] == ["digits.npz"]
    assert {"train", "val"} == {params()["train_data"], params()["eval_data"]} == set(entries) - {"case:digits.npz"}


def test_prepare_packs_the_shipped_digits_again(tmp_path: Path) -> None:
    images, labels = CASE.digits.read_digits(DIGITS)
    rows = np.concatenate([images.numpy().reshape(-1, 64), labels.numpy()[:, None]], axis=1)
    source = tmp_path / "digits.csv.gz"
    with gzip.open(source, "wt") as file:
        np.savetxt(file, rows, fmt="%d", delimiter=",")
    assert CASE.prepare.main(["--data-dir", str(tmp_path), "--source", str(source)]) == 0
    again = CASE.digits.read_digits(tmp_path / "digits.npz")
    assert torch.equal(again[0], images)
    assert torch.equal(again[1], labels)


@pytest.mark.parametrize("text", ["", "1,2,3\n", "a,b\n", ",".join(["17"] * 65) + "\n"])
def test_prepare_refuses_what_is_no_table_of_digits(text: str, tmp_path: Path, capsys: Any) -> None:
    source = tmp_path / "other.csv"
    source.write_text(text)
    assert CASE.prepare.main(["--data-dir", str(tmp_path), "--source", str(source)]) == 4
    assert str(source) in capsys.readouterr().err
    assert not (tmp_path / "digits.npz").exists()


# Order, shards, batches


def trained(rank: int, world: int, *, seed: int = 1, epoch: int = 1, skip: int = 0) -> list[dict[str, torch.Tensor]]:
    one = opened(params("mini", train_batch_size=64 // world), seed=seed, rank=rank, world=world)
    return list(one.train_batches(epoch, skip))


def test_two_ranks_share_the_global_batches_of_one() -> None:
    alone, shares = trained(0, 1), [trained(rank, 2) for rank in range(2)]
    assert len(alone) == len(shares[0]) == len(shares[1]) == 1297 // 64
    for whole, first, second in zip(alone, *shares):
        for name in ("images", "labels"):
            assert torch.equal(whole[name], torch.cat([first[name], second[name]])), name


def test_order_and_distortion_depend_on_seed_and_epoch_alone() -> None:
    first = trained(0, 1)
    assert all(torch.equal(a["images"], b["images"]) for a, b in zip(first, trained(0, 1)))
    for other in (trained(0, 1, seed=2), trained(0, 1, epoch=2)):
        assert not torch.equal(first[0]["images"], other[0]["images"])


def test_skipping_continues_exactly() -> None:
    whole, rest = trained(1, 2, epoch=3), trained(1, 2, epoch=3, skip=15)
    assert len(rest) == len(whole) - 15
    assert all(torch.equal(a["images"], b["images"]) for a, b in zip(whole[15:], rest))


@given(count=st.integers(0, 200), size=st.integers(1, 9), world=st.integers(1, 5), skip=st.integers(0, 5))
def test_shards_are_disjoint_equal_and_whole(count: int, size: int, world: int, skip: int) -> None:
    order = list(range(count))
    shares = [list(CASE.data.shards(order, size, Place(rank, world), skip)) for rank in range(world)]
    assert len({len(share) for share in shares}) == 1
    seen = sorted(index for share in shares for batch in share for index in batch)
    together = size * world
    assert seen == order[skip * together : count // together * together]


def test_a_filled_batch_has_images_that_no_label_fits() -> None:
    short = {"images": torch.ones(2, 3, 3, 1, dtype=torch.uint8), "labels": torch.tensor([4, 5])}
    batch = CASE.data.filled(short, 5)
    assert batch["labels"].tolist() == [4, 5, -1, -1, -1]
    assert batch["images"].shape == (5, 3, 3, 1)
    assert int(batch["images"].sum()) == 18
    assert CASE.data.filled(batch, 5) is batch


def test_shuffled_labels_are_the_same_ones_elsewhere() -> None:
    one = task(params("mini"))
    batch = {"images": torch.zeros(64, 2, 2, 1), "labels": torch.arange(64)}
    mixed = one.shuffle_labels(batch, torch.Generator().manual_seed(1))
    assert sorted(mixed["labels"].tolist()) == list(range(64))
    assert not torch.equal(mixed["labels"], batch["labels"])
    assert mixed["images"] is batch["images"]


def test_random_batches_are_random_and_come_round() -> None:
    made = list(itertools.islice(task(params(**TINY)).synthetic_batches(), CASE.data.RING + 1))
    assert made[0]["images"].shape == (8, 32, 32, 3)
    assert made[0]["images"].dtype == torch.uint8
    assert float(made[0]["images"].float().std()) == pytest.approx(74, rel=0.05), "all bytes, equally often"
    assert not torch.equal(made[0]["images"], made[1]["images"])
    assert made[CASE.data.RING] is made[0]
    other = next(task(params(**TINY), rank=1, world=2).synthetic_batches())
    assert not torch.equal(made[0]["images"], other["images"])


# Crops


@given(width=st.integers(1, 900), height=st.integers(1, 900), seed=st.integers(0, 2**40))
def test_a_random_crop_lies_inside_and_has_area(width: int, height: int, seed: int) -> None:
    crop = CASE.crops.random_crop(width, height, Random(seed))
    assert 0 <= crop.left < crop.right <= width
    assert 0 <= crop.top < crop.bottom <= height


def test_random_crops_cover_the_stated_areas_and_shapes() -> None:
    random = Random(5)
    crops = [CASE.crops.random_crop(500, 400, random) for _ in range(3000)]
    areas = np.array([(c.right - c.left) * (c.bottom - c.top) / 200_000 for c in crops])
    ratios = np.array([(c.right - c.left) / (c.bottom - c.top) for c in crops])
    assert 0.075 < areas.min() < 0.1 < 0.9 < areas.max() <= 1
    assert 0.74 < ratios.min() < 0.8 < 1.25 < ratios.max() < 1.35
    assert 0.45 < np.mean([c.mirrored for c in crops]) < 0.55


def test_a_strip_without_a_fitting_crop_gives_its_middle() -> None:
    crop = CASE.crops.random_crop(1000, 3, Random(1))
    assert (crop.left, crop.top, crop.right, crop.bottom) == (498, 0, 502, 3)


def test_the_middle_crop_is_that_of_the_scaled_photograph() -> None:
    """256 for the shorter side, then the middle 224."""
    assert CASE.crops.middle_crop(512, 1024)[:4] == (32, 288, 480, 736)


# Photographs


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("PIL")
    return write_photographs(tmp_path_factory.mktemp("imagenet"))


def full(folder: Path, *, rank: int = 0, world: int = 1, seed: int = 1, **changes: Any) -> Any:
    return opened(params(**{**TINY, "num_workers": 0, **changes}), data_dir=folder, rank=rank, world=world, seed=seed)


def test_classes_are_numbered_by_their_folders_names(photographs: Path) -> None:
    one = full(photographs).images
    assert one.train.classes == tuple(f"n{number:08d}" for number in range(4))
    assert np.bincount(one.train.labels).tolist() == [20] * 4
    assert np.bincount(one.held_out.labels).tolist() == [5] * 4
    assert one.train.names[20] == b"n00000001/train_0.JPEG"


def test_every_photograph_is_trained_on_once_an_epoch_and_evaluated_once(photographs: Path) -> None:
    one = full(photographs)
    labels = torch.cat([batch["labels"] for batch in one.train_batches(1)])
    assert torch.bincount(labels).tolist() == [20] * 4
    heard: list[tuple[str, int]] = []
    shares = [
        full(photographs, rank=rank, world=3).images.eval_batches(2, lambda *asked: heard.append(asked))
        for rank in range(3)
    ]
    labels = torch.cat([batch["labels"] for share in shares for batch in share])
    assert torch.bincount(labels).tolist() == [5] * 4
    assert [label for _, label in heard] == labels.tolist()
    held_out = (photographs / "val").glob("*/*")
    assert sorted(name for name, _ in heard) == sorted(f"{path.parent.name}/{path.name}" for path in held_out)


def test_processes_decode_what_the_training_itself_would(photographs: Path) -> None:
    alone, helped = full(photographs), full(photographs, num_workers=2)
    for epoch in (1, 2):
        pairs = zip(alone.train_batches(epoch, 3), helped.train_batches(epoch, 3), strict=True)
        for mine, theirs in pairs:
            assert torch.equal(mine["images"], theirs["images"])
            assert torch.equal(mine["labels"], theirs["labels"])
    del helped, theirs, pairs
    assert all(child.exitcode is not None for child in multiprocessing.active_children())


def test_crops_depend_on_seed_and_epoch_not_on_the_ranks(photographs: Path) -> None:
    whole = list(full(photographs).train_batches(1))
    halves = [list(full(photographs, train_batch_size=4, rank=r, world=2).train_batches(1)) for r in range(2)]
    for batch, first, second in zip(whole, *halves, strict=True):
        assert torch.equal(batch["images"], torch.cat([first["images"], second["images"]]))
    assert not torch.equal(whole[0]["images"], next(iter(full(photographs).train_batches(2)))["images"])
    assert not torch.equal(whole[0]["images"], next(iter(full(photographs, seed=2).train_batches(1)))["images"])


def test_the_random_state_of_the_run_is_left_alone(photographs: Path) -> None:
    one = full(photographs)
    before = torch.get_rng_state()
    next(iter(one.train_batches(1)))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_decoded_photograph_has_its_colours_and_its_middle(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.zeros((256, 512, 3), dtype=np.uint8)
    pixels[16:240, 144:368] = (250, 100, 20)
    image.fromarray(pixels).save(tmp_path / "box.png")
    seen = CASE.imagenet.decode(tmp_path / "box.png", 32, None)
    assert seen.shape == (32, 32, 3)
    inside = seen[1:-1, 1:-1]  # pixels at the edge blend with their neighbours beyond it, as when all of it is scaled
    assert bool((inside == torch.tensor([250, 100, 20], dtype=torch.uint8)).all())
    assert bool((seen[0, 0] < torch.tensor([250, 100, 20])).all())


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_grey_and_printed_photographs_become_three_colours(mode: str, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.new(mode, (40, 30), 128 if mode == "L" else (0, 0, 0, 100)).save(tmp_path / "a.JPEG")
    assert CASE.imagenet.decode(tmp_path / "a.JPEG", 16, Random(1)).shape == (16, 16, 3)


def test_a_broken_photograph_is_named(photographs: Path, tmp_path: Path) -> None:
    folder = write_photographs(tmp_path / "data", classes=4, train=2, held_out=1)
    bad = folder / "train/n00000002/train_1.JPEG"
    bad.write_bytes(bad.read_bytes()[:100])
    for workers in (0, 1):
        with pytest.raises(RunProblem, match=r"n00000002/train_1\.JPEG cannot be decoded .*: fetch the file again"):
            list(full(folder, num_workers=workers).train_batches(1))


def test_missing_folders_and_classes_are_said_with_the_remedy(photographs: Path, tmp_path: Path) -> None:
    with pytest.raises(RunProblem, match=r"train is missing: python -m tools data status mobilenetv2"):
        full(tmp_path)
    with pytest.raises(RunProblem, match=r"train has 4 classes, not num_classes = 5"):
        full(photographs, num_classes=5)
    (tmp_path / "train").mkdir()
    with pytest.raises(RunProblem, match=r"holds no photograph"):
        full(tmp_path)


def test_a_class_that_is_only_evaluated_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    folder = write_photographs(tmp_path, train=2, held_out=1)
    (folder / "val/n00000003").rename(folder / "val/n00000009")
    with pytest.raises(RunProblem, match=r"val has the class 'n00000009', which the training part lacks"):
        full(folder)
