"""Wrong input leaves nothing behind, be it found before the session's folder is made or when its tests are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.user_toy import Checkout

MISFIT = ("suite", "-k", "1x1", "--sabotage", "gradients_not_averaged")
"""It needs two ranks, which is seen when `-k` has chosen."""


def left(checkout: Checkout) -> list[Path]:
    """What lies in the checkout beside what was there."""
    return [path for path in checkout.root.iterdir() if path.name in ("results", "out")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("suite", "--sabotage", "nonesuch"), "'nonesuch' is not known"),
        (MISFIT, "it needs 2 ranks"),
        ((*MISFIT, "-n", "1"), "it needs 2 ranks"),
        ((*MISFIT, "--session", "out/here"), "it needs 2 ranks"),
        ((*MISFIT, "--results", "out"), "it needs 2 ranks"),
        (("suite", "-k", "and and"), "Wrong expression"),
        (("suite", "-k", "and and", "--plan"), "Wrong expression"),
        (("suite", "-k", "and and", "--collect-only"), "Wrong expression"),
        (("suite", "-k", "and and", "-n", "1"), "Wrong expression passed to '-k'"),
        (("suite", "-k", "toy(a=1)", "-n", "2"), "Keyword expressions do not support call parameters"),
        (("suite", "-m", "and and", "-n", "1"), "Wrong expression passed to '-m'"),
        (("suite", "-m", "nonesuch", "-n", "1"), "Unknown marker(s) in '-m' expression: nonesuch"),
        (("suite/cases/nowhere",), "not found"),
        (("suite", "suite/cases/nowhere", "-n", "1"), "not found: suite/cases/nowhere"),
        (("suite/cases/toy/pytorch/test_toy.py::nonesuch", "-n", "1"), "::nonesuch"),
        (("suite/conformance", "-k", "and and"), "Wrong expression"),
        (("suite/conformance", "-k", "and and", "-n", "1"), "Wrong expression"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_refused_session_leaves_nothing(checkout: Checkout, words: tuple[str, ...], said: str) -> None:
    """Nor does it speak of plans, as of what would run: the sentence is all there is to read."""
    done = checkout.pytest(*words, "--vendor", "cpu")
    assert done.code == 4, done.out
    assert said in done.err
    assert "INTERNALERROR" not in done.out and "Traceback" not in done.out
    assert "not_started" not in done.out and "reports:" not in done.out
    assert "will run" not in done.out and "toy-pytorch-cpu" not in done.out.replace(done.err, "")
    assert left(checkout) == []


def test_what_was_there_stays(checkout: Checkout) -> None:
    """Earlier sessions, the link to the newest, and the empty folder that --session names."""
    assert checkout.pytest("suite", "-k", "1x1", "--vendor", "cpu").code == 0
    (earlier,) = checkout.sessions()
    mine = checkout.root / "out"
    mine.mkdir()
    assert checkout.pytest(*MISFIT, "--vendor", "cpu").code == 4
    assert checkout.pytest(*MISFIT, "--vendor", "cpu", "--session", "out").code == 4
    assert checkout.sessions() == [earlier]
    assert (checkout.root / "results/latest").resolve() == earlier
    assert list(mine.iterdir()) == []


def test_a_session_that_chose_nothing_is_told(checkout: Checkout) -> None:
    """It is a result, not wrong input: exit status 5, and files for CI to read."""
    assert checkout.pytest("suite", "-k", "nonesuch", "--vendor", "cpu", "--session", "out").code == 5
    assert (checkout.root / "out/junit.xml").is_file()
