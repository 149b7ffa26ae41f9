"""ViViT's data: who gets which clip, which way digits move, and videos in every layout."""

from __future__ import annotations

import importlib.util
import pickle
import sys
from itertools import chain
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from suite.catalog import load_catalog
from suite.drivers.events import RunProblem
from suite.plan import Request
from suite.selection import plans
from tests.case_vivit import CASE, CASE_DIR, DATA_DIR, TINY, params, task, write_arrays
from tests.one_case import ROOT

Place = CASE.data.Place


def epoch(count: int, size: int, world: int = 1, *, seed: int = 1, number: int = 1, skip: int = 0) -> list[list[Any]]:
    """The jobs of every rank."""
    places = [Place(rank, world) for rank in range(world)]
    return [list(CASE.data.jobs(count, size, place, seed=seed, epoch=number, skip=skip)) for place in places]


# Whose clips


@pytest.mark.parametrize(("world", "epochs"), [(1, 1), (2, 3), (4, 7), (8, 14), (16, 29)])
def test_fixed_steps_make_the_guides_number_of_epochs(world: int, epochs: int) -> None:
    """The number of the last epoch, counted from 0, after 150 steps of 4 clips a device."""
    steps, last = 0, 0
    while steps < 150:
        steps += len(epoch(300, 4, world, number=last + 1)[0])
        last += 1
    assert last - 1 == epochs


def test_global_batches_do_not_depend_on_the_number_of_ranks() -> None:
    alone = epoch(100, 8)[0]
    for world in (2, 4, 8):
        shared = epoch(100, 8 // world, world)
        for number, job in enumerate(alone):
            assert job.clips == tuple(clip for rank in shared for clip in rank[number].clips)


def test_chance_belongs_to_the_place_in_the_epoch() -> None:
    def numbers(jobs: list[Any]) -> list[float]:
        return [CASE.data.chance(7, job, nth).random() for job in jobs for nth in range(len(job.clips))]

    alone, (first, second) = epoch(64, 8)[0], epoch(64, 4, 2)
    assert sorted(numbers(alone)) == sorted(numbers(first) + numbers(second))
    assert len(set(numbers(alone))) == 64
    assert numbers(alone) != numbers(epoch(64, 8, number=2)[0])


def test_an_epoch_has_every_clip_and_fills_its_last_batch_from_its_beginning() -> None:
    seen = [clip for job in epoch(300, 64)[0] for clip in job.clips]
    assert sorted(seen[:300]) == list(range(300))
    assert len(seen) == 320
    assert seen[300:] == seen[:20]
    assert seen[:300] != [clip for job in epoch(300, 64, number=2)[0] for clip in job.clips][:300]


def test_ranks_have_disjoint_clips_and_a_resume_skips_without_building() -> None:
    ranks = epoch(96, 4, 3)
    clips = [{clip for job in rank for clip in job.clips} for rank in ranks]
    assert sum(map(len, clips)) == len(set.union(*clips)) == 96
    assert epoch(96, 4, 3, skip=5) == [rank[5:] for rank in ranks]


# Moving digits


@pytest.fixture(scope="module")
def digits() -> Any:
    return CASE.digits.Digits(DATA_DIR / "digits.npz", frames=8, size=32, place=Place(0, 1))


def test_training_and_evaluation_share_no_digit(digits: Any) -> None:
    train, held_out = digits.builder.digits, digits.held_out.digits
    assert (len(train), len(held_out)) == (1297, 500)
    with np.load(DATA_DIR / "digits.npz") as file:
        images = file["images"]
    assert not {image.tobytes() for image in train} & {image.tobytes() for image in held_out}
    assert sorted(image.sum() for image in CASE.digits.enlarge(images)) == sorted(
        image.sum() for image in np.concatenate([train, held_out])
    )
    clips = [digits.builder.clip(number).tobytes() for number in range(300)]
    assert not set(clips) & {digits.held_out.clip(number).tobytes() for number in range(300)}


def test_a_digit_moves_its_way_and_all_ways_are_equally_frequent(digits: Any) -> None:
    batch = digits.builder.batch(range(64))
    assert batch["clips"].shape == (64, 8, 32, 32, 1)
    assert np.bincount(batch["labels"]).tolist() == [8] * 8
    grid = np.arange(32)
    for clip, label in zip(batch["clips"][..., 0].astype(float), batch["labels"]):
        weight = clip.sum((1, 2))
        rows, columns = (clip.sum(2) @ grid) / weight, (clip.sum(1) @ grid) / weight
        moved = np.array([rows[-1] - rows[0], columns[-1] - columns[0]])
        assert np.sign(np.where(np.abs(moved) < 1, 0, moved)).tolist() == list(CASE.digits.DIRECTIONS[label])
        assert np.ptp(weight) < 1e-9, "all of the digit is always on the field"


def test_no_single_frame_tells_the_direction(digits: Any) -> None:
    """The mean place of a class is near the middle at half time, whichever way it goes."""
    batch = digits.builder.batch(range(800))
    middle = batch["clips"][:, 4, ..., 0].astype(float)
    centres = (middle.sum(2) @ np.arange(32)) / middle.sum((1, 2))
    means = [centres[batch["labels"] == label].mean() for label in range(8)]
    assert np.ptp(means) < 4 < np.ptp(centres)


@pytest.mark.parametrize("world", [1, 3, 7])
def test_every_held_out_clip_is_shown_once(world: int) -> None:
    labels = []
    for rank in range(world):
        one = CASE.digits.Digits(DATA_DIR / "digits.npz", frames=2, size=32, place=Place(rank, world))
        labels += [label for batch in one.eval_batches(64) for label in batch["labels"].tolist()]
    assert np.bincount(labels).tolist() == [50] * 8


def test_builders_go_to_other_processes_and_need_no_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "digits", CASE.digits)
    for name in ("data", "digits", "videos", "decoders", "frames"):
        assert "torch" not in (CASE_DIR / f"{name}.py").read_text().replace("torchvision", "").replace("No torch", "")
    assert len(pickle.dumps(CASE.digits.MovingDigits(np.zeros((1297, 14, 14), np.uint8), 0, 8, 32))) < 300_000


# Videos


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_arrays(tmp_path)


def videos(folder: Path, rank: int = 0, world: int = 1, **changes: Any) -> Any:
    one = task(params(**TINY | {"num_workers": 2} | changes), data_dir=folder, rank=rank, world=world)
    one.prepare_data()
    return one


def test_clips_come_from_videos_of_their_class(folder: Path) -> None:
    one = videos(folder, train_batch_size=5)
    batch = next(iter(one.train_batches(1)))
    assert batch["clips"].shape == (5, 4, 32, 32, 3)
    brightness = batch["clips"].float().mean((1, 2, 3, 4)) // 70
    assert brightness.tolist() == batch["labels"].tolist()


def test_the_same_epoch_gives_the_same_clips_and_another_one_others(folder: Path) -> None:
    first, again, other = (
        [batch["clips"].sum().item() for batch in videos(folder).train_batches(number)] for number in (1, 1, 2)
    )
    assert first == again != other


def test_a_held_out_video_is_cut_into_all_its_clips(tmp_path: Path) -> None:
    """32 frames at 30 a second are 27 at 25: a video of 80 has two clips, one of 81 three; shares of ranks add up."""
    folder = write_arrays(tmp_path, frames=80)
    shapes = {"num_frames": 32}
    whole = [batch["labels"].tolist() for batch in videos(folder, **shapes).clips.eval_batches(4)]
    assert [len(labels) for labels in whole] == [4, 4, 4, 3]
    assert sorted(chain(*whole)) == [0] * 5 + [1] * 5 + [2] * 5
    shared, heard = [], []
    for rank in range(4):
        batches = videos(folder, rank, 4, **shapes).clips.eval_batches(4, lambda *asked: heard.append(asked))
        shared += [label for batch in batches for label in batch["labels"].tolist()]
    assert sorted(shared) == sorted(chain(*whole))
    held_out = (folder / "UCF101_subset" / "val").glob("*/*")
    assert sorted(name for name, _ in heard) == sorted(f"{path.parent.name}/{path.name}" for path in held_out)


def test_boxes_lie_in_the_frame_and_a_cut_is_bilinear() -> None:
    frames = CASE.frames
    for seed in range(200):
        box = frames.random_box(240, 320, np.random.default_rng(seed))
        assert box.height == box.width and 168 - 1e-9 <= box.height <= 210
        assert 0 <= box.top <= 240 - box.height and 0 <= box.left <= 320 - box.width
    ramp = np.broadcast_to(np.arange(0, 160, 4, dtype=np.uint8)[None, None, :, None], (2, 30, 40, 3))
    seen = frames.cut(ramp, frames.Box(5, 10, 20, 20), 20)
    assert np.array_equal(seen, ramp[:, 5:25, 10:30])
    doubled = frames.cut(ramp, frames.Box(5, 10, 20, 20), 40)
    assert np.array_equal(doubled[0, 0, 1:5, 0], [41, 43, 45, 47]), "halfway between neighbours that are 4 apart"
    mirrored = frames.cut(ramp, frames.Box(5, 10, 20, 20, True), 20)
    assert np.array_equal(mirrored, seen[:, :, ::-1])
    assert frames.spread(3, 27, 32)[[0, -1]].tolist() == [3, 29]
    assert frames.span(10, 25.0, 32 / 30) == 10


def test_folders_of_pictures_are_videos_too(folder: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for part in ("train", "val"):
        for file in (folder / "UCF101_subset" / part).glob("*/*.npz"):
            with np.load(file) as content:
                pixels = content["frames"]
            file.unlink()
            file.with_suffix("").mkdir()
            for number, frame in enumerate(pixels):
                image.fromarray(frame).save(file.with_suffix("") / f"{number:05d}.png")
    one = videos(folder, train_batch_size=5)
    batch = next(iter(one.train_batches(1)))
    assert (batch["clips"].float().mean((1, 2, 3, 4)) // 70).tolist() == batch["labels"].tolist()
    next((folder / "UCF101_subset/train/Action0").iterdir()).rename(folder / "gone")
    (folder / "UCF101_subset/train/Action0/empty").mkdir()
    with pytest.raises(RunProblem, match=r"empty holds no pictures \(\.jpg, .*: put the frames of the video there"):
        list(videos(folder).train_batches(1))


def write_videos(av: Any, folder: Path) -> None:
    """The arrays below `folder` as video files."""
    for file in (folder / "UCF101_subset").glob("*/*/*.npz"):
        with np.load(file) as content:
            pixels = content["frames"]
        file.unlink()
        with av.open(str(file.with_suffix(".avi")), "w") as container:
            stream = container.add_stream("mpeg4", rate=25)
            stream.height, stream.width, stream.pix_fmt = *pixels.shape[1:3], "yuv420p"
            for frame in pixels:
                container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")))
            container.mux(stream.encode())


def test_video_files_are_decoded_and_can_be_unpacked(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    folder = write_arrays(tmp_path, frames=60)
    for file in (folder / "UCF101_subset").glob("*/*/*.npz"):  # the encoder wants even sides
        with np.load(file) as content:
            pixels = content["frames"][:, :, :40]
        np.savez(file, frames=pixels, fps=25.0)
    write_videos(av, folder)
    video = next((folder / "UCF101_subset/train/Action1").iterdir())
    every, fps = CASE.decoders.read(video)
    assert fps == 25.0 and len(every) >= 60
    some, _ = CASE.decoders.read(video, lambda count, fps: (11, 7))
    assert np.array_equal(some, every[11:18])
    one = videos(folder, train_batch_size=5)
    decoded = next(iter(one.train_batches(1)))
    assert (decoded["clips"].float().mean((1, 2, 3, 4)) // 70).tolist() == decoded["labels"].tolist()
    assert CASE.prepare.main(["--data-dir", str(folder)]) == 0
    assert not list(folder.glob("**/*.avi")) and not list(folder.glob("**/*.partial"))
    unpacked = next(iter(videos(folder, train_batch_size=5).train_batches(1)))
    assert (decoded["clips"] == unpacked["clips"]).all()


def test_without_a_decoder_one_sentence_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "UCF101_subset/train/Action0/v.avi").write_bytes(b"RIFF")
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in ("av", "torchvision") else there(name)
    )
    with pytest.raises(RunProblem, match="neither PyAV nor a torchvision that decodes is installed: pip install av"):
        videos(folder)


def test_a_torchvision_that_decodes_stands_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Frames:
        def numpy(self) -> Any:
            return np.arange(20, dtype=np.uint8).repeat(12).reshape(20, 2, 2, 3)

    io = SimpleNamespace(read_video=lambda path, pts_unit, output_format: (Frames(), None, {"video_fps": 25.0}))
    there = importlib.util.find_spec
    installed = {"av": None, "torchvision": True}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: installed[name] if name in installed else there(name))
    module = ModuleType("torchvision")
    module.io = io  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision", module)
    CASE.decoders.check_decoder(["a/v.avi"], folder)
    frames, fps = CASE.decoders.read(folder / "v.avi", lambda count, fps: (count - 3, 3))
    assert (frames[:, 0, 0, 0].tolist(), fps) == ([17, 18, 19], 25.0)
    del io.read_video
    with pytest.raises(RunProblem, match="neither PyAV nor a torchvision that decodes"):
        CASE.decoders.check_decoder(["a/v.avi"], folder)


def test_what_is_missing_or_broken_is_named_with_its_remedy(folder: Path) -> None:
    part = folder / "UCF101_subset"
    with pytest.raises(RunProblem, match="holds 15 videos, train_clips is 300: fetch the whole subset"):
        videos(folder, train_clips=300)
    with pytest.raises(RunProblem, match="has 3 classes, num_classes is 10: set num_classes"):
        videos(folder, num_classes=10)
    with pytest.raises(RunProblem, match=r"absent \(train_data\) is missing: python -m tools data status vivit"):
        videos(folder, train_data="absent")
    (part / "val/Unheard").mkdir()
    with pytest.raises(RunProblem, match=r"\(eval_data\) has the class 'Unheard', which train_data lacks"):
        videos(folder)
    (part / "val/Unheard").rmdir()
    (part / "train/Action0/v_0_0.npz").write_bytes(b"<html>")
    with pytest.raises(RunProblem, match=r"v_0_0.npz cannot be read as a video \(.*\): fetch it again"):
        list(videos(folder).train_batches(1))
    np.savez(part / "train/Action0/v_0_0.npz", frames=np.zeros((3, 4, 4)))
    with pytest.raises(RunProblem, match=r"frames is float64 \(3, 4, 4\), not bytes \[T, H, W, 3\]: write it again"):
        list(videos(folder).train_batches(1))
    (folder / "empty").mkdir()
    with pytest.raises(RunProblem, match=r"holds no <class>/<video>.avi: unpack the videos there"):
        CASE.videos.find_videos(folder / "empty", "train_data")


def test_prepare_says_what_it_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert CASE.prepare.main([]) == 4
    assert CASE.prepare.main(["--data-dir", str(tmp_path)]) == 4
    (tmp_path / "digits.csv").write_text("1,2,3\n")
    assert CASE.prepare.main(["--digits", str(tmp_path / "digits.csv")]) == 4
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "vivit: --data-dir is missing: name the folder that holds UCF101_subset"
    assert "UCF101_subset holds no <part>/<class>/<video>.avi" in said[1]
    assert "is no table of digits: each row holds 64 pixels" in said[2]
    row = ",".join(["16"] * 64 + ["9"])
    (tmp_path / "digits.csv").write_text(f"{row}\n{row}\n")
    assert CASE.prepare.main(["--digits", str(tmp_path / "digits.csv"), "--data-dir", str(tmp_path)]) == 0
    assert CASE.digits.enlarge(np.load(tmp_path / "digits.npz")["images"]).min() == 255


# The configurations

CATALOG = load_catalog(ROOT / "suite")


TOPOLOGIES = {"1x1": 2, "1x2": 4, "1x4": 8, "1x8": 15, "2x8": 30}
"""The guide's, with the epochs that 150 steps begin there."""
RUN_TIMES = {
    "full": (110.8, 128.0, 172.7, 324.2, 623.1),
    "one_worker": (150.3, 300.3, 619.1, 1154.0, 2374.5),
}
"""Seconds of 150 steps in the guide's second table, by the number of loader processes."""


def test_the_guides_two_tables_are_held_to() -> None:
    found = plans(CATALOG, Request(vendor="nvidia", models=("vivit",), frameworks=("pytorch",), presets=("*",)))
    assert len(found) == 3 * 3 * 5
    mini = [plan for plan in found if plan.preset == "mini"]
    assert {int(str(plan.params["train_batch_size"])) * plan.world_size for plan in mini} == {32}
    for plan in (plan for plan in found if plan.preset != "mini"):
        checks = {check.name: check for check in plan.checks}
        topology = str(plan.topology)
        assert (checks["fixed_steps"].threshold, checks["epochs"].threshold) == (150, TOPOLOGIES[topology])
        assert plan.params["num_workers"] == (15 if plan.preset == "full" else 1)
        assert plan.params["precision"] == ("tf32" if plan.machine == "A100" else "bf16")
        assert ("seconds_per_step" in checks) == (plan.machine == "A100")
        if plan.machine == "A100":
            check = checks["seconds_per_step"]
            assert (check.metric, check.op) == ("step_time_s", "<=")
            assert check.threshold == pytest.approx(RUN_TIMES[plan.preset][list(TOPOLOGIES).index(topology)] / 150)
            assert "DGX Cloud guide" in check.source


def test_the_cpu_keeps_the_global_batch_of_mini() -> None:
    found = plans(CATALOG, Request(vendor="cpu", models=("vivit",), frameworks=("pytorch",), presets=("mini",)))
    assert {int(str(plan.params["train_batch_size"])) * plan.world_size for plan in found} == {32}
