"""The command that a failure ends with repeats that plan alone, whatever selected it."""

from __future__ import annotations

from tests.user_toy import Checkout


def test_the_framework_that_selected_it_is_carried(checkout: Checkout) -> None:
    """The short expression names no framework: a model of two would be run twice by it."""
    checkout.behave(mini_1x1="failed:quality")
    done = checkout.pytest("suite", "--model", "toy", "--framework", "pytorch", "--topology", "1x1", "--vendor", "cpu")
    assert "rerun: pytest suite -k '[toy- and -1x1]' --vendor cpu --framework pytorch" in done.out
