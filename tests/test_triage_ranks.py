"""What a hung run tells before it is ended, from folders written by hand: who stands where, and who is waited for."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.flight import last_collective, last_entries
from fixtures.triage import NAME, Triage, examine, log_sizes

STACK = """\
Thread 0x00007f01 (most recent call first):
  File "pulse.py", line 44 in _beat

Current thread 0x00007f02 (most recent call first):
  File "distributed.py", line 70 in all_reduce
  File "train.py", line 9 in <module>
"""


class Run:
    """A run folder, written by hand."""

    def __init__(self, folder: Path, world: int) -> None:
        self.folder, self.world = folder, world
        self.offsets: dict[int, int] = {}
        for name in ("events", "exits", "logs", "flight"):
            (folder / name).mkdir()

    def rank(self, rank: int, *events: dict[str, Any], pid: int = 0) -> None:
        header = {"event": "header", "rank": rank, "pid": pid or 100 + rank, "host": f"node{rank}"}
        lines = [json.dumps(event) + "\n" for event in (header, *events)]
        (self.folder / "events" / f"rank{rank}.jsonl").write_text("".join(lines))

    def flight(self, rank: int, *entries: tuple[str, int, str], **more: Any) -> None:
        listed = [
            {"profiling_name": f"gloo:{name}", "process_group": ["0", "default"], "collective_seq_id": seq,
             "state": state, "retired": state == "retired", "input_sizes": [[4]], **more}
            for name, seq, state in entries
        ]  # fmt: skip
        (self.folder / "flight" / f"rank{rank}.json").write_text(json.dumps({"entries": listed}))

    def log(self, rank: int, text: str) -> None:
        with (self.folder / "logs" / f"rank{rank}.log").open("a") as file:
            file.write(text)

    def examine(self, *told: dict[str, Any], quiet: dict[int, float] | None = None) -> Triage:
        return examine(self.folder, self.world, reason="it hangs", quiet=quiet or {}, told=told, offsets=self.offsets)


def window(first: int, count: int = 1) -> dict[str, Any]:
    return {"event": "steps", "first": first, "count": count}


def alive(rank: int, state: str = "S") -> dict[str, Any]:
    return {"rank": rank, "pid": 100 + rank, "state": state}


def test_who_has_not_joined_a_collective_is_the_one_the_others_wait_for(tmp_path: Path) -> None:
    run = Run(tmp_path, 3)
    for rank in range(3):
        run.rank(rank, window(1, 10), {"event": "heartbeat", "step": 10, "phase": "train"})
    run.flight(0, ("broadcast", 1, "retired"), ("all_reduce", 57, "scheduled"))
    run.flight(1, ("all_reduce", 56, "retired"))
    run.flight(2, ("all_reduce", 57, "started"))
    found = run.examine(*(alive(rank) for rank in range(3)), quiet={0: 3.0, 1: 9.0, 2: 3.0})
    assert found.slowest == 1
    assert found.last_collective is not None
    assert (found.last_collective.waiting, found.last_collective.missing) == ((0, 2), (1,))
    assert found.sentence == "rank 1 has not joined gloo:all_reduce number 57 of group 0, in which ranks 0, 2 wait"
    first = found.ranks[0]
    assert (first.state, first.step, first.phase, first.last_event, first.host, first.quiet_s) == (
        "running", 10, "train", "steps", "node0", 3.0
    )  # fmt: skip
    assert first.collective is not None
    assert (first.collective.seq, first.collective.sizes) == (57, "[[4]]")


def test_a_stopped_rank_outweighs_all_else(tmp_path: Path) -> None:
    run = Run(tmp_path, 2)
    run.rank(0, window(1, 4))
    run.rank(1, window(1, 5))
    found = run.examine(alive(0), alive(1, "T"))
    assert (found.behind, found.slowest) == ((0,), 1)
    assert found.sentence == "rank 1 is stopped"


def test_absent_ranks_and_those_that_left(tmp_path: Path) -> None:
    run = Run(tmp_path, 3)
    run.rank(0)
    run.rank(1, {"event": "run_stop", "status": "success", "step": 7})
    (tmp_path / "exits" / "rank1.json").write_text('{"returncode": 0, "signal": null, "ended_wall": 1.0}')
    found = run.examine(alive(0), {"rank": 2, "pid": 9, "state": "S"})
    assert [standing.state for standing in found.ranks] == ["running", "left", "absent"]
    assert (found.absent, found.slowest) == ((2,), 2)
    assert found.ranks[2].phase == "starting"
    assert found.ranks[1].step == 7


def test_all_in_one_collective_that_does_not_end(tmp_path: Path) -> None:
    run = Run(tmp_path, 2)
    for rank in range(2):
        run.rank(rank)
        run.flight(rank, ("all_gather", 3, "scheduled"))
    assert run.examine(alive(0), alive(1)).sentence == "all ranks are in gloo:all_gather number 3 of group 0"


def test_what_ended_is_no_finding_and_point_to_point_is_not_counted(tmp_path: Path) -> None:
    run = Run(tmp_path, 2)
    run.flight(0, ("all_reduce", 3, "completed"))
    run.flight(1, ("all_reduce", 3, "retired"))
    assert last_collective(last_entries(tmp_path, 2)) is None
    run.flight(0, ("send", 9, "scheduled"), is_p2p=True)
    assert last_entries(tmp_path, 2).keys() == {1}


def test_stacks_are_what_was_written_after_the_call(tmp_path: Path) -> None:
    run = Run(tmp_path, 1)
    run.rank(0)
    run.log(0, "old (most recent call first)\n  File nowhere\n")
    run.offsets = log_sizes(tmp_path, 1)
    run.log(0, "a line of training\n" + STACK.replace("_beat", "_b\x1beat"))
    found = run.examine(alive(0))
    assert found.ranks[0].stack[0].startswith("Thread 0x00007f01")
    assert '  File "pulse.py", line 44 in _b\\x1beat' in found.ranks[0].stack
    assert found.stack_of(0) == tuple(STACK.splitlines()[3:])
    assert found.stack_of(5) == ()


def test_it_is_a_file_that_can_be_read_back(tmp_path: Path) -> None:
    run = Run(tmp_path, 2)
    run.rank(0)
    run.flight(0, ("all_reduce", 1, "scheduled"))
    found = run.examine(alive(0))
    found.write(tmp_path / NAME)
    assert Triage.read(tmp_path / NAME) == found
    json.loads((tmp_path / NAME).read_text(), parse_constant=pytest.fail)


@settings(max_examples=60)
@given(st.binary(max_size=200), st.binary(max_size=200), st.binary(max_size=200))
def test_no_bytes_break_the_triage(
    tmp_path_factory: pytest.TempPathFactory, events: bytes, flight: bytes, log: bytes
) -> None:
    run = Run(tmp_path_factory.mktemp("run"), 1)
    (run.folder / "events" / "rank0.jsonl").write_bytes(b'{"event": "header", "pid": "x"}\n' + events)
    (run.folder / "flight" / "rank0.json").write_bytes(flight)
    (run.folder / "logs" / "rank0.log").write_bytes(log)
    found = run.examine({"rank": None, "pid": 1, "state": "S"})
    assert found.ranks[0].state == "unknown"


@pytest.mark.parametrize(
    "entries", ["null", "3", '[{"collective_seq_id": "x"}]', '[{"collective_seq_id": 4, "process_group": {}}]', "[[]]"]
)
def test_another_versions_record_is_read_leniently(tmp_path: Path, entries: str) -> None:
    (tmp_path / "flight").mkdir()
    (tmp_path / "flight" / "rank0.json").write_text(f'{{"entries": {entries}}}')
    found = last_entries(tmp_path, 1)
    assert found == {} or found[0][""].seq == 4
    os.mkfifo(tmp_path / "flight" / "rank1.json")
    assert 1 not in last_entries(tmp_path, 2)
