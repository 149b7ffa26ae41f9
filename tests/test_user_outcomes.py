"""How a session ends for its user: outcomes, exit codes, budgets, what crosses to workers and to pytest's own files."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from tests.user_toy import Checkout

ONE = "toy-pytorch-cpu-host-mini-1x1"
TWO = "toy-pytorch-cpu-host-mini-1x2"
NODES = "toy-pytorch-cpu-host-mini-2x1"


@pytest.mark.parametrize("workers", ["0", "1"])
@pytest.mark.parametrize(
    ("behaviour", "code", "phrase"),
    [
        ("passed", 0, "1 passed"),
        ("failed:quality", 1, "1 failed"),
        ("error:crash", 1, "1 failed"),
        ("inconclusive:noise", 5, "1 skipped"),
        ("not_started:unavailable", 5, "1 skipped"),
    ],
)
def test_exit_code_says_how_the_plan_ended(
    checkout: Checkout, behaviour: str, code: int, phrase: str, workers: str
) -> None:
    """0 passed, 1 failed or in error, 5 nothing measured: the same with and without workers."""
    checkout.behave(toy=behaviour)
    done = checkout.pytest("suite", "-k", "1x1", "--vendor", "cpu", "-n", workers)
    assert done.code == code, done.out
    assert phrase in done.out
    assert checkout.outcomes()[ONE] == behaviour.replace(":", ": ")


def test_one_pass_among_others_is_enough(checkout: Checkout) -> None:
    """Exit 0 needs one plan passed, and none failed or in error."""
    checkout.behave(toy_pytorch_cpu_host_mini_1x1="inconclusive:noise")
    done = checkout.pytest("suite", "--vendor", "cpu")
    assert done.code == 0, done.out
    assert checkout.outcomes() == {ONE: "inconclusive: noise", TWO: "passed", NODES: "passed"}


def test_exit_5_says_why(checkout: Checkout) -> None:
    """Someone who reads a red build without failures learns that nothing was measured."""
    checkout.behave(toy="inconclusive:noise")
    done = checkout.pytest("suite", "--vendor", "cpu")
    assert done.code == 5
    assert "no plan passed, and none failed (3 inconclusive): exit status 5" in done.out
    finished = [record for record in checkout.records() if record["kind"] == "session"][-1]
    assert finished["exit_status"] == 5


def test_fail_inconclusive_makes_it_red(checkout: Checkout) -> None:
    """A gate that wants a verdict gets a failure instead of a skip."""
    checkout.behave(toy="inconclusive:noise")
    done = checkout.pytest("suite", "-k", "1x1", "--vendor", "cpu", "--fail-inconclusive")
    assert done.code == 1
    assert "1 failed" in done.out


def test_failure_ends_with_the_command_to_rerun(checkout: Checkout) -> None:
    """The command is quoted for a shell and carries the options that mattered, not those that selected."""
    checkout.behave(mini_1x2="failed:quality")
    done = checkout.pytest("suite", "--topology", "1x2", "--vendor", "cpu", "--set", "lr=0.25", "--seed", "7")
    assert "rerun: pytest suite -k '[toy- and -1x2]' --vendor cpu --seed 7 --set lr=0.25" in done.out


def test_rerun_command_selects_one_plan(checkout: Checkout) -> None:
    """What the failure offers is exact."""
    done = checkout.pytest("suite", "-k", "[toy- and -1x2]", "--vendor", "cpu", "--collect-only", "-q")
    assert done.out.count("::") == 1
    assert TWO in done.out


def test_skip_is_shown_at_the_test(checkout: Checkout) -> None:
    """The summary names the case's test, the outcome, its category and the reason."""
    checkout.behave(toy="inconclusive:noise")
    done = checkout.pytest("suite", "-k", "1x1", "--vendor", "cpu")
    assert "suite/cases/toy/pytorch/test_toy.py:4: inconclusive: noise: the toy is inconclusive" in done.out


def test_metrics_reach_pytests_own_junit(checkout: Checkout) -> None:
    """Numbers and facts are properties of the testcase, also from a worker."""
    done = checkout.pytest("suite", "-k", "1x1", "--vendor", "cpu", "-n", "1", "--junitxml", "own.xml")
    assert done.code == 0, done.out
    found = {
        element.get("name"): element.get("value")
        for element in ElementTree.parse(checkout.root / "own.xml").iter("property")
    }
    assert found["accuracy"] == "0.8125"
    assert found["outcome"] == "passed"
    assert found["division"] == "closed"


def test_usage_problem_of_training_is_one_sentence(checkout: Checkout) -> None:
    """No traceback for what the user can mend, and the plan has its outcome."""
    checkout.behave(toy="usage")
    done = checkout.pytest("suite", "-k", "1x1", "--vendor", "cpu")
    assert done.code == 1
    assert "the toy cannot be trained like this; say otherwise" in done.out
    assert "Traceback" not in done.out
    assert checkout.outcomes()[ONE] == "error: config"


def test_broken_trainer_is_an_error_of_the_harness(checkout: Checkout) -> None:
    """An exception that nobody foresaw still settles the plan."""
    checkout.behave(toy="boom")
    done = checkout.pytest("suite", "-k", "1x1", "--vendor", "cpu")
    assert done.code == 1
    assert checkout.outcomes()[ONE] == "error: harness"


def test_time_budget_leaves_out_what_cannot_end_in_time(checkout: Checkout) -> None:
    """A run of 36 s does not fit into 5 s: not started, listed, and nothing green."""
    done = checkout.pytest("suite", "--vendor", "cpu", "--time-budget", "5s")
    assert done.code == 5, done.out
    assert set(checkout.outcomes().values()) == {"not_started: budget"}
    assert "--time-budget are left; allow more, or select less" in done.out


@pytest.mark.parametrize("workers", ["0", "2"])
def test_device_hours_admit_what_fits(checkout: Checkout, workers: str) -> None:
    """1x1 costs 0.01 device-hours; 1x2 and its base 0.03: with 0.02 only the first runs, whoever runs it."""
    done = checkout.pytest("suite", "--vendor", "cpu", "--max-device-hours", "0.02", "-n", workers)
    assert done.code == 0, done.out
    assert checkout.outcomes() == {ONE: "passed", TWO: "not_started: budget", NODES: "not_started: budget"}


def test_unknown_cost_is_not_zero_cost(checkout: Checkout) -> None:
    """A plan that nobody can price is not admitted under a limit."""
    done = checkout.pytest(
        "suite", "--model", "blob", "--topology", "1x1", "--vendor", "acme", "--max-device-hours", "9"
    )
    assert done.code == 5, done.out
    assert "its cost is unknown" in done.out


def test_stopped_session_lists_what_it_did_not_reach(checkout: Checkout) -> None:
    """-x after the first failure: the others are not started, and say why."""
    checkout.behave(toy="failed:quality")
    done = checkout.pytest("suite", "--vendor", "cpu", "-x")
    assert done.code == 1
    assert checkout.outcomes() == {
        ONE: "failed: quality",
        TWO: "not_started: interrupted",
        NODES: "not_started: interrupted",
    }


def test_site_and_baselines_reach_training(checkout: Checkout) -> None:
    """What the command line says about the place is what training is given, also in a worker."""
    data = checkout.root / "data"
    data.mkdir()
    done = checkout.pytest(
        "suite", "-k", "1x1", "--vendor", "cpu", "-n", "1", "--data-dir", "toy=data",
        "--wait-for-devices", "2min", "--baseline", "data",
    )  # fmt: skip
    assert done.code == 0, done.out
    given = json.loads((checkout.sessions()[-1] / "given.json").read_text())
    assert given["site"]["data"]["cases"] == {"toy": str(data)}
    assert given["site"]["lease"]["wait_s"] == 120
    assert given["baselines"] == [str(data)]


def test_session_folder_is_exactly_the_one_named(checkout: Checkout) -> None:
    """--session is for CI: no stamp, no link, and nothing in results."""
    done = checkout.pytest("suite", "-k", "1x1", "--vendor", "cpu", "--session", "out/here")
    assert done.code == 0, done.out
    assert (checkout.root / "out" / "here" / ONE / "plan.json").is_file()
    assert checkout.sessions() == []


def test_latest_points_at_the_newest_session(checkout: Checkout) -> None:
    """The link moves on, in one step."""
    for _ in range(2):
        assert checkout.pytest("suite", "-k", "1x1", "--vendor", "cpu").code == 0
    first, second = checkout.sessions()
    latest = (checkout.root / "results" / "latest").resolve()
    assert latest in (first, second)
    assert latest == max((first, second), key=lambda path: path.stat().st_mtime_ns)


def test_two_test_functions_of_a_case_are_refused(checkout: Checkout) -> None:
    """They would share one folder: the error says so, in one sentence."""
    checkout.write(
        "suite/cases/toy/pytorch/test_more.py", "def test_more(plan, train, judge):\n    judge(train(plan))\n"
    )
    done = checkout.pytest("suite", "--vendor", "cpu")
    assert done.code == 2
    assert "both take `plan`; a case has one test function" in done.out


def test_plan_outside_a_case_folder_is_refused(checkout: Checkout) -> None:
    """The fixture exists for cases only."""
    checkout.write("tests/test_stray.py", "def test_stray(plan):\n    assert plan\n")
    done = checkout.pytest("tests/test_stray.py")
    assert done.code == 1
    assert "`plan` exists in suite/cases/<model>/<framework> only" in done.out


def test_a_session_that_ran_nothing_does_not_become_the_latest(checkout: Checkout) -> None:
    """A mistyped -k measures nothing; `results/latest` stays at what was measured."""
    assert checkout.pytest("suite", "-k", "1x1", "--vendor", "cpu").code == 0
    (measured,) = checkout.sessions()
    assert checkout.pytest("suite", "-k", "nonesuch", "--vendor", "cpu").code == 5
    assert (checkout.root / "results" / "latest").resolve() == measured
