"""mobilenetv2/tensorflow2: one network in two frameworks, and data that shards cannot change."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.launched_toy import ROOT
from tests.tensorflow2_toy import CASE_DIR, VARIABLE, mini, needs_tensorflow

DUMP = """
import json
import sys
import numpy as np
import tensorflow as tf
sys.path.insert(0, sys.argv[1])
from imagenet import ImageNet
from model import MobileNetV2, Shape
from data import Place

shape = Shape.of(json.loads(sys.argv[5]))
model = MobileNetV2(shape, tf.float32, 3)
variables = {each.name.partition(":")[0]: each for each in model.variables}
assert sum(int(tf.size(each)) for each in model.trainable_variables) == shape.parameters()
images = np.load(sys.argv[2])["images"]
trained = model(images, training=True, chance=tf.constant([1, 2])).numpy()
scores = model(images, training=False).numpy()
np.savez(sys.argv[3], trained=trained, scores=scores, **{name: each.numpy() for name, each in variables.items()})

from pathlib import Path
common = {"classes": 2, "image_size": 32, "seed": 4, "ahead": 2}
folder = Path(sys.argv[4])
whole = ImageNet(folder / "train", folder / "val", place=Place(0, 1), **common)
parts = [ImageNet(folder / "train", folder / "val", place=Place(rank, 2), **common) for rank in (0, 1)]
once = [batch["images"] for batch in whole.train_batches(1, 4)]
assert len(once) == 2 and once[0].shape == (4, 32, 32, 3) and once[0].dtype == np.uint8
again = [batch["images"] for batch in whole.train_batches(1, 4, 1)]
assert np.array_equal(again[0], once[1])
halves = [[batch["images"] for batch in part.train_batches(1, 2)] for part in parts]
assert all(np.array_equal(np.concatenate(pair), one) for pair, one in zip(zip(*halves), once))
other = next(iter(whole.train_batches(2, 4)))["images"]
assert not np.array_equal(other, once[0])
heard = []
hear = lambda *asked: heard.append(asked)
labels = [label for part in parts for batch in part.eval_batches(3, hear) for label in batch["labels"].tolist()]
assert sorted(labels) == [0, 0, 1, 1] and [label for _, label in heard] == labels
assert len({name for name, _ in heard}) == 4 and all(name.count("/") == 1 for name, _ in heard)
"""


@pytest.fixture(scope="module")
def case() -> Iterator[SimpleNamespace]:
    """Its modules that compute with NumPy alone."""
    names = ("data", "digits")
    shadowed = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.path.insert(0, str(CASE_DIR))
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    finally:
        sys.path.remove(str(CASE_DIR))
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(shadowed)


def digits(case: SimpleNamespace, rank: int, world: int) -> Any:
    place = case.data.Place(rank, world)
    return case.digits.Digits(CASE_DIR / "data/digits.npz", image_size=32, seed=1, place=place)


def test_the_digits_are_those_of_the_other_framework() -> None:
    other = ROOT / "suite/cases/mobilenetv2/pytorch/data/digits.npz"
    assert (CASE_DIR / "data/digits.npz").read_bytes() == other.read_bytes()


def test_a_global_batch_is_one_set_however_many_ranks_share_it(case: SimpleNamespace) -> None:
    whole = next(digits(case, 0, 1).train_batches(3, 64))
    halves = [next(digits(case, rank, 2).train_batches(3, 32)) for rank in (0, 1)]
    for key in ("images", "labels"):
        assert np.array_equal(np.concatenate([half[key] for half in halves]), whole[key])
    later = next(digits(case, 0, 1).train_batches(3, 64, 1))
    assert not np.array_equal(later["images"], whole["images"]) and whole["images"].shape == (64, 32, 32, 1)
    shown = [len(batch["labels"]) for rank in (0, 1, 2) for batch in digits(case, rank, 3).eval_batches(100)]
    assert sum(shown) == 500


def test_no_held_out_digit_is_trained_on(case: SimpleNamespace) -> None:
    train, held_out = case.digits.split(1797)
    assert sorted([*train, *held_out]) == list(range(1797)) and len(held_out) == 500


def test_an_image_seen_straight_is_enlarged_between_its_pixels(case: SimpleNamespace) -> None:
    images = np.zeros((1, 8, 8), np.uint8)
    images[0, 3, 3], images[0, 0, 0] = 16, 16
    straight = np.eye(2, 3, dtype=np.float32)[None]
    assert np.array_equal(case.digits.drawn(images, straight, 8)[0, ..., 0], 255 * (images[0] // 16))
    # Twice the size: each new pixel lies a quarter of a pixel from the nearest old one; outside is black.
    larger = case.digits.drawn(images, straight, 16)[0, ..., 0].astype(int)
    quarters = np.outer([1, 3, 3, 1], [1, 3, 3, 1]) * 255 / 16
    assert np.abs(larger[5:9, 5:9] - quarters).max() <= 0.5 and larger[0, 0] == round(255 * 9 / 16)
    moved = straight + np.array([[0, 0, 0.25], [0, 0, 0]])  # what is seen lies a quarter of half the image to the right
    assert case.digits.drawn(images, moved.astype(np.float32), 8)[0, 3, 2, 0] == 255


def write_photographs(folder: Path) -> Path:
    """A data folder in ImageNet's layout: noise of different sizes, 4 to train on and 2 held out of each class."""
    image = pytest.importorskip("PIL.Image")
    random = np.random.default_rng(0)
    for part, count in (("train", 4), ("val", 2)):
        for number in range(2 * count):
            where = folder / part / f"n{number % 2}"
            where.mkdir(parents=True, exist_ok=True)
            pixels = random.integers(0, 256, (40 + number, 60 - number, 3)).astype(np.uint8)
            image.fromarray(pixels).save(where / f"{number}.JPEG")
    return folder


@pytest.mark.slow
@needs_tensorflow
def test_equal_weights_give_equal_scores_in_both_frameworks(tmp_path: Path) -> None:
    """Also in training mode, where statistics are the batch's; afterwards the running statistics agree."""
    from tests.case_mobilenetv2 import CASE

    torch = pytest.importorskip("torch")
    params = mini(1, dropout=0.0)
    images = np.random.default_rng(1).integers(0, 256, (16, 32, 32, 1)).astype(np.uint8)
    np.savez(tmp_path / "in.npz", images=images)
    (tmp_path / "dump.py").write_text(DUMP)
    argv = [os.environ[VARIABLE], str(tmp_path / "dump.py"), str(CASE_DIR), str(tmp_path / "in.npz")]
    argv += [str(tmp_path / "out.npz"), str(write_photographs(tmp_path / "photographs")), json.dumps(params)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(argv, env=environment, timeout=120, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    out = np.load(tmp_path / "out.npz")
    model = CASE.model.MobileNetV2(CASE.model.Shape.of(params | {"memory_format": "contiguous"}))
    for block, units in enumerate(model.blocks):
        for unit, (convolution, norm) in enumerate(units.units):
            name = f"block{block:02d}.{unit}"
            kernel = out[f"{name}/kernel"]
            axes = (2, 3, 0, 1) if convolution.groups > 1 else (3, 2, 0, 1)
            convolution.weight.data = torch.tensor(kernel.transpose(axes).copy())
            norm.weight.data, norm.bias.data = torch.tensor(out[f"{name}/scale"]), torch.tensor(out[f"{name}/shift"])
    model.classifier.weight.data = torch.tensor(out["classifier/kernel"].T.copy())
    model.classifier.bias.data = torch.tensor(out["classifier/bias"])
    model.train()
    with torch.no_grad():
        trained = model(torch.tensor(images)).numpy()
        model.eval()
        scores = model(torch.tensor(images)).numpy()
    assert np.abs(trained - out["trained"]).max() < 1e-4 * np.abs(trained).max() + 1e-6
    norm = model.blocks[3].units[1][1]
    assert out["block03.1/mean"] == pytest.approx(norm.running_mean.numpy(), rel=1e-3, abs=1e-5)
    assert out["block03.1/variance"] == pytest.approx(norm.running_var.numpy(), rel=1e-3)
    assert np.abs(scores - out["scores"]).max() < 1e-3 * np.abs(scores).max()
