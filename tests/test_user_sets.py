"""`--set` is held to the plans that `-k`, `-m` or a path have chosen, and to no other case."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.slurm_lab import PENDING, Lab
from tests.user_toy import UNKNOWN_COST, Checkout, make_checkout

WRONG = "ERROR: --set lr=abc: lr of toy/pytorch is a float, as in lr=0.5"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout whose first case, blob, has an integer where toy has a float; vendor acme has both."""
    checkout = make_checkout(tmp_path_factory.mktemp("sets") / "a clone")
    checkout.write("suite/cases/blob/pytorch/case.toml", UNKNOWN_COST.replace("lr = 0.5", "lr = 1"))
    return checkout


@pytest.mark.parametrize(
    "chosen",
    [
        ("suite", "-k", "toy and 1x1"),
        ("suite", "-k", "toy and 1x1", "--plan"),
        ("suite", "-k", "toy and 1x1", "--collect-only"),
        ("suite", "-k", "toy and 1x1", "-n", "1"),
        ("suite", "-m", "case(model='toy')"),
        ("suite/cases/toy",),
        ("suite", "--model", "toy"),
    ],
    ids=" ".join,
)
def test_the_chosen_case_is_named(clone: Checkout, chosen: tuple[str, ...]) -> None:
    """Not the first of the alphabet."""
    done = clone.pytest(*chosen, "--vendor", "acme", "--set", "lr=abc")
    assert done.code == 4, done.out
    assert done.err.strip() == WRONG
    assert not (clone.root / "results").exists()


def test_without_a_choice_every_case_is_meant(clone: Checkout) -> None:
    """The first one that it does not fit is named."""
    done = clone.pytest("suite", "--vendor", "acme", "--set", "lr=0.25")
    assert (done.code, done.err.strip()) == (
        4, "ERROR: --set lr=0.25: lr of blob/pytorch is an integer, as in lr=1"
    )  # fmt: skip


@pytest.mark.parametrize("dry", ["--plan", "--collect-only"])
def test_what_fits_the_chosen_case_is_taken(clone: Checkout, dry: str) -> None:
    """Whatever it would be in another."""
    done = clone.pytest("suite", "-k", "toy and 1x8", "--vendor", "acme", "--set", "lr=0.25", dry)
    assert done.code == 0, done.out
    assert dry == "--collect-only" or re.search(r"lr = 0.25 +# --set", done.out)


def test_a_key_that_no_case_has_is_told_whatever_is_chosen(clone: Checkout) -> None:
    """A slip in the key is no matter of the choice."""
    done = clone.pytest("suite", "-k", "nonesuch", "--vendor", "acme", "--set", "rl=1")
    assert done.code == 4 and "no planned case has a parameter 'rl'" in done.err


def test_the_run_has_it_and_another_digest(tmp_path: Path) -> None:
    """It counts as if it had been planned at once."""
    checkout = make_checkout(tmp_path / "a clone")
    digests = set()
    for name, words in (("whole", ("--topology", "1x1")), ("part", ("-k", "1x1")), ("other", ("-k", "1x1"))):
        sets = ("--set", "lr=0.25") if name != "other" else ()
        assert checkout.pytest("suite", "--vendor", "cpu", "--session", name, *words, *sets).code == 0
        (path,) = (checkout.root / name).glob("*/plan.json")
        plan = json.loads(path.read_text())
        assert plan["params"]["lr"] == (0.25 if sets else 0.5)
        digests.add((plan["plan_digest"], plan["origins"]["lr"]))
    assert len(digests) == 2


def test_a_submitted_plan_has_it(lab: Lab) -> None:
    """With -k, too."""
    lab.slurm.script(PENDING, job="4")
    assert lab.submit("--topology", "1x1", "-k", "2x1", "--set", "step_s=0.25") == 0, lab.toy.output
    (plan,) = json.loads((lab.toy.results / "submitted.json").read_text())["plans"]
    assert plan["params"]["step_s"] == 0.25 and len(plan["plan_digest"]) == 64
    lab.end()
