"""The rule that gives a mini its target, and the command that trains the seeds: what is kept, and what is run again."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from benchmarks import healthy_seeds
from benchmarks.healthy_seeds import main, read_lines
from benchmarks.seed_rule import Spread, easier, target_of
from benchmarks.seed_runs import Mini, Training, minis, named, out_of_reach

HEALTHY = [0.90 + 0.002 * place for place in range(20)]


@pytest.mark.parametrize(
    ("value", "better", "expected"),
    [
        (0.947, "higher", 0.94),
        (0.94, "higher", 0.94),
        (86.7, "higher", 86),
        (0.0921, "lower", 0.093),
        (3.21, "lower", 3.3),
    ],
)
def test_a_target_is_rounded_to_the_easier_side(value: float, better: str, expected: float) -> None:
    assert easier(value, better) == expected


def test_the_target_lies_two_deviations_below_the_worst() -> None:
    """Worst 0.90, deviation 0.0118: 0.876, rounded to 0.87."""
    spread = Spread.of(HEALTHY, "higher")
    assert spread is not None
    assert spread.deviation == pytest.approx(0.01183, abs=1e-5)
    assert target_of(spread, {"lr_0": 0.25}, "higher", 20) == (0.87, "")
    worse = Spread.of([1 - end for end in HEALTHY], "lower")
    assert worse is not None and target_of(worse, {"lr_0": 0.75}, "lower", 20) == (0.13, "")


@pytest.mark.parametrize(
    ("broken", "runs", "why"),
    [
        ({"lr_0": 0.25, "labels_shuffled": 0.84}, 20, "less than 3 standard deviations from labels_shuffled"),
        ({"lr_0": 0.83}, 20, "nearer to lr_0"),
        ({"lr_0": 0.25}, 19, "19 healthy runs of the 20"),
        ({}, 20, "no broken run"),
    ],
    ids=["too near", "nearer than the mean", "too few", "nothing broken"],
)
def test_without_distance_there_is_no_target(broken: dict[str, float], runs: int, why: str) -> None:
    spread = Spread.of(HEALTHY, "higher")
    assert spread is not None
    target, reason = target_of(spread, broken, "higher", runs)
    assert target is None and why in reason


def test_in_the_copy_no_mini_can_meet_its_target(tmp_path: Path) -> None:
    cases = out_of_reach(tmp_path / "copy") / "suite/cases"
    for name, mini in minis().items():
        table = tomllib.loads((cases / name / "case.toml").read_text(encoding="utf-8"))
        assert table["preset"]["mini"]["target"]["value"] == (1e9 if mini.better == "higher" else -1e9), name


def test_a_word_is_the_pytorch_case() -> None:
    assert [mini.name for mini in named(["glm", "whisper/accelerate"])] == ["glm/pytorch", "whisper/accelerate"]
    assert {mini.name.partition("/")[2] for mini in named([])} == {"pytorch"}


class Played(Training):
    """In place of pytest: three evaluations, of which a judged run sees those up to its target."""

    trained: ClassVar[list[tuple[int, tuple[str, ...]]]] = []
    busy: ClassVar[list[str]] = []
    """What the next runs to the end fail of instead."""

    def __init__(self, mini: Mini, seed: int, extra: Sequence[str], *, root: Path, folder: Path, cores: Sequence[int]):
        self.mini, self.session, self._extra, self._root = mini, folder / "session", tuple(extra), root
        self.trained.append((seed, self._extra))

    @property
    def lasted_s(self) -> float:
        return 1.0

    def ended(self, limit_s: float) -> bool:
        return True

    def found(self) -> dict[str, Any]:
        curve = [[50, 0.2], [100, 0.2]] if self._extra else [[50, 0.4], [100, 0.8], [150, 0.9]]
        if self._root == healthy_seeds.ROOT:
            outcome, curve = ("passed", ""), curve[:2]
        else:
            outcome = ("failed", self.busy.pop() if self.busy else "quality")
        return {"outcome": outcome[0], "category": outcome[1], "reason": "", "curve": curve, "versions": {}}


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a command whose trainings are played."""
    monkeypatch.setattr(healthy_seeds, "Training", Played)
    monkeypatch.setattr(healthy_seeds, "out_of_reach", lambda folder: folder)
    monkeypatch.setattr(Played, "trained", [])
    monkeypatch.setattr(Played, "busy", [])
    return tmp_path / "seeds.json"


def run(out: Path, seeds: int) -> int:
    return main(["glm", "--seeds", str(seeds), "--broken", "1", "--out", str(out)])


def test_a_line_holds_what_a_seed_reached(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(out, 2) == 0
    lines = {(line["seed"], line["kind"]): line for line in read_lines(out)}
    assert set(lines) == {(1, "healthy"), (1, "lr_0"), (1, "labels_shuffled"), (2, "healthy")}
    healthy = lines[2, "healthy"]
    assert [healthy[name] for name in ("outcome", "step_at_target", "at_target", "end", "best", "repeats")] == [
        "passed", 100, 0.8, 0.9, 0.9, True
    ]  # fmt: skip
    assert lines[1, "lr_0"]["step_at_target"] is None and lines[1, "lr_0"]["best"] == 0.2
    assert "| glm/pytorch | 2 | 2 | 0.9 | 0.9 | 0 |" in capsys.readouterr().out


def test_what_is_there_is_not_trained_again_and_a_torn_line_is(out: Path) -> None:
    assert run(out, 1) == 0
    out.write_text(out.read_text() + '{"case": "glm/pyt')
    Played.trained.clear()
    assert run(out, 2) == 0
    assert {seed for seed, _ in Played.trained} == {2}
    assert len(read_lines(out)) == 4


def test_a_host_that_is_too_busy_costs_a_try_and_is_told(out: Path) -> None:
    Played.busy.append("invalid_measurement")
    assert run(out, 1) == 0
    (line,) = [line for line in read_lines(out) if line["kind"] == "healthy"]
    assert line["end"] == 0.9 and line["void"] == ["whole: failed: invalid_measurement: "]


def test_a_run_without_an_end_is_none_and_is_run_again(out: Path) -> None:
    Played.busy.append("time_to_train")
    assert run(out, 1) == 0
    (line,) = [line for line in read_lines(out) if line["kind"] == "healthy"]
    assert line["end"] is None and line["lost"].startswith("failed: time_to_train")
    assert run(out, 1) == 0
    assert read_lines(out)[-1]["end"] == 0.9


def test_wrong_usage_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gml"]) == 4
    assert "did you mean 'glm/pytorch'?" in capsys.readouterr().err
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps({"case": "glm/pytorch"}) + "\n")
    assert main(["glm", "--out", str(bad)]) == 4
    assert f"{bad}:1: not a line of healthy_seeds" in capsys.readouterr().err
    assert main(["glm", "--jobs", "4096", "--out", str(tmp_path / "new.json")]) == 4
    assert "--jobs 4096" in capsys.readouterr().err
