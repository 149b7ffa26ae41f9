"""`python -m reports equivalence`: whether a replaced part trains as the standard one does, and the proof of it."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from reports import commands_versus
from reports.__main__ import main
from reports.loss_band import loss_band
from suite.digest import code_digest
from suite.plan import Plan
from tests.planning_toys import make_suite, plan_one, write
from tests.run_folders import read_lines, write_lines, write_plan_folder

EXTERN = "vendors/acme/toy/pytorch/extern/__init__.py"
FILL = 'def fill(slots):\n    slots["attention"] = print\n'
FILLED = {"attention": "extern/__init__.py"}


def curve(scale: float, steps: int = 120) -> list[tuple[int, float]]:
    return [(step, scale * 2 / (1 + 0.01 * step)) for step in range(1, steps + 1)]


def band(a: Sequence[tuple[int, float]], b: Sequence[tuple[int, float]]) -> tuple[str, int, float | None]:
    found = loss_band(a, b, seed=1, names=("r1", "r1"))
    return found.status, found.steps, None if found.difference is None else round(found.difference, 6)


def test_the_band_is_two_percent_on_average_from_step_21_on() -> None:
    assert band(curve(1), curve(1)) == ("pass", 100, 0.0)
    assert band(curve(1), curve(1.0199)) == ("pass", 100, 0.0199)
    assert band(curve(1), curve(1.0201)) == ("fail", 100, 0.0201)
    assert band(curve(1), curve(0.97)) == ("fail", 100, 0.03), "a lower loss is another training, too"
    wild = [(step, loss * (5 if step <= 20 else 1)) for step, loss in curve(1)]
    assert band(curve(1), wild) == ("pass", 100, 0.0)


def test_differences_of_both_signs_do_not_cancel() -> None:
    swinging = [(step, loss * (1.03 if step % 2 else 0.97)) for step, loss in curve(1)]
    assert band(curve(1), swinging) == ("fail", 100, 0.03)


def test_too_few_steps_or_a_loss_of_zero_are_no_pass() -> None:
    assert band(curve(1, 99), curve(1, 120)) == ("unknown", 79, None)
    assert band(curve(1, 100), curve(1, 100)) == ("pass", 80, 0.0)
    assert band([(step, 0.0) for step, _ in curve(1)], curve(1))[0] == "unknown"
    assert band([], curve(1)) == ("unknown", 0, None)


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A toy checkout, which the command takes for its own."""
    made = make_suite(tmp_path / "checkout")
    monkeypatch.setattr(commands_versus, "SUITE", made)
    monkeypatch.chdir(made.parent)
    return made


def side(folder: Path, plan: Plan, *, scale: float = 1.0, slots: dict[str, str] | None = None, **run: Any) -> str:
    """A plan's folder whose runs had these losses and reported these parts."""
    runs = [{"quality": (0.3, 0.6, 0.85), **run}] * plan.repeat
    write_plan_folder(folder / plan.id, plan, runs=runs)
    for path in (folder / plan.id).glob("r*/events/rank0.jsonl"):
        lines = read_lines(path)
        lines[0]["slots"] = slots or {}
        for line in lines:
            if line["event"] == "steps":
                line["loss"] = [loss if isinstance(loss, str) else loss * scale for loss in line["loss"]]
        write_lines(path, lines)
    return str(folder / plan.id)


def reference(suite: Path, folder: Path, **run: Any) -> str:
    """The standard parts, before the vendor brings its own."""
    return side(folder, plan_one(suite, "1x1"), **run)


def candidate(suite: Path, folder: Path, fill: str = FILL, **run: Any) -> str:
    """The vendor's attention."""
    write(suite, {EXTERN: fill})
    return side(folder, plan_one(suite, "1x1"), **{"slots": FILLED, **run})


def answer(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, Any]]:
    """(exit code, what `equivalence … --format json` says)."""
    code = main(["equivalence", *argv, "--format", "json"])
    return code, dict(json.loads(capsys.readouterr().out or "{}"))


def bad(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [(finding["name"], finding["status"]) for finding in report["findings"] if finding["status"] != "pass"]


def test_a_proof_closes_the_division(suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The entry is what planning looks for: the same code, filled in the same slot, is then proven."""
    a = reference(suite, tmp_path / "a")
    b = candidate(suite, tmp_path / "b", scale=1.01, step_s=0.05)
    assert plan_one(suite, "1x1").division == "open"
    code, report = answer(capsys, a, b, "--by", "the lab")
    assert (code, report["verdict"], bad(report)) == (0, "equivalent", [])
    [proof] = tomllib.loads((suite.parent / "baselines/acme/slots.toml").read_text())["proof"]
    assert (proof["where"], proof["slot"]) == ("toy/pytorch", "attention")
    assert proof["digest"] == code_digest([(suite / EXTERN).parent])
    assert proof["source"].startswith("the lab, 20") and "losses apart by 1 % at most" in proof["source"]
    assert str(tmp_path) not in proof["source"], "folders of a host are nobody's business"
    rate = next(line for line in report["duel"]["lines"] if line["metric"] == "throughput_train")
    assert rate["gain"] == pytest.approx(2, rel=0.01)
    plan = plan_one(suite, "1x1")
    assert plan.division == "closed" and plan.slots[0].proven
    write(suite, {EXTERN: FILL.replace("print", "repr")})
    assert plan_one(suite, "1x1").division == "open", "other code needs a proof of its own"


def test_a_proof_joins_those_that_are_there(suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = reference(suite, tmp_path / "a")
    b = candidate(suite, tmp_path / "b")
    old = f'# kept\n[[proof]]\nwhere = "toy/pytorch"\nslot = "attention"\ndigest = "{"0" * 64}"\nsource = "earlier"\n'
    write(suite.parent, {"baselines/acme/slots.toml": old})
    assert main(["equivalence", a, b]) == 0
    assert "slot attention: written" in capsys.readouterr().out
    text = (suite.parent / "baselines/acme/slots.toml").read_text()
    assert text.startswith(old) and len(tomllib.loads(text)["proof"]) == 2
    assert main(["equivalence", a, b]) == 0
    assert "there already" in capsys.readouterr().out
    assert (suite.parent / "baselines/acme/slots.toml").read_text() == text


def test_a_dry_run_writes_nothing(suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = reference(suite, tmp_path / "a"), candidate(suite, tmp_path / "b")
    assert main(["equivalence", a, b, "--dry-run"]) == 0
    assert "proof: toy/pytorch, slot attention" in capsys.readouterr().out
    assert not (suite.parent / "baselines").exists()


@pytest.mark.parametrize(
    ("run", "code", "finding"),
    [
        ({"scale": 1.03}, 1, ("loss band", "fail")),
        ({"quality": (0.3, 0.6, 0.75)}, 1, ("target of B", "fail")),
        ({"faults": ["nan_loss"]}, 1, ("target of B", "fail")),
        ({"faults": ["crash"]}, 5, ("target of B", "unknown")),
        ({"faults": ["hidden_time"]}, 1, ("ledger of B", "fail")),
        ({"steps": 90, "window": 10}, 5, ("loss band", "unknown")),
    ],
    ids=["losses", "target", "nan", "crash", "ledger", "short"],
)
def test_whatever_does_not_pass_gets_no_proof(
    suite: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    run: dict[str, Any],
    code: int,
    finding: tuple[str, str],
) -> None:
    a, b = reference(suite, tmp_path / "a"), candidate(suite, tmp_path / "b", **run)
    found, report = answer(capsys, a, b)
    assert found == code and finding in bad(report), report["findings"]
    assert not report["proofs"] and not (suite.parent / "baselines").exists()
    assert main(["equivalence", a, b]) == code
    assert "no proof" in capsys.readouterr().out


def test_other_rules_are_no_equivalence(suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = reference(suite, tmp_path / "a")
    write(suite, {EXTERN: FILL})
    b = side(tmp_path / "b", plan_one(suite, "1x1", sets=("lr=0.25",)), slots=FILLED)
    code, report = answer(capsys, a, b)
    assert code == 1 and bad(report) == [("recipe", "fail")]
    assert report["findings"][0]["text"] == "differs in lr"
    c = side(tmp_path / "c", plan_one(suite, "1x1", sabotage="labels_shuffled"), slots=FILLED)
    assert ("sabotage", "fail") in bad(answer(capsys, a, c)[1])


def test_seeds_must_be_the_same(suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = reference(suite, tmp_path / "a")
    write(suite, {EXTERN: FILL})
    b = side(tmp_path / "b", plan_one(suite, "1x1", seed=7), slots=FILLED)
    code, report = answer(capsys, a, b)
    assert code == 5 and bad(report) == [("loss band", "unknown")]


def test_every_pair_of_runs_counts(suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = side(tmp_path / "a", plan_one(suite, "1x1", repeat=2))
    write(suite, {EXTERN: FILL})
    plan = plan_one(suite, "1x1", repeat=2)
    b = side(tmp_path / "b", plan, slots=FILLED)
    code, report = answer(capsys, a, b, "--dry-run")
    assert code == 0 and len(report["bands"]) == 2
    assert all(line["low"] is not None for line in report["duel"]["lines"] if line["metric"] == "time_to_train_s")
    stream = Path(b) / "r2/events/rank0.jsonl"
    lines = read_lines(stream)
    write_lines(stream, [line | {"loss": [2 * x for x in line["loss"]]} if "loss" in line else line for line in lines])
    assert answer(capsys, a, b, "--dry-run")[0] == 1
    shutil.rmtree(Path(b) / "r2")
    code, report = answer(capsys, a, b, "--dry-run")
    assert code == 5 and ("target of B", "unknown") in bad(report)


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one sentence of a refusal."""
    assert main(["equivalence", *argv]) == 4
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    return error


def _changed(suite: Path, a: str, b: str) -> tuple[str, str]:
    write(suite, {EXTERN: FILL.replace("print", "repr")})
    return a, b


def _filled_on_both(suite: Path, a: str, b: str) -> tuple[str, str]:
    other = suite.parent.parent / "c"
    shutil.copytree(Path(b).parent, other)
    return str(other / Path(b).name), b


def _unused(suite: Path, a: str, b: str) -> tuple[str, str]:
    stream = Path(b) / "r1/events/rank0.jsonl"
    lines = read_lines(stream)
    write_lines(stream, [{**lines[0], "slots": {}}, *lines[1:]])
    return a, b


def _same(suite: Path, a: str, b: str) -> tuple[str, str]:
    return b, b


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_changed, "a proof is of the code that is here: run it again"),
        (_filled_on_both, "the reference of a proof is a closed plan"),
        (_unused, "its header lists no replaced 'attention' (have: none), so nothing was proven"),
        (_same, "a run agrees with itself"),
    ],
)
def test_a_proof_is_of_code_that_ran_and_is_here(
    suite: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Path, str, str], tuple[str, str]],
    sentence: str,
) -> None:
    a, b = reference(suite, tmp_path / "a"), candidate(suite, tmp_path / "b")
    assert sentence in refused(capsys, *change(suite, a, b))
    assert not (suite.parent / "baselines").exists()


def test_an_undeclared_or_unreadable_slot_has_no_proof(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = reference(suite, tmp_path / "a")
    b = candidate(suite, tmp_path / "b", FILL.replace("attention", "loader"), slots={"loader": "x"})
    assert "declares no slot 'loader' (have: attention, optimizer)" in refused(capsys, a, b)
    c = candidate(suite, tmp_path / "c", "def fill(s):\n    for n in N:\n        s[n] = 1\n", slots={"extern": "x"})
    assert "declares no slot 'extern'" in refused(capsys, a, c)


def test_runtime_code_has_a_proof_of_its_own(suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = reference(suite, tmp_path / "a")
    write(suite, {"vendors/acme/runtime/pytorch/runtime.py": "def after_step(device):\n    pass\n"})
    b = side(tmp_path / "b", plan_one(suite, "1x1"), slots={"runtime:after_step": "runtime.py"})
    assert main(["equivalence", a, b]) == 0
    capsys.readouterr()
    [proof] = tomllib.loads((suite.parent / "baselines/acme/slots.toml").read_text())["proof"]
    assert (proof["where"], proof["slot"]) == ("runtime/pytorch", "runtime")
    assert plan_one(suite, "1x1").division == "closed"


def test_two_chips_are_equivalent_without_anything_to_prove(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = reference(suite, tmp_path / "a")
    other = plan_one(suite, "1x1").model_copy(update={"machine": "A9", "id": "toy-pytorch-acme-A9-1x1"})
    b = side(tmp_path / "b", other)
    code, report = answer(capsys, a, b)
    assert code == 0 and report["proofs"] == [] and report["duel"]["differs"]["machine"] == ["A1", "A9"]
    assert not (suite.parent / "baselines").exists()


def test_throughput_alone_is_no_equivalence(suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It reaches no target; beside a training in the same session it is passed over."""
    plan = plan_one(suite, "1x1", mode="throughput")
    a, b = side(tmp_path / "a", plan), side(tmp_path / "b", plan)
    code, report = answer(capsys, a, b)
    assert code == 1 and ("mode", "fail") in bad(report)
    for folder in ("a", "b"):
        reference(suite, tmp_path / folder)
        (tmp_path / folder / "session.json").write_text("{}")
    code, report = answer(capsys, str(tmp_path / "a"), str(tmp_path / "b"))
    assert code == 0 and report["a"] == "a/toy-pytorch-acme-A1-1x1"


def test_wrong_input_is_one_sentence(suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = reference(suite, tmp_path / "a")
    other = plan_one(suite, "1x8")
    b = side(tmp_path / "b", other)
    assert "have 0 trainings of the same model, preset and topology in common" in refused(capsys, a, b)
    assert "no such folder" in refused(capsys, a, str(tmp_path / "nowhere"))
    (tmp_path / "result.json").write_text("{}")
    assert "a loss curve is in run folders only" in refused(capsys, a, str(tmp_path / "result.json"))
    (tmp_path / "b" / other.id / "plan.json").write_text("{")
    assert "not a plan of this version" in refused(capsys, a, b)
