"""Sabotage outside of a driver: of vendor folders, run folders, results and baselines, told by the real commands."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from reports.baseline_store import baseline_from, keep, write
from suite.baseline_file import read_baseline
from suite.figures import figures_of
from suite.verdict import judge_folder
from tests.reports2_toy import result_with, session_with
from tests.sabotage.toy import ROOT, Job, play

HONEST = Job(requality=True)
LOWERED = Job(target=100.0)
TOY_JOBS = (HONEST, LOWERED)
"""What the acts on run folders need trained."""


class Did(NamedTuple):
    """How an act ended, and the sentence that told it."""

    ends: str
    told: str


class Act(NamedTuple):
    """One of them; `do` takes a folder of its own and the folder where TOY_JOBS were trained."""

    name: str
    what: str
    ends: str
    told_by: str
    do: Callable[[Path, Path], Did]


def target_lowered(folder: Path, toys: Path) -> Did:
    """A vendor's config holds a target of its own."""
    return _planned(folder, '[preset.mini.target]\nvalue = 0.1\nsource = "wishes"\n')


def direction_reversed(folder: Path, toys: Path) -> Did:
    """A vendor's config says that less accuracy is better."""
    return _planned(folder, '[quality]\nmetric = "accuracy"\nbetter = "lower"\n')


def target_lowered_in_run(folder: Path, toys: Path) -> Did:
    """The ranks were given another target than the plan's."""
    outcome = judge_folder(toys / LOWERED.name).outcome
    return Did(f"{outcome.status}: {outcome.category}", outcome.reason)


def events_edited(folder: Path, toys: Path) -> Did:
    """The last evaluation is made a little better after the run."""
    plan = _copy(folder, toys, HONEST)
    stream = plan / "r1" / "events" / "rank0.jsonl"
    lines = stream.read_text(encoding="utf-8").splitlines()
    last = max(place for place, line in enumerate(lines) if json.loads(line)["event"] == "eval_result")
    event = json.loads(lines[last])
    event["metrics"]["mse"] *= 0.99
    lines[last] = json.dumps(event)
    stream.write_text("\n".join(lines) + "\n", encoding="utf-8")
    outcome = judge_folder(plan).outcome
    return Did(f"{outcome.status}: {outcome.category}", outcome.reason)


def result_edited(folder: Path, toys: Path) -> Did:
    """The verdict of a run that failed is made a pass."""
    plan = _copy(folder, toys, LOWERED)
    _command("reports", "rejudge", str(plan), "--write")
    path = plan / "result.json"
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["outcome"]["status"] == "failed"
    result["outcome"] = {"status": "passed", "category": "", "reason": "", "rank": None, "log_tail": []}
    path.write_text(json.dumps(result), encoding="utf-8")
    code, text = _command("reports", "rejudge", str(plan))
    return Did(f"rejudge: exit {code}", _line(text, "stored passed"))


def stale_baseline(folder: Path, toys: Path) -> Did:
    """The approved baseline is of an older measurement: it would hide what became slower since."""
    old = result_with(comparability_key="0" * 64, environment={"host": "h", "driver_version": "100"})
    path = keep(baseline_from(figures_of(old), source="s0", today="2026-01-01"), folder / "baselines")
    standing = {"state": "approved", "approved": "2026-01-02", "approved_by": "a reviewer"}
    write(read_baseline(path).model_copy(update=standing), path)
    session = session_with(folder / "session", [result_with()])
    words = ["gate", str(session), "--baseline", str(folder / "baselines"), "--require", "baseline"]
    code, text = _command("reports", *words)
    return Did(f"gate: exit {code}", _line(text, "no baseline of this environment"))


def cpu_as_device(folder: Path, toys: Path) -> Did:
    """A vendor whose accelerator is the host's processor, under the name that its own tool tells."""
    vendor = folder / "acme"
    shutil.copytree(ROOT / "suite/vendors/cpu/glm", vendor / "glm")
    for config in vendor.rglob("config_host*.toml"):
        config.unlink()
    (vendor / "machines").mkdir()
    (vendor / "machines/A1.toml").write_text('match = ["Acme A1*"]\n', encoding="utf-8")
    device = '[device]\ntype = "cpu"\nbackend = "gloo"\nidentity = "host"\nshared = true\n'
    head = 'title = "Acme"\nverified = false\ndefault_preset = "mini"\ntopologies = ["1x1"]\n'
    told = """["echo", '[{"index": 0, "name": "Acme A1"}]']"""
    probe = f'[probe]\nmethod = "command"\ncommand = {told}\nformat = "json"\nrows = "*"\n'
    probe += '[probe.fields]\nindex = "index"\nname = "name"\n[monitor]\nmethod = "proc"\n'
    (vendor / "vendor.toml").write_text(head + device + probe, encoding="utf-8")
    words = ["--vendor", "acme", "--vendor-path", str(vendor), "--machine", "A1", "--model", "glm"]
    words += ["--mode", "throughput", "--session", str(folder / "session"), "-p", "no:cacheprovider"]
    code, text = _command("pytest", "suite", *words)
    found = list((folder / "session").glob("*/result.json"))
    if len(found) != 1:
        return Did(f"exit {code}", text[-500:])
    outcome = json.loads(found[0].read_text(encoding="utf-8"))["outcome"]
    return Did(f"{outcome['status']}: {outcome['category']}", outcome["reason"])


ACTS = (
    Act("target_lowered", "a vendor's file lowers the target", "exit 4", "planning", target_lowered),
    Act("direction_reversed", "a vendor's file reverses the metric's direction", "exit 4", "planning",
        direction_reversed),
    Act("target_lowered_in_run", "the ranks are given a lower target than the plan's", "failed: quality",
        "the plan's own target", target_lowered_in_run),
    Act("cpu_as_device", "the host's processor poses as an accelerator", "error: environment",
        "the device's name, asked from inside", cpu_as_device),
    Act("events_edited", "a value in the events is changed after the run", "failed: invalid_measurement",
        "the streams' seals", events_edited),
    Act("result_edited", "`result.json` of a failed run says passed", "rejudge: exit 1",
        "the verdict, made anew from the run folder", result_edited),
    Act("stale_baseline", "the only baseline is of an older environment", "gate: exit 2", "`--require baseline`",
        stale_baseline),
)  # fmt: skip


def train_toys(folder: Path) -> Path:
    """Train TOY_JOBS into `folder`."""
    play(folder, TOY_JOBS)
    return folder


def _planned(folder: Path, text: str) -> Did:
    vendor = folder / "cpu"
    shutil.copytree(ROOT / "suite/vendors/cpu", vendor)
    config = vendor / "glm/pytorch/config_default.toml"
    config.write_text(config.read_text(encoding="utf-8") + "\n" + text, encoding="utf-8")
    words = ["--vendor", "cpu", "--vendor-path", str(vendor), "--model", "glm", "--plan", "-p", "no:cacheprovider"]
    code, out = _command("pytest", "suite", *words)
    return Did(f"exit {code}", _line(out, "config_default.toml"))


def _copy(folder: Path, toys: Path, job: Job) -> Path:
    return Path(shutil.copytree(toys / job.name, folder / job.name))


def _command(module: str, *words: str) -> tuple[int, str]:
    argv = [sys.executable, "-m", module, *words]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


def _line(text: str, part: str) -> str:
    """The line that holds `part`, without the names of temporary folders."""
    line = next((line.strip() for line in text.splitlines() if part in line), text[-500:])
    return re.sub(r"\S*/(?=\S+/)", "", line)
