"""What a run was cannot be taken back: a sabotage, a copy, a folder of another run, a key that is told once only."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from suite.artifacts import event_seals
from suite.drivers.broken import DataRepeated, EvalOnTrainData, RanksShareData
from suite.drivers.events import RunProblem, RunSpec
from suite.drivers.pytorch import checkpoint
from suite.drivers.pytorch.loop import Loop
from suite.drivers.pytorch.sound import Sound
from suite.drivers.pytorch.task import Task
from suite.verdict import judge_folder
from tests.driver_toy import PARAMS, RUN
from tests.run_folders import tiny_plan, write_plan_folder
from tests.sabotage.test_sound import Lines, of, outcome_of


def changed_run(folder: Path, **keys: Any) -> None:
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def said(folder: Path) -> str:
    outcome = judge_folder(folder).outcome
    return f"{outcome.status} {outcome.category} {outcome.reason}"


def test_a_sabotage_stands_in_the_sealed_header(tmp_path: Path) -> None:
    """Somebody empties it in plan.json and run.json, and closes the division again."""
    ended = outcome_of(tmp_path, lambda lines, rank: lines[0].update(sabotage="data_repeated"))
    assert ended.startswith("failed invalid_measurement events/rank0.jsonl:1: broken on purpose (sabotage 'data_rep")


def test_a_sabotage_in_run_json_alone_is_told(tmp_path: Path) -> None:
    """Somebody plans soundly, and breaks the run before it is read."""
    folder = write_plan_folder(tmp_path, tiny_plan())
    changed_run(folder / "r1", sabotage="quality_forged")
    assert "run.json: broken on purpose (sabotage 'quality_forged'), which the plan does not say" in said(folder)


def test_a_run_that_is_broken_as_planned_is_judged_by_its_checks(tmp_path: Path) -> None:
    ended = outcome_of(tmp_path, lambda lines, rank: lines[0].update(sabotage="lr_zero"), sabotage="lr_zero")
    assert ended.startswith("passed")


@pytest.mark.parametrize("mode", ["converge", "throughput"])
def test_a_copied_run_is_no_repeat(tmp_path: Path, mode: str) -> None:
    """Random batches tell no data: only the run's own id shows it."""
    folder = write_plan_folder(tmp_path, tiny_plan(mode=mode, repeat=2, seeds=(5, 9)), runs=[{}, {}])
    shutil.rmtree(folder / "r2")
    shutil.copytree(folder / "r1", folder / "r2")
    changed_run(folder / "r2", n=2, seed=9)
    assert said(folder).startswith("failed invalid_measurement r1 and r2 are both of the run run-1.1: one of them is")


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"run": "another"}, "run is 'run-1.1', in run.json 'another'"),
        ({"id": "toy-pytorch-cpu-host-mini-1x9"}, "run.json: id is 'toy-pytorch-cpu-host-mini-1x9', the plan's is"),
    ],
)
def test_a_folder_of_another_run_is_told(tmp_path: Path, keys: dict[str, Any], sentence: str) -> None:
    folder = write_plan_folder(tmp_path, tiny_plan())
    changed_run(folder / "r1", **keys)
    ended = said(folder)
    assert ended.startswith("failed invalid_measurement") and sentence in ended


def test_streams_of_a_better_run_are_told_by_the_seals(tmp_path: Path) -> None:
    plan = tiny_plan()
    folder, other = (
        write_plan_folder(tmp_path / "a", plan),
        write_plan_folder(tmp_path / "b", plan, runs=[{"steps": 90}]),
    )
    harness = folder / "r1" / "harness.jsonl"
    lines = [json.loads(line) for line in harness.read_text().splitlines()]
    for line in lines:
        if line["event"] == "witness":
            line["events"] = event_seals(folder / "r1")
    harness.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert said(folder).startswith("passed")
    shutil.copytree(other / "r1" / "events", folder / "r1" / "events", dirs_exist_ok=True)
    assert "not the file that the harness saw" in said(folder)


@pytest.mark.parametrize(
    ("event", "key", "sentence"),
    [
        ("steps", "updates", "updates is told 11 times of 12"),
        ("eval_result", "training", "training is told 2 times of 3"),
        ("checksum", "precision", "no precision, though this driver reads it again"),
    ],
)
def test_what_is_told_once_is_told_always(tmp_path: Path, event: str, key: str, sentence: str) -> None:
    def change(lines: Lines, rank: int) -> None:
        if rank == 0:
            del of(event)(lines)[key]

    ended = outcome_of(tmp_path, change)
    assert ended.startswith("failed invalid_measurement") and sentence in ended


def test_samples_that_meet_by_chance_are_no_shared_data(tmp_path: Path) -> None:
    """One window of twelve: two ranks drew equal samples."""
    assert outcome_of(tmp_path, lambda lines, rank: of("steps")(lines).update(data="same")).startswith("passed")


def test_data_shared_from_the_second_window_on_is_told(tmp_path: Path) -> None:
    def change(lines: Lines, rank: int) -> None:
        for place, line in enumerate([line for line in lines if line["event"] == "steps"][1:]):
            line["data"] = f"{place}"

    assert "ranks 0 and 1 train on the same data in 11 of 12 windows" in outcome_of(tmp_path, change)


def test_a_global_batch_that_is_larger_than_the_data_set_repeats_it_honestly(tmp_path: Path) -> None:
    """Each step is an epoch, filled from its beginning: ranks far apart see one share."""

    def change(lines: Lines, rank: int) -> None:
        for place, line in enumerate(line for line in lines if line["event"] == "steps"):
            line["data"] = f"{place}"
        if rank == 0:
            first = of("epoch_start")(lines)
            at = lines.index(first)
            lines[at:at] = [{**first, "epoch": 1} for _ in range(119)]

    assert outcome_of(tmp_path, change).startswith("passed")


class Alone:
    """A group of one rank."""

    rank, world_size = 0, 1

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def barrier(self) -> None:
        """Nobody else is there."""


def test_a_broken_runs_checkpoint_is_not_gone_on_with(tmp_path: Path) -> None:
    """Neither by another name, nor by none: what it learnt, it learnt wrongly."""
    model = torch.nn.Linear(2, 2)
    device = SimpleNamespace(rng_state=lambda: None, set_rng_state=lambda state: None)
    stepper = SimpleNamespace(state=dict, load=lambda state: None)
    run = {**RUN, "run_dir": str(tmp_path), "params": PARAMS}
    progress = SimpleNamespace(state=dict)
    checkpoint.save(RunSpec({**run, "sabotage": "warmup_in_init"}), model, stepper, progress, Alone(), device)
    with pytest.raises(RunProblem, match="has sabotage = 'warmup_in_init', not None: resume with the same plan"):
        checkpoint.load(tmp_path / "checkpoints" / "latest.pt", RunSpec(run), model, stepper, Alone(), device)


@pytest.mark.parametrize("broken", [DataRepeated(), RanksShareData()])
def test_a_sabotage_of_the_data_is_refused_where_the_data_is_random(broken: Sound) -> None:
    """Nobody compares random batches, so that run would pass."""
    run = SimpleNamespace(data_dir=None, sabotage="the name")
    loop = SimpleNamespace(params={}, converges=False, run=run, broken=broken)
    with pytest.raises(RunProblem, match="sabotage 'the name' does not show on random batches: give the site its data"):
        Loop._micros(loop)


def test_a_case_that_cannot_be_asked_what_it_was_trained_on_says_so_before_it_trains() -> None:
    class Plain(Task):
        def prepare_data(self):  # type: ignore[no-untyped-def]
            raise AssertionError("its data is opened")

    with pytest.raises(RunProblem, match="Plain has no evaluate_on_training_data"):
        EvalOnTrainData().task(object.__new__(Plain))
