"""The pages and CI files: every command in them exists, every number in them is computed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from fixtures.option_table import OPTIONS
from reports import statistics
from reports.__main__ import _parser
from reports.compare import ACROSS, TOLERANCES
from reports.gate import NOT_THE_CHANGE

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "docs" / f"{name}.md" for name in ("compare", "baselines", "ci", "statistics")]
CI = sorted((ROOT / "docs" / "ci").iterdir())


def commands(path: Path, program: str) -> list[str]:
    """Every command line of `program` in a file, continued lines joined, without what the shell does with it."""
    text = re.sub(r"\\\n\s*", " ", path.read_text(encoding="utf-8"))
    found = re.findall(rf"{program} ([^`\n]*)", text)
    return [re.split(r" \|\| | >> |\s+#| && |, |'$|…|; ", line)[0].strip() for line in found]


@pytest.mark.parametrize("path", [*PAGES, *CI, ROOT / "baselines/README.md"], ids=lambda path: path.name)
def test_every_reports_command_exists(path: Path) -> None:
    for line in commands(path, "python -m reports"):
        words = [word for word in shlex.split(line) if word not in ("…", "|")]
        if len(words) > 1 and words != ["export"]:
            arguments = _parser().parse_args(words)
            assert callable(arguments.run), line


def test_there_are_commands_to_look_at() -> None:
    counts = {path.name: len(commands(path, "python -m reports")) for path in [*PAGES, *CI]}
    assert sum(counts.values()) > 15 and counts["github-judge.yml"] >= 2 and counts["Jenkinsfile"] >= 1, counts


@pytest.mark.parametrize("path", CI, ids=lambda path: path.name)
def test_every_option_of_pytest_exists(path: Path) -> None:
    known = {option.name for option in OPTIONS} | {"-k", "-q"}
    for line in commands(path, "pytest suite") + commands(path, "set -- suite"):
        assert set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", line)) <= known, line


def workflow(name: str) -> dict[str, Any]:
    """A workflow file, parsed."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    data = yaml.safe_load((ROOT / "docs" / "ci" / name).read_text(encoding="utf-8"))
    assert isinstance(data, dict)
    return data


@pytest.mark.parametrize("name", ["github-run.yml", "github-judge.yml"])
def test_workflows_are_sound(name: str) -> None:
    data = workflow(name)
    triggers = data.get("on") or data.get(True)  # YAML 1.1 reads the word `on` as a truth value
    assert "pull_request_target" not in triggers
    for job in data["jobs"].values():
        assert job["timeout-minutes"] and job["steps"]
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step), step
            # An expression inside a script would let a branch's name run as code; it comes in as a variable.
            assert "${{" not in step.get("run", ""), step
            if "checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


def test_what_runs_strangers_code_may_write_nothing() -> None:
    data = workflow("github-run.yml")
    assert data["permissions"] == {"contents": "read"}
    assert "secrets." not in (ROOT / "docs/ci/github-run.yml").read_text()


def test_what_may_write_runs_nothing_of_the_pull_request() -> None:
    scripts = [step["run"] for step in workflow("github-judge.yml")["jobs"]["judge"]["steps"] if "run" in step]
    assert any("--own-plans" in script for script in scripts)
    for script in scripts:
        assert "pytest" not in script
        assert re.findall(r"\S*\.\./pr\S*", script) in ([], ['../pr/suite/vendors/"$VENDOR"'])


def test_the_jenkinsfile_is_balanced_and_keeps_junit() -> None:
    text = (ROOT / "docs/ci/Jenkinsfile").read_text()
    bare = re.sub(r"'''.*?'''|'[^'\n]*'|\"[^\"\n]*\"|//[^\n]*", "", text, flags=re.DOTALL)
    assert bare.count("{") == bare.count("}") > 10 and bare.count("(") == bare.count(")")
    assert "junit.xml" in text and "gate" in text


def page(name: str) -> str:
    """The text of a page."""
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def test_the_numbers_of_the_statistics_page_are_computed() -> None:
    text = page("statistics")
    row = re.search(r"\| smallest possible p \| (.*) \|", text)
    assert row and [float(cell) for cell in row[1].split("|")] == pytest.approx(
        [statistics.smallest_p(n, n) for n in range(2, 8)], rel=0.05
    )
    row = re.search(r"\| comparisons at once that allow it \| (.*) \|", text)
    assert row
    for runs, count in enumerate((int(cell) for cell in row[1].split("|")), 2):
        smallest = statistics.smallest_p(runs, runs)
        assert smallest * count < statistics.ALPHA <= smallest * (count + 1)
    for metric, tolerance in TOLERANCES.items():
        assert f"| `{metric}` | {100 * tolerance:.0f} % |" in text
    assert f"{statistics.RESAMPLES:,} times" in text and f"Up to {statistics.EXACT_UP_TO} runs" in text


def test_the_pages_name_what_the_code_knows() -> None:
    assert all(f"| `{name}` |" in page("compare") for name in ACROSS)
    told = page("ci").partition("| 3 | ")[2].partition("\n")[0]
    words = {name: name.replace("_", " ") for name in NOT_THE_CHANGE}
    words |= {"preempted": "preemption", "interrupted": "interruption", "worker_lost": "lost worker"}
    assert [name for name, word in words.items() if word not in told] == []
