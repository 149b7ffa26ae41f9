"""NVIDIA's operators for MobileNetV2 compute what float64 does, on a GPU or in Triton's interpreter.

Where there is neither a GPU nor triton the case keeps its standard unit.
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
from tests.operator_errors import DTYPES, OPERATORS, UNITS

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "suite/vendors/nvidia/mobilenetv2/pytorch/unproven"

BOUNDS = {"float32": 2e-6, "bfloat16": 2**-7}
"""Of an error as a fraction of the truth: float32 rounds by 6e-8, and a sum or two make it more; bf16 by at most 2**-8,
or 2**-7 in the interpreter, which cuts off."""

CASES = [
    f"{kind} {name}, {str(dtype).removeprefix('torch.')}"
    for kind, cases in (("operator", OPERATORS), ("unit", UNITS)) for name in cases for dtype in DTYPES
]  # fmt: skip


@pytest.fixture(scope="module")
def errors() -> dict[str, dict[str, float]]:
    """Of every case, measured once in a process of its own: the interpreter would stay in this one."""
    pytest.importorskip("triton")
    argv = [sys.executable, str(ROOT / "tests/operator_errors.py"), str(FOLDER)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(argv, env=environment, timeout=600, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if "skip" in told:
        pytest.skip(told["skip"])
    found: dict[str, dict[str, float]] = told["errors"]
    return found


@pytest.mark.parametrize("case", CASES)
def test_an_operator_computes_what_float64_does(case: str, errors: dict[str, dict[str, float]]) -> None:
    bound = BOUNDS[case.rpartition(" ")[2]]
    assert errors[case]
    # A number that is none is below no bound.
    assert {name: error for name, error in errors[case].items() if not error < bound} == {}


def standard(*_: Any) -> None:
    """The unit of the case, as far as fill() knows it."""


def filled() -> Slots:
    """The slots after the shipped extern/ had its turn."""
    return fill_slots({"conv_norm": standard}, str(FOLDER / "extern"), ["conv_norm"])


@pytest.fixture
def without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which triton is not installed; what extern/ left in sys.modules goes with it."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None if name == "triton" else find_spec(name))
    for name in ("extern", *[name for name in sys.modules if name.startswith("extern.")]):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_without_triton_and_without_a_gpu_the_unit_stays_standard(
    without_triton: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    slots = filled()
    assert slots["conv_norm"] is standard
    assert slots.replaced() == {}


def test_a_gpu_without_triton_is_one_sentence(without_triton: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(RuntimeError, match="need triton, which is not installed here: take an image") as told:
        filled()
    assert "\n" not in str(told.value)


def test_the_kernels_are_imported_only_where_they_are_used() -> None:
    """On a machine without triton the package is read all the same."""
    tree = ast.parse((FOLDER / "extern/__init__.py").read_bytes())
    names = [alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert [name for name in names if name.partition(".")[0] in ("extern", "triton")] == []
