"""One real pair of short trainings: a vendor's optimizer is held against the driver's own, and proven."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.spine import clone

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

EXTERN = '''"""The optimizer of a vendor who updates all tensors at once."""

import torch


def fill(slots):
    """Replace the driver's own."""
    slots["optimizer"] = foreach_adamw


def foreach_adamw(params, groups, fused):
    """AdamW over lists of tensors."""
    betas = (params["adam_beta1"], params["adam_beta2"])
    return torch.optim.AdamW(groups, lr=params["lr"], betas=betas, eps=params["adam_eps"], foreach=True)
'''


def test_a_vendors_optimizer_gets_its_proof(tmp_path: Path) -> None:
    """Reference, candidate, `versus`, `equivalence`; then planning calls the code proven."""
    checkout = clone(tmp_path)
    # A hundred steps with one evaluation, to a target that they reach: it is the comparison that is tried, not GLM.
    case = "suite/cases/glm/pytorch/case.toml"
    checkout.edit(case, "value = 0.70\n", "value = 0.26\n")
    checkout.edit(case, "eval_every_samples = 1600 ", "eval_every_samples = 3200 ")
    vendor, cpu = tmp_path / "acme", checkout.root / "suite/vendors/cpu"
    for name in ("machines", "glm"):
        shutil.copytree(cpu / name, vendor / name)
    shutil.copy(cpu / "vendor.toml", vendor)
    words = ("--vendor", "acme", "--vendor-path", str(vendor), "-k", "glm and 1x1", "--seed", "1")
    code, out = checkout.run(*words, "--session", "a")
    assert code == 0, out
    extern = vendor / "glm/pytorch/extern"
    extern.mkdir()
    (extern / "__init__.py").write_text(EXTERN)
    code, out = checkout.run(*words, "--session", "b")
    assert code == 0 and "no proof of equivalence" in out, out

    code, out = checkout.reports("versus", "a", "b", "--format", "json")
    report = json.loads(out)
    [duel] = report["duels"]
    assert code == 0 and "same recipe" in duel["views"]
    assert duel["differs"]["slots"] == ["none replaced", "optimizer (__init__.py)"]
    assert duel["differs"]["division"] == ["closed", "open"]
    assert {"data", "target", "global_batch", "precision", "compile", "host", "container", "versions"} <= set(
        duel["same"]
    )

    code, out = checkout.reports("equivalence", "a", "b", "--by", "a test")
    assert code == 0 and "glm/pytorch, slot optimizer: written" in out, out
    [proof] = tomllib.loads((checkout.root / "baselines/acme/slots.toml").read_text())["proof"]
    assert (proof["where"], proof["slot"]) == ("glm/pytorch", "optimizer")
    code, out = checkout.run(*words, "--plan", "--detect", "5%", "--baseline", "a")
    assert code == 0 and "# proven" in out and "division closed" in out, out
    assert "no baseline and no earlier result knows it" in out, "one run knows no spread"
