"""A shipped case as its own tests see it: its modules, parameters and task, and its training, run as a rank is."""

from __future__ import annotations

import importlib
import json
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests import warm_python

ROOT = Path(__file__).resolve().parent.parent


class OneCase:
    """The case `name`, as in `bert/pytorch`, whose train.py calls its task `task`."""

    def __init__(
        self, name: str, task: str, *, quality: Mapping[str, Any], limit_s: float | None = None, device: Any = None
    ) -> None:
        """`quality`, `limit_s`: of run.json; `device`: what a task alone is given."""
        self.folder = ROOT / "suite" / "cases" / name
        self.name = name
        self.modules = load_modules(self.folder)
        self._task, self._device = task, device
        self._quality, self._limit_s = dict(quality), limit_s

    def params(self, preset: str = "full", **changes: Any) -> dict[str, Any]:
        """The parameters of a preset, with changes to keys that exist."""
        case = tomllib.loads((self.folder / "case.toml").read_text(encoding="utf-8"))
        merged = case["params"] | (case["preset"][preset].get("params", {}) if preset != "full" else {})
        assert set(changes) <= set(merged), set(changes) - set(merged)
        return merged | changes

    def task(
        self,
        values: dict[str, Any],
        *,
        data_dir: Path | None = None,
        seed: int = 1,
        rank: int = 0,
        world: int = 1,
        **of_run: Any,
    ) -> Any:
        """The case's task with its standard slots."""
        told = {"mode": "converge", "data_dir": data_dir and str(data_dir), "case_dir": str(self.folder)}
        run = SimpleNamespace(params=values, seed=seed, **(told | of_run))
        kind = getattr(self.modules.train, self._task)
        return kind(run, self._device, kind.default_slots(), rank, world)

    def run_json(self, folder: Path, values: dict[str, Any], ranks: int = 1, **changes: Any) -> Path:
        """run.json of a run on this CPU."""
        (folder / "events").mkdir(parents=True)
        model, framework = self.name.split("/")
        spec = {
            "schema": 1, "run": f"{model}-test", "id": f"{model}-{framework}-cpu-host-mini-1x{ranks}", "n": 1,
            "attempt": 1, "mode": "converge", "preset": "mini", "params": values, "seed": 1,
            "topology": {"nnodes": 1, "nproc": ranks}, "quality": self._quality, "limit_s": self._limit_s,
            "device": {"type": "cpu", "plugin": "", "backend": "gloo", "identity": "host", "visible_devices": "",
                       "visible_style": "none", "shared": True, "options": {}},
            "expect": {"world_size": ranks, "precision": values["precision"], "device_match": []},
            "machine": "host", "data_dir": None, "case_dir": str(self.folder), "extern_dir": None,
            "runtime_dir": None, "slots": [], "run_dir": str(folder), "checkpoint": {"every_s": 0, "final": False},
            "resume": None, "heartbeat_s": 5, "capabilities": {}, "sabotage": None,
        }  # fmt: skip
        path = folder / "run.json"
        path.write_text(json.dumps(spec | changes), encoding="utf-8")
        return path

    def drive(
        self, folder: Path, values: dict[str, Any], *, fails: bool = False, **changes: Any
    ) -> list[dict[str, Any]]:
        """The events of train.py, run to its end as a single rank."""
        return self.drive_all(folder, values, fails=fails, **changes)[0]

    def drive_all(
        self, folder: Path, values: dict[str, Any], ranks: int = 1, *, fails: bool = False, **changes: Any
    ) -> list[list[dict[str, Any]]]:
        """The events of each rank of train.py, run to its end."""
        run_json = self.run_json(folder, values, ranks, **changes)
        for done in warm_python.train(self.folder / "train.py", run_json, ranks):
            assert (done.returncode != 0) == fails, done.stdout + done.stderr
        streams = [(folder / f"events/rank{rank}.jsonl").read_text().splitlines() for rank in range(ranks)]
        return [[json.loads(line) for line in stream] for stream in streams]


def load_modules(folder: Path, *only: str) -> SimpleNamespace:
    """Every module of a case's folder by name (or `only` some), as its train.py sees them; no name is left behind."""
    every = sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("test_"))
    names = only or every
    shadowed = {name: sys.modules.pop(name) for name in every if name in sys.modules}
    sys.path.insert(0, str(folder))
    try:
        return SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    finally:
        sys.path.remove(str(folder))
        for name in every:
            sys.modules.pop(name, None)
        sys.modules.update(shadowed)


def losses(events: list[dict[str, Any]]) -> list[float]:
    """The loss of every step of a rank."""
    return [loss for event in events if event["event"] == "steps" for loss in event["loss"]]


def qualities(events: list[dict[str, Any]], metric: str) -> list[float]:
    """The metric of every evaluation."""
    return [event["metrics"][metric] for event in events if event["event"] == "eval_result"]
