"""The command line as values: durations, shares, folders; and as documentation."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import option_values as values
from fixtures.option_table import OPTIONS
from fixtures.options import SABOTAGES, Detect, Options, read, register
from suite.errors import UsageProblem
from tests.user_toy import ROOT

PAGE = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")


def parsed(start: Path, *arguments: str) -> Options:
    """The options of a command line, as pytest's own parser hands them over."""
    parser = pytest.Parser(_ispytest=True)
    register(parser)
    return read(parser.parse(list(arguments), argparse.Namespace()), start)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_is_documented(option) -> None:
    """Name and what it takes stand in a table of docs/options.md."""
    takes = f"`{option.takes}`" if option.takes else ""
    assert re.search(rf"^\| `{option.name}` \| *{re.escape(takes)} *\| \S", PAGE, re.MULTILINE)


def test_nothing_else_is_documented() -> None:
    """The page describes no option that does not exist."""
    assert set(re.findall(r"^\| `(--[a-z-]+)`", PAGE, re.MULTILINE)) == {option.name for option in OPTIONS}


def test_sabotages_are_documented() -> None:
    """What can be broken on purpose is listed, on a page of its own."""
    page = (ROOT / "docs" / "sabotage.md").read_text(encoding="utf-8")
    assert "(sabotage.md)" in PAGE and all(f"`{name}`" in page for name in SABOTAGES)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30min", 1800), ("2h", 7200), ("1h30min", 5400), ("1.5h", 5400), ("2d", 172800)],
)
def test_durations(text: str, seconds: float) -> None:
    """A number and a unit, or several."""
    assert values.duration_s("--time-budget", text) == seconds


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_a_sentence(text: str) -> None:
    """No input raises anything but UsageProblem."""
    try:
        assert values.duration_s("--time-budget", text) > 0
    except UsageProblem as problem:
        assert str(problem).startswith("--time-budget")


@given(st.text(max_size=12))
def test_any_text_is_a_number_or_a_sentence(text: str) -> None:
    """Whole numbers, positive ones and shares alike."""
    for read_value in (
        lambda: values.integer("--repeat", text, least=1, most=1000),
        lambda: values.positive("--max-device-hours", text),
        lambda: values.fraction("--detect", text),
    ):
        try:
            assert read_value() > 0
        except UsageProblem as problem:
            assert repr(text) in str(problem)


def test_defaults(tmp_path: Path) -> None:
    """Nothing given: one run that converges, of whatever is present."""
    options = parsed(tmp_path)
    assert options == Options()
    assert not options.selects


def test_repeatable_options_keep_their_order(tmp_path: Path) -> None:
    """Filters add up; the last --set of a key wins later, so order matters."""
    options = parsed(tmp_path, "--topology", "1x8", "--topology=1x1", "--set", "lr=1", "--set", "lr=2")
    assert options.topologies == ("1x8", "1x1")
    assert options.sets == ("lr=1", "lr=2")
    assert options.selects


def test_data_dirs_of_one_and_of_all(tmp_path: Path) -> None:
    """A path may hold an equals sign; a model's name holds no slash."""
    (tmp_path / "a=b").mkdir()
    options = parsed(tmp_path, "--data-dir", "glm=a=b", "--data-dir", "./a=b")
    assert options.data_dirs == {"glm": tmp_path / "a=b", "": tmp_path / "./a=b"}


def test_detect_with_and_without_a_spread(tmp_path: Path) -> None:
    """The spread is stated or assumed."""
    assert parsed(tmp_path, "--plan", "--detect", "5%").detect == Detect(difference=0.05)
    assert parsed(tmp_path, "--plan", "--detect", "5%,3%").detect == Detect(difference=0.05, spread=0.03)


def test_rerun_carries_what_changes_a_run(tmp_path: Path) -> None:
    """Filters and budgets stay behind: they do not change what one plan is. `--session` names a folder now full."""
    options = parsed(
        tmp_path, "--preset", "mini", "--model", "glm", "--time-budget", "1h", "--results", "x", "--set", "lr=0.1",
        "--wait-for-devices", "2min", "--resume", ".",
    )  # fmt: skip
    assert options.rerun == (
        *("--preset", "mini", "--set", "lr=0.1"),
        *("--results", f"{tmp_path / 'x'}", "--wait-for-devices", "2min", "--resume", f"{tmp_path}"),
    )
    assert parsed(tmp_path, "--session", "x", "--topology", "1x1").rerun == ()


def test_paths_of_a_rerun_begin_anywhere(tmp_path: Path) -> None:
    """A copied command is pasted in another folder; a name of a model stays before its folder."""
    (tmp_path / "a=b").mkdir()
    for name in ("site.toml", "cases.toml"):
        (tmp_path / name).touch()
    given = {
        "--vendor-path": "a=b", "--site": "site.toml", "--cases": "cases.toml", "--results": "-x", "--baseline": ".",
        "--resume": "../" + tmp_path.name,
    }  # fmt: skip
    words = [f"{name}={value}" for name, value in given.items()]
    rerun = parsed(tmp_path, *words, "--data-dir", "glm=.", "--data-dir", "./a=b", "--data-dir", "/").rerun
    told = dict(zip(rerun[::2], rerun[1::2]))
    assert {name: told[name] for name in given} == {name: str(tmp_path / value) for name, value in given.items()}
    folders = [value for name, value in zip(rerun[::2], rerun[1::2]) if name == "--data-dir"]
    assert folders == [f"glm={tmp_path}", f"{tmp_path / 'a=b'}", "/"]


def test_every_path_is_known_as_one() -> None:
    """A new option is one or none by a decision."""
    assert {option.name for option in OPTIONS if option.path} == {
        *("--vendor-path", "--site", "--data-dir", "--cases", "--results", "--session", "--baseline", "--resume"),
        "--attach",
    }


def test_every_option_is_repeated_or_known_to_be_of_one_session(tmp_path: Path) -> None:
    """A new option is one or the other by a decision."""
    selects = {"--vendor", "--model", "--topology", "--changed-since"}  # the expression and --vendor say it
    of_one_session = {"--session", "--time-budget", "--max-device-hours", "--submit", "--attach", "--plan", "--detect"}
    assert {option.name for option in OPTIONS if not option.rerun} == selects | of_one_session


COLLECTING = ("--attach", "--baseline", "--time-budget", "--fail-inconclusive", "--plan", "--detect")
"""What has its effect on a session that was submitted before."""
SUBMITTED = tuple(option.name for option in OPTIONS if option.name not in COLLECTING)
VALUES = {"--topology": "1x1", "--set": "lr=0.1", "--repeat": "2", "--seed": "3", "--max-device-hours": "1"} | {
    "--mode": "throughput", "--launcher": "slurm", "--container": "docker", "--wait-for-devices": "1h",
    "--sabotage": "labels_shuffled", "--site": "site.toml", "--cases": "site.toml",
}  # fmt: skip


def test_every_option_is_known_to_collect_or_is_the_submissions() -> None:
    """A new option is one or the other by a decision: what is not listed here is refused beside --attach."""
    assert {option.name for option in OPTIONS if option.collects} == set(COLLECTING)
    assert set(SUBMITTED) == {
        *("--vendor", "--vendor-path", "--machine", "--model", "--topology", "--framework", "--preset", "--mode"),
        *("--repeat", "--seed", "--set", "--site", "--launcher", "--container", "--data-dir", "--cases", "--results"),
        *("--session", "--max-device-hours", "--wait-for-devices", "--resume", "--submit", "--changed-since"),
        "--sabotage",
    }


@pytest.mark.parametrize("name", SUBMITTED)
def test_what_the_submission_has_decided_is_refused_by_whoever_collects(tmp_path: Path, name: str) -> None:
    """Accepted and without effect, it would be believed."""
    (tmp_path / "site.toml").touch()
    takes = next(option.takes for option in OPTIONS if option.name == name)
    with pytest.raises(UsageProblem, match=rf"^{name} has no effect beside --attach \..*; leave {name} out$"):
        parsed(tmp_path, "--attach", ".", *([name, VALUES.get(name, ".")] if takes else [name]))


def test_what_judges_a_collected_session_is_kept(tmp_path: Path) -> None:
    """And is part of the command that repeats a plan of it."""
    options = parsed(tmp_path, "--attach", ".", "--baseline", ".", "--time-budget", "1h", "--fail-inconclusive")
    assert options.rerun == ("--baseline", f"{tmp_path}", "--fail-inconclusive")
    assert (options.baselines, options.time_budget_s, options.fail_inconclusive) == ((tmp_path / ".",), 3600, True)
    assert parsed(tmp_path, "--attach", ".", "--plan", "--detect", "5%").detect == Detect(difference=0.05)
