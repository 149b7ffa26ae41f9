"""The quality evaluated again from the final checkpoint: honest runs are confirmed, forged ones found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from reports.gate import NOTHING_JUDGED, PASS, gate
from reports.json_report import read_session
from suite.artifacts import event_seals
from suite.drivers.events import RunProblem, RunSpec
from suite.events import BadEvents, Event
from suite.requality import same_set
from suite.verdict import judge_folder
from tests.case_glm import CASE_DIR as GLM_CASE
from tests.driver_toy import RUN
from tests.line_toy import ID, line_checkout
from tests.reports2_toy import result_with, session_with
from tests.spine import GLM, clone, tagged
from tests.user_toy import Checkout

FORGERY = """
import suite.drivers.pytorch.loop as loop
from suite.drivers.pytorch.evaluation import Evaluated


def setup(device, run):
    loop.evaluate = lambda *_: Evaluated({metrics}, {counted}, 0, {asked!r})
"""
"""Vendor code that has the driver write down a quality that no model has."""
ASKED = tomllib.loads((GLM_CASE / "case.toml").read_text(encoding="utf-8"))["preset"]["mini"]["target"]["asked"]
"""Whoever forges can read the case."""


class Line:
    """A checkout, what it trained, and the commands that come after."""

    def __init__(self, checkout: Checkout, session: Path) -> None:
        self.checkout, self.session = checkout, session

    def command(self, *words: str) -> tuple[int, str]:
        """(exit code, output) of `python -m WORDS`."""
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=self.checkout.root, env=self.checkout.variables(),
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def result(self, session: Path | None = None) -> dict[str, Any]:
        """The one result of a session."""
        (result,) = json.loads(((session or self.session) / "session.json").read_text())["results"]
        return dict(result)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """An honest run, evaluated again once."""
    checkout = line_checkout(tmp_path_factory.mktemp("honest") / "a clone")
    done = checkout.pytest("suite", "--vendor", "cpu", "--topology", "1x1", "--session", "s")
    assert done.code == 0, done.out
    line = Line(checkout, checkout.root / "s")
    code, out = line.command("fixtures.requality", "s")
    assert (code, out.splitlines()[-1]) == (0, f"{ID}/r1: evaluated again"), out
    yield line


def event(**data: Any) -> Event:
    """An eval_result."""
    return Event(Path("rank0.jsonl"), 9, "eval_result", 1.0, data)


def checks(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in result["checks"]}


def test_an_honest_run_is_confirmed_in_a_sandbox_that_ends_with_it(honest: Line) -> None:
    code, out = honest.command("reports", "rejudge", "s", "--write")
    assert code == 0, out
    result = honest.result()
    assert result["outcome"]["status"] == "passed"
    assert checks(result)["requality"]["status"] == "pass"
    assert result["metrics"]["requality"]["value"] == pytest.approx(result["metrics"]["mse"]["value"], rel=1e-6)
    folder = honest.session / ID / "requality" / "r1"
    run = json.loads((folder / "run.json").read_text())
    assert (run["mode"], run["slots"], run["extern_dir"], run["runtime_dir"]) == ("evaluate", [], None, None)
    assert not list(folder.glob("checkpoints/*")), "nothing is trained, nothing is kept"
    assert honest.command("reports", "rejudge", "s")[0] == 0, "judging again says the same"


def test_a_gate_asks_for_it_only_where_something_is_trained(honest: Line, tmp_path: Path) -> None:
    honest.command("reports", "rejudge", "s", "--write")
    report = read_session(honest.session)
    assert gate(report, (), requality=True).code == PASS
    (result,) = report.results
    without = result.model_copy(update={"checks": tuple(c for c in result.checks if c.name != "requality")})
    decided = gate(read_session(session_with(tmp_path / "without", [without])), (), requality=True)
    assert (decided.code, decided.plans[0].reason) == (NOTHING_JUDGED, "required here and not passed: requality")
    assert gate(read_session(tmp_path / "without"), ()).code == PASS
    speed = result_with(plan={"mode": "throughput"})
    assert gate(read_session(session_with(tmp_path / "speed", [speed])), (), requality=True).code == PASS


def test_a_checkpoint_that_was_exchanged_confirms_nothing(honest: Line, tmp_path: Path) -> None:
    copy = tmp_path / ID
    shutil.copytree(honest.session / ID, copy)
    with (copy / "r1/checkpoints/latest.pt").open("ab") as file:
        file.write(b"more")
    result = judge_folder(copy)
    assert (result.outcome.status, result.outcome.category) == ("inconclusive", "not_measured")
    assert "not the file that was evaluated again" in result.outcome.reason


def test_evidence_that_was_edited_confirms_nothing(honest: Line, tmp_path: Path) -> None:
    copy = tmp_path / ID
    shutil.copytree(honest.session / ID, copy)
    stream = copy / "requality/r1/events/rank0.jsonl"
    stream.write_text(stream.read_text().replace('"mse":0.', '"mse":0.0'))
    assert "not the file that the harness saw" in judge_folder(copy).outcome.reason


def test_a_forged_quality_is_void_though_every_seal_is_whole(honest: Line, tmp_path: Path) -> None:
    """Whoever writes the events may say what they like, and the run alone shows nothing; its model does."""
    copy = tmp_path / ID
    shutil.copytree(honest.session / ID, copy)
    stream = copy / "r1/events/rank0.jsonl"
    lines = [json.loads(line) for line in stream.read_text().splitlines()]
    (last,) = [line for line in lines if line["event"] == "eval_result"][-1:]
    last["metrics"]["mse"] /= 100
    stream.write_text("".join(json.dumps(line) + "\n" for line in lines))
    log = copy / "r1/harness.jsonl"
    told = [json.loads(line) for line in log.read_text().splitlines()]
    for line in told:
        if line["event"] == "witness":
            line["events"] = event_seals(copy / "r1")
    log.write_text("".join(json.dumps(line) + "\n" for line in told))
    result = judge_folder(copy)
    assert (result.outcome.status, result.outcome.category) == ("failed", "invalid_measurement")
    assert "mse is 0.00" in result.outcome.reason and "from what the run said" in result.outcome.reason
    shutil.rmtree(copy / "requality")
    assert judge_folder(copy).outcome.status == "passed", "nobody has looked"


def test_an_evaluation_of_other_things_than_the_one_made_again_is_told(tmp_path: Path) -> None:
    again = event(step=3, counted={"mse": 9.0}, asked="00000000000000aa")
    for last, sentence in (
        (event(step=3, counted={"mse": 9.0}, asked="00000000000000aa"), None),
        (event(step=3, counted={"mse": 9.000000000000002}, asked="00000000000000aa"), None),
        (event(step=3, counted={"mse": 9.0}), "than the evaluation made again, or tells none"),
        (event(step=3, asked="00000000000000ab"), "asked other questions than the evaluation made again"),
        (event(step=3, counted={"mse": 8.0}, asked="00000000000000ab"), "counted 8, the whole evaluation set is 9"),
    ):
        if sentence is None:
            same_set("mse", last, again)
        else:
            with pytest.raises(BadEvents, match=sentence):
                same_set("mse", last, again)


@pytest.mark.slow
def test_vendor_code_that_forges_the_quality_of_glm_is_found(tmp_path: Path) -> None:
    """A real training, too short to have learnt anything, whose vendor's code claims that it has."""
    checkout = clone(tmp_path)
    vendor = tmp_path / "theirs" / "cpu"
    shutil.copytree(checkout.root / "suite/vendors/cpu", vendor)
    (vendor / "runtime/pytorch").mkdir(parents=True)
    (vendor / "runtime/pytorch/runtime.py").write_text(
        FORGERY.format(metrics={"accuracy": 0.9}, counted={"accuracy": 300.0}, asked=ASKED)
    )
    short = ["--set", "max_samples=640", "--set", "threads=1", "--vendor-path", str(vendor)]
    code, out = checkout.run("-k", "glm and 1x1", "--session", "s", *short)
    assert code == 0 and "0.9 >= 0.7" in out, out
    code, out = checkout.reports("rejudge", "s", "--requality", "--write")
    assert code == 1 and "failed: invalid_measurement" in out, out
    result = checkout.result("s", f"{GLM}-1x1")
    assert result["metrics"]["requality"]["value"] < 0.5
    assert tagged("requality-") == []


def test_a_bundle_brings_no_evidence_of_its_own(honest: Line, tmp_path: Path) -> None:
    """What a stranger says that an evaluation has found is dropped; made here from the checkpoint, it counts."""
    honest.command("reports", "rejudge", "s", "--write")
    code, out = honest.command("reports", "bundle", "s", "--output", str(tmp_path / "b.zip"), "--checkpoints")
    assert code == 0, out
    code, out = honest.command("reports", "rejudge", str(tmp_path / "b.zip"), "--own-plans", "--output", "plain")
    assert code == 0, out
    assert "requality" not in checks(honest.result(honest.checkout.root / "plain"))
    words = ("--own-plans", "--requality", "--output", "again")
    code, out = honest.command("reports", "rejudge", str(tmp_path / "b.zip"), *words)
    assert code == 0, out
    assert checks(honest.result(honest.checkout.root / "again"))["requality"]["status"] == "pass"
    assert honest.command("reports", "gate", "again", "--requality")[0] == PASS


def test_a_bundle_without_checkpoints_cannot_be_evaluated(honest: Line, tmp_path: Path) -> None:
    honest.command("reports", "rejudge", "s", "--write")
    assert honest.command("reports", "bundle", "s", "--output", str(tmp_path / "b.zip"))[0] == 0
    words = ("--own-plans", "--requality", "--output", "empty")
    code, out = honest.command("reports", "rejudge", str(tmp_path / "b.zip"), *words)
    assert code == 5, out
    assert f"{ID}/r1: not evaluated: config: " in out and "--checkpoints" in out
    result = honest.result(honest.checkout.root / "empty")
    assert (result["outcome"]["status"], result["outcome"]["category"]) == ("inconclusive", "not_measured")


WRONG = [
    (("nowhere",), "nowhere: neither a session nor a plan's folder"),
    (("s", "--vendor", "nobody"), "--vendor nobody: no such folder under suite/vendors"),
    (("s", "--site", "gone.toml"), "--site 'gone.toml': no such file"),
    (("s", "--container", "jar"), "--container 'jar' is not known"),
]


@pytest.mark.parametrize(("words", "sentence"), WRONG, ids=[words[-1] for words, _ in WRONG])
def test_wrong_input_is_one_sentence(honest: Line, words: tuple[str, ...], sentence: str) -> None:
    code, out = honest.command("fixtures.requality", *words)
    assert code == 4 and out.startswith(f"error: {sentence}") and out.count("\n") == 1, out


def test_the_command_of_the_reports_passes_the_sentence_on(honest: Line) -> None:
    code, out = honest.command("reports", "rejudge", "s", "--requality", "--requality-vendor", "nobody")
    assert code == 4 and "error: --requality: --vendor nobody: no such folder" in out
    code, out = honest.command("reports", "rejudge", "s", "--requality-vendor", "nobody")
    assert code == 4 and "--requality-vendor is part of an evaluation; say --requality too" in out


BROKEN = [
    (b"no checkpoint at all", "cannot be read"),
    (b"", "cannot be read"),
    ([1, 2], "has format None"),
    ({"format": 1, "plan": {"id": ID, "preset": "mini"}, "model": {}}, "lacks 'ranks'"),
    (
        {
            "format": 1,
            "plan": {"id": "somebody-else", "preset": "mini"},
            "model": {},
            "ranks": [{"progress": {"step": 1, "samples": 1}}],
        },
        "has id = 'somebody-else'",
    ),
    (
        {
            "format": 1,
            "plan": {"id": ID, "preset": "mini"},
            "model": {},
            "ranks": [{"progress": {"step": -1, "samples": 1}}],
        },
        "says step -1",
    ),
]


def loaded(folder: Path) -> object:
    """What the driver makes of latest.pt in `folder`."""
    from suite.drivers.pytorch.checkpoint import load_model

    run = RunSpec({**RUN, "id": ID, "run_dir": str(folder)})
    return load_model("latest.pt", run, torch.nn.Linear(1, 1))


@pytest.mark.parametrize(("content", "sentence"), BROKEN, ids=["text", "empty", "list", "bare", "other plan", "step"])
def test_a_broken_checkpoint_is_one_sentence(tmp_path: Path, content: object, sentence: str) -> None:
    if isinstance(content, bytes):
        (tmp_path / "latest.pt").write_bytes(content)
    else:
        torch.save(content, tmp_path / "latest.pt")
    with pytest.raises(RunProblem, match=sentence):
        loaded(tmp_path)


class Trap:
    """A pickle that makes a folder where it is read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.folder),))


def test_a_file_that_would_run_code_is_not_run(tmp_path: Path) -> None:
    torch.save({"format": 1, "model": Trap(tmp_path / "sprung")}, tmp_path / "latest.pt")
    with pytest.raises(RunProblem, match="cannot be read"):
        loaded(tmp_path)
    assert not (tmp_path / "sprung").exists()
