"""What an honest stream shows is held to; a stream that does not tell it is left alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suite.plan import Plan
from suite.soundness import twins
from suite.topology import Topology
from suite.verdict import judge_folder
from tests.run_folders import tiny_plan, write_plan_folder

Lines = list[dict[str, Any]]
ASKED = "00000000000000aa"


def told(lines: Lines) -> Lines:
    """A stream as the PyTorch driver writes it."""
    for place, line in enumerate(lines):
        if line["event"] == "steps":
            line |= {"updates": line["count"], "data": f"{place:016x}", "repeated": 0}
            line["forward_s"] = [seconds / 3 for seconds in line["step_s"]]
        if line["event"] == "eval_result":
            line |= {"counted": {"accuracy": 300.0}, "training": 0, "asked": ASKED}
        if line["event"] == "checksum":
            line["precision"] = next(one for one in lines if one["event"] == "header")["precision"]
    return lines


def outcome_of(tmp_path: Path, change: Callable[[Lines, int], None] = lambda lines, rank: None, **over: Any) -> str:
    """How a run of two ranks is judged whose streams were changed."""
    quality = tiny_plan().quality.model_copy(update={"counted": 300.0, "asked": ASKED})
    plan: Plan = tiny_plan(**({"quality": quality} | over))
    folder = write_plan_folder(tmp_path, plan, runs=[{}] * plan.repeat)
    for path in sorted(folder.glob("r*/events/rank*.jsonl")):
        rank = int(path.stem.removeprefix("rank"))
        lines = told([json.loads(line) for line in path.read_text().splitlines()])
        for line in lines:
            if line["event"] == "steps":
                line["data"] = f"{path.parent.parent.name}{rank}{line['data']}"
        change(lines, rank)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        harness = path.parent.parent / "harness.jsonl"
        kept = [json.loads(line) for line in harness.read_text().splitlines()]
        harness.write_text("".join(json.dumps({**line, "events": {}}) + "\n" for line in kept))
    outcome = judge_folder(folder).outcome
    return f"{outcome.status} {outcome.category} {outcome.reason}"


def of(name: str, last: bool = False) -> Callable[[Lines], dict[str, Any]]:
    """The first event of that name, or the last."""
    return lambda lines: [line for line in lines if line["event"] == name][-1 if last else 0]


def test_an_honest_run_passes(tmp_path: Path) -> None:
    assert outcome_of(tmp_path).startswith("passed")


def test_weights_may_be_rounded_where_ranks_add_them(tmp_path: Path) -> None:
    rounded = {"counted": {"accuracy": 299.99999999999994}}
    assert outcome_of(tmp_path, lambda lines, rank: rank or of("eval_result")(lines).update(rounded)).startswith(
        "passed"
    )


@pytest.mark.parametrize(
    ("event", "keys", "sentence"),
    [
        ("steps", {"updates": 9}, "the optimizer made 9 updates up to step 10, where 10 steps from 1 claim 10"),
        ("steps", {"updates": 30}, "the optimizer made 30 updates"),
        ("steps", {"updates": -1}, "updates is -1, not a whole number"),
        ("steps", {"repeated": 60}, "60 of 120 micro-batches were trained on before in their epoch"),
        ("steps", {"forward_s": [0.1]}, "forward_s holds 1 times"),
        ("eval_result", {"training": 3}, "3 modules were evaluated in training mode"),
        ("eval_result", {"counted": {"accuracy": 30.0}}, "accuracy is of 30, where the case's target counts 300"),
        ("eval_result", {"asked": "00000000000000ab"}, "other questions were asked (asked is '00000000000000ab') than"),
        ("eval_result", {"asked": 7}, "asked is 7, not a string"),
        ("eval_result", {"step": 10, "samples": 160}, "without an eval_start of its own"),
        ("checksum", {"precision": {"compute": "bf16"}}, "compute precision is 'bf16' after training, 'fp32' in"),
    ],
)
def test_one_key_that_disagrees_voids_the_run(tmp_path: Path, event: str, keys: Any, sentence: str) -> None:
    def change(lines: Lines, rank: int) -> None:
        if rank == 0:
            of(event)(lines).update(keys)

    ended = outcome_of(tmp_path, change)
    assert ended.startswith("failed invalid_measurement") and sentence in ended


def test_equal_samples_of_a_small_batch_are_no_repetition(tmp_path: Path) -> None:
    assert outcome_of(tmp_path, lambda lines, rank: of("steps")(lines).update(repeated=12)).startswith("passed")


def test_ranks_with_one_share_of_the_data_are_told(tmp_path: Path) -> None:
    def change(lines: Lines, rank: int) -> None:
        for place, line in enumerate(line for line in lines if line["event"] == "steps"):
            line["data"] = f"{place}"

    assert "ranks 0 and 1 train on the same data in 12 of 12 windows" in outcome_of(tmp_path, change)


def test_evaluations_must_count_alike_where_the_case_says_no_number(tmp_path: Path) -> None:
    def change(lines: Lines, rank: int) -> None:
        if rank == 0:
            of("eval_result", last=True)(lines)["counted"] = {"accuracy": 30.0}

    ended = outcome_of(tmp_path, change, quality=tiny_plan().quality)
    assert "accuracy is of 30, where the evaluation before it counts 300" in ended


def test_evaluations_must_ask_alike_where_the_case_says_nothing(tmp_path: Path) -> None:
    def change(lines: Lines, rank: int) -> None:
        if rank == 0:
            of("eval_result", last=True)(lines)["asked"] = "00000000000000ab"

    ended = outcome_of(tmp_path, change, quality=tiny_plan().quality)
    assert f"than the evaluation before it asks ({ASKED})" in ended


def test_a_driver_that_leaves_out_what_was_asked_is_told(tmp_path: Path) -> None:
    """Where the case says what that is; and once told, always. A script of others is not held to it."""

    def silent(*keys: str, last: bool = False) -> Callable[[Lines, int], None]:
        def change(lines: Lines, rank: int) -> None:
            for line in [line for line in lines if line["event"] == "eval_result"][-1 if last else 0 :]:
                for key in keys:
                    del line[key]

        return change

    assert "nothing tells what was asked" in outcome_of(tmp_path / "a", silent("asked"))
    assert "nothing tells what was asked" in outcome_of(tmp_path / "b", silent("asked", "training", "counted"))
    unsaid = tiny_plan().quality
    assert "asked is told 2 times of 3" in outcome_of(tmp_path / "c", silent("asked", last=True), quality=unsaid)
    assert outcome_of(tmp_path / "d", silent("asked"), quality=unsaid).startswith("passed")


def test_training_that_goes_on_after_the_target_is_told(tmp_path: Path) -> None:
    def change(lines: Lines, rank: int) -> None:
        if rank == 0:
            of("eval_result")(lines).update(metrics={"accuracy": 0.9}, met=True)

    assert "the target is met here, but training went on" in outcome_of(tmp_path, change)


def test_another_device_than_the_plans_is_told(tmp_path: Path) -> None:
    def change(lines: Lines, rank: int) -> None:
        lines[0]["device"]["type"] = "abacus"

    assert "device type is 'abacus', the plan's is cpu" in outcome_of(tmp_path, change)


def test_windows_that_do_not_touch_are_told(tmp_path: Path) -> None:
    """Half a second where the ledger alone would allow one."""

    def change(lines: Lines, rank: int) -> None:
        later = 0.0
        for place, line in enumerate(lines):
            later += 0.3 if place > 10 and line["event"] == "steps" else 0.0
            line["t"] += later
            for key in ("t_mono", "t_wall"):
                if key in line and line["event"] == "run_stop":
                    line[key] += later

    short = {"quality": tiny_plan().quality, "mode": "throughput", "topology": Topology(nnodes=1, nproc=1)}
    ended = outcome_of(tmp_path, change, **short)
    assert "lie between windows that cover" in ended and "should touch" in ended


def test_repeats_that_are_one_run_are_told(tmp_path: Path) -> None:
    def change(lines: Lines, rank: int) -> None:
        for place, line in enumerate(lines):
            if line["event"] == "steps":
                line["data"] = f"{rank} {place}"

    assert outcome_of(tmp_path / "apart", repeat=2, seeds=(5, 9)).startswith("passed")
    ended = outcome_of(tmp_path / "same", change, repeat=2, seeds=(5, 9))
    assert ended.startswith("failed invalid_measurement runs 1 and 2 had the same data and the same losses")
    assert "their seeds are 5 and 9" in ended


def test_runs_that_tell_nothing_are_no_twins() -> None:
    assert twins(["", "", "a"]) is None
    assert twins(["b", "a", "", "a"]) == (1, 3)
