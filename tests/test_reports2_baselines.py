"""Baselines as files: proposed, approved, ended; judged by only while approved."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.__main__ import main
from reports.baseline_store import baseline_from, keep, write
from suite.baseline import find_base
from suite.baseline_file import read_baseline
from suite.errors import UsageProblem
from suite.figures import figures_of
from suite.harness_log import HarnessLog
from suite.outcome import Outcome
from suite.result import MetricResult
from tests.reports2_toy import noisy, result_with, session_with
from tests.run_folders import tiny_plan, with_base

PLAN = "toy-pytorch-cpu-host-mini-1x1"


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """Two plans that passed, and one that did not."""
    failed = result_with("bad", outcome=Outcome(status="failed", category="quality", reason="0.5"))
    opened = result_with("loose", plan={"division": "open"})
    return session_with(tmp_path / "s1", [result_with(throughput=noisy(100, 6, 0.002)), failed, opened])


def proposed(session: Path, folder: Path) -> Path:
    """The one baseline that `session` yields."""
    assert main(["baseline", "propose", str(session), "--folder", str(folder), "--reason", "first"]) == 0
    (path,) = (folder / "cpu").glob("*.toml")
    return path


def test_good_results_are_proposed_and_the_others_named(
    session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = proposed(session, tmp_path / "baselines")
    out = capsys.readouterr().out
    assert "bad-pytorch-cpu-host-mini-1x1: left out: failed: quality" in out
    assert "loose-pytorch-cpu-host-mini-1x1: left out: division open" in out
    assert path.name == f"{PLAN}-{'f' * 12}-s1.toml"
    assert path.read_text().startswith('state = "proposed"\nreason = "first"\n')
    baseline = read_baseline(path)
    assert baseline.metric["throughput_train"].values == noisy(100, 6, 0.002), "to the last digit"


def test_approving_names_the_reviewer_and_expires_the_one_before(
    session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "baselines"
    first = proposed(session, folder)
    assert main(["baseline", "approve", str(first), "--by", "a reviewer"]) == 0
    assert main(["baseline", "approve", str(first), "--by", "a reviewer"]) == 4
    assert "only a proposed baseline is approved" in capsys.readouterr().err
    later = session_with(tmp_path / "s2", [result_with(throughput=noisy(103, 6, 0.002))])
    assert main(["baseline", "propose", str(later), "--folder", str(folder)]) == 0
    second = first.with_name(first.name.replace("s1", "s2"))
    assert main(["baseline", "approve", str(second), "--by", "a reviewer", "--expires", "2999-01-01"]) == 0
    assert (read_baseline(first).state, read_baseline(second).state) == ("expired", "approved")
    assert "replaced by" in read_baseline(first).reason
    capsys.readouterr()
    assert main(["baseline", "show", str(folder)]) == 0
    listed = capsys.readouterr().out
    assert "expired" in listed and "approved" in listed and "2999-01-01" in listed
    assert main(["baseline", "propose", str(later), "--folder", str(folder)]) == 4, "never over an approved one"


@pytest.mark.parametrize("day", ["2020-01-01", "soon", "2999-13-01"])
def test_a_day_that_cannot_be_meant_is_refused(
    session: Path, tmp_path: Path, day: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = proposed(session, tmp_path / "b")
    assert main(["baseline", "approve", str(path), "--by", "a reviewer", "--expires", day]) == 4
    assert f"--expires {day}" in capsys.readouterr().err
    assert read_baseline(path).state == "proposed"


def test_quarantine_needs_a_reason_and_shows_it(
    session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = proposed(session, tmp_path / "b")
    assert main(["baseline", "quarantine", str(path), "--reason", " "]) == 4
    assert main(["baseline", "quarantine", str(path), "--reason", "a fan was broken"]) == 0
    assert read_baseline(path).state == "quarantined"
    main(["baseline", "show", str(path)])
    assert "a fan was broken" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('state = "proposed"', 'state = "good"', "state = 'good'"),
        ('state = "proposed"', 'state = "approved"', "names the day and the reviewer"),
        ('state = "proposed"', 'state = "expired"\nspeed = 3', "unknown key 'speed'"),
        ('proposed = "2', "proposed = 2", "TOML"),
    ],
)
def test_a_broken_file_is_one_sentence(
    session: Path, tmp_path: Path, old: str, new: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = proposed(session, tmp_path / "b")
    path.write_text(path.read_text().replace(old, new, 1))
    assert main(["baseline", "show", str(path.parent)]) == 4
    error = capsys.readouterr().err
    assert sentence in error and path.name in error and len(error.splitlines()) == 1


@given(st.text(max_size=40), st.floats(min_value=1e-9, max_value=1e12))
def test_any_text_and_number_survives_the_file(text: str, number: float) -> None:
    import tempfile

    metric = {"throughput_train": MetricResult(value=number, unit="x/s", values=(number,))}
    figures = figures_of(result_with()).model_copy(update={"metric": metric, "environment": {"image": text}})
    baseline = baseline_from(figures, source="s", today="2026-01-31", reason=text)
    with tempfile.TemporaryDirectory() as folder:
        write(baseline, Path(folder) / "b.toml")
        again = read_baseline(Path(folder) / "b.toml")
    assert again.metric == baseline.metric and (again.reason == text or not text.isprintable())


def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    figures = figures_of(result_with()).model_copy(update={"vendor": "../../etc"})
    with pytest.raises(UsageProblem, match="no name for a baseline"):
        keep(baseline_from(figures, source="s", today="2026-01-31"), tmp_path)


@pytest.mark.parametrize("state", ["approved", "proposed", "quarantined"])
def test_a_speedup_is_measured_against_approved_baselines_only(tmp_path: Path, state: str) -> None:
    plan = with_base(tiny_plan())
    assert plan.base is not None
    figures = figures_of(result_with(throughput=(50.0, 52.0))).model_copy(
        update={"plan_digest": plan.base.plan_digest, "id": plan.base.id}
    )
    path = keep(baseline_from(figures, source="s", today="2026-01-31"), tmp_path)
    standing = {"state": state, "approved": "2026-01-31", "approved_by": "a reviewer", "reason": "why"}
    write(read_baseline(path).model_copy(update=standing), path)
    for place in (tmp_path, path):
        found = find_base(plan, tmp_path / "nothing", HarnessLog(), [place])
        assert found is not None
        if state == "approved":
            assert found.reason == "" and found.base.value == 51.0 and path.name in found.base.note
        else:
            assert "no baseline has its plan_digest" in found.reason


def _legs(tmp_path: Path, speeds: dict[str, float], **new: object) -> tuple[list[str], list[str]]:
    """Sessions of two revisions in turn."""
    old, upgraded = [], []
    for index in range(4):
        revision = "old" if index % 2 == 0 else "new"
        over = new if revision == "new" else {}
        result = result_with(throughput=noisy(speeds[revision], 3, 0.002, index), **over)  # type: ignore[arg-type]
        started = f"2026-02-01T0{index}:00:00Z"
        folder = session_with(tmp_path / f"leg{index}", [result], started=started)
        (old if revision == "old" else upgraded).append(str(folder))
    return old, upgraded


def _bridge(path: Path, old: list[str], new: list[str]) -> int:
    sides = [word for side, names in (("--old", old), ("--new", new)) for name in names for word in (side, name)]
    return main(["baseline", "bridge", str(path), *sides])


def test_a_bridge_proposes_the_new_revision_with_its_ratio(
    session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = proposed(session, tmp_path / "b")
    upgrade = {"comparability_key": "e" * 64, "plan": {"measurement_version": "case:2"}}
    assert _bridge(path, *_legs(tmp_path, {"old": 100, "new": 104}, **upgrade)) == 0
    made = read_baseline(Path(capsys.readouterr().out.split("proposed: ")[-1].strip()))
    assert made.state == "proposed" and made.fingerprint == "e" * 64 and made.source == "leg1 leg3"
    assert len(made.metric["throughput_train"].values) == 6
    assert "throughput_train new over old 1.04" in made.reason


def test_a_bridge_is_refused_where_the_machine_has_changed_or_the_turns_are_wrong(
    session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = proposed(session, tmp_path / "b")
    old, new = _legs(tmp_path, {"old": 90, "new": 94})
    assert _bridge(path, old, new) == 4
    assert "the machine has changed" in capsys.readouterr().err
    assert _bridge(path, [*old, new[0]], [new[1]]) == 4
    assert "in turn" in capsys.readouterr().err
