"""How far the operators of a vendor's extern/ are from the same in float64: what the programs for each case share.

Where there is no GPU Triton's interpreter runs the kernels; it has to be chosen before triton is imported, for the
whole process. So each such program is a process of its own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parent.parent
BOUNDS = {torch.float32: 2e-6, torch.bfloat16: 2**-7}
"""Of an error as a fraction of the truth: float32 rounds by 6e-8, and a sum or two make it more; bf16 by at most 2**-8,
or 2**-7 in the interpreter, which cuts off."""
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

Measure = Callable[[torch.dtype], dict[str, float]]


def error(value: Tensor, truth: Tensor) -> float:
    """The norm of the difference as a fraction of that of the truth."""
    return float((value.detach().double() - truth.detach()).norm() / truth.detach().norm())


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers around 0, the same on every device."""
    return torch.randn(*shape).to(DEVICE, dtype)


def exact(value: Tensor) -> Tensor:
    """The same numbers in float64, a leaf of their own."""
    return value.detach().double().requires_grad_()


def gradient(leaf: Tensor) -> Tensor:
    """What a backward pass has left there."""
    assert leaf.grad is not None
    return leaf.grad


def not_asked(*_: object) -> Any:
    """Stands for the standard part where the vendor's has to compute for itself."""
    raise AssertionError("the part left to the standard one what it should have computed itself")


def bounds(cases: Mapping[str, Measure]) -> dict[str, float]:
    """Of each case in both dtypes, as `report` names them: what its errors are held to."""
    return {_named(name, dtype): bound for name in cases for dtype, bound in BOUNDS.items()}


def _named(case: str, dtype: torch.dtype) -> str:
    return f"{case}, {str(dtype).removeprefix('torch.')}"


def report(model: str, cases: Mapping[str, Measure], allow_device: Callable[[], None]) -> None:
    """Print a JSON object: `skip`, why nothing was measured, or `errors`, |x - truth| / |truth| of each quantity."""
    sys.path[:0] = [str(ROOT / part / model / "pytorch") for part in ("suite/vendors/nvidia", "suite/cases")]
    if DEVICE == "cpu" and (reason := _interpret()):
        print(json.dumps({"skip": reason}))
        return
    allow_device()
    torch.backends.cudnn.allow_tf32 = False
    errors = {}
    for name, measure in cases.items():
        for dtype in BOUNDS:
            torch.manual_seed(0)
            errors[_named(name, dtype)] = measure(dtype)
    print(json.dumps({"errors": errors}))


def _interpret() -> str:
    """Take Triton's interpreter for a GPU. Why that is not possible; empty: it is."""
    os.environ["TRITON_INTERPRET"] = "1"
    try:
        from tests import interpreter_probe
    except Exception as problem:  # an installation that is broken in itself
        return f"Triton's interpreter cannot be imported: {problem}"
    interpreter_probe.multiply_bf16()
    if defect := interpreter_probe.defect():
        return f"Triton's interpreter cannot be used, perhaps with this numpy: {defect}"
    # An interpreted kernel is no kernel for a compiler to trace.
    torch.library.wrap_triton = lambda kernel: kernel
    return ""
