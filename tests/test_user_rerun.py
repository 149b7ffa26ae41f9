"""The command that a failure ends with repeats that plan alone, whatever selected it."""

from __future__ import annotations

import shlex
import subprocess

from tests.user_toy import CASE, TEST, Checkout, Done


def test_the_framework_that_selected_it_is_carried(checkout: Checkout) -> None:
    """The short expression names no framework: a model of two would be run twice by it."""
    checkout.behave(mini_1x1="failed:quality")
    done = checkout.pytest("suite", "--model", "toy", "--framework", "pytorch", "--topology", "1x1", "--vendor", "cpu")
    assert "rerun: pytest suite -k '[toy- and -1x1]' --vendor cpu --framework pytorch" in done.out


def printed(done: Done) -> list[str]:
    """The words of the command, after `pytest`."""
    (line,) = (line.partition("rerun: ")[2] for line in done.out.splitlines() if "rerun: " in line)
    return shlex.split(line)[1:]


def test_the_copied_line_runs_the_same_plan_into_the_same_results(checkout: Checkout) -> None:
    """From any folder, not only that in which the session was called."""
    checkout.behave(mini_1x1="failed:quality")
    (checkout.root / "job").mkdir()
    arguments = ("../suite", "--topology", "1x1", "--vendor", "cpu", "--results", "here", "--wait-for-devices", "1s")
    first = checkout.pytest(*arguments, cwd=checkout.root / "job")
    (checkout.root / "elsewhere").mkdir()
    again = checkout.pytest(*printed(first), cwd=checkout.root / "elsewhere")
    assert (first.code, again.code) == (1, 1), again.out
    assert printed(again) == printed(first)
    assert len(list((checkout.root / "job/here").glob("[0-9]*/toy-pytorch-cpu-host-mini-1x1/plan.json"))) == 2


def test_what_a_change_left_out_is_no_reason_for_a_short_name(checkout: Checkout) -> None:
    """The repetition plans the other framework too: only the whole id is one plan there."""
    checkout.write("suite/cases/toy/paddle/case.toml", CASE)
    checkout.write("suite/cases/toy/paddle/test_toy.py", TEST.format(model="toy"))
    checkout.write("suite/vendors/cpu/toy/paddle/config_default.toml", "")
    checkout.write(".gitignore", "results/\n__pycache__/\nannounced*\n")
    commit(checkout)
    checkout.write("suite/cases/toy/pytorch/train.py", "pass\n")
    checkout.behave(mini_1x1="failed:quality")
    done = checkout.pytest("suite", "-k", "1x1", "--vendor", "cpu", "--changed-since", "HEAD")
    assert printed(done) == ["suite", "-k", "[toy-pytorch-cpu-host-mini-1x1]", "--vendor", "cpu"]


def commit(checkout: Checkout) -> None:
    """Everything, as the first commit."""
    name = ("-c", "user.name=x", "-c", "user.email=x@y")
    for words in (("init", "-q"), ("add", "."), (*name, "commit", "-q", "-m", "one")):
        subprocess.run(["git", *words], cwd=checkout.root, check=True, capture_output=True, timeout=60)
