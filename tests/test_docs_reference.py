"""Every event, record, check and phase is defined in docs/, every command there exists, every site file there is read.

Options stand in test_user_options, outcomes, metrics and keys of results in test_reports_docs, parameters in
test_driver_parts, the keys of vendor.toml in test_vendor_folders.
"""

from __future__ import annotations

import argparse
import ast
import re
import shlex
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from fixtures.option_table import OPTIONS
from fixtures.options import ENGINES, LAUNCHERS
from fixtures.site import SiteFile
from reports.__main__ import _parser as reports_parser
from reports.records import SessionRecord
from suite.catalog import load_catalog
from suite.convergence_checks import BOTH_SIDES
from suite.drivers import events as training_side
from suite.events import NAMES
from suite.measurement import LEDGER_PHASES
from suite.metrics import METRICS
from suite.plan import Mode, Request
from suite.requality import VALUE
from suite.selection import plans
from suite.vendor_spec import ThresholdName
from tools.__main__ import parser as tools_parser

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
GUIDES = [
    ROOT / "docs" / f"{name}.md"
    for name in (
        "index", "tutorial", "cases", "frameworks", "data", "resume", "disk", "energy", "trust", "checks", "upgrading",
        "adding", "migrating-from-flagperf",
    )
]  # fmt: skip
EVENT_KEYS = frozenset({"event", "t"})


def section(page: str, title: str) -> str:
    """The text under a heading of the second level."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    found = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert found, f"docs/{page}.md has no section {title!r}"
    return found


def rows(text: str) -> dict[str, str]:
    """Name -> rest of its row, of every table row whose first cell is names in code spans."""
    found: dict[str, str] = {}
    for names, rest in re.findall(r"^\| ((?:`\w+` ?)+)\|(.*)$", text, re.MULTILINE):
        found |= dict.fromkeys(re.findall(r"`(\w+)`", names), rest)
    return found


def written_events() -> dict[str, set[str]]:
    """Event -> the keys that some call of the training side names for it."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted([*(ROOT / "suite/drivers").rglob("*.py"), *(ROOT / "suite/conformance").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                name = node.args[0].value
                if isinstance(name, str) and name in NAMES:
                    found[name] |= {keyword.arg for keyword in node.keywords if keyword.arg}
    return found


def test_every_event_is_defined_and_no_other() -> None:
    assert set(rows(section("contracts", "3. Events"))) == NAMES
    assert callable(training_side.EventWriter.write)


def test_every_key_that_a_driver_writes_is_defined() -> None:
    documented = rows(section("contracts", "3. Events"))
    written = written_events()
    assert len(written) > 10 and {"first", "count", "loss"} <= written["steps"], (
        "the search finds what the drivers write"
    )
    wrong = {
        f"{event}: {key}"
        for event, keys in written.items()
        for key in keys - EVENT_KEYS
        if f"`{key}`" not in documented[event]
    }
    assert wrong == set()


def harness_events() -> set[str]:
    """What `log.write` and its shorthands put into harness.jsonl."""
    found = {"phase", "ended"}
    for path in sorted((ROOT / "fixtures").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "write"
                and re.search(r"(^|[._])log$|^HarnessLog\(", ast.unparse(node.func.value))
                and node.args
                and isinstance(node.args[0], ast.Constant)
                and isinstance(node.args[0].value, str)
            ):
                found.add(node.args[0].value)
    return found


def test_every_event_of_the_harness_is_defined_and_no_other() -> None:
    found = harness_events()
    assert len(found) > 6, "the search finds what the harness writes"
    assert set(rows(section("contracts", "4. harness.jsonl"))) == found


def test_every_record_of_the_hook_is_defined() -> None:
    documented = rows(section("contracts", "5. Records of the hook `pytest_trainmark_record`"))
    assert set(documented) == {"session", "plan", "phase", "attempt", "outcome", "verdict"}
    assert [key for key in set(SessionRecord.model_fields) - {"kind"} if f"`{key}`" not in documented["session"]] == []


def declared(table: object) -> Iterator[str]:
    """Names of the `[[check]]` entries anywhere in a file."""
    for key, value in table.items() if isinstance(table, dict) else ():
        if key == "check":
            yield from (entry["name"] for entry in value)
        yield from declared(value)


def standard_checks() -> Iterator[str]:
    """Names of the checks that a plan has without its case or its vendor declaring one."""
    yield from get_args(ThresholdName)
    yield from (*BOTH_SIDES, VALUE)
    catalog = load_catalog(ROOT / "suite")
    files = [*ROOT.glob("suite/cases/*/*/case.toml"), *ROOT.glob("suite/vendors/cpu/*/*/config_*.toml")]
    own = {name for path in files for name in declared(tomllib.loads(path.read_text(encoding="utf-8")))}
    modes: tuple[Mode, ...] = ("converge", "throughput")
    for mode in modes:
        for plan in plans(catalog, Request(vendor="cpu", presets=("*",), mode=mode, repeat=3)):
            yield from (check.name for check in plan.checks if check.name not in own)


def test_every_check_is_defined_and_no_other() -> None:
    table = section("checks", "From checks to the outcome")
    text = (ROOT / "docs/checks.md").read_text(encoding="utf-8").partition(table)[0]
    documented = rows(text)
    assert set(documented) == set(standard_checks())
    assert set(re.findall(r"^ `(\w+)`", "\n".join(documented.values()), re.MULTILINE)) <= set(METRICS)


def test_every_phase_of_the_ledger_is_defined_in_order() -> None:
    assert tuple(rows(section("checks", "The ledger"))) == LEDGER_PHASES


def test_every_launcher_and_engine_is_named() -> None:
    text = (ROOT / "docs/options.md").read_text(encoding="utf-8")
    for option, names in (("--launcher", LAUNCHERS), ("--container", ENGINES)):
        row = re.search(rf"^\| `{option}` \|.*$", text, re.MULTILINE)
        assert row and [name for name in names if f"`{name}`" not in row[0]] == []


def command_lines(page: Path, program: str) -> list[list[str]]:
    """The words of every line of code that runs `program`, without its comment."""
    found = re.findall(rf"^    {program}(?: (.*))?$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [shlex.split(line, comments=True) for line in found]


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_every_command_of_a_guide_exists(page: Path) -> None:
    parsers: dict[str, argparse.ArgumentParser] = {
        "python -m reports": reports_parser(),
        "python -m tools": tools_parser(),
    }
    for program, parser in parsers.items():
        for words in command_lines(page, program):
            arguments = parser.parse_args([word for word in words if not word.startswith("[")])
            assert callable(arguments.run)
    known = {option.name for option in OPTIONS} | {"-k", "-n", "-m", "-q"}
    for words in command_lines(page, "pytest suite"):
        assert {word for word in words if re.match(r"--?[a-z]", word)} <= known


def test_there_are_commands_to_look_at() -> None:
    programs = ("python -m reports", "python -m tools", "pytest suite")
    for program in programs:
        assert sum(len(command_lines(page, program)) for page in GUIDES) >= 6, program


def site_files() -> list[tuple[str, str]]:
    """(page, text) of every block that says it is a site file."""
    return [
        (page.stem, block)
        for page in PAGES
        for block in re.findall(r"^```toml\n(# site\.toml\n.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    ]


def test_site_files_in_the_pages_are_read() -> None:
    found = site_files()
    assert {page for page, _ in found} >= {"resume", "energy", "ssh"}
    for page, text in found:
        assert SiteFile.model_validate(tomllib.loads(text)), page
