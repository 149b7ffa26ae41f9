"""A session hashes the code of what it runs: a filter that leaves plans out leaves their code unread too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures.handover import hash_selected, settle
from fixtures.options import Options
from fixtures.scope import Scope
from fixtures.state import State
from suite.digest import Digests
from tests.user_toy import Checkout

ONE = "toy-pytorch-cpu-host-mini-1x1"


def settled(*, filtered: bool) -> State:
    """A session on this checkout that trains nothing."""
    return settle(Scope(cases=True, trains=False, filtered=filtered), Options(vendor="cpu", machine="host"))


def test_only_the_selected_plans_are_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    case = Digests.case
    monkeypatch.setattr(Digests, "case", lambda self, folder: hashed.append(str(folder)) or case(self, folder))
    state = settled(filtered=True)
    assert hashed == [] and not any(plan.plan_digest for plan in state.settled.plans)
    hash_selected(state, ["glm-pytorch-cpu-host-mini-1x1"])
    assert set(hashed) == {"glm/pytorch"}
    assert {plan.id for plan in state.settled.plans if plan.plan_digest} == {"glm-pytorch-cpu-host-mini-1x1"}
    assert state.plan("glm-pytorch-cpu-host-mini-1x1") in state.plans_of(Path("suite/cases/glm/pytorch"))


def plans_of(session: Path) -> dict[str, dict[str, str]]:
    """What the session's own files say of each plan: of its folder, and where it was selected."""
    found = {path.parent.name: json.loads(path.read_text()) for path in session.glob("*/plan.json")}
    lines = [line for path in session.glob("journal-*.jsonl") for line in path.read_text().splitlines()]
    for record in (json.loads(line)["record"] for line in lines):
        for plan in record.get("plans", ()):
            assert plan == found[plan["id"]]
    return found


@pytest.mark.parametrize(
    ("chosen", "workers"),
    [(("suite", "-k", "1x1"), "0"), (("suite", "-k", "1x1"), "1"), (("suite/cases/toy", "--topology", "1x1"), "0")],
)
def test_a_filtered_session_runs_the_very_plan_of_a_whole_one(
    checkout: Checkout, chosen: tuple[str, ...], workers: str
) -> None:
    """With its digests, in the folder and in the journal, whoever ran it."""
    assert checkout.pytest("suite", "--vendor", "cpu", "--session", "whole").code == 0
    done = checkout.pytest(*chosen, "--vendor", "cpu", "--session", "part", "-n", workers)
    assert done.code == 0, done.out
    whole, part = plans_of(checkout.root / "whole"), plans_of(checkout.root / "part")
    assert list(part) == [ONE] and len(part[ONE]["plan_digest"]) == len(part[ONE]["case_digest"]) == 64
    assert part[ONE] == whole[ONE]
