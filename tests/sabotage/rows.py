"""The rows of docs/sabotage.md, from the tables that the drivers and the tests read."""

from __future__ import annotations

from suite.drivers.sabotage import EVERY_DRIVER, Sabotage
from tests.sabotage.acts import Act

TITLES = {"pytorch": "PyTorch", "tensorflow2": "TensorFlow 2", "paddle": "Paddle"}
NEEDS = {
    "accumulation": "`--set gradient_accumulation_steps=2`",
    "repeats": "`--repeat 2`",
    "requality": "`python -m fixtures.requality`",
    "imbalance": "a vendor's check",
    "throughput": "a vendor's threshold",
}


def row(sabotage: Sabotage) -> str:
    """Of a driver's sabotage."""
    mode = "" if sabotage.mode == "both" else f"mode {sabotage.mode}"
    ranks = f"{sabotage.ranks} ranks" if sabotage.ranks > 1 else ""
    drivers = "" if sabotage.frameworks == EVERY_DRIVER else " and ".join(TITLES[name] for name in sabotage.frameworks)
    where = ", ".join(part for part in (mode, ranks, NEEDS.get(sabotage.needs, ""), drivers) if part)
    ends = f"{sabotage.status}: {sabotage.category}"
    return f"| `{sabotage.name}` | {sabotage.what} | `{ends}` | {sabotage.told_by} | {where} |"


def act_row(act: Act) -> str:
    """Of an act outside of a driver."""
    return f"| `{act.name}` | {act.what} | `{act.ends}` | {act.told_by} |"
