"""What the harness costs is measured by benchmarks/; here is what keeps it low: files read once, nothing imported."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import overheads
from benchmarks.overhead_checkout import MACHINE, make_checkout
from benchmarks.sidebyside import Pair, interval
from fixtures.state import folders_without_code
from suite.catalog import load_catalog
from suite.described import attribute_docs
from suite.digest import Digests, code_digest
from suite.errors import UsageProblem
from suite.plan import Plan, Request
from suite.record import Record
from suite.selection import plans
from suite.syntax_text import syntax_text
from suite.toml_file import shown

ROOT = Path(__file__).resolve().parent.parent
FRAMEWORKS = {"torch", "tensorflow", "paddle", "numpy", "matplotlib", "docker", "jinja2"}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four cases with ten configurations each."""
    root = tmp_path_factory.mktemp("overhead") / "checkout"
    make_checkout(root, 4, 10)
    return root


def imported(modules: str) -> set[str]:
    """Everything that a fresh interpreter has imported with `modules`."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {modules}; print(*sys.modules)"
    argv = [sys.executable, "-c", code]
    return set(subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120).stdout.split())


def test_no_entry_point_imports_a_framework() -> None:
    found = imported(
        "fixtures.plugin, reports.plugin, fixtures.handover, fixtures.training, reports.__main__, tools.__main__"
    )
    assert "fixtures.execution" in found and not FRAMEWORKS & found


def test_listing_imports_nothing_that_launches() -> None:
    found = imported("fixtures.plugin, fixtures.handover, fixtures.selected")
    assert "fixtures.policy" in found
    assert not {"fixtures.container", "fixtures.launcher", "fixtures.execution", "fixtures.plan_text"} & found


def test_what_runs_on_a_node_imports_no_pydantic() -> None:
    found = imported("fixtures.node.agent, suite.drivers.rank, suite.drivers.events")
    assert "fixtures.node.monitor" in found and not {"pydantic", "pytest", *FRAMEWORKS} & found


def test_planning_reads_each_file_once(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: Counter[Path] = Counter()
    read_bytes, read_text = Path.read_bytes, Path.read_text

    def bytes_counted(self: Path) -> bytes:
        read[self] += 1
        return read_bytes(self)

    def text_counted(self: Path, *given: str | None, **named: str | None) -> str:
        read[self] += 1
        return read_text(self, *given, **named)

    monkeypatch.setattr(Path, "read_bytes", bytes_counted)
    monkeypatch.setattr(Path, "read_text", text_counted)
    found = plans(load_catalog(checkout / "suite"), Request(vendor="maker", machine=MACHINE))
    assert len(found) == 40
    of_cases = {path: count for path, count in read.items() if "case0" in str(path)}
    # case.toml is read as configuration and again for the digest of the case's code; everything else once.
    assert {count for path, count in of_cases.items() if path.name != "case.toml"} == {1}
    assert {count for path, count in of_cases.items() if path.name == "case.toml"} == {2}
    versions = [count for path, count in read.items() if path.name == "VERSION"]
    assert versions and max(versions) <= 4, "once a case, not once a plan"


def listed(checkout: Path) -> tuple[Plan, ...]:
    return plans(load_catalog(checkout / "suite"), Request(vendor="maker", machine=MACHINE), hashed=False)


def unhashed(plan: Plan) -> Plan:
    base = None if plan.base is None else unhashed(plan.base)
    return plan.model_copy(update={"case_digest": "", "plan_digest": "", "base": base})


def test_a_plan_without_digests_is_the_same_plan(checkout: Path) -> None:
    full = plans(load_catalog(checkout / "suite"), Request(vendor="maker", machine=MACHINE))
    assert all(len(plan.case_digest) == len(plan.plan_digest) == 64 for plan in full)
    assert listed(checkout) == tuple(map(unhashed, full))


def test_a_part_of_the_plans_is_the_same_plans(checkout: Path) -> None:
    full = plans(load_catalog(checkout / "suite"), Request(vendor="maker", machine=MACHINE))
    ids = {plan.id for plan in full[3:6]}
    part = plans(load_catalog(checkout / "suite"), Request(vendor="maker", machine=MACHINE), only=ids)
    assert part == full[3:6]


def test_without_digests_no_source_is_read(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    read_bytes = Path.read_bytes

    def noted(self: Path) -> bytes:
        read.append(self)
        return read_bytes(self)

    monkeypatch.setattr(Path, "read_bytes", noted)
    assert len(listed(checkout)) == 40
    assert read and not [path for path in read if path.suffix == ".py"]


def test_without_digests_a_source_that_cannot_be_read_is_told(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    def refused(self: Path, *given: object, **named: object) -> object:
        if self.name == "train.py":
            raise PermissionError(13, "Permission denied", str(self))
        return opened(self, *given, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(PermissionError, match=r"train\.py"):
        listed(checkout)


@pytest.mark.parametrize(
    ("path", "text", "told"),
    [
        ("suite/cases/case0002/pytorch/data.toml", "entry = 3\n", "case0002/pytorch/data.toml"),
        ("suite/vendors/maker/case0002/pytorch/config_M1x1x2.toml", "lrr = 1.0\n", "unknown key 'lrr'"),
    ],
)
def test_without_digests_a_mistake_is_told(checkout: Path, path: str, text: str, told: str) -> None:
    file = checkout / path
    before = file.read_text() if file.exists() else None
    file.write_text(text)
    try:
        with pytest.raises(UsageProblem, match=told):
            listed(checkout)
    finally:
        file.unlink() if before is None else file.write_text(before)


def test_plans_share_the_note_of_their_fields_and_copies_do_not(checkout: Path) -> None:
    found = plans(load_catalog(checkout / "suite"), Request(vendor="maker", machine=MACHINE))
    assert len({id(plan.model_fields_set) for plan in found}) == 1
    before = set(found[0].model_fields_set)
    copy = found[0].model_copy(update={"schema_version": 1})
    assert "schema_version" in copy.model_fields_set and found[1].model_fields_set == before
    assert Plan.model_validate_json(found[1].model_dump_json()) == found[1]


def test_only_folders_without_any_python_are_passed_over(tmp_path: Path) -> None:
    for name in ("a/b/config.toml", "a/extern/deep/norm.py", "c/d/machine.toml", "e/f/README.md"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("")
    (tmp_path / "e/f/linked").symlink_to(tmp_path / "a")
    found = {path.relative_to(tmp_path).as_posix() for path in folders_without_code(tmp_path)}
    assert found == {"a/b", "c", "c/d"}, "what a link leads to may hold a test"


def test_configurations_of_a_case_share_base_and_equal_checks(checkout: Path) -> None:
    found = plans(load_catalog(checkout / "suite"), Request(vendor="maker", machine=MACHINE))
    bases = {id(plan.base) for plan in found if plan.base is not None}
    assert sum(plan.base is not None for plan in found) == 36 and len(bases) == 4
    ledgers = {id(check) for plan in found for check in plan.checks if check.name == "ledger"}
    assert len(ledgers) == 1


def test_another_batch_has_a_base_of_its_own(checkout: Path) -> None:
    config = checkout / f"suite/vendors/maker/case0000/pytorch/config_{MACHINE}x1x4.toml"
    before = config.read_text()
    config.write_text("train_batch_size = 2\n")
    try:
        found = plans(load_catalog(checkout / "suite"), Request(vendor="maker", machine=MACHINE, models=("case0000",)))
    finally:
        config.write_text(before)
    batches = {str(plan.topology): plan.base.params["train_batch_size"] for plan in found if plan.base is not None}
    assert batches["1x4"] == 2 and set(batches.values()) == {2, 8}


def test_digests_are_those_of_the_files_alone(checkout: Path) -> None:
    catalog = load_catalog(checkout / "suite")
    digests = Digests(catalog.suite_dir)
    assert len({digests.case(case) for case in catalog.cases}) == 1, "the invented cases have the same content"
    driver = checkout / "suite/drivers/pytorch"
    assert code_digest([driver], (".py",)) == code_digest([driver.resolve()], (".py",))


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (b'"""Gone."""\n', '["Module",{"body":[]}]'),
        (b"del x  # gone\n", '["Module",{"body":[["Delete",{"targets":[["Name",{"id":"x"}]]}]]}]'),
        (b"{**y}", '["Module",{"body":[["Expr",{"value":["Dict",{"keys":[null],"values":[["Name",{"id":"y"}]]}]}]]}]'),
        ("'\u00e9'\n1".encode(), '["Module",{"body":[["Expr",{"value":["Constant","int","1"]}]]}]'),
    ],
)  # fmt: skip
def test_the_text_of_a_source_is_fixed(source: bytes, text: str) -> None:
    assert syntax_text(source) == text


def test_the_text_of_a_source_is_what_its_tree_holds() -> None:
    for path in sorted((ROOT / "suite").glob("*.py"))[:12]:
        named = {node.id for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Name)}
        text = syntax_text(path.read_bytes())
        assert all(f'["Name",{{"id":"{name}"}}]' in text for name in named)


def test_a_source_that_is_none_is_refused() -> None:
    with pytest.raises(SyntaxError):
        syntax_text(b"def")


@pytest.mark.parametrize(
    ("path", "root", "told"),
    [
        ("/a/b/c", "/a", "b/c"),
        ("/ab", "/a", "/ab"),
        ("/a", "/a", "."),
        ("/a", "/", "a"),
        ("/", "/", "."),
        ("a", "/", "a"),
    ],
)
def test_a_path_is_shown_from_its_root(path: str, root: str, told: str) -> None:
    assert shown(Path(path), Path(root)) == told


def test_descriptions_of_fields_come_from_their_docstrings() -> None:
    class Child(Record):
        first: int
        """What it is,
        at length."""
        second: int = 0

    class Grandchild(Child):
        first: int = 1

    assert attribute_docs(Child) == {"first": "What it is,\nat length.", "second": ""}
    assert attribute_docs(Grandchild)["first"] == "", "a field that is defined anew says nothing unless it says so"
    assert Plan.model_fields["data_dir"].description is None, "nothing is read while a record is defined"


def test_intervals_hold_the_median_of_pairs() -> None:
    assert interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert interval([float(n) for n in range(10)]) == (1.0, 8.0)  # 97.9 %; the next narrower holds 89 %
    line = Pair(a=(2.0, 4.0), b=(1.0, 2.0)).line("A", "B")
    assert "difference 1.5 [1, 2] s" in line and "ratio 2 [2, 2]" in line


def test_an_overhead_that_is_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert overheads.main(["lunch"]) == 4
    assert "'lunch'" in capsys.readouterr().err


def test_every_overhead_has_its_module() -> None:
    found = {path.stem.removeprefix("overhead_") for path in (ROOT / "benchmarks").glob("overhead_*.py")}
    assert set(overheads.NAMES) == found - {"checkout"}
