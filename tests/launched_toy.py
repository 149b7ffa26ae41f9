"""Runs of a framework's driver in the interpreter that the environment names, by the launcher of ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.meeting import meeting_ports

ROOT = Path(__file__).resolve().parent.parent
MODEL = "mobilenetv2"
"""The case that every framework has."""


class LaunchedToy:
    """A toy case of one framework, and that framework's own MobileNetV2."""

    def __init__(self, framework: str, train: str, variables: Mapping[str, str], *, has_data: bool = True) -> None:
        """`train`: the text of the toy's train.py; `variables`: what its launcher is given beside ours.

        `has_data`: a run has a data folder, though the toy reads nothing of it.
        """
        self.framework = framework
        self.case_dir = ROOT / "suite/cases" / MODEL / framework
        self.variable = f"TRAINMARK_PYTHON_{framework.upper()}"
        self._vendor_dir = ROOT / "suite/vendors/cpu" / MODEL / framework
        self._train, self._variables, self._has_data = train, dict(variables), has_data

    def case_params(self, ranks: int = 1, **changes: Any) -> dict[str, Any]:
        """The parameters of the case's mini as the vendor cpu plans them."""
        case = tomllib.loads((self.case_dir / "case.toml").read_text(encoding="utf-8"))
        merged: dict[str, Any] = case["params"] | case["preset"]["mini"]["params"]
        for name in ("default", *(["hostx1x2"] if ranks == 2 else [])):
            config = tomllib.loads((self._vendor_dir / f"config_{name}.toml").read_text(encoding="utf-8"))
            merged |= config["preset"]["mini"]
        return merged | changes

    def write_run(self, folder: Path, values: dict[str, Any], ranks: int, case_dir: Path, **changes: Any) -> Path:
        """run.json of a run on this CPU."""
        (folder / "events").mkdir(parents=True, exist_ok=True)
        spec = {
            "schema": 1, "run": "toy-run", "id": f"line-{self.framework}-cpu-host-1x{ranks}", "n": 1, "attempt": 1,
            "mode": "converge", "preset": "mini", "params": values, "seed": 1,
            "topology": {"nnodes": 1, "nproc": ranks},
            "quality": {"metric": "mse", "better": "lower", "target": -1.0}, "limit_s": None,
            "device": {"type": "cpu", "plugin": "", "backend": "gloo", "identity": "host", "visible_devices": "",
                       "visible_style": "none", "shared": True, "options": {}},
            "expect": {"world_size": ranks, "precision": values["precision"], "device_match": []},
            "machine": "host", "data_dir": str(folder) if self._has_data else None, "case_dir": str(case_dir),
            "extern_dir": None, "runtime_dir": None, "slots": [], "run_dir": str(folder),
            "checkpoint": {"every_s": 0, "final": False}, "resume": None, "heartbeat_s": 5, "capabilities": {},
            "sabotage": None,
        }  # fmt: skip
        path = folder / "run.json"
        path.write_text(json.dumps(spec | changes), encoding="utf-8")
        return path

    def drive(
        self, folder: Path, values: dict[str, Any], ranks: int = 1, case: Path | None = None, **changes: Any
    ) -> int:
        """The exit status of the launcher after a run to its end; `case` is a folder with a train.py, or the toy."""
        folder.mkdir(parents=True, exist_ok=True)
        if case is None:
            (folder / "train.py").write_text(self._train, encoding="utf-8")
        where = case or folder
        run_json = self.write_run(folder, values, ranks, where, **changes)
        environment = {**os.environ, "TRAINMARK_RUN": str(run_json), "PYTHONUNBUFFERED": "1", **self._variables}
        argv = [os.environ[self.variable], str(ROOT / "suite/drivers/ranks.py"), f"--nproc-per-node={ranks}"]
        with meeting_ports() as (port,):
            argv += [f"--master-port={port}", str(ROOT / "suite/drivers/rank.py"), str(where / "train.py")]
            return subprocess.run(argv, env=environment, timeout=240, check=False).returncode


def events(folder: Path, rank: int = 0, name: str = "") -> list[dict[str, Any]]:
    """The events of a rank, of one name where it is given."""
    lines = (folder / f"events/rank{rank}.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if name in ("", event["event"])]


def losses(folder: Path, rank: int = 0) -> list[float]:
    """The loss of every step of a rank."""
    return [loss for window in events(folder, rank, "steps") for loss in window["loss"]]


def has_own_data(folder: Path) -> bool:
    """Whether two ranks told their windows' data, no window alike, and as many updates as steps."""
    windows = [events(folder, rank, "steps") for rank in (0, 1)]
    counted = all(window["updates"] == window["count"] for one in windows for window in one)
    return counted and all(one["data"] != other["data"] for one, other in zip(*windows, strict=True))


def stop(folder: Path, rank: int = 0) -> tuple[str, str]:
    """(status, reason) of a rank's last line."""
    last = events(folder, rank)[-1]
    return last["status"], last["reason"]


def log(folder: Path, rank: int = 0) -> str:
    """The end of what a rank wrote, for a failed assertion."""
    return (folder / f"logs/rank{rank}.log").read_text(encoding="utf-8", errors="replace")[-3000:]


def show(folder: Path) -> None:
    """Everything of a failed run, for the report of a test."""
    for path in sorted(folder.glob("logs/*")):
        print(path.name, path.read_text(encoding="utf-8", errors="replace")[-3000:], file=sys.stderr)
