"""junit.xml: DESIGN's mapping of outcomes, Jenkins' schema, and any text in any log."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree

from reports.escape import capped, for_terminal, visible
from reports.json_report import SessionFacts, SessionReport
from reports.junit import render
from reports.lost import lost_result
from suite.outcome import CATEGORIES, Outcome
from suite.result import Result
from tests.reports_toy import toy_plan, toy_result

XSD = Path(os.environ.get("TRAINMARK_JUNIT_XSD", Path(__file__).resolve().parents[2] / "shared/reference/junit-10.xsd"))
needs_xsd = pytest.mark.skipif(not XSD.is_file(), reason="TRAINMARK_JUNIT_XSD names no junit-10.xsd")

OUTCOMES = [
    Outcome(status=status, category=category, reason="why & <how> \"so\"")  # type: ignore[arg-type]
    for status, categories in CATEGORIES.items()
    for category in (categories or ("",))
]  # fmt: skip


def report_of(*results: Result, **session: Any) -> SessionReport:
    """A session with `results`."""
    facts = SessionFacts(**{"id": "s", "started": "2026-01-31T12:00:00Z", **session})
    return SessionReport(session=facts, selected=tuple(result.id for result in results), results=results)


def cases_of(xml: bytes) -> dict[str, list[ElementTree.Element]]:
    """Testcase name -> its children."""
    return {case.get("name", ""): list(case) for case in ElementTree.fromstring(xml).iter("testcase")}


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: f"{outcome.status}-{outcome.category}")
@pytest.mark.parametrize("judged", [True, False], ids=["judged", "lost"])
def test_each_outcome_has_its_mark(outcome: Outcome, judged: bool) -> None:
    plan = toy_plan("toy")
    result = toy_result(plan, outcome) if judged else lost_result(plan, outcome)
    xml = render(report_of(result))
    root = ElementTree.fromstring(xml)
    marks = {child.tag for children in cases_of(xml).values() for child in children} - {"system-out"}
    expected = {
        "passed": None,
        "failed": "failure",
        "error": "error",
        "inconclusive": "skipped",
        "not_started": "skipped",
    }
    tag = expected[outcome.status]
    red = marks & {"failure", "error"}
    assert red == ({tag} & {"failure", "error"})
    assert tag is None or tag in marks
    counted = {key: int(root[0].get(key, "-1")) for key in ("failures", "errors")}
    assert counted == {key: int(root.get(key, "-1")) for key in counted}
    assert sum(counted.values()) == len(red), "a failure is counted once"
    if outcome.status in ("error", "not_started"):
        run = cases_of(xml)["run"][0]
        assert run.get("message") == f"{outcome.status}: {outcome.category}: {outcome.reason}"


def test_the_testcases_do_not_depend_on_what_happened() -> None:
    plan = toy_plan("toy")
    lost = lost_result(plan, Outcome(status="error", category="worker_lost", reason="gone"))
    names = ["run", *(check.name for check in plan.checks)]
    assert list(cases_of(render(report_of(toy_result(plan))))) == names
    assert list(cases_of(render(report_of(lost)))) == names


def test_a_suite_says_what_it_measured() -> None:
    run = toy_result(toy_plan("toy")).runs[0].model_copy(update={"attempts": 2})
    root = ElementTree.fromstring(render(report_of(toy_result(toy_plan("toy"), runs=(run,), seeds=(7, 8)))))
    (suite,) = root
    properties = {item.get("name"): item.get("value") for item in suite.iter("property")}
    assert suite.get("name") == "toy-pytorch-cpu-host-mini-1x1"
    assert suite.get("time") == "12.346"
    assert properties["time_to_train_s"] == "588.25"
    assert properties["seeds"] == "7 8"
    assert (properties["division"], properties["evidence"]) == ("closed", "driver")
    assert (properties["attempts"], properties["flaky"]) == ("2", "true")
    assert {case.get("classname") for case in suite.iter("testcase")} == {"trainmark.toy-pytorch-cpu-host-mini-1x1"}
    assert {key for case in suite.iter("testcase") for key in case.attrib} == {"name", "classname", "time"}


def test_a_missed_check_is_a_failure_with_threshold_and_source() -> None:
    outcome = Outcome(status="failed", category="quality", reason="0.5 < 0.7")
    (failure,) = cases_of(render(report_of(toy_result(toy_plan("toy"), outcome))))["quality"]
    assert failure.get("message") == "0.5 is below 0.7"
    assert "quality: 0.5, wanted >= 0.7" in (failure.text or "")
    assert "source of the threshold: the case" in (failure.text or "")


@pytest.mark.parametrize("byte", range(256))
def test_every_byte_of_a_log_gives_valid_xml(byte: int) -> None:
    text = f"a{bytes([byte]).decode('latin-1')}b]]>&<\"'"
    outcome = Outcome(status="error", category="crash", reason=text, log_tail=(text,))
    xml = render(report_of(lost_result(toy_plan("toy"), outcome)))
    etree.fromstring(xml)
    run = cases_of(xml)["run"]
    log = run[1].text or ""
    shown = text if byte in (9, 10) or 32 <= byte < 127 or byte >= 160 else f"a\\x{byte:02x}b]]>&<\"'"
    assert log.endswith(shown)


def test_supplementary_characters_survive_as_they_are() -> None:
    text = "🚀 𠮷 ﷽ Ω"
    xml = render(report_of(lost_result(toy_plan("toy"), Outcome(status="error", category="crash", reason=text))))
    assert text in (cases_of(xml)["run"][0].get("message") or "")
    assert text.encode("utf-8") in xml


@pytest.mark.parametrize("size", [10, 64 * 1024, 5_000_000])
def test_output_is_capped_to_64_kib_a_testcase(size: int) -> None:
    tail = ("first line", *["é" * 1000] * (size // 2000), "last line")
    outcome = Outcome(status="error", category="crash", reason="r" * size, log_tail=tail)
    for children in cases_of(render(report_of(lost_result(toy_plan("toy"), outcome)))).values():
        said = sum(len((child.text or "").encode()) + len((child.get("message") or "").encode()) for child in children)
        assert said <= 64 * 1024
    out = cases_of(render(report_of(lost_result(toy_plan("toy"), outcome))))["run"][1].text or ""
    assert "first line" in out and out.endswith("last line")


@needs_xsd
def test_all_outcomes_validate_against_the_schema() -> None:
    schema = etree.XMLSchema(etree.parse(XSD))
    results = [toy_result(toy_plan(f"toy{n}"), outcome) for n, outcome in enumerate(OUTCOMES)]
    schema.assertValid(etree.fromstring(render(report_of(*results))))
    schema.assertValid(etree.fromstring(render(report_of())))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_text_in_any_string_of_a_result_parses_and_validates(data: st.DataObject) -> None:
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
    plan = toy_plan("toy")
    outcome = data.draw(st.sampled_from(OUTCOMES))
    raw = toy_result(plan, outcome).model_dump(mode="json")
    raw["outcome"]["log_tail"] = ["x"]
    fixed = {"status", "category", "mode", "division", "evidence"}
    result = Result.model_validate(_replaced(raw, lambda: data.draw(text), fixed))
    xml = render(report_of(result, started=data.draw(text)))
    etree.fromstring(xml)
    ElementTree.fromstring(xml)
    if XSD.is_file():
        _SCHEMA.assertValid(etree.fromstring(xml))
    assert render(report_of(result, started=None)) == render(report_of(result, started=None)), "the same bytes twice"


_SCHEMA = etree.XMLSchema(etree.parse(XSD)) if XSD.is_file() else None


def _replaced(value: object, draw: Callable[[], str], fixed: set[str], key: str = "") -> object:
    """`value` with every string that is free text drawn anew."""
    if isinstance(value, dict):
        return {name: _replaced(item, draw, fixed, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, draw, fixed, key) for item in value]
    return draw() if isinstance(value, str) and key not in fixed else value


@given(text=st.text())
def test_visible_text_holds_nothing_that_a_parser_or_terminal_obeys(text: str) -> None:
    shown = visible(text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", shown)
    ascii_only = for_terminal(text, "ascii")
    assert ascii_only.isascii()
    assert visible(shown) == shown


@given(text=st.text(st.characters(exclude_categories=["Cs"])), limit=st.integers(200, 400))
def test_capped_text_fits_and_keeps_both_ends(text: str, limit: int) -> None:
    cut = capped(text * 5, limit)
    assert len(cut.encode()) <= limit
    assert cut == text * 5 or (cut[:5] == text[:5] and cut[-5:] == (text * 5)[-5:])
