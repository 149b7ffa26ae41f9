"""`python -m reports versus`: two chips beside each other, and what must not be held against each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.__main__ import main
from reports.baseline_store import propose
from reports.censored import Range, median_range, ratio_range
from reports.contender import COMPUTED_HOW
from tests.versus_toy import FAST, MISSED, SLOW, chip, compared, line, refused, session

PAGE = Path(__file__).resolve().parents[1] / "docs" / "compare.md"


@pytest.mark.parametrize(
    ("values", "bounds", "low", "high"),
    [
        ((5.0, 7.0, 6.0), (), 6.0, 6.0),
        ((5.0, 6.0), (20.0,), 6.0, 6.0),  # whatever the third took, the middle one is known
        ((5.0, 6.0), (5.5,), 5.5, 6.0),  # given up before the others were done: it may be the middle one
        ((5.0,), (20.0,), 12.5, None),
        ((5.0,), (20.0, 30.0), 20.0, None),
        ((), (20.0, 0.0, 30.0), 20.0, None),
    ],
)
def test_a_median_with_censored_runs_is_a_number_only_where_it_is_known(
    values: tuple[float, ...], bounds: tuple[float, ...], low: float, high: float | None
) -> None:
    assert median_range(values, bounds) == Range(low, high)


def test_a_ratio_of_bounds_is_a_bound() -> None:
    number, above = Range(10.0, 10.0), Range(40.0, None)
    assert ratio_range(above, number) == Range(4.0, None)
    assert ratio_range(number, above) == Range(0.0, 0.25)
    assert ratio_range(above, above) is None
    assert ratio_range(number, Range(0.0, None)) is None
    assert ratio_range(number, Range(2.0, 5.0)) == Range(2.0, 5.0)


def test_the_same_recipe_on_two_chips(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Twice as fast is a gain of two, with an interval, and what differs is told first."""
    a = session(tmp_path / "a", (chip("Z1"), [SLOW, SLOW | {"noise": 0.003}, SLOW | {"noise": 0.001}]))
    b = session(tmp_path / "b", (chip("Z2"), [FAST, FAST | {"noise": 0.003}, FAST | {"noise": 0.001}]))
    report = compared(capsys, a, b)
    [duel] = report["duels"]
    assert duel["views"] == ["same recipe", "best recipe"]
    assert {"data", "target", "global_batch", "precision", "slots", "compile", "host", "container"} - set(
        duel["same"]
    ) <= {"container"}, "the toy's environment names no container"
    assert duel["differs"] == {"machine": ["Z1", "Z2"]} and "container" in duel["unknown"]
    rate, time = line(report, "throughput_train"), line(report, "time_to_train_s")
    assert rate["gain"] == pytest.approx(2, rel=0.01) and rate["low"] <= rate["gain"] <= rate["high"]
    assert 1.5 < time["gain"] < 2 and time["low"] is not None, "evaluations take as long on both"
    assert line(report, "samples_to_target")["gain"] == 1.0
    back = compared(capsys, b, a)
    assert line(back, "throughput_train")["gain"] == pytest.approx(1 / rate["gain"])


def test_how_it_is_computed_is_no_other_recipe_and_the_rate_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    params = {"train_batch_size": 4, "gradient_accumulation_steps": 2, "lr": 0.1, "threads": 8, "compile": True}
    a = session(tmp_path / "a", (chip("Z1"), [SLOW]))
    b = session(tmp_path / "b", (chip("Z2", params=params), [FAST]), (chip("Z3", lr=0.2), [FAST]))
    report = compared(capsys, a, b)
    views = {duel["b"]: duel["views"] for duel in report["duels"]}
    assert views["toy-pytorch-acme-Z2-mini-1x1"][0] == "same recipe"
    assert report["duels"][0]["differs"]["compile"] == ["false", "true"]
    told = [text for text in report["not_compared"] if "Z3" in text]
    assert any(text.endswith("differs: lr") for text in told), told


def test_the_best_recipe_of_each_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each side brings its fastest; one that missed the target is never the best."""
    a = session(tmp_path / "a", (chip("Z1", lr=0.3), [SLOW]), (chip("Z1b", lr=0.4), [{"step_s": 0.01} | MISSED]))
    b = session(tmp_path / "b", (chip("Z2", lr=0.1), [SLOW]), (chip("Z2b", lr=0.2), [FAST]))
    report = compared(capsys, a, b)
    [duel] = report["duels"]
    assert (duel["a"], duel["b"]) == ("toy-pytorch-acme-Z1-mini-1x1", "toy-pytorch-acme-Z2b-mini-1x1")
    assert duel["views"] == ["best recipe"] and duel["differs"]["params.lr"] == ["0.3", "0.2"]
    assert main(["versus", a, b]) == 0
    assert "no plan of A and B is one" in capsys.readouterr().out


def test_what_makes_no_claim_is_nobodys_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An open result is the best only where there is no closed one; a void one never, and it has no ratio."""
    a = session(tmp_path / "a", (chip("Z1", lr=0.3), [SLOW]), (chip("Z1b", lr=0.4, division="open"), [FAST]))
    b = session(tmp_path / "b", (chip("Z2"), [SLOW]), (chip("Z2b"), [FAST | {"faults": ["hidden_time"]}]))
    report = compared(capsys, a, b)
    [duel] = report["duels"]
    assert (duel["a"], duel["b"]) == ("toy-pytorch-acme-Z1-mini-1x1", "toy-pytorch-acme-Z2-mini-1x1")
    opened = session(tmp_path / "c", (chip("Z3", lr=0.4, division="open"), [FAST]))
    [duel] = compared(capsys, a, opened)["duels"][1:]
    assert "B: division open, evidence driver: shown, no claim" in duel["notes"]
    void = session(tmp_path / "d", (chip("Z4", lr=0.3), [FAST | {"faults": ["hidden_time"]}]))
    report = compared(capsys, a, void, code=5)
    assert line(report, "throughput_train")["reason"] == "not compared: B failed: invalid_measurement"


def test_runs_that_missed_the_target_are_bounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = session(tmp_path / "a", (chip("Z1"), [FAST]))
    b = session(tmp_path / "b", (chip("Z2"), [MISSED | {"steps": 240}] * 2))
    report = compared(capsys, a, b)
    time = line(report, "time_to_train_s")
    assert time["gain"] is None and time["at_least"] is None and time["low"] is None
    assert time["at_most"] == pytest.approx(time["a"]["values"][0] / time["b"]["bounds"][0])
    assert time["b"]["values"] == [] and 24 < time["b"]["bounds"][0] < 30, "to the last evaluation"
    assert any("2 of 2 runs missed the target; each counts as censored" in note for note in report["duels"][0]["notes"])
    assert line(report, "throughput_train")["gain"] is not None, "their speed was measured all the same"
    assert main(["versus", a, b]) == 0
    out = capsys.readouterr().out
    assert "(0 of 2 reached it)" in out and "at most 0.2" in out and "a bound: runs missed the target" in out


def test_one_miss_among_three_leaves_the_median_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = session(tmp_path / "a", (chip("Z1"), [FAST] * 3))
    b = session(tmp_path / "b", (chip("Z2"), [FAST, FAST, MISSED | SLOW]))
    time = line(compared(capsys, a, b), "time_to_train_s")
    assert time["gain"] == pytest.approx(1, rel=0.01) and len(time["b"]["bounds"]) == 1
    assert time["low"] is None and time["reason"] == "no interval: runs missed the target"


def test_of_a_lost_run_nothing_is_believed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two sides that lost every run have no ratio; one that lost one of two has none from above."""
    a = session(tmp_path / "a", (chip("Z1"), [FAST]))
    b = session(tmp_path / "b", (chip("Z2"), [FAST, FAST | {"faults": ["crash"]}]))
    report = compared(capsys, a, b)
    time = line(report, "time_to_train_s")
    assert time["b"]["bounds"] == [0.0] and time["gain"] is None and time["at_least"] is None
    assert time["at_most"] == pytest.approx(2.0, rel=0.02), "half of one known run is all that the median must be"
    assert any("1 of 2 runs were lost or void" in note for note in report["duels"][0]["notes"])
    c = session(tmp_path / "c", (chip("Z3"), [FAST | {"faults": ["crash"]}]))
    assert "reason" in line(compared(capsys, a, c, code=5), "time_to_train_s")


def test_a_baseline_keeps_less_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = session(tmp_path / "a", (chip("Z1"), [SLOW] * 3))
    [baseline] = propose(Path(a), tmp_path / "baselines", today="2026-01-31").written
    b = session(tmp_path / "b", (chip("Z2"), [FAST] * 3))
    report = compared(capsys, str(baseline), b)
    [duel] = report["duels"]
    assert duel["views"] == ["best recipe"] and {"target", "slots", "global_batch"} <= set(duel["unknown"])
    assert "A: a baseline; it keeps no target, parameters, slots or host" in duel["notes"]
    assert line(report, "throughput_train")["gain"] == pytest.approx(2, rel=0.01)
    assert any("a baseline does not keep them" in text for text in report["not_compared"])
    assert compared(capsys, str(tmp_path / "baselines"), b)["duels"] == report["duels"], "a folder of them"


def test_other_rules_and_other_targets_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = session(tmp_path / "a", (chip("Z1"), [SLOW]))
    newer = session(tmp_path / "b", (chip("Z2", measurement_version="case:2 driver/pytorch:1"), [FAST]))
    report = compared(capsys, a, newer, code=5)
    assert {one["gain"] for one in report["duels"][0]["lines"]} == {None}
    assert line(report, "throughput_train")["reason"].startswith("not compared: measured by other rules")
    easier = chip("Z3")
    checks = tuple(c.model_copy(update={"threshold": 0.6}) if c.name == "quality" else c for c in easier.checks)
    quality = easier.quality.model_copy(update={"target": 0.6})
    c = session(tmp_path / "c", (easier.model_copy(update={"checks": checks, "quality": quality}), [FAST]))
    assert "have no case, mode, data, target and number of devices in common" in refused(capsys, a, c)


def test_two_frameworks_share_the_parameters_that_both_know(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = session(tmp_path / "a", (chip("Z1"), [SLOW]))
    params = {"train_batch_size": 8, "gradient_accumulation_steps": 1, "lr": 0.1, "run_eagerly": False}
    over = {"framework": "paddle", "measurement_version": "case:1 driver/paddle:1", "params": params}
    b = session(tmp_path / "b", (chip("Z2", **over), [FAST]))
    report = compared(capsys, a, b)
    assert "same recipe" in report["duels"][0]["views"] and "params.run_eagerly" in report["duels"][0]["unknown"]
    assert line(report, "throughput_train")["gain"] == pytest.approx(2, rel=0.01)


def test_throughput_runs_have_no_target_to_miss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    over = {"mode": "throughput"}
    a = session(tmp_path / "a", (chip("Z1", **over), [SLOW] * 2))
    b = session(tmp_path / "b", (chip("Z2", **over), [FAST] * 2))
    report = compared(capsys, a, b)
    assert line(report, "throughput_train")["gain"] == pytest.approx(2, rel=0.01)
    assert "time_to_train_s" not in {one["metric"] for one in report["duels"][0]["lines"]}
    assert report["duels"][0]["differs"] == {"machine": ["Z1", "Z2"]}


def test_of_a_folder_of_sessions_the_newest_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session(tmp_path / "a" / "1", (chip("Z1"), [SLOW]))
    session(tmp_path / "a" / "2", (chip("Z1"), [FAST]))
    (tmp_path / "a" / "latest").symlink_to("2")
    b = session(tmp_path / "b", (chip("Z2"), [FAST]))
    report = compared(capsys, str(tmp_path / "a"), b)
    assert line(report, "throughput_train")["gain"] == pytest.approx(1, rel=0.01)
    assert "A: toy-pytorch-acme-Z1-mini-1x1: 2 sessions have it; the newest is taken" in report["not_compared"]


def test_every_format_shows_hostile_text_harmlessly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = session(tmp_path / "a", (chip("Z1"), [SLOW]))
    b = session(tmp_path / "b", (chip("<b>|\x1b[31m", id="toy-pytorch-acme-Z9-mini-1x1"), [SLOW]))
    for form in ("text", "md", "html", "json"):
        assert main(["versus", a, b, "--format", form, "--output", str(tmp_path / form)]) == 0
        text = (tmp_path / form).read_text()
        assert "throughput_train" in text and "\x1b" not in text
        assert form != "html" or "<b>" not in text
    capsys.readouterr()
    text = (tmp_path / "text").read_text()
    order = [text.index(word) for word in ("What is the same", "Same recipe\n", "Best recipe\n")]
    assert order == sorted(order)


def test_wrong_input_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = session(tmp_path / "a", (chip("Z1"), [SLOW]))
    assert "no such file or folder; name a session" in refused(capsys, a, str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    assert "holds no result and no baseline" in refused(capsys, a, str(tmp_path / "empty"))
    other = session(tmp_path / "b", (chip("Z2", model="other"), [SLOW]))
    assert "run the same case and preset on both" in refused(capsys, a, other)
    throughput = chip("Z4", mode="throughput")
    c = session(tmp_path / "c", (throughput, [SLOW | {"faults": ["crash"]}]))
    assert "nothing in it was measured" in refused(capsys, a, c)


def test_the_page_names_what_is_no_part_of_a_recipe() -> None:
    told = PAGE.read_text(encoding="utf-8").partition("**Same recipe**")[2].partition("**Best recipe**")[0]
    divided = {"train_batch_size", "gradient_accumulation_steps", "throughput_steps", "throughput_warmup_steps"}
    assert {name for name in COMPUTED_HOW - divided if f"`{name}`" not in told} == set()
