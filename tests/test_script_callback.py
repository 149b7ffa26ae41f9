"""Scripts of transformers' Trainer, run unchanged, their events told by a callback. Skipped where there is none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fixtures.attempt import torchrun_command
from fixtures.site import Lease, Site
from suite.catalog import load_catalog
from suite.plan import Deadlines, Plan, Request, Script
from suite.result import Result
from suite.selection import plans
from suite.verdict import judge_folder
from tests.launch_toy import ROOT, tagged_with, trainer
from tests.script_toy import events, hf_python, script_plan, toy_command

TRAINS = """
import os, sys, torch
from transformers import Trainer, TrainingArguments

class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = torch.nn.Linear(4, 1)
        self.frozen = torch.nn.Parameter(torch.zeros(3), requires_grad=False)
    def forward(self, x=None, labels=None):
        y = self.slope(x)[:, 0] * float(os.environ.get("FACTOR", 1))
        return {"loss": (y - labels).square().mean(), "logits": y}

torch.manual_seed(0)
rows = [{"x": x, "labels": x.sum()} for x in torch.randn(100, 4)]
options = dict(learning_rate=0.2, per_device_train_batch_size=int(os.environ.get("BATCH", 8)), max_steps=30,
               eval_strategy="steps", eval_steps=10, logging_steps=5, save_strategy="no", report_to="none",
               use_cpu=True, disable_tqdm=True, lr_scheduler_type="constant", label_names=["labels"])
if os.environ.get("ALONE"):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"): del os.environ[name]
arguments = TrainingArguments("out", **options)
def score(prediction):
    return {"accuracy": 1.0 - float(((prediction.predictions - prediction.label_ids) ** 2).mean())}
def make():
    return Trainer(Line(), arguments, train_dataset=rows, eval_dataset=rows[:20], compute_metrics=score)
if os.environ.get("IDLE"): sys.exit(0)
make().train()
if os.environ.get("TWICE"): make().train()
print("module", __name__, "words", sys.argv, flush=True)
"""
"""A user's script: a line is fitted, in a second."""


def callback_plan(folder: Path, text: str = TRAINS, *, target: float = 0.9, **over: Any) -> Plan:
    """A plan of evidence `callback`; the environment's names go to the script."""
    env = {name: str(value) for name, value in over.pop("env", {}).items()}
    script = Script(launcher=over.pop("launcher", "torchrun"), path="script.py", environment=env)
    params = {
        "train_batch_size": 8, "gradient_accumulation_steps": 1, "log_freq": 4, "precision": "fp32", "threads": 1,
        "throughput_steps": 8, "throughput_warmup_steps": 4,
    }  # fmt: skip
    plan = script_plan(folder, text, **{"evidence": "callback", "script": script, "params": params} | over)
    checks = tuple(
        check.model_copy(update={"threshold": target} if check.name == "quality" else {"required": True})
        for check in plan.checks
    )
    quality = plan.quality.model_copy(update={"target": target})
    deadlines = Deadlines(total_s=240, launch_s=120)
    return plan.model_copy(update={"checks": checks, "quality": quality, "deadlines": deadlines})


def judged(folder: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Result:
    """Run it in an interpreter that has transformers; several ranks by the launcher of the script."""
    monkeypatch.setenv("TRAINMARK_PYTHON_PYTORCH", hf_python())
    command = torchrun_command if plan.world_size > 1 else toy_command
    return judge_folder(trainer(folder, command=command)(plan).folder)


def alone(folder: Path, text: str = TRAINS, **over: Any) -> Plan:
    """The same on one rank."""
    return callback_plan(folder, text, topology="1x1", **over)


def test_a_script_is_measured_like_a_driver_s_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = judged(tmp_path, callback_plan(tmp_path), monkeypatch)
    assert result.outcome.status == "passed", result.outcome
    checks = {check.name: check.status for check in result.checks}
    assert checks == {"quality": "pass", "time_to_train": "pass", "ranks_in_sync": "pass", "ledger": "pass"}
    told = events(tmp_path)
    names = [line["event"] for line in told]
    assert names[:4] == ["header", "init_start", "init_stop", "run_start"]
    assert (told[2]["trainable"], told[3]["global_batch"]) == (5, 16)
    windows = [line for line in told if line["event"] == "steps"]
    assert [(window["first"], window["count"]) for window in windows][:3] == [(1, 4), (5, 4), (9, 2)]
    assert [window["samples"] for window in windows][:3] == [32, 32, 16], "of this rank"
    met = next(line for line in told if line["event"] == "eval_result" and line["met"])
    assert met["step"] < 30, "training goes on no longer than it must"
    assert (told[-1]["event"], told[-1]["reason"], told[-1]["step"]) == ("run_stop", "target_reached", met["step"])
    assert told[0]["precision"]["compute"] == "fp32"
    assert tagged_with(f"toy-{os.getpid()}") == []


@pytest.mark.nightly
@pytest.mark.slow
def test_a_script_that_misses_its_target_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = judged(tmp_path, alone(tmp_path, target=1.5), monkeypatch)
    assert (result.outcome.status, result.outcome.category) == ("failed", "quality")
    assert result.metrics["steps"].value == 30
    assert result.metrics["samples_trained"].value == 232  # 100 in 13 steps, twice, and four more of 8


@pytest.mark.parametrize(
    ("env", "status", "category", "words"),
    [
        ({"IDLE": 1}, "error", "crash", "trained nothing"),
        pytest.param({"TWICE": 1}, "error", "config", "trains a second time", marks=pytest.mark.slow),
        pytest.param({"FACTOR": "nan"}, "failed", "nonfinite_loss", "not finite", marks=pytest.mark.slow),
    ],
    ids=["nothing", "twice", "nan"],
)
def test_a_script_that_goes_wrong_is_never_green(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, object], status: str, category: str, words: str
) -> None:
    result = judged(tmp_path, alone(tmp_path, env=env), monkeypatch)
    assert (result.outcome.status, result.outcome.category) == (status, category), result.outcome
    assert words in result.outcome.reason


@pytest.mark.nightly
@pytest.mark.slow
def test_ranks_that_train_apart_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = judged(tmp_path, callback_plan(tmp_path, env={"ALONE": 1}), monkeypatch)
    assert (result.outcome.status, result.outcome.category) == ("error", "environment"), result.outcome
    assert "the script trains with 1 ranks where 2 were started" in result.outcome.reason


@pytest.mark.nightly
@pytest.mark.slow
def test_another_precision_than_planned_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = alone(tmp_path)
    params = {**plan.params, "precision": "bf16"}
    result = judged(tmp_path, plan.model_copy(update={"params": params}), monkeypatch)
    assert (result.outcome.status, result.outcome.category) == ("error", "environment"), result.outcome
    assert "computes in fp32 where the plan says bf16" in result.outcome.reason


@pytest.mark.nightly
@pytest.mark.slow
def test_throughput_ends_after_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = alone(tmp_path, mode="throughput")
    judged(tmp_path, plan, monkeypatch)
    told = events(tmp_path)
    assert (told[-1]["status"], told[-1]["reason"], told[-1]["step"]) == ("success", "max_steps", 12)
    windows = [(line["first"], line["count"]) for line in told if line["event"] == "steps"]
    assert windows == [(1, 4), (5, 4), (9, 4)]
    assert "eval_result" not in {line["event"] for line in told}


@pytest.mark.nightly
@pytest.mark.slow
def test_accelerate_s_own_word_for_a_cpu_starts_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def one(plan: Plan, *rest: Any) -> tuple[str, ...]:
        argv = torchrun_command(plan, *rest)
        return tuple("--cpu" if word == "--multi_gpu" else word for word in argv)

    plan = callback_plan(tmp_path, launcher="accelerate")
    monkeypatch.setenv("TRAINMARK_PYTHON_PYTORCH", hf_python())
    result = judge_folder(trainer(tmp_path, command=one)(plan).folder)
    assert (result.outcome.status, result.outcome.category) == ("error", "environment"), result.outcome
    assert "world size is 1 where the plan says 2" in result.outcome.reason


def shipped(model: str, preset: str, topology: str) -> Plan:
    """A case of the checkout, with its own seed."""
    request = {"vendor": "cpu", "machine": "host", "models": (model,), "frameworks": ("accelerate",)}
    asked = Request.model_validate(request | {"presets": (preset,), "topologies": (topology,)})
    (plan,) = plans(load_catalog(ROOT / "suite"), asked)
    return plan.model_copy(update={"base": None})


@pytest.mark.slow
@pytest.mark.nightly
def test_callback_and_log_agree_where_each_can_observe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whisper's small script, once on two ranks of `accelerate launch` by callback, once by its log alone."""
    monkeypatch.setenv("TRAINMARK_PYTHON_ACCELERATE", hf_python())
    results = {}
    for preset in ("mini", "mini_log"):
        folder = tmp_path / preset
        folder.mkdir()
        run = trainer(folder, command=torchrun_command, site=Site(lease=Lease(dir=str(tmp_path / "leases"))))
        results[preset] = judge_folder(run(shipped("whisper", preset, "1x2")).folder)
        assert results[preset].outcome.status == "passed", results[preset].outcome
    seen, read = results["mini"], results["mini_log"]
    curve = {point["step"]: point["value"] for point in read.model_dump()["curve"]}
    for point in seen.model_dump()["curve"]:
        assert curve[point["step"]] == pytest.approx(point["value"], rel=1e-3)  # the log rounds to four digits
    for name in ("trainable_parameters", "global_batch", "samples_to_target"):
        assert seen.metrics[name].value == read.metrics[name].value, name
    in_sync = {
        preset: next(c for c in result.checks if c.name == "ranks_in_sync") for preset, result in results.items()
    }
    assert in_sync["mini"].status == "pass"
    assert in_sync["mini_log"].reason.startswith("not_observable")
    assert tagged_with(f"toy-{os.getpid()}") == []


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("old", "new", "status", "category", "words"),
    [
        (
            '"loss": (y - labels).square().mean()',
            '"loss": (y - labels).square().mean() * (1.0 if self.training else float("nan"))',
            *("failed", "nonfinite_loss", "a loss is not finite"),
        ),
        ("make().train()\n", 'sys.exit("no such column: label")\n', *("error", "crash", "no such column: label")),
    ],
    ids=["the loss of an evaluation", "a text as its exit status"],
)
def test_how_a_script_ends_badly_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, status: str, category: str, words: str
) -> None:
    text = TRAINS.replace(old, new, 1)
    assert text != TRAINS
    outcome = judged(tmp_path, alone(tmp_path, text, target=2.0), monkeypatch).outcome
    assert (outcome.status, outcome.category) == (status, category), outcome
    assert words in outcome.reason
