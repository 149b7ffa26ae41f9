"""NVIDIA's operators compute what float64 does, on a GPU or in Triton's interpreter.

Where there is neither a GPU nor triton a case keeps its standard parts.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from suite.drivers.slots import Slots, fill_slots
from tests import bert_operators, mobilenetv2_operators
from tests.operator_errors import bounds

ROOT = Path(__file__).resolve().parent.parent
VENDOR = ROOT / "suite/vendors/nvidia"
OPERATORS = {"bert": bert_operators.CASES, "mobilenetv2": mobilenetv2_operators.CASES}
SLOTS = {
    "bert": ["embedding", "self_attention", "residual_norm", "feed_in", "loss"],
    "mobilenetv2": ["conv_norm"],
}
CASES = [
    pytest.param(model, name, bound, id=f"{model} {name}")
    for model, cases in OPERATORS.items() for name, bound in bounds(cases).items()
]  # fmt: skip
MODELS = pytest.mark.parametrize("model", list(SLOTS))


@pytest.fixture(scope="module")
def errors() -> dict[str, Any]:
    """What the program of each case printed, once asked: a process, for the interpreter would stay in this one."""
    pytest.importorskip("triton")
    return {}


def measured(model: str, errors: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The errors of every case of the model."""
    if model not in errors:
        argv = [sys.executable, "-m", f"tests.{model}_operators"]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(argv, cwd=ROOT, env=environment, timeout=600, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        errors[model] = json.loads(done.stdout.splitlines()[-1])
    if "skip" in errors[model]:
        pytest.skip(errors[model]["skip"])
    found: dict[str, dict[str, float]] = errors[model]["errors"]
    return found


@pytest.mark.parametrize(("model", "case", "bound"), CASES)
def test_an_operator_computes_what_float64_does(model: str, case: str, bound: float, errors: dict[str, Any]) -> None:
    found = measured(model, errors)[case]
    assert found
    # A number that is none is below no bound.
    assert {name: error for name, error in found.items() if not error < bound} == {}


def standard(*_: Any) -> None:
    """A part of the case, as far as fill() knows it."""


def filled(model: str) -> Slots:
    """The slots after the shipped extern/ had its turn."""
    slots = SLOTS[model]
    return fill_slots(dict.fromkeys(slots, standard), str(VENDOR / model / "pytorch/extern"), slots)


@pytest.fixture
def without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which triton is not installed; what extern/ left in sys.modules goes with it."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None if name == "triton" else find_spec(name))
    for name in ("extern", *[name for name in sys.modules if name.startswith("extern.")]):
        monkeypatch.delitem(sys.modules, name, raising=False)


@MODELS
def test_without_triton_and_without_a_gpu_the_parts_stay_standard(
    model: str, without_triton: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    slots = filled(model)
    assert all(slots[slot] is standard for slot in SLOTS[model])
    assert slots.replaced() == {}


@MODELS
def test_a_gpu_without_triton_is_one_sentence(
    model: str, without_triton: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(RuntimeError, match="need triton, which is not installed here: take an image") as told:
        filled(model)
    assert "\n" not in str(told.value)


@MODELS
def test_the_kernels_are_imported_only_where_they_are_used(model: str) -> None:
    """On a machine without triton the package is read all the same."""
    tree = ast.parse((VENDOR / model / "pytorch/extern/__init__.py").read_bytes())
    names = [alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert [name for name in names if name.partition(".")[0] in ("extern", "triton")] == []
