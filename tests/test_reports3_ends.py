"""Sessions that are killed: at any moment the rest is put together again, nothing invented and nothing lost."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from fixtures.faults.checkout import ToyCheckout
from fixtures.faults.leftovers import wait_for_nothing
from fixtures.testing import MakeCheckout, toy_checkout
from tests.reports_toy import junit_shape, outcomes_of, run_reports, run_toy, session_of, write_project
from tests.test_reports_junit import XSD

__all__ = ["toy_checkout"]

CASES = ("ant", "bee", "cow")
MOMENTS_S = (0.0, 0.6, 1.2, 2.0, 3.0, 5.0)
"""Seconds of a session's life: before its first plan, within each, and after its last on most machines."""
SCHEMA = Path(__file__).resolve().parents[1] / "suite/schemas/session.schema.json"


def three_cases(checkout: ToyCheckout) -> ToyCheckout:
    """The toy under three names: real harness, fake training of half a second each."""
    for name in CASES:
        for folder in ("suite/cases", "suite/vendors/basalt"):
            shutil.copytree(checkout.root / folder / "toy", checkout.root / folder / name)
        test = checkout.root / f"suite/cases/{name}/pytorch/test_toy.py"
        test.rename(test.with_name(f"test_{name}.py"))
    shutil.rmtree(checkout.root / "suite/cases/toy")
    shutil.rmtree(checkout.root / "suite/vendors/basalt/toy")
    return checkout


def await_journal(session: Path) -> None:
    deadline = time.monotonic() + 60
    while not (session / "journal-main.jsonl").is_file():
        assert time.monotonic() < deadline, "the session never began"
        time.sleep(0.01)


def journalled(session: Path) -> tuple[list[str], Mapping[str, Mapping[str, Any]]]:
    """(ids selected, id -> outcome of its verdict), read from the journal without the project's own reader."""
    selected: list[str] = []
    verdicts: dict[str, Mapping[str, Any]] = {}
    for line in (session / "journal-main.jsonl").read_text().split("\n"):
        try:
            record = json.loads(line)["record"]
        except ValueError:
            continue  # empty, or the torn last line
        if record["kind"] == "selected":
            selected = [plan["id"] for plan in record["plans"]]
        elif record["kind"] == "verdict":
            verdicts[record["id"]] = record["result"]["outcome"]
    return selected, verdicts


def check_valid(session: Path) -> None:
    """Both files are what their schemas say."""
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(json.loads((session / "session.json").read_text()))
    if XSD.is_file():
        from lxml import etree

        schema = etree.XMLSchema(etree.parse(str(XSD)))
        schema.assertValid(etree.parse(str(session / "junit.xml")))


@pytest.mark.nightly
@pytest.mark.slow
def test_a_session_killed_at_any_moment_is_rebuilt_each_time(toy_checkout: MakeCheckout, tmp_path: Path) -> None:
    seen: set[str] = set()
    for moment in MOMENTS_S:
        checkout = three_cases(toy_checkout())
        process = checkout.start(checkout.command())
        try:
            await_journal(checkout.results)
            time.sleep(moment)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(30)
        assert wait_for_nothing(checkout)[0] == [], "its agents have ended what they started"
        selected, verdicts = journalled(checkout.results)
        for name in ("session.json", "junit.xml"):
            (checkout.results / name).unlink(missing_ok=True)
        rebuilt = run_reports("rebuild", "--no-plots", checkout.results)
        assert rebuilt.returncode == 0, f"moment {moment}: {rebuilt.stderr}"
        check_valid(checkout.results)
        report = session_of(checkout.results)
        assert [result["id"] for result in report["results"]] == selected, "every plan once, and no other"
        assert [name for name, *_ in junit_shape(checkout.results / "junit.xml")] == selected
        for result in report["results"]:
            outcome = result["outcome"]
            if result["id"] in verdicts:
                assert outcome == verdicts[result["id"]], "what was judged stays judged"
            else:
                assert (outcome["status"], outcome["category"]) in (
                    ("error", "worker_lost"), ("not_started", "interrupted"),
                ), outcome  # fmt: skip
                assert result["metrics"] == {}, "nobody measured it"
            seen.add(outcome["status"])
        first = [(checkout.results / name).read_bytes() for name in ("session.json", "junit.xml")]
        assert run_reports("rebuild", "--no-plots", checkout.results).returncode == 0
        assert first == [(checkout.results / name).read_bytes() for name in ("session.json", "junit.xml")]
    assert {"passed", "error"} <= seen, "the moments were spread over the session"


def test_four_workers_and_one_killed_leave_the_same_testcases(tmp_path: Path) -> None:
    """Only the plan that the dead worker ran is lost, and it is an error; all else is as without workers."""
    project = write_project(tmp_path / "a project")
    names = [f"p{n}" for n in range(8)]
    run_toy(project, tmp_path / "alone", dict.fromkeys(names, "pass"))
    done = run_toy(project, tmp_path / "four", {**dict.fromkeys(names, "pass"), "p3": "die"}, "-n", "4")
    assert done.returncode == 1, done.stdout + done.stderr
    assert outcomes_of(tmp_path / "four") == {**dict.fromkeys(names, "passed"), "p3": "error: worker_lost"}
    alone, four = (
        {name: [case for case, _ in cases] for name, cases, _ in junit_shape(tmp_path / folder / "junit.xml")}
        for folder in ("alone", "four")
    )
    assert alone == four
    check_valid(tmp_path / "four")
    lost = next(cases for name, cases, _ in junit_shape(tmp_path / "four" / "junit.xml") if name.startswith("p3"))
    assert lost[0][1].startswith("error=error: worker_lost: "), "its run is an error, its checks are skipped"
    assert all(mark.startswith("skipped=") for _, mark in lost[1:])
