"""Watching a run by its files: when it is over, and who is to blame."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.cause import fault_category, find_cause, ranks
from fixtures.event_tail import EventTail, Exit
from fixtures.watch import SETTLE_S, Decision, Watch
from suite.plan import Deadlines
from suite.vendor_spec import Fault

LIMITS = Deadlines(launch_s=10, first_step_s=20, no_progress_s=30, total_s=100, teardown_s=5)


class Run:
    """A run folder and a clock, both moved by hand."""

    def __init__(self, folder: Path, world: int = 2, nodes: int = 1, **over: Any) -> None:
        self.folder, self.now, self.world = folder, 100.0, world
        for name in ("events", "exits", "logs"):
            (folder / name).mkdir()
        clocks: dict[str, Any] = {"clock": lambda: self.now, "wall": lambda: 5000 + self.now}
        self.watch = Watch(folder, world_size=world, nodes=nodes, deadlines=LIMITS, **clocks, **over)

    def say(self, rank: int, event: str, **keys: Any) -> None:
        with (self.folder / "events" / f"rank{rank}.jsonl").open("a") as file:
            file.write(json.dumps({"event": event, "t": self.now, **keys}) + "\n")

    def leave(self, rank: int, code: int = 0, number: int | None = None, at: float = 0.0) -> None:
        record = {"rank": rank, "pid": 1, "returncode": code, "signal": number, "ended_wall": 5000 + self.now + at}
        (self.folder / "exits" / f"rank{rank}.json").write_text(json.dumps(record))

    def log(self, rank: int, text: str) -> None:
        (self.folder / "logs" / f"rank{rank}.log").write_text(text)

    def start(self) -> None:
        for rank in range(self.world):
            self.say(rank, "header", t_wall=5000 + self.now)

    def step(self, first: int = 1) -> None:
        for rank in range(self.world):
            self.say(rank, "steps", first=first, count=1)

    def stop(self, rank: int, status: str = "success", reason: str = "max_steps", **keys: Any) -> None:
        self.say(rank, "run_stop", status=status, reason=reason, t_wall=5000 + self.now, **keys)

    def after(self, seconds: float) -> Decision | None:
        self.now += seconds
        self.watch.look()
        return self.watch.decide()

    def over(self, seconds: float = 0.0) -> Decision:
        decision = self.after(seconds)
        assert decision is not None
        return decision


def test_every_rank_left_with_success(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.start()
    run.step()
    assert run.after(1) is None
    run.stop(0)
    run.stop(1)
    run.leave(0)
    assert run.after(1) is None, "rank 1 has not left"
    run.leave(1)
    assert run.over(1).outcome.status == "passed"
    assert run.watch.witness_s() == 2.0


def test_what_passed_lies_between_two_looks(tmp_path: Path) -> None:
    """A harness that a busy host kept from looking accuses nobody of the time that it did not look."""
    run = Run(tmp_path)
    assert run.after(1) is None
    assert run.after(1) is None
    run.start()
    assert run.after(0.5) is None  # came to be within this half second
    run.step()
    assert run.after(20) is None
    run.step(2)
    run.stop(0)
    assert run.after(7) is None
    run.stop(1)
    run.leave(0)
    run.leave(1)
    assert run.over(30).outcome.status == "passed"
    assert run.watch.span_s() == (20.0, 27.5)
    assert run.watch.witness_s() == 57.0


def test_what_one_look_shows_may_have_taken_no_time(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.start()
    run.stop(0)
    run.after(6)
    assert run.watch.span_s() == (0.0, 6.0)


def test_what_may_be_seen_late_widens_the_interval(tmp_path: Path) -> None:
    run = Run(tmp_path, late_s=6.0)
    run.start()
    run.after(1)
    run.after(30)
    run.stop(0)
    run.after(1)
    assert run.watch.span_s() == (24.0, 38.0)


def test_status_zero_without_run_stop_is_a_crash(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.start()
    run.stop(0)
    for rank in (0, 1):
        run.leave(rank)
    run.watch.node_left(0, 0)
    decision = run.over()
    assert decision.outcome.category == "crash"
    assert (
        decision.outcome.reason == "rank 1 left with status 0 and without run_stop: the training did not reach its end"
    )


def test_the_first_to_die_is_named_and_not_its_peers(tmp_path: Path) -> None:
    run = Run(tmp_path, world=3)
    run.start()
    run.log(0, "RuntimeError: [gloo] Connection closed by peer [127.0.0.1]:40000\n")
    run.leave(0, 1, at=-5)  # even if its clock is ahead
    assert run.after(0.1) is None, "the others had no time yet"
    run.leave(1, 137, 9)
    run.log(1, "step 7\n")
    run.leave(2, 143, 15)
    outcome = run.over(0.1).outcome
    assert (outcome.category, outcome.rank) == ("crash", 1)
    assert outcome.reason == "rank 1 was killed by SIGKILL (signal 9)"
    assert outcome.log_tail == ("step 7",)


def test_a_rank_whose_wrapper_was_killed_too_is_known_from_torchrun(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.start()
    run.leave(0, 1)
    run.log(0, "RuntimeError: Connection reset by peer\n")
    (tmp_path / "logs" / "node0.log").write_text(
        "Root Cause:\n  rank      : 1 (local_rank: 1)\n  exitcode  : -11 (pid: 7)\n"
    )
    run.watch.node_left(0, 1)
    assert run.after(0.1) is None
    outcome = run.over(SETTLE_S).outcome
    assert outcome.reason == "rank 1 was killed by SIGSEGV (signal 11)"


def test_who_raised_first_is_named_by_his_own_word(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.start()
    run.stop(1, "aborted", "exception", detail="ValueError: bad\nlabel")
    run.now += 1
    run.stop(0, "aborted", "exception", detail="RuntimeError: something else")
    run.leave(0, 1)
    run.leave(1, 1, at=2)
    outcome = run.over().outcome
    assert (outcome.category, outcome.rank) == ("crash", 1)
    assert outcome.reason == "rank 1 stopped with exception: ValueError: bad label"


@pytest.mark.parametrize(
    ("reason", "detail", "status", "category"),
    [
        ("nonfinite_loss", "step 12", "failed", "nonfinite_loss"),
        ("environment", "precision is fp32, the plan says bf16", "error", "environment"),
        ("config", "lr = -1 is below 0: a cause of running out of memory", "error", "config"),
        ("exception", "torch.OutOfMemoryError: tried to allocate 2 GiB", "error", "out_of_memory"),
        ("exception", "link 3 is down", "error", "environment"),
        ("exception", "KeyError: 'x'", "error", "crash"),
    ],
)
def test_an_aborted_run_says_why(tmp_path: Path, reason: str, detail: str, status: str, category: str) -> None:
    run = Run(tmp_path, world=1, faults=(Fault(pattern=r"link \d is down", category="environment"),))
    run.start()
    run.stop(0, "aborted", reason, detail=detail)
    run.leave(0, 1)
    outcome = run.over().outcome
    assert (outcome.status, outcome.category) == (status, category)
    assert detail in outcome.reason


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("numpy._core._exceptions._ArrayMemoryError: x\nMemoryError", "out_of_memory"),
        ("CUDA out of memory. Tried", "out_of_memory"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "out_of_memory"),
        ("RuntimeError: [Errno 98] Address already in use", "provision"),
        ("No module named 'torch'", "environment"),
        ("No module named 'torchvision'", ""),
        ("all is well", ""),
    ],
)
def test_what_any_runtime_says(text: str, category: str) -> None:
    assert fault_category(text, ()) == category


def test_sigkill_while_the_kernel_killed_for_memory_is_out_of_memory(tmp_path: Path) -> None:
    run = Run(tmp_path, world=1)
    exits = {0: Exit(rank=0, returncode=137, signal=int(signal.SIGKILL), ended_wall=1.0)}
    outcome = find_cause(run.folder, 1, exits, {}, (), oom_killed=True)
    assert outcome.category == "out_of_memory"
    assert "want of memory" in outcome.reason


def test_a_launcher_that_ends_without_ranks_is_explained_by_its_log(tmp_path: Path) -> None:
    run = Run(tmp_path)
    (tmp_path / "logs" / "node0.log").write_text("/usr/bin/python: No module named 'torch'\n")
    run.watch.node_left(0, 1)
    assert run.after(0.1) is None
    outcome = run.over(SETTLE_S).outcome
    assert (outcome.category, outcome.rank) == ("environment", None)
    assert outcome.reason.endswith("No module named 'torch'")


def test_a_node_that_left_well_does_not_end_the_others(tmp_path: Path) -> None:
    run = Run(tmp_path, nodes=2)
    run.start()
    run.step()
    run.stop(0)
    run.leave(0)
    run.watch.node_left(0, 0)
    assert run.after(1) is None
    assert run.after(SETTLE_S + 1) is None


@pytest.mark.parametrize(
    ("script", "category", "words"),
    [
        ([("header", 0), 11], "timeout", "rank 1 did not start within 10 s (deadline launch_s)"),
        ([11], "timeout", "ranks 0, 1 did not start"),
        (["start", ("heartbeat", 0), 21], "timeout", "no step was done 20 s after the start (deadline first_step_s)"),
        (
            ["start", "step", 15, ("heartbeat", 0), 16],
            "hang",
            "no rank made progress for 30 s (deadline no_progress_s)",
        ),
        (["start", "step", 29, "step", 29, "step", 29, "step", 14], "timeout", "after 100 s (deadline total_s)"),
    ],
)
def test_deadlines(tmp_path: Path, script: list[Any], category: str, words: str) -> None:
    run = Run(tmp_path)
    decision = None
    for act in script:
        assert decision is None
        if act == "start":
            run.start()
        elif act == "step":
            run.step()
        elif isinstance(act, tuple):
            run.say(act[1], act[0], step=1)
        decision = run.after(act if isinstance(act, int) else 0)
    assert decision is not None
    assert (decision.outcome.category, decision.by) == (category, "harness")
    assert words in decision.outcome.reason


def test_a_hang_names_who_is_behind(tmp_path: Path) -> None:
    run = Run(tmp_path, world=3)
    run.start()
    run.step(1)
    run.say(0, "steps", first=2, count=1)
    run.say(1, "steps", first=2, count=1)
    assert run.after(0) is None
    decision = run.over(31)
    assert decision.hangs, "stacks are asked for"
    assert decision.outcome.rank == 2
    assert decision.outcome.reason.endswith("furthest behind: rank 2 at step 1")


def test_a_rank_that_does_not_leave_is_a_hang(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.start()
    run.stop(0)
    run.stop(1)
    run.leave(0)
    assert run.after(1) is None
    decision = run.over(6)
    assert (decision.outcome.category, decision.outcome.rank) == ("hang", 1)
    assert "did not leave within 5 s" in decision.outcome.reason


def test_the_sessions_budget_ends_a_run(tmp_path: Path) -> None:
    run = Run(tmp_path, session_deadline=5105.0)
    assert run.after(1) is None
    assert "time budget (--time-budget)" in run.over(5).outcome.reason


def test_the_timed_window_is_on_the_wall_clock(tmp_path: Path) -> None:
    run = Run(tmp_path, world=1)
    run.start()
    run.now += 2
    run.say(0, "run_start")
    assert run.after(8) is None
    assert run.watch.timed_window() is None
    run.stop(0)
    run.watch.look()
    assert run.watch.timed_window() == (5102.0, 5110.0)


def test_torn_lines_wait_and_bad_ones_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "rank0.jsonl"
    tail = EventTail(tmp_path, 1)
    path.write_bytes(b'{"event": "header"}\n{"event": "ste')
    assert tail.poll() == [(0, {"event": "header"})]
    assert tail.poll() == []
    with path.open("ab") as file:
        file.write(b'ps"}\nnonsense\n[]\n\xff\n{"event": "run_stop"}\n')
    assert [event["event"] for _, event in tail.poll()] == ["steps", "run_stop"]


def test_what_is_no_plain_file_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rank0.jsonl")
    (tmp_path / "secret").write_text('{"event": "header"}\n')
    (tmp_path / "rank1.jsonl").symlink_to(tmp_path / "secret")
    (tmp_path / "rank7.jsonl").write_text('{"event": "header"}\n')
    (tmp_path / "rank01.jsonl").write_text('{"event": "header"}\n')
    assert EventTail(tmp_path, 3).poll() == []


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=40), max_size=8), st.binary(max_size=40))
def test_no_bytes_stop_the_watch(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], record: bytes) -> None:
    run = Run(tmp_path_factory.mktemp("run"), world=1)
    (run.folder / "events" / "rank0.jsonl").write_bytes(b"\n".join(lines))
    (run.folder / "exits" / "rank0.json").write_bytes(record)
    assert run.after(1) is None


@pytest.mark.parametrize(
    "event",
    [
        {"event": "header"},
        {"event": "run_stop"},
        {"event": "steps", "first": "x"},
        {"event": 3},
        {"event": "run_stop", "status": 1},
    ],
)
def test_no_event_stops_the_watch(tmp_path: Path, event: dict[str, Any]) -> None:
    run = Run(tmp_path, world=1)
    for line in (event, {"event": "header"}, event, {"event": "run_start"}):
        run.say(0, **line)
    run.leave(0, 1)
    assert run.over(200).outcome.status == "error"
    assert run.watch.timed_window() is None


def test_many_ranks_are_named_shortly() -> None:
    assert ranks([3]) == "rank 3"
    assert ranks(range(12)) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4 more"
