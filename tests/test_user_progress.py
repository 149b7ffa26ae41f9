"""What the terminal shows while a plan trains."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.plain import plain
from fixtures.progress import Live
from fixtures.progress_state import clock
from suite.outcome import PASSED, Outcome
from suite.plan import Plan, Request
from suite.selection import plans
from tests.user_toy import Checkout, make_checkout


class Screen:
    """A terminal that remembers."""

    def __init__(self, isatty: bool) -> None:
        self.isatty = isatty
        self.lines: list[str] = []
        self.rewritten: list[str] = []

    def write_line(self, line: str) -> None:
        self.lines.append(line)

    def rewrite(self, line: str, **markup: bool) -> None:
        self.rewritten.append(line)

    def ensure_newline(self) -> None:
        pass

    def flush(self) -> None:
        pass


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """A plan of two ranks, at most 100 samples."""
    from suite.catalog import load_catalog

    checkout = make_checkout(tmp_path_factory.mktemp("progress") / "clone")
    catalog = load_catalog(checkout.root / "suite")
    return plans(catalog, Request(vendor="cpu", machine="host", topologies=("1x2",)))[0]


class Clock:
    """Time that passes when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def steps(first: int, count: int, samples: int, seconds: float) -> dict[str, object]:
    """A window of steps of one rank."""
    return {
        "event": "steps", "first": first, "count": count, "samples": samples, "window_s": seconds,
        "step_s": [seconds / count] * count, "loss": [2.0, 1.25],
    }  # fmt: skip


def test_plain_lines_every_ten_seconds_and_at_evaluations(plan: Plan) -> None:
    """A log gets few lines: step, loss, rate of all ranks, quality against target, time left, time gone."""
    screen, time = Screen(isatty=False), Clock()
    live = Live(screen, now=time)
    live.start(plan, "r1")
    live.event(0, {"event": "run_start"})
    time.now += 2
    live.event(0, steps(1, 5, 20, 2.0))
    assert len(screen.lines) == 1
    time.now += 9
    live.event(0, steps(6, 1, 4, 0.4))
    assert screen.lines[-1] == (
        f"{plan.id} r1: step 6, loss 1.25, 20 image/s, accuracy not yet evaluated (target >= 0.7),"
        " at most 3 s left, 11 s"
    )
    live.event(0, {"event": "eval_result", "step": 6, "samples": 48, "metrics": {"accuracy": 0.65}, "met": False})
    assert screen.lines[-1] == f"{plan.id} r1: evaluated at step 6, accuracy 0.65 (target >= 0.7)"
    live.end(PASSED)
    assert screen.lines[-1] == f"{plan.id} r1 ended after 11 s, accuracy 0.65 (target >= 0.7) at step 6"
    assert screen.rewritten == []


def test_a_tty_gets_one_live_line(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is overwritten, never longer than the screen, and wiped before a whole line."""
    monkeypatch.setenv("COLUMNS", "80")
    screen, time = Screen(isatty=True), Clock()
    live = Live(screen, now=time)
    live.start(plan, "r1")
    for number in range(4):
        time.now += 1
        live.event(0, steps(1 + number, 1, 4, 0.5))
    assert len(screen.rewritten) == 4
    assert screen.rewritten[0].startswith("r1: step 1, ")
    assert all(len(line) < 80 and "\n" not in line for line in screen.rewritten)
    before = len(screen.lines)
    live.end(Outcome(status="error", category="crash", reason="rank 1: \x1b[2Jboom"))
    assert screen.rewritten[4].strip() == ""
    assert screen.lines[before:] == [f"{plan.id} r1 error: crash after 4 s, 16 image/s (rank 1: \\x1b[2Jboom)"]


KEYS = st.sampled_from(["event", "first", "count", "samples", "loss", "metrics", "step", "window_s"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.sampled_from(["nan", "-inf", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)


@given(st.dictionaries(KEYS, ANYTHING))
def test_no_event_breaks_the_progress(plan: Plan, event: dict[str, object]) -> None:
    """Events come from the code under test: whatever they hold, the harness goes on."""
    screen, time = Screen(isatty=False), Clock()
    live = Live(screen, now=time)
    live.start(plan, "r1")
    time.now += 20
    live.event(0, event)
    live.event(0, {**event, "event": "steps"})
    live.event(0, {**event, "event": "eval_result"})
    live.end(PASSED)
    assert len(screen.lines) >= 2


@given(st.text())
def test_plain_text_moves_no_cursor(text: str) -> None:
    """One line, printable, bounded; ordinary text is unchanged."""
    seen = plain(text)
    assert all(char.isprintable() for char in seen)
    assert len(seen) <= 200
    assert plain("straße 東京") == "straße 東京"


def test_clock() -> None:
    """Short for a line."""
    assert [clock(41.4), clock(187), clock(7500)] == ["41 s", "3:07 min", "2:05 h"]


def test_progress_of_a_session(tmp_path: Path) -> None:
    """Lines although output is captured; nothing under -q; from workers only the end."""
    checkout: Checkout = make_checkout(tmp_path / "clone")
    name = "toy-pytorch-cpu-host-mini-1x1"
    loud = checkout.pytest("suite", "-k", "1x1", "--vendor", "cpu")
    assert f"{name} r1: starting" in loud.out
    assert f"{name} r1: evaluated at step 40, accuracy 0.8125 (target >= 0.7)" in loud.out
    assert f"{name} r1 ended after 0 s" in loud.out
    quiet = checkout.pytest("suite", "-k", "1x1", "--vendor", "cpu", "-q")
    assert "r1" not in quiet.out
    spread = checkout.pytest("suite", "-k", "1x1", "--vendor", "cpu", "-n", "1")
    assert f"{name}: passed" in spread.out
    assert "r1" not in spread.out
