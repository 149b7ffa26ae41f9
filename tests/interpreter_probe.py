"""A kernel that asks Triton's interpreter for what the kernels of extern/ ask of it; importing it imports triton."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.runtime import interpreter


@triton.jit
def _product(a: Any, b: Any, out: Any, rows: Any, SIDE: tl.constexpr) -> None:
    column = tl.arange(0, SIDE)
    right = tl.load(b + column[:, None] * SIDE + column[None, :])
    for start in range(0, rows, SIDE):
        row = start + tl.arange(0, SIDE)
        place = row[:, None] * SIDE + column[None, :]
        left = tl.load(a + place, mask=row[:, None] < rows, other=0.0)
        value = tl.dot(left, right, input_precision="ieee")
        tl.store(out + place, value + tl.sum(value, 1)[:, None] * 0.0, mask=row[:, None] < rows)


def multiply_bf16() -> None:
    """Let the interpreter multiply numbers in bf16, of which it keeps the bits: by itself it multiplies those."""
    plain = interpreter.InterpreterBuilder.create_dot

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return plain(self, _widened(a), _widened(b), *rest)

    interpreter.InterpreterBuilder.create_dot = create_dot


def _widened(value: Any) -> Any:
    if value.dtype != tl.bfloat16 or value.data.dtype.kind == "f":
        return value
    wide = (value.data.astype("uint32") << 16).view("float32")
    return interpreter.TensorHandle(wide, tl.float32)


def defect() -> str:
    """Why this interpreter cannot be used; empty: it can."""
    for dtype in (torch.float32, torch.bfloat16):
        a = torch.arange(24 * 16).remainder(7).view(24, 16).to(dtype)
        b, out = a[:16].contiguous(), torch.zeros(24, 16)
        try:
            _product[(1,)](a, b, out, 24, SIDE=16)
        except Exception as problem:  # whatever it is, the kernels under test have no part in it
            return f"it fails on a product of matrices in {dtype}: {str(problem).splitlines()[:1]}"
        if not torch.equal(out, (a.double() @ b.double()).float()):
            return f"it computes another product of matrices in {dtype}"
    return ""
