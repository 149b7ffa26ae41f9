"""pytest-benchmark's own session data: with one of its options, the measured steps of each plan become its rounds.

Nothing is launched for it: what it times is a clock that the measured seconds move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from suite.errors import UsageProblem
from suite.plan import Plan
from suite.result import Result

FIXTURE = "benchmark"
OPTIONS = ("benchmark_only", "benchmark_json", "benchmark_save", "benchmark_autosave", "benchmark_compare",
           "benchmark_compare_fail")  # fmt: skip
"""Any of these asks for it; a case's test may also name the fixture itself."""


class Fixture(Protocol):
    """What is used of that plugin's fixture, which carries no types."""

    disabled: bool
    params: object
    extra_info: dict[str, object]

    def pedantic(self, target: Callable[[], None], *, rounds: int, iterations: int) -> None:
        """Time `target` so many times."""


class Clock:
    """A timer that stands still until `step` moves it by the next measured time."""

    def __init__(self) -> None:
        self._now = 0.0
        self._ahead: list[float] = []

    def __call__(self) -> float:
        return self._now

    def __repr__(self) -> str:
        return "trainmark"  # kept in its files, which two sessions compare

    def load(self, seconds: Sequence[float]) -> None:
        """What the next steps take."""
        self._ahead = list(reversed(seconds))

    def step(self) -> None:
        """One step; nothing once all are told."""
        self._now += self._ahead.pop() if self._ahead else 0.0


CLOCK = pytest.StashKey[Clock]()


class BenchmarkSession:
    """Hands the steps of a judged plan to the fixture of its test."""

    def __init__(self, config: pytest.Config) -> None:
        self._asked = any(getattr(config.option, option, None) for option in OPTIONS)
        self._item: pytest.Item | None = None

    @staticmethod
    def serves(config: pytest.Config) -> bool:
        """That plugin is here, and works: in xdist's processes it does not."""
        alone = not hasattr(config, "workerinput") and not getattr(config.option, "numprocesses", None)
        return alone and config.pluginmanager.hasplugin(FIXTURE)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Have the test of a plan take the fixture, as if it had named it; a mark brings the clock."""
        names = getattr(item, "fixturenames", None)
        if names is None or plan_of(item) is None:
            return
        if self._asked and FIXTURE not in names:
            names.append(FIXTURE)
        if FIXTURE in names:
            item.stash[CLOCK] = clock = Clock()
            item.add_marker(pytest.mark.benchmark(timer=clock))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """Whose verdict comes next."""
        self._item = item

    @pytest.hookimpl(optionalhook=True)
    def pytest_trainmark_record(self, record: Mapping[str, object]) -> None:
        """A verdict: its steps are rounds."""
        item = self._item
        if item is None or record.get("kind") != "verdict" or CLOCK not in item.stash:
            return
        from reports.load import parsed

        plan, fixture = plan_of(item), getattr(item, "funcargs", {}).get(FIXTURE)
        if plan is None or plan.id != record.get("id") or fixture is None or fixture.disabled:
            return
        try:
            result = parsed(Result, record.get("result"), f"the verdict on {plan.id}")
        except UsageProblem:
            return  # told by the reporter, which keeps the verdict
        self._item = None
        _tell(fixture, item.stash[CLOCK], result, Path(str(record.get("folder"))))


def plan_of(item: pytest.Item) -> Plan | None:
    """The plan that `item` is parametrised with; None: it is no benchmark."""
    callspec = getattr(item, "callspec", None)
    plan = callspec.params.get("plan") if callspec is not None else None
    return plan if isinstance(plan, Plan) else None


def _tell(fixture: Fixture, clock: Clock, result: Result, folder: Path) -> None:
    steps = [step for run in result.runs for step in _steps(folder, run.folder)]
    if not steps:
        return  # a plan without a step has no rounds, and that plugin says that nothing was timed
    clock.load(steps)
    fixture.params = {"plan": result.id}  # a Plan would be kept as text without end
    fixture.extra_info.update(
        outcome=result.outcome.status, division=result.division, fingerprint=result.comparability_key
    )
    fixture.pedantic(clock.step, rounds=len(steps), iterations=1)


def _steps(folder: Path, name: str) -> tuple[float, ...]:
    """Steady steps of one run, each on its slowest rank."""
    from reports.html_series import read_streams, run_folder, steady_steps  # imported here: most sessions ask not

    path = run_folder(folder.parent, folder.name, name)
    return steady_steps(read_streams(path)[0])[0] if path is not None else ()
