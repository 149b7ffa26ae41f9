"""Comparing: what it refuses, what it calls a regression, and the forms it takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reports.__main__ import main
from reports.compare import compare
from reports.comparison import Comparison
from reports.sides import Side
from suite.figures import figures_of
from suite.outcome import Outcome
from suite.result import MetricResult, Result
from tests.reports2_toy import noisy, result_with, session_with


def against(old: Result, new: Result, **options: object) -> Comparison:
    """`new` against `old`."""
    return compare(Side("old", (figures_of(old),)), Side("new", (figures_of(new),)), **options)  # type: ignore[arg-type]


def verdicts(comparison: Comparison) -> dict[str, str]:
    """Metric -> verdict, of what gates."""
    return {row.metric: row.verdict for row in comparison.gating}


def test_three_percent_are_caught_at_half_a_percent_of_noise() -> None:
    caught = 0
    for seed in range(10):
        old = result_with(throughput=noisy(100, 8, 0.005, seed), time=noisy(600, 8, 0.005, seed))
        new = result_with(throughput=noisy(97, 8, 0.005, seed + 50), time=noisy(618, 8, 0.005, seed + 50))
        caught += verdicts(against(old, new))["throughput_train"] == "regression"
    assert caught == 10


def test_a_third_of_a_percent_is_never_called_a_regression() -> None:
    for seed in range(10):
        old = result_with(throughput=noisy(100, 8, 0.005, seed))
        new = result_with(throughput=noisy(99.7, 8, 0.005, seed + 50))
        assert verdicts(against(old, new))["throughput_train"] in ("same", "inconclusive")


def test_twenty_judgements_say_the_same() -> None:
    old = result_with(throughput=noisy(100, 5, 0.005))
    new = result_with(throughput=noisy(98.6, 5, 0.005, 9))
    assert len({against(old, new).model_dump_json() for _ in range(20)}) == 1


def test_three_runs_cannot_be_significant_and_the_remedy_is_named() -> None:
    row = against(result_with(throughput=(100, 101, 99)), result_with(throughput=(50, 51, 49))).gating[0]
    assert row.verdict == "inconclusive"
    assert "3 against 3 runs cannot be significant" in row.reason and "--repeat 5" in row.reason


def test_faster_is_an_improvement_and_slower_to_train_a_regression() -> None:
    old = result_with(throughput=noisy(100, 6, 0.002), time=noisy(600, 6, 0.002))
    new = result_with(throughput=noisy(110, 6, 0.002, 3), time=noisy(700, 6, 0.002, 3))
    assert verdicts(against(old, new)) == {"throughput_train": "improvement", "time_to_train_s": "regression"}


def test_a_number_that_is_missing_is_no_pass() -> None:
    lost = result_with(outcome=Outcome(status="error", category="crash", reason="died"), metrics={}, runs=())
    row = against(result_with(throughput=noisy(100, 6, 0.002)), lost).gating[0]
    assert (row.verdict, row.reason) == ("inconclusive", "the new side did not measure it")


def test_open_division_is_shown_and_never_gates() -> None:
    old = result_with(throughput=noisy(100, 6, 0.002))
    opened = result_with(throughput=noisy(50, 6, 0.002), plan={"division": "open"})
    comparison = against(old, opened)
    assert comparison.gating == () and any("never a gate" in note for note in comparison.pairs[0].notes)
    assert {row.verdict for row in comparison.pairs[0].rows} == {"shown"}


def test_more_samples_to_the_target_than_the_old_runs_explain_are_told() -> None:
    def with_samples(values: tuple[float, ...]) -> Result:
        result = result_with()
        metric = MetricResult(value=values[0], unit="samples", values=values)
        return result.model_copy(update={"metrics": {**result.metrics, "samples_trained": metric}})

    old = with_samples((1600, 1400, 1600, 1700, 1600, 1600, 1500, 1600, 1500, 1600))
    for values, word in (((1300,) * 5, "better than luck"), ((1900,) * 5, "more slowly"), ((1580,) * 5, "")):
        notes = " ".join(against(old, with_samples(values)).pairs[0].notes)
        assert (word in notes) if word else ("converges" not in notes)


@pytest.mark.parametrize(
    ("plan", "over", "sentence", "across"),
    [
        ({"measurement_version": "case:2"}, {}, "measurement_version is 'case:2'", "measurement_version"),
        ({"data_digest": "other"}, {}, "data_digest is 'other'", "data"),
        ({"machine": "H9"}, {}, "measured on cpu/H9", "machine"),
    ],
)
def test_what_must_not_be_compared_is_refused_unless_told(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    plan: dict[str, str],
    over: dict[str, str],
    sentence: str,
    across: str,
) -> None:
    a = session_with(tmp_path / "a", [result_with()])
    b = session_with(tmp_path / "b", [result_with(plan=plan, **over)])
    assert main(["compare", str(a), str(b)]) == 4
    error = capsys.readouterr().err
    assert sentence in error and f"--across {across}" in error and len(error.splitlines()) == 1
    assert main(["compare", str(a), str(b), "--across", across]) == 5, "one run each: nothing can be said"
    assert f"compared across {across}" in capsys.readouterr().out


def test_differing_digests_and_environments_are_shown() -> None:
    upgraded = {"environment": {"driver_version": "560"}, "comparability_key": "e" * 64}
    new = result_with(plan={"case_digest": "changed"}, **upgraded)  # type: ignore[arg-type]
    notes = against(result_with(), new).pairs[0].notes
    assert "case_digest differs: cccccccc and changed" in notes
    assert "driver_version differs: 550 and 560" in notes


def test_sides_without_a_common_plan_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = session_with(tmp_path / "a", [result_with("one")]), session_with(tmp_path / "b", [result_with("two")])
    assert main(["compare", str(a), str(b)]) == 4
    assert "no plan in common" in capsys.readouterr().err
    assert main(["compare", str(a), str(tmp_path / "absent")]) == 4
    assert "no such file" in capsys.readouterr().err


def test_every_format_says_the_same_and_escapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = {"host": "h", "driver_version": "<script>alert(1)</script> @everyone | `x` \x1b[31m"}
    a = session_with(tmp_path / "a", [result_with(throughput=noisy(100, 6, 0.002)), result_with("gone")])
    b = session_with(tmp_path / "b", [result_with(throughput=noisy(90, 6, 0.002), environment=evil)])
    outputs = {}
    for form in ("text", "md", "html", "json"):
        file = tmp_path / f"out.{form}"
        assert main(["compare", str(a), str(b), "--format", form, "--output", str(file)]) == 1
        outputs[form] = file.read_text()
    assert "1 regression" in outputs["text"] and "1 regression" in outputs["md"] and "1 regression" in outputs["html"]
    assert "<script" not in outputs["html"] and "style=" not in outputs["html"]
    assert "\x1b" not in "".join(outputs[form] for form in ("text", "md", "html"))
    mention = next(line for line in outputs["md"].splitlines() if "@everyone" in line)
    assert mention.count("``") == 2 and mention.index("``") < mention.index("@everyone") < mention.rindex("``")
    data = json.loads(outputs["json"])
    assert data["only_old"] == ["gone-pytorch-cpu-host-mini-1x1"]
    capsys.readouterr()


def test_a_tolerance_is_set_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = session_with(tmp_path / "a", [result_with(throughput=noisy(100, 6, 0.001), time=noisy(600, 6, 0.001))])
    b = session_with(tmp_path / "b", [result_with(throughput=noisy(97, 6, 0.001), time=noisy(600, 6, 0.001))])
    assert main(["compare", str(a), str(b)]) == 1
    assert main(["compare", str(a), str(b), "--tolerance", "throughput_train=5%"]) == 0
    assert main(["compare", str(a), str(b), "--tolerance", "speed=5%"]) == 4
    assert main(["compare", str(a), str(b), "--tolerance", "mfu=x"]) == 4
    assert "not a share" in capsys.readouterr().err
