"""A word of `-k` or `-m` that is in no name, or names that never come together: told first, with what comes nearest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.user_toy import CASE, TEST, Checkout, make_checkout

FIRST = "toy-pytorch-cpu-host-mini-1x1"
PLANNED = "vendor cpu, machine host has:"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout of two cases on the vendor cpu, one of them on one topology less."""
    checkout = make_checkout(tmp_path_factory.mktemp("keywords") / "a clone")
    checkout.write("suite/cases/glm/paddle/case.toml", CASE.replace("[preset.mini]", "[preset.large]\n[preset.mini]"))
    checkout.write("suite/cases/glm/paddle/test_glm.py", TEST.format(model="glm"))
    checkout.write("suite/vendors/cpu/glm/paddle/config_hostx1x1.toml", "")
    return checkout


def told(clone: Checkout, *words: str) -> list[str]:
    """Lines of a session that chose nothing, from the one that says so."""
    done = clone.pytest("suite", "--vendor", "cpu", *words)
    assert done.code == 5, done.out
    assert "reports:" not in done.out and "will run" not in done.out
    lines = done.out.splitlines()
    return lines[next(number for number, line in enumerate(lines) if " matches no plan" in line) :]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("-k", "tyo and 1x1"), "'tyo' stands in no name here (did you mean 'toy'?)"),
        (("-k", "(toy and 1x9) or not toy and blub"), "'1x9' stands in no name here (did you mean '1x2'?); 'blub' s"),
        (("-k", "toy and 4x8"), "'4x8' stands in no name here (have: 1x1, 1x2, 2x1)"),
        (("-k", "[tyo- and -1x1]"), "'[tyo-' stands in no name here (did you mean 'toy'?)"),
        (("-k", "toy-pytroch"), "'toy-pytroch' stands in no name here (did you mean 'toy-pytorch'?)"),
        (("-k", "Glm and Minni"), "'Minni' stands in no name here (did you mean 'mini'?)"),
        (("-k", "zz"), "'zz' stands in no name here (have: 1x1, 1x2, 2x1, cpu, glm, host, mini, paddle, pytorch, toy)"),
        (("-k", "glm and large"), "'large' stands in no name here: a preset that is not planned; say --preset large"),
        (("-k", "toy and throughput"), "a mode that is not planned; say --mode throughput"),
        (("-k", "toy and converge"), "names leave out the preset full and the mode converge, so leave the word out"),
        (("-k", "toy and acme"), "a vendor that is not planned; say --vendor acme"),
        (("-k", "blob"), "a case that is not planned here; take another --vendor, or add a configuration"),
        (
            ("-k", "glm and 1x2"),
            "of its words ('glm', '1x2') each stands in some name here, but no name fits the whole",
        ),
        (("-m", "case(model='tyo')"), "nothing here is marked 'tyo' (did you mean 'toy'?)"),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)
def test_what_chose_nothing_is_explained_first(clone: Checkout, words: tuple[str, str], why: str) -> None:
    """Then comes what there is, and no folder stays."""
    lines = told(clone, *words)
    assert lines[0].startswith(f"{words[0]} {words[1]!r} matches no plan: ")
    assert why in lines[0]
    assert lines[1] == PLANNED
    assert not (clone.root / "results").exists()


@pytest.mark.parametrize("words", [("-k", "tyo and 1x1"), ("-k", "glm and 1x2"), ("-m", "case(model='tyo')")])
def test_workers_find_the_same(clone: Checkout, words: tuple[str, str]) -> None:
    """The controller, which collects nothing, says it."""
    assert told(clone, *words, "-n", "2")[:3] == told(clone, *words)[:3]
    assert not (clone.root / "results").exists()


def test_the_nearest_plans_are_listed(clone: Checkout) -> None:
    """Of a name that is right, all; of none that is, everything."""
    assert told(clone, "-k", "tyo and 1x1")[2:4] == ["  glm-paddle-cpu-host-mini-1x1", f"  {FIRST}"]
    assert "1x2" not in "".join(told(clone, "-k", "tyo and 1x1")[2:])
    assert "1x2" in "".join(told(clone, "-k", "tyo")[2:])


def test_expressions_that_exclude_each_other_are_no_slip(clone: Checkout) -> None:
    """Both choose something."""
    assert told(clone, "-k", "toy", "-m", "case(model='glm')")[0] == (
        "-k 'toy' and -m \"case(model='glm')\" matches no plan"
    )


@pytest.mark.parametrize("arguments", [("--plan",), ("-n", "1")], ids=" ".join)
def test_an_idle_word_beside_others_is_a_warning(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """`not tyo` would run what was to be left out."""
    done = make_checkout(tmp_path / "clone").pytest("suite", "--vendor", "cpu", "-k", "1x1 and not tyo", *arguments)
    assert done.code == 0
    assert "warning: -k: 'tyo' stands in no name here (did you mean 'toy'?)" in done.out


@pytest.mark.parametrize("expression", ["test_toy and 1x1", "pytorch and not slow and 1x1 or case and 1x1", "case"])
def test_names_that_only_pytest_knows_are_names(clone: Checkout, expression: str) -> None:
    """Of functions, files, folders and marks; no warning but for what is nowhere."""
    done = clone.pytest("suite", "--vendor", "cpu", "-k", expression, "--plan")
    assert done.code == 0
    assert done.out.count("stands in no name") == ("slow" in expression)


@pytest.mark.parametrize("expression", ["\nzz and 1x1", "\n  toy and zz"])
def test_a_blank_line_before_the_words_is_none_of_them(clone: Checkout, expression: str) -> None:
    """As in a command that a file of a CI server spreads over lines."""
    done = clone.pytest("suite", "--vendor", "cpu", "-k", expression)
    assert done.code == 5, done.out
    assert "'zz' stands in no name here" in done.out and "Traceback" not in done.out
