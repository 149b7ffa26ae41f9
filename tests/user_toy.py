"""A checkout with toy cases and vendors, whose training is a fake: what the user sees is real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.warm_python import pytest_python

ROOT = Path(__file__).resolve().parent.parent

LIGHT = {"PYTEST_ADDOPTS": "-p no:hypothesispytest -p no:anyio"}
"""Environment of a toy's pytest: each plugin that is here for our own tests takes a tenth of its start."""

CASE = """
title = "Toy"
measurement_version = 1
estimate_s = 36
samples_unit = "image"
mutable = ["lr", "train_batch_size"]
[quality]
metric = "accuracy"
better = "higher"
unit = "fraction"
[params]
lr = 0.5
train_batch_size = 8
max_samples = 1000
fused = false
[target]
value = 0.8
source = "the paper"
[limit]
time_to_train_s = 600
source = "patience"
[preset.mini]
[preset.mini.params]
max_samples = 100
[preset.mini.target]
value = 0.7
source = "five seeds"
"""

UNKNOWN_COST = CASE.replace("estimate_s = 36\n", "")

TEST = '''
def test_{model}(plan, train, judge):
    """The toy reaches its target."""
    judge(train(plan))
'''

CPU = """
title = "The host"
verified = true
default_preset = "mini"
topologies = ["1x1", "1x2", "2x1"]
exclusive = false
[device]
type = "cpu"
backend = "gloo"
shared = true
[probe]
method = "host"
[launch]
local_nodes = 2
"""

ACME = """
title = "Acme"
topologies = ["1x1", "1x8", "1x16"]
[device]
type = "acme"
backend = "cpu:gloo,acme:acmeccl"
[probe]
method = "host"
"""

CONFTEST = 'pytest_plugins = ("fake_training", "fixtures.plugin", "reports.plugin")\n'

FILES = {
    "conftest.py": CONFTEST,
    "suite/cases/toy/pytorch/case.toml": CASE,
    "suite/cases/toy/pytorch/test_toy.py": TEST.format(model="toy"),
    "suite/cases/toy/pytorch/train.py": "",
    "suite/cases/blob/pytorch/case.toml": UNKNOWN_COST,
    "suite/cases/blob/pytorch/test_blob.py": TEST.format(model="blob"),
    "suite/cases/blob/pytorch/train.py": "",
    "suite/vendors/cpu/vendor.toml": CPU,
    "suite/vendors/cpu/machines/host.toml": 'match = ["*"]\n',
    "suite/vendors/cpu/toy/pytorch/config_default.toml": "",
    "suite/vendors/acme/vendor.toml": ACME,
    "suite/vendors/acme/machines/A1.toml": 'match = ["*"]\n',
    "suite/vendors/acme/machines/Z9.toml": 'match = ["Z9 of nobody"]\n',
    "suite/vendors/acme/toy/pytorch/config_default.toml": "",
    "suite/vendors/acme/blob/pytorch/config_default.toml": "",
    "tests/test_nothing.py": "def test_nothing():\n    assert True\n",
}


@dataclass
class Done:
    """A finished pytest."""

    code: int
    out: str
    """Standard output and error, in this order."""
    err: str


@dataclass
class Checkout:
    """A toy checkout, and pytest on it."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    def write(self, name: str, text: str) -> Path:
        """One more file."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def behave(self, **behaviours: str) -> None:
        """How plans end: part of the id (an underscore stands for a hyphen) -> `failed:quality`, `sleep` …"""
        told = {part.replace("_", "-"): behaviour for part, behaviour in behaviours.items()}
        self.environment["TOY_BEHAVIOUR"] = json.dumps(told)

    def command(self, *arguments: str) -> list[str]:
        """The argument list that runs pytest here."""
        return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]

    def variables(self) -> dict[str, str]:
        """The environment of that pytest: nothing of the one around it."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        return {**kept, "COLUMNS": "200", **LIGHT, **self.environment}

    def pytest(self, *arguments: str, cwd: Path | None = None) -> Done:
        """Run to the end, in a fork of a Python that has imported pytest, and nothing of the suite."""
        done = pytest_python().run(
            ["-m", "pytest", "-p", "no:cacheprovider", *arguments],
            env=self.variables(), cwd=cwd or self.root, timeout_s=120,
        )  # fmt: skip
        return Done(done.returncode, done.stdout + done.stderr, done.stderr)

    def start_pytest(self, *arguments: str, cwd: Path | None = None) -> Done:
        """The same in a Python of its own, for who asks what it imports."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=cwd or self.root,
            env=self.variables(),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
            check=False,
        )
        return Done(done.returncode, done.stdout + done.stderr, done.stderr)

    def sessions(self) -> list[Path]:
        """The session folders made so far."""
        results = self.root / "results"
        return sorted(path for path in results.iterdir() if not path.is_symlink()) if results.is_dir() else []

    def records(self, session: Path | None = None) -> list[dict[str, object]]:
        """Everything announced in a session (default: the newest), by every process."""
        folder = session or self.sessions()[-1]
        lines = [line for path in sorted(folder.glob("announced-*.jsonl")) for line in path.read_text().splitlines()]
        return [json.loads(line) for line in lines]

    def outcomes(self, session: Path | None = None) -> dict[str, str]:
        """Plan id -> `status: category`, of the last announcement."""
        found: dict[str, str] = {}
        for record in self.records(session):
            outcome = record.get("outcome")
            if record["kind"] == "verdict":
                result = record["result"]
                outcome = result["outcome"] if isinstance(result, dict) else None
            if record["kind"] in ("verdict", "outcome") and isinstance(outcome, dict):
                found[str(record["id"])] = ": ".join(filter(None, (outcome["status"], outcome["category"])))
        return found


def make_checkout(root: Path, files: Mapping[str, str] = FILES) -> Checkout:
    """The harness by link, everything it works on fresh."""
    (root / "suite").mkdir(parents=True)
    for path in (ROOT / "suite").iterdir():
        if path.suffix == ".py" or path.name in ("conformance", "drivers", "schemas"):
            (root / "suite" / path.name).symlink_to(path)
    for name in ("fixtures", "reports", "pytest.ini"):
        (root / name).symlink_to(ROOT / name)
    (root / "fake_training.py").symlink_to(ROOT / "tests" / "user_fake_training.py")
    checkout = Checkout(root)
    for name, text in files.items():
        checkout.write(name, text)
    return checkout
