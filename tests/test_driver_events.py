"""The event writer, run.json and a rank's place: standard library only, and on Python 3.8."""

from __future__ import annotations

import ast
import json
import math
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.drivers.events import EventWriter, Place, RunProblem, RunSpec, encode, find_place
from tests.driver_toy import ROOT, RUN, write_run

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def _refuse(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


@given(st.dictionaries(st.text(min_size=1), JSON))
def test_any_event_is_one_line_of_strict_json(keys: dict[str, object]) -> None:
    line = encode(keys)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert set(json.loads(line, parse_constant=_refuse)) == set(keys)


def test_numbers_that_are_not_finite_are_words() -> None:
    line = encode({"loss": [1.5, math.nan, -math.inf], "spread": math.inf})
    assert json.loads(line) == {"loss": [1.5, "nan", "-inf"], "spread": "inf"}


def test_threads_write_whole_lines_in_the_order_of_time(tmp_path: Path) -> None:
    writer = EventWriter(str(tmp_path / "events" / "rank0.jsonl"))

    def write() -> None:
        for step in range(200):
            writer.write("heartbeat", step=step, phase="x" * 300)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    written = [json.loads(line) for line in Path(writer.path).read_text().splitlines()]
    assert len(written) == 800
    assert [event["t"] for event in written] == sorted(event["t"] for event in written)


def test_nothing_follows_run_stop(tmp_path: Path) -> None:
    writer = EventWriter(str(tmp_path / "rank0.jsonl"))
    assert writer.write("run_stop", status="success")
    assert not writer.write("heartbeat", step=1)
    assert [json.loads(line)["event"] for line in Path(writer.path).read_text().splitlines()] == ["run_stop"]


def test_each_event_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = EventWriter(str(tmp_path / "rank0.jsonl"))
    calls, write = [], os.write
    monkeypatch.setattr(os, "write", lambda file, data: calls.append(len(data)) or write(file, data))
    writer.write("steps", step_s=[0.1] * 1000)
    monkeypatch.undo()
    writer.close()
    assert calls == [Path(writer.path).stat().st_size]


def test_run_json_is_read_by_attributes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINMARK_RUN", str(write_run(tmp_path)))
    run = RunSpec.load()
    assert (run.seed, run.params.lr, run.params["lr"], run.topology.nproc) == (7, 0.05, 0.05, 1)
    assert run.params.get("absent", 3) == 3


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"schema": 2}, "run.json has schema 2: this driver reads schema 1"),
        ({"seed": ...}, "run.json lacks seed"),
    ],
)
def test_a_bad_run_json_is_one_sentence(change: dict[str, object], sentence: str) -> None:
    values = {key: value for key, value in {**RUN, **change}.items() if value is not ...}
    with pytest.raises(RunProblem, match=sentence):
        RunSpec(values)


def test_an_absent_parameter_is_named() -> None:
    run = RunSpec({**RUN, "params": {"lr": 0.1}})
    with pytest.raises(RunProblem, match=r"run.json.params has no key 'warmup_steps'.*\(have: lr\)"):
        run.params["warmup_steps"]
    with pytest.raises(AttributeError, match="read-only"):
        run.seed = 3


@pytest.mark.parametrize(
    ("text", "sentence"), [(None, "TRAINMARK_RUN is not set"), ("{", "cannot be read"), ("[1]", "holds no JSON object")]
)
def test_an_unreadable_run_json_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, sentence: str
) -> None:
    monkeypatch.delenv("TRAINMARK_RUN", raising=False)
    if text is not None:
        (tmp_path / "run.json").write_text(text)
        monkeypatch.setenv("TRAINMARK_RUN", str(tmp_path / "run.json"))
    with pytest.raises(RunProblem, match=sentence):
        RunSpec.load()


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({}, Place(0, 1, 0, 1, 0)),
        (
            {"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8", "GROUP_RANK": "1"},
            Place(9, 16, 1, 8, 1),
        ),
        (
            {
                "OMPI_COMM_WORLD_RANK": "5",
                "OMPI_COMM_WORLD_SIZE": "8",
                "OMPI_COMM_WORLD_LOCAL_RANK": "1",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
                "OMPI_COMM_WORLD_NODE_RANK": "1",
            },
            Place(5, 8, 1, 4, 1),
        ),
        ({"PMI_RANK": "3", "PMI_SIZE": "4"}, Place(3, 4, 3, 4, 0)),
        (
            {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_NODEID": "1"},
            Place(3, 4, 1, 4, 1),
        ),
        ({"RANK": "0", "WORLD_SIZE": "1", "SLURM_PROCID": "3", "SLURM_NTASKS": "4"}, Place(0, 1, 0, 1, 0)),
    ],
)
def test_the_place_comes_from_whoever_launched(environ: dict[str, str], place: Place) -> None:
    assert find_place(environ) == place


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 is not below WORLD_SIZE=2"),
        ({"RANK": "two", "WORLD_SIZE": "2"}, "RANK='two' is not a whole number"),
    ],
)
def test_a_place_that_cannot_be_is_refused(environ: dict[str, str], sentence: str) -> None:
    with pytest.raises(RunProblem, match=sentence):
        find_place(environ)


@pytest.mark.parametrize("name", ["events.py", "rank.py"])
def test_what_runs_in_any_image_is_python_3_8(name: str) -> None:
    source = (ROOT / "suite" / "drivers" / name).read_text(encoding="utf-8")
    assert ast.parse(source, feature_version=(3, 8)).body


def test_only_device_py_names_a_device_api() -> None:
    word = "cu" + "da"
    folders = (ROOT / "suite" / "drivers", ROOT / "suite" / "cases")
    named = {
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in folder.rglob("*.py")
        if word in path.read_text(encoding="utf-8").lower()
    }
    assert named <= {"suite/drivers/pytorch/device.py"}
