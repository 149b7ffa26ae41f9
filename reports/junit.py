"""junit.xml: one suite a plan, one testcase `run` and one a check; valid for Jenkins' schema whatever a log holds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from reports.atomic import replace_file
from reports.escape import capped, one_line, visible
from reports.json_report import SessionReport
from suite.result import CheckResult, Result

FILE_NAME = "junit.xml"

# Together they keep a testcase within 64 KiB; CI servers hold every report in memory.
MESSAGE_BYTES = 2 * 1024
BODY_BYTES = 14 * 1024
OUTPUT_BYTES = 48 * 1024
PROPERTY_BYTES = 4 * 1024

# Failures of the measurement as a whole. The others are shown by the check that failed, and counted once.
_OF_THE_RUN = frozenset({"nonfinite_loss", "too_good", "invalid_measurement"})


class _Trouble(NamedTuple):
    """Why a testcase is not simply ok."""

    tag: str
    """failure, error or skipped."""
    kind: str
    message: str
    body: str = ""


def write_junit(report: SessionReport, path: Path) -> None:
    """Write `report` as junit.xml to `path`, atomically; the same report gives the same bytes. Raises OSError."""
    replace_file(path, render(report))


def render(report: SessionReport) -> bytes:
    """`report` as the bytes of a junit.xml."""
    root = ElementTree.Element("testsuites", name="trainmark")
    suites = [_suite(result, report) for result in report.results]
    root.extend(suites)
    for key in ("tests", "failures", "errors"):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in suites)))
    ElementTree.indent(root, " ")
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _suite(result: Result, report: SessionReport) -> ElementTree.Element:
    seconds = _run_seconds(result)
    cases = [_testcase(result.id, "run", _trouble_of_run(result), _output(result), seconds)]
    for check in result.checks:
        cases.append(_testcase(result.id, check.name, _trouble_of_check(check), "", 0.0))
    suite = ElementTree.Element("testsuite", name=visible(result.id), tests=str(len(cases)))
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(sum(case.find(tag) is not None for case in cases)))
    if seconds is not None:
        suite.set("time", f"{seconds:.3f}")
    if report.session.started:
        # The schema's readers want local-looking ISO 8601 without a zone; it is UTC.
        suite.set("timestamp", visible(report.session.started.removesuffix("Z")))
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(result, report):
        ElementTree.SubElement(properties, "property", name=visible(name), value=_attribute(value, PROPERTY_BYTES))
    suite.extend(cases)
    return suite


def _testcase(id: str, name: str, trouble: _Trouble | None, output: str, seconds: float | None) -> ElementTree.Element:
    case = ElementTree.Element("testcase", name=visible(name), classname=f"trainmark.{visible(id)}")
    if seconds is not None:
        case.set("time", f"{seconds:.3f}")
    if trouble is not None:
        message = _attribute(trouble.message, MESSAGE_BYTES)
        element = ElementTree.SubElement(case, trouble.tag, type=visible(trouble.kind), message=message)
        element.text = capped(visible(trouble.body), BODY_BYTES) or None
    if output:
        ElementTree.SubElement(case, "system-out").text = capped(visible(output), OUTPUT_BYTES)
    return case


def _trouble_of_run(result: Result) -> _Trouble | None:
    """What `run` says: the plan's outcome, unless a check of its own shows it already."""
    outcome = result.outcome
    text = f"{outcome.status}: {outcome.category}: {outcome.reason}"
    shown = {check.status for check in result.checks}
    body = text if outcome.rank is None else f"{text}\nrank {outcome.rank}"
    match outcome.status:
        case "error":
            return _Trouble("error", outcome.category, text, body)
        case "failed" if outcome.category in _OF_THE_RUN or "fail" not in shown:
            return _Trouble("failure", outcome.category, text, body)
        case "not_started":
            return _Trouble("skipped", outcome.category, text)
        case "inconclusive" if not any(check.required and check.status == "inconclusive" for check in result.checks):
            return _Trouble("skipped", outcome.category, text)
        case _:
            return None


def _trouble_of_check(check: CheckResult) -> _Trouble | None:
    if check.status == "pass":
        return None
    if check.status == "inconclusive":
        return _Trouble("skipped", check.reason.partition(":")[0], check.reason or "inconclusive, no reason given")
    body = "\n".join([check.reason, check_line(check), f"source of the threshold: {check.source or 'not stated'}"])
    return _Trouble("failure", check.name, check.reason or check_line(check), body)


def check_line(check: CheckResult) -> str:
    """`quality: 0.79, wanted >= 0.8 fraction`; a number that is missing is `none`."""
    value = "none" if check.value is None else f"{check.value}"
    wanted = "no threshold" if check.threshold is None else f"wanted {check.op} {check.threshold} {check.unit}".rstrip()
    return f"{check.name}: {value}, {wanted}"


def _output(result: Result) -> str:
    """What `run` prints: every check and metric, and the last log lines of the rank that ended it."""
    lines = [f"{check.status:<12} {check_line(check)}" for check in result.checks]
    lines += [f"{name} = {metric.value} {metric.unit}".rstrip() for name, metric in sorted(result.metrics.items())]
    lines += [f"ledger {name} = {seconds} s" for name, seconds in result.ledger.items()]
    if result.outcome.log_tail:
        lines += ["", "last lines of the log:", *result.outcome.log_tail]
    return "\n".join(lines)


def _properties(result: Result, report: SessionReport) -> Iterator[tuple[str, str]]:
    attempts = sum(run.attempts for run in result.runs)
    facts: Mapping[str, str] = {
        "outcome": result.outcome.status,
        "category": result.outcome.category,
        "model": result.model,
        "framework": result.framework,
        "vendor": result.vendor,
        "machine": result.machine,
        "topology": str(result.topology),
        "preset": result.preset,
        "mode": result.mode,
        "division": result.division,
        "division_reasons": "; ".join(result.division_reasons),
        "evidence": result.evidence,
        "verified": _flag(result.verified),
        "seeds": " ".join(map(str, result.seeds)),
        "attempts": str(attempts),
        # A run that needed another attempt is not as good as one that did not, though it counts once.
        "flaky": _flag(attempts > len(result.runs)),
        "measurement_version": result.measurement_version,
        "case_digest": result.case_digest,
        "plan_digest": result.plan_digest,
        "data_digest": result.data_digest,
        "commit": report.session.git.commit or "",
    }
    yield from facts.items()
    for name, metric in sorted(result.metrics.items()):
        yield (f"metric.{name}" if name in facts else name), str(metric.value)


def _run_seconds(result: Result) -> float | None:
    """Wall seconds of all runs; None: no run was measured."""
    walls = [wall for run in result.runs if (wall := run.ledger.get("wall_s")) is not None and wall >= 0]
    total = math.fsum(walls)
    return total if walls else None


def _attribute(text: str, limit: int) -> str:
    return one_line(capped(visible(text), limit))


def _flag(value: bool) -> str:
    return "true" if value else "false"
