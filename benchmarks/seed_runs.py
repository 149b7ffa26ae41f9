"""One mini trained once by the real suite, in folders and on cores of its own, and what its result says."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite.errors import UsageProblem, did_you_mean

ROOT = Path(__file__).resolve().parent.parent
GRACE_S = 30.0
"""What the suite may take to end what it started."""

STARTER = (
    "import ctypes,os,sys;"
    "ctypes.CDLL(None).prctl(1,15);"  # whoever kills the benchmark, however hard, ends its runs too
    "os.sched_setaffinity(0,map(int,sys.argv[1].split(',')));"
    "os.execv(sys.executable,[sys.executable,*sys.argv[2:]])"
)
_TARGET = re.compile(r"(\[preset\.mini\.target\]\s*\nvalue *= *)([^\s#]+)")
_OUT_OF_REACH = {"higher": "1e9", "lower": "-1e9"}


@dataclass(frozen=True, kw_only=True)
class Mini:
    """A case that has a mini for the cpu."""

    name: str
    metric: str
    better: str
    target: float
    script: bool
    """Trained by somebody else's script, which knows nothing of `--sabotage`."""

    @property
    def selection(self) -> list[str]:
        """The options that plan it, on one rank."""
        model, framework = self.name.split("/")
        where = ["--preset", "mini", "--topology", "1x1", "--vendor", "cpu"]
        return ["--model", model, "--framework", framework, *where]


def minis() -> dict[str, Mini]:
    """By name, `model/framework`: every case with a mini that the vendor cpu configures."""
    found = {}
    for path in sorted((ROOT / "suite/cases").glob("*/*/case.toml")):
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        name = f"{path.parent.parent.name}/{path.parent.name}"
        mini = table.get("preset", {}).get("mini")
        if mini is None or not (ROOT / "suite/vendors/cpu" / name).is_dir():
            continue
        quality, target = table["quality"], float(mini["target"]["value"])
        metric, better, script = quality["metric"], quality["better"], "script" in table or "script" in mini
        found[name] = Mini(name=name, metric=metric, better=better, target=target, script=script)
    return found


def named(words: Sequence[str]) -> list[Mini]:
    """The minis called `glm` (its PyTorch case) or `glm/accelerate`; without a word every PyTorch case's."""
    have = minis()
    if not words:
        return [mini for name, mini in have.items() if name.endswith("/pytorch")]
    names = [word if "/" in word else f"{word}/pytorch" for word in words]
    for name in names:
        if name not in have:
            raise UsageProblem(f"{name}: no case of that name has a mini for the vendor cpu{did_you_mean(name, have)}")
    return [have[name] for name in dict.fromkeys(names)]


def out_of_reach(folder: Path) -> Path:
    """A copy of the checkout in which no mini ever meets its target: its runs go on to their end."""
    for name in ("suite", "fixtures", "reports"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "results", ".*"))
    for name in ("conftest.py", "pytest.ini"):
        shutil.copy(ROOT / name, folder / name)
    for mini in minis().values():
        path = folder / "suite/cases" / mini.name / "case.toml"
        text, changed = _TARGET.subn(rf"\g<1>{_OUT_OF_REACH[mini.better]}", path.read_text(encoding="utf-8"))
        if changed != 1:
            raise UsageProblem(
                f"suite/cases/{mini.name}/case.toml: [preset.mini.target] does not begin with `value`; let it, so that "
                "it can be put out of reach"
            )
        path.write_text(text, encoding="utf-8")
    return folder


class Training:
    """`pytest suite` of one mini and one seed, while it runs."""

    def __init__(self, mini: Mini, seed: int, extra: Sequence[str], *, root: Path, folder: Path, cores: Sequence[int]):
        self.mini = mini
        self.session = folder / "session"
        folder.mkdir(parents=True)
        site = folder / "site.toml"
        # Sessions that share a lease folder would queue for each other's devices.
        site.write_text(f"[lease]\ndir = {json.dumps(str(folder / 'leases'))}\n", encoding="utf-8")
        argv = [sys.executable, "-c", STARTER, ",".join(map(str, cores)), "-m", "pytest", "suite", "-q"]
        argv += ["-p", "no:cacheprovider", "--site", str(site), "--session", str(self.session)]
        argv += [*mini.selection, "--seed", str(seed), *extra]
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        self._log = folder / "log.txt"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                argv, cwd=root, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        self._started = time.monotonic()

    @property
    def lasted_s(self) -> float:
        """Since its start."""
        return time.monotonic() - self._started

    def ended(self, limit_s: float) -> bool:
        """Whether it is over; one that runs for longer than the limit is told to end."""
        if self._process.poll() is not None:
            return True
        if self.lasted_s > limit_s + GRACE_S:
            self._process.kill()
        elif self.lasted_s > limit_s:
            self.tell_to_end()
        return False

    def tell_to_end(self) -> None:
        """The suite ends its own processes on SIGTERM."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def await_end(self, deadline: float) -> None:
        """Return once it is over; killed at the deadline (monotonic)."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(GRACE_S)

    def found(self) -> dict[str, Any]:
        """Outcome, curve and versions from result.json; without one, why there is none."""
        for path in self.session.glob("*/result.json"):
            return _of_result(json.loads(path.read_text(encoding="utf-8")), self.mini)
        tail = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
        reason = f"pytest left with {self._process.returncode}: {' | '.join(tail)}"
        return {"outcome": "error", "category": "no_result", "reason": reason, "curve": [], "versions": {}}


def _of_result(result: Mapping[str, Any], mini: Mini) -> dict[str, Any]:
    outcome = result["outcome"]
    points = [point for point in result["curve"] if point["metric"] == mini.metric]
    # A number that is not finite is written as text; it is no evaluation that could be compared.
    curve = [[point["step"], point["value"]] for point in points if isinstance(point["value"], int | float)]
    environment = (result["runs"] or [{"environment": {}}])[0]["environment"]
    versions = dict(environment.get("versions") or {})
    return {
        "outcome": outcome["status"],
        "category": outcome["category"],
        "reason": outcome["reason"],
        "curve": curve,
        "versions": {name: versions[name] for name in sorted(versions) if name != "git_version"}
        | {"cpu": environment.get("cpu", "")},
    }
