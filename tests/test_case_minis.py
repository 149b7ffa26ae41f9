"""Each mini of the DGX Cloud cases reaches its target on two ranks, through the real suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spine import BRIEF_BASE, check_of, clone

pytestmark = [pytest.mark.slow, pytest.mark.nightly]


@pytest.mark.parametrize("model", ["gpt3", "vivit", "whisper"])
def test_a_mini_reaches_its_target_on_two_ranks(tmp_path: Path, model: str) -> None:
    """With parameters that agree at the end: no target tells whether gradients were averaged. `alma`: on Slurm."""
    checkout = clone(tmp_path)
    argv = ("--model", model, "--framework", "pytorch", "--topology", "1x2", "--session", "s")
    code, out = checkout.run(*argv, *BRIEF_BASE)
    assert code == 0, out
    result = checkout.result("s", f"{model}-pytorch-cpu-host-mini-1x2")
    assert result["outcome"]["status"] == "passed"
    for name in ("quality", "ranks_in_sync", "ledger"):
        assert check_of(result, name)["status"] == "pass", name
