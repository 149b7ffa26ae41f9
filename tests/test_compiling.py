"""`compile_graphs`: what it is refused with, and what torch.compile is told."""

from __future__ import annotations

from typing import Any

import pytest

from suite.drivers.events import RunProblem
from suite.drivers.pytorch.compiling import compile_options


def params(**changes: Any) -> dict[str, Any]:
    """A run that is compiled, one micro-batch a step."""
    return {"compile": True, "compile_graphs": True, "gradient_accumulation_steps": 1, **changes}


def test_graphs_are_a_mode_of_the_compiler() -> None:
    assert compile_options(params()) == {"mode": "reduce-overhead"}
    assert compile_options(params(compile=False, compile_layers=True)) == {"mode": "reduce-overhead"}
    assert compile_options(params(compile_graphs=False)) == {}
    assert compile_options({"compile": True, "gradient_accumulation_steps": 4}) == {}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"compile": False}, "set compile = true", id="nothing-compiled"),
        pytest.param(
            {"gradient_accumulation_steps": 2}, "gradient_accumulation_steps is 2: set it to 1", id="added-up"
        ),
    ],
)
def test_what_graphs_cannot_do_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(RunProblem, match=said):
        compile_options(params(**changes))
