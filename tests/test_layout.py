"""The house rules that a reader can check by looking, checked by looking: imports, sizes, names, links."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("suite", "fixtures", "reports", "tools")
TRAINING_SIDE = ("suite/cases/", "suite/drivers/", "suite/vendors/", "suite/conformance/")
"""What runs inside the sandbox, where a framework is."""

FORBIDDEN_IMPORTS = {
    "suite": {"fixtures", "reports", "tools"},
    "fixtures": {"reports", "tools"},
    "reports": {"fixtures", "tools"},
    "tools": {"fixtures", "reports"},
}
FRAMEWORKS = {"torch", "tensorflow", "paddle", "jax", "numpy", "h5py", "tokenizers"}

ON_EVERY_NODE = (
    *("fixtures/agent.py", "fixtures/node/*.py", "suite/drivers/events.py", "suite/drivers/rank.py"),
    *("suite/drivers/scripts/adapters/*.py", "suite/drivers/scripts/invocation.py"),
    "suite/drivers/scripts/with_log.py",
)

LONGEST_FILE = 450
LONGEST_FUNCTION = 70


def relative(path: Path) -> str:
    """The path as the rules write it."""
    return path.relative_to(ROOT).as_posix()


def python_files(*folders: str) -> list[Path]:
    """Every Python file below these folders of the checkout."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    """The parsed file."""
    return ast.parse(path.read_bytes(), filename=str(path))


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """(line, first part of the module) of every import in the file, also of those inside functions."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module.partition(".")[0]


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """(line, full dotted name) of every import; `from a import b` yields a.b too."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def test_there_is_something_to_look_at() -> None:
    assert len(python_files(*ROOMS)) > 20


@pytest.mark.parametrize("room", ROOMS)
def test_imports_between_rooms_go_one_way(room: str) -> None:
    wrong = [
        f"{relative(path)}:{line} imports {module}"
        for path in python_files(room)
        for line, module in imported(path)
        if module in FORBIDDEN_IMPORTS[room]
    ]
    assert wrong == []


def test_the_training_side_imports_nothing_of_the_harness() -> None:
    allowed = ("suite.drivers", "suite.flops")
    wrong = [
        f"{relative(path)}:{line} imports {module}"
        for path in python_files("suite/drivers", "suite/cases", "suite/vendors")
        if not path.name.startswith("test_")
        for line, module in imported_modules(path)
        if module.startswith("suite.") and not module.startswith(allowed)
    ]
    assert wrong == []


def test_no_framework_is_imported_by_the_harness() -> None:
    wrong = [
        f"{relative(path)}:{line} imports {module}"
        for path in [*python_files(*ROOMS), ROOT / "conftest.py"]
        if not relative(path).startswith(TRAINING_SIDE)
        for line, module in imported(path)
        if module in FRAMEWORKS
    ]
    assert wrong == []


def test_no_vendor_but_cpu_is_named_in_python() -> None:
    vendors = {path.parent.name for path in ROOT.glob("suite/vendors/*/vendor.toml")} - {"cpu"}
    assert vendors, "there is at least one vendor beside cpu"
    word = re.compile(rf"(?<![a-z0-9])({'|'.join(sorted(vendors))})(?![a-z0-9])", re.IGNORECASE)
    wrong = [
        f"{relative(path)}:{number} names {found[0]}"
        for path in [*python_files(*ROOMS), ROOT / "conftest.py"]
        if not relative(path).startswith("suite/vendors/")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (found := word.search(line))
    ]
    assert wrong == []


def test_only_device_py_names_a_device_api() -> None:
    wrong = [
        f"{relative(path)}:{number}"
        for path in python_files("suite/drivers", "suite/cases")
        if relative(path) != "suite/drivers/pytorch/device.py"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if "cuda" in line.lower()
    ]
    assert wrong == []


def test_files_are_short() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in python_files(*ROOMS)}
    assert {relative(path): count for path, count in lengths.items() if count > LONGEST_FILE} == {}


def test_functions_are_short() -> None:
    wrong = [
        f"{relative(path)}:{node.lineno} {node.name}: {node.end_lineno - node.lineno + 1} lines"
        for path in python_files(*ROOMS)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno + 1 > LONGEST_FUNCTION
    ]
    assert wrong == []


def undocumented(path: Path) -> Iterator[str]:
    """Public functions and classes of a module, and public methods of public classes, without a docstring."""
    if tree(path).body and not ast.get_docstring(tree(path)):
        yield f"{relative(path)}: the module"
    for node in tree(path).body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        if not ast.get_docstring(node):
            yield f"{relative(path)}:{node.lineno} {node.name}"
        if isinstance(node, ast.ClassDef) and not node.bases:
            # A subclass may leave the contract to its base.
            for member in node.body:
                public = isinstance(member, ast.FunctionDef) and not member.name.startswith("_")
                if public and not ast.get_docstring(member):
                    yield f"{relative(path)}:{member.lineno} {node.name}.{member.name}"


def test_everything_public_states_its_contract() -> None:
    files = [path for path in python_files(*ROOMS) if not path.name.startswith("test_")]
    assert [line for path in files for line in undocumented(path)] == []


@pytest.mark.parametrize("pattern", [*ON_EVERY_NODE, "suite/flops.py"])
def test_what_runs_in_old_images_is_python_3_8(pattern: str) -> None:
    paths = sorted(ROOT.glob(pattern))
    assert paths, f"{pattern} exists"
    for path in paths:
        ast.parse(path.read_bytes(), filename=str(path), feature_version=(3, 8))


@pytest.mark.parametrize("pattern", ON_EVERY_NODE)
def test_what_runs_on_every_node_needs_only_the_standard_library(pattern: str) -> None:
    own = {"fixtures", "suite", "node"}
    wrong = [
        f"{relative(path)}:{line} imports {module}"
        for path in sorted(ROOT.glob(pattern))
        for line, module in imported(path)
        if module not in sys.stdlib_module_names | own
    ]
    assert wrong == []


def test_no_command_goes_through_a_shell() -> None:
    wrong = [
        f"{relative(path)}:{node.lineno}"
        for path in python_files(*ROOMS, "tests", "benchmarks")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and _uses_shell(node)
    ]
    assert wrong == []


def _uses_shell(call: ast.Call) -> bool:
    """`shell=` anything but False, or a function that always takes a shell."""
    shell = [keyword.value for keyword in call.keywords if keyword.arg == "shell"]
    if shell and not (isinstance(shell[0], ast.Constant) and shell[0].value is False):
        return True
    return ast.unparse(call.func) in {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}


def documents() -> list[Path]:
    """Every page for people."""
    return sorted(
        [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("suite/**/*.md"), *ROOT.glob("fixtures/**/*.md")]
    )


@pytest.mark.parametrize("page", documents(), ids=relative)
def test_relative_links_resolve(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]
    missing = [target for target in targets if target and not (page.parent / target).exists()]
    assert missing == []


def test_case_folders_are_not_packages() -> None:
    assert [relative(path) for path in (ROOT / "suite" / "cases").rglob("__init__.py")] == []


def test_no_machine_of_a_developer_is_named() -> None:
    """Paths and hosts of one person's machine say nothing to the next reader."""
    pattern = re.compile(r"/home/\w+/|/root/|/raid/|\b(?:10|192\.168)(?:\.\d{1,3}){2,3}\b")
    pages = [*documents(), *python_files(*ROOMS), *ROOT.glob("suite/**/*.toml"), *ROOT.glob("fixtures/**/*.toml")]
    wrong = [
        f"{relative(page)}: {found[0]}" for page in pages if (found := pattern.search(page.read_text(encoding="utf-8")))
    ]
    assert wrong == []
