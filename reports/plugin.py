"""pytest wiring of the reports: journals in every process; session.json, junit.xml and the table by the controller."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Generator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import pytest

from reports import facts
from reports.benchmark_session import BenchmarkSession, plan_of
from reports.escape import for_terminal
from reports.gather import CONTROLLER
from reports.reporter import Reporter
from suite.errors import UsageProblem
from suite.plan import Plan
from suite.result import Result
from suite.session import SESSION

SUITE = Path(__file__).parents[1] / "suite"

HANDED_OVER = "trainmark_reports"
"""Key of workeroutput under which a worker hands over what it could not write."""


class _Gateway(Protocol):
    id: str


class _Node(Protocol):
    """What is used of xdist's controller of one worker, which carries no types."""

    gateway: _Gateway


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Listen before anybody announces; whether there is a session is asked when it matters."""
    config.pluginmanager.register(ReportsPlugin(config), "trainmark-reports")
    if BenchmarkSession.serves(config):
        config.pluginmanager.register(BenchmarkSession(config), "trainmark-benchmark-rounds")


class ReportsPlugin:
    """Inert as long as `config.stash` holds no Session."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        workerinput = getattr(config, "workerinput", None)
        self.worker = str(workerinput["workerid"]) if workerinput else CONTROLLER
        self.session: pytest.Session | None = None
        self._reporter: Reporter | None = None
        self._facts: set[str] = set()

    @property
    def reporter(self) -> Reporter | None:
        """Of this process; None: no session, or one that was withdrawn."""
        session = self.config.stash.get(SESSION, None)
        if session is None:
            return None
        if self._reporter is None:
            self._reporter = Reporter(session.folder, self.worker)
        return self._reporter

    @property
    def controls(self) -> bool:
        """This process makes the session's files."""
        return self.worker == CONTROLLER

    # The hook is specified by another plugin of the suite: without that one, nobody announces anything.
    @pytest.hookimpl(optionalhook=True)
    def pytest_trainmark_record(self, record: Mapping[str, object]) -> None:
        """Write down what fixtures and judge announce."""
        if self.reporter is None:
            return
        if record.get("kind") == "session":
            self._facts.update(key for key, value in record.items() if value is not None)
        self.reporter.announce(record)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Add the facts of the session that nobody has told, while a crash has not yet come in between."""
        self.session = session
        made = self.config.stash.get(SESSION, None)
        if self.reporter is None or made is None or not self.controls:
            return
        own = {
            "id": lambda: made.id,
            "started": lambda: made.started,
            "command": lambda: ["pytest", *self.config.invocation_params.args],
            "git": lambda: facts.git(Path(__file__).resolve().parents[1]),
            "versions": facts.versions,
            "ci": facts.ci,
        }
        told = {key: tell() for key, tell in own.items() if key not in self._facts}
        if told:
            self.reporter.announce({"kind": "session", **told})

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keep what was selected: a plan that is never reached must be missed."""
        # Every worker collects the same; the first speaks for all.
        if self.reporter is None or self.worker not in (CONTROLLER, "gw0"):
            return
        plans = [plan.model_dump(mode="json") for item in session.items if (plan := plan_of(item)) is not None]
        if plans:
            self.reporter.announce({"kind": "selected", "plans": plans})
        if self.controls:
            self.reporter.refresh(live=True)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Settle a plan whose test failed outside of its run and its verdict: pytest's red must be red here too."""
        report = yield
        plan = plan_of(item)
        if self.reporter is not None and plan is not None and report.failed and call.excinfo is not None:
            status = self.reporter.outcomes.get(plan.id)
            if status in (None, "", "passed"):
                self.reporter.announce(
                    _unforeseen(plan, report.when or "call", call.excinfo, judged=status == "passed")
                )
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test has moved on, in a worker perhaps: a moment to bring the files up to date. The report is not read."""
        # Without workers the records themselves have done it already.
        if self.reporter is not None and report.when != "setup" and hasattr(report, "node"):
            self.reporter.refresh(live=True)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: _Node, error: object) -> None:
        """Take over what a worker could not write; remember why one died, for the plan that it ran."""
        if self.reporter is None:
            return
        handed = (getattr(node, "workeroutput", None) or {}).get(HANDED_OVER)
        if handed is not None:
            self.reporter.unwritten += [line.encode("utf-8") for line in handed["unwritten"]]
            self.reporter.add_problems(handed["problems"])
        if error:
            reason = str(error).strip().splitlines()[-1] + _died_of(node)
            self.reporter.announce({"kind": "worker", "worker": node.gateway.id, "reason": reason})
            self.reporter.refresh(live=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """Have the files complete before anything slow is torn down."""
        if self.reporter is not None:
            self.reporter.announce({"kind": "interrupt"})
            if self.controls:
                self.reporter.refresh()

    # Innermost: after every plugin's own ending, before the terminal's summary.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Make the session's files; in a worker, hand over what the disk refused."""
        try:
            return (yield)
        finally:
            if self.reporter is not None and not self.controls:
                self._hand_over(self.reporter)
            elif self.reporter is not None:
                self._finish(self.reporter, session)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the table, where the reports are, and what could not be written."""
        if self.reporter is None or not self.controls:
            return
        from reports.table import summary, table  # imported here: only a session that ran something needs it

        gathered = self.reporter.refresh()
        if gathered is None:
            return
        lines = [*table(gathered.report.results).splitlines(), ""] if gathered.report.results else []
        lines += self._published(self.reporter, gathered.report.results)
        lines.append(f"{summary(gathered.report.results)}; reports: {self.reporter.folder}")
        problems = dict.fromkeys([*self.reporter.problems, *gathered.problems, *gathered.remarks])
        lines += [f"report problem: {' '.join(problem.split())}" for problem in problems]
        terminalreporter.section("trainmark")
        encoding = getattr(terminalreporter._tw._file, "encoding", None) or "ascii"
        for line in lines:
            terminalreporter.write_line(for_terminal(line, encoding))

    def _published(self, reporter: Reporter, results: Sequence[Result]) -> list[str]:
        """Lines of the published tables that the session has a plan of."""
        from reports.published import in_brief, published_tables
        from suite.catalog import load_catalog

        given: Sequence[str] = getattr(self.config.option, "trainmark_vendor_path", None) or ()
        try:
            catalog = load_catalog(SUITE, [self.config.invocation_params.dir / path for path in given])
            tables = published_tables(results, catalog)
        except (UsageProblem, OSError) as problem:
            reporter.add_problems([f"no published table: {problem}"])
            return []
        return in_brief(tables)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Catch what was told after the summary, and an exit status that changed."""
        if self.reporter is not None and self.controls and self.session is not None:
            self._finish(self.reporter, self.session)
            self.reporter.close()

    def _finish(self, reporter: Reporter, session: pytest.Session) -> None:
        status = int(session.exitstatus)
        if reporter.exit_status != status:
            record: dict[str, object] = {"kind": "session", "exit_status": status}
            if reporter.exit_status is None:
                record["finished"] = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
            reporter.announce(record)
        if reporter.stale:
            reporter.refresh()

    def _hand_over(self, reporter: Reporter) -> None:
        output = getattr(self.config, "workeroutput", None)
        if output is not None and (reporter.unwritten or reporter.problems):
            # Plain types only: anything else would end the whole session inside xdist.
            unwritten = [line.decode("utf-8") for line in reporter.unwritten]
            output[HANDED_OVER] = {"unwritten": unwritten, "problems": list(reporter.problems)}


def _unforeseen(
    plan: Plan, phase: str, excinfo: pytest.ExceptionInfo[BaseException], *, judged: bool
) -> dict[str, object]:
    """The outcome of a plan whose test raised what neither its run nor its verdict accounts for."""
    where = "after its verdict" if judged else f"in its {phase} phase, before a verdict"
    category = "config" if isinstance(excinfo.value, UsageProblem) else "harness"
    text = " ".join(excinfo.exconly().split())
    outcome = {"status": "error", "category": category, "reason": f"the test failed {where}: {text}"}
    return {"kind": "outcome", "id": plan.id, "outcome": outcome}


def _died_of(node: _Node) -> str:
    """` (SIGKILL)`, where the worker is a child whose exit can be learnt; else nothing."""
    process = getattr(getattr(node.gateway, "_io", None), "popen", None)
    if process is None:
        return ""
    try:
        code = process.wait(timeout=1.0)
    except subprocess.TimeoutExpired:
        return ""
    try:
        return f" ({signal.Signals(-code).name})" if code < 0 else f" (exit code {code})"
    except ValueError:
        return f" (signal {-code})"
