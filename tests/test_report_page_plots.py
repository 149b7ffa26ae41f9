"""What plots are drawn from: run folders read without trust, scaling with its base, and pictures that hold it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from reports import plots
from reports.html_scaling import ScalingPoint, scaling
from reports.html_series import MAX_DEVICES, RunSeries, read_series, run_folder, thin
from suite.measurement import Point
from suite.result import Base, MetricResult, Result
from tests.report_pages import page_plan
from tests.reports_toy import toy_result
from tests.run_folders import write_lines, write_run

needs_matplotlib = pytest.mark.skipif(not plots.available(), reason="matplotlib is not installed")


def measured(topology: str, throughput: float, **over: Any) -> Result:
    """A result with that throughput_train."""
    metrics = {"throughput_train": MetricResult(value=throughput, unit="image/s", values=(throughput,))}
    return toy_result(page_plan("toy", topology), metrics=metrics | over.pop("metrics", {}), **{"base": None, **over})


def test_a_run_folder_yields_losses_steps_and_what_the_devices_did(tmp_path: Path) -> None:
    run = read_series(write_run(tmp_path / "r1", page_plan("toy", "1x2"), power_w=200.0), 1)
    assert run.problem == "" and run.streams == 2 and run.devices == 2
    assert run.losses[0] == (1, pytest.approx(1.9802)) and run.losses[-1][0] == 120
    assert len(run.steps_s) + run.left_out == 120 and max(run.steps_s) < 0.101
    assert list(run.traces) == ["utilisation", "power_w", "memory_gib"]
    assert [trace.device for trace in run.traces["power_w"]] == ["device 0", "device 1"]
    start, end = run.window or (None, None)
    assert start == 0.0 and end == pytest.approx(12.9, abs=0.1)
    # The run idles before training began; on this axis that is below zero.
    assert [value for t, value in run.traces["power_w"][0].points if t < 0] == [0.0, 0.0, 0.0]
    assert {value for _, value in run.traces["memory_gib"][0].points} == {2.0}


def test_the_slowest_rank_gives_each_step_its_time(tmp_path: Path) -> None:
    plan = page_plan("toy", "1x2")
    alone = read_series(write_run(tmp_path / "r1", plan, ranks=1, noise=0.05), 1)
    both = read_series(write_run(tmp_path / "r2", plan, noise=0.05), 1)
    assert all(slow >= own for slow, own in zip(both.steps_s, alone.steps_s))
    assert sum(both.steps_s) > sum(alone.steps_s)


@pytest.mark.parametrize(
    "fault", ["no_header", "no_run_stop", "nan_loss", "torn_line", "other_windows", "missing_rank"]
)
def test_a_spoilt_run_still_shows_rank_zero(tmp_path: Path, fault: str) -> None:
    run = read_series(write_run(tmp_path / "r1", page_plan("toy", "1x2"), faults=(fault,)), 1)
    assert len(run.losses) == 120 and len(run.steps_s) > 100
    assert (run.problem != "") == (fault in ("no_header", "other_windows"))


def test_a_folder_without_anything_yields_nothing(tmp_path: Path) -> None:
    run = read_series(tmp_path, 3)
    assert (run.n, run.losses, run.steps_s, run.traces, run.window) == (3, (), (), {}, None)
    assert "no such file" in run.problem


def test_a_monitor_that_writes_nonsense_is_read_around(tmp_path: Path) -> None:
    device = {"id": "x", "utilisation": "all", "power_w": -5, "memory_bytes": 1 << 30}
    write_lines(tmp_path / "monitor.jsonl", [
        {"t_wall": 10.0, "devices": [device, 7, None]}, {"t_wall": None}, {"devices": []},
        {"t_wall": 11.0, "devices": [device]},
    ])  # fmt: skip
    with (tmp_path / "monitor.jsonl").open("a") as file:
        file.write('[1]\n{"t_wall": NaN}\n{"t_wall": 12.')
    run = read_series(tmp_path, 1)
    assert list(run.traces) == ["memory_gib"]
    assert run.traces["memory_gib"][0].points == ((0.0, 1.0), (1.0, 1.0))


def test_many_devices_are_drawn_in_part_and_that_is_said(tmp_path: Path) -> None:
    for node in range(2):
        devices = [{"id": f"gpu{i}", "utilisation": float(i)} for i in range(12)]
        name = "monitor.jsonl" if node == 0 else f"monitor-node{node}.jsonl"
        write_lines(tmp_path / name, [{"t_wall": float(t), "devices": devices} for t in range(5)])
    run = read_series(tmp_path, 1)
    assert run.devices == 24 and len(run.traces["utilisation"]) == MAX_DEVICES
    if plots.available():
        plot = plots.device_plot(run)
        assert plot is not None and plot.note == "Run 1; 16 of 24 devices are drawn"


@pytest.mark.parametrize("folder", ["/etc", "../r1", "r1/../../r1", "a\0b", "none"])
def test_only_folders_inside_the_session_are_read(tmp_path: Path, folder: str) -> None:
    (tmp_path / "session" / "id" / "r1").mkdir(parents=True)
    (tmp_path / "session" / "r1").mkdir()
    (tmp_path / "r1").mkdir()
    assert run_folder(tmp_path / "session", "id", "r1") == tmp_path / "session" / "id" / "r1"
    assert run_folder(tmp_path / "session", "id", folder) is None


def test_a_link_is_no_run_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "r1").mkdir(parents=True)
    (tmp_path / "session").mkdir()
    (tmp_path / "session" / "id").symlink_to(tmp_path / "elsewhere")
    assert run_folder(tmp_path / "session", "id", "r1") is None


def test_thinning_keeps_both_ends() -> None:
    assert thin(range(10), 20) == tuple(range(10))
    kept = thin(range(10_000), 100)
    assert len(kept) == 100 and (kept[0], kept[-1]) == (0, 9999)


def test_scaling_is_measured_within_one_family() -> None:
    one, two, eight = measured("1x1", 100.0), measured("1x2", 190.0), measured("2x4", 640.0)
    other = measured("1x4", 1.0).model_copy(update={"machine": "another"})
    assert scaling(two, [eight, two, other, one]) == (
        ScalingPoint(1.0, 100.0, "1x1"), ScalingPoint(2.0, 190.0, "1x2"), ScalingPoint(8.0, 640.0, "2x4"),
    )  # fmt: skip
    assert scaling(one, [one]) == ()
    # Two topologies of one size are a comparison, not scaling.
    assert scaling(two, [two, measured("2x1", 150.0)]) == ()


def test_the_base_is_a_point_whose_devices_follow_from_the_efficiency() -> None:
    gains = {
        "speedup": MetricResult(value=6.4, unit="x", values=(6.4,)),
        "efficiency": MetricResult(value=0.8, unit="", values=(0.8,)),
    }
    base = Base(id="b", plan_digest="p", metric="throughput_train", value=100.0, values=(100.0,), unit="", folder="")
    result = measured("2x8", 640.0, metrics=gains, base=base)
    assert scaling(result, [result]) == (ScalingPoint(2.0, 100.0, "base"), ScalingPoint(16.0, 640.0, "2x8"))
    # A time is better when it is lower: its inverse is the speed.
    epochs = base.model_copy(update={"metric": "epoch_time_s", "value": 8.0})
    timed = measured("2x8", 1.0, base=epochs,
                     metrics={**gains, "epoch_time_s": MetricResult(value=1.25, unit="s", values=(1.25,))})  # fmt: skip
    assert [point.rate for point in scaling(timed, [timed])] == [0.125, 0.8]


@needs_matplotlib
def test_what_there_is_not_is_not_drawn() -> None:
    empty = RunSeries(n=1, traces={})
    assert plots.loss_plot([empty]) is None and plots.step_plot(empty) is None and plots.device_plot(empty) is None
    assert plots.ledger_plot({1: {}}) is None and plots.scaling_plot((), "1x1") is None
    nothing = (Point(step=1, samples=1, t=1.0, metric="accuracy", value="nan"),)
    assert plots.quality_plot({1: nothing}, 0.5, "≥", None) is None


@needs_matplotlib
def test_a_quality_that_is_not_finite_is_left_out_and_said() -> None:
    curve = (
        Point(step=1, samples=1, t=1.0, metric="accuracy", value=0.25),
        Point(step=2, samples=2, t=2.0, metric="accuracy", value="inf"),
    )
    plot = plots.quality_plot({1: curve}, 0.5, "≥", None)
    assert plot is not None and plot.note == "1 not finite, not drawn"
    assert plot.alt == "accuracy of run 1 over 1 evaluations, the last 0.25 after 1 s; target ≥ 0.5."


@needs_matplotlib
def test_a_picture_has_twice_the_pixels_of_its_place_and_nothing_behind_it() -> None:
    from PIL import Image

    plot = plots.ledger_plot(
        {1: {"launch": 2.0, "train": 7.0, "unaccounted_s": 1.0, "wall_s": 10.0}, 2: {"train": 5.0}}
    )
    assert plot is not None and "the longest: train 7 s, launch 2 s, unaccounted 1 s" in plot.alt
    with Image.open(io.BytesIO(plot.png)) as image:
        assert image.size == (2 * plot.width, 2 * plot.height)
        pixels = image.convert("RGBA")
    assert pixels.getpixel((2, 2))[3] == 0  # type: ignore[index]
    colours = {colour[:3] for _, colour in pixels.getcolors(1 << 24) or () if colour[3] > 250}
    blue = tuple(int(plots.PHASE_COLOURS["train"][i : i + 2], 16) for i in (1, 3, 5))
    assert min(sum(abs(a - b) for a, b in zip(blue, colour)) for colour in colours) < 12
