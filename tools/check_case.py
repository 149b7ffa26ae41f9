"""A case's folder as a reviewer reads it: targets, data, a page for people, code of its own."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from suite.catalog import CaseFolder, Catalog
from suite.errors import UsageProblem, did_you_mean
from suite.spec import CaseSpec, Scope
from suite.toml_file import shown
from tools.check_files import can_be_read, check_shape, plain_files, text_of
from tools.check_threshold import PLACEHOLDER, SHORTEST_SOURCE
from tools.finding import Finding, distinct, told

DRIVERS = ("suite.drivers", "suite.flops")
"""All that code which runs in the sandbox may import of this project."""

NOT_MUTABLE = ("eval_every_samples", "seed")
"""What no case gives away: when it is evaluated, and by which lot."""

NO_LICENCE = re.compile(r"^\W*(?:unknown|none|not known)\W*$", re.IGNORECASE)
LARGEST_DATA = 64 << 20
"""Bytes of a file that may travel with a case."""

SECTIONS = (
    ("data", r"\bdata\b", "where the data comes from and how it is got"),
    ("target", r"\btarget", "why these targets, with sources"),
    ("measured", r"measured|full` can show|what it can show", "one measured result per machine, or that there is none"),
    ("limits", r"limit|not |cannot|never|no ", "what was not run, and what the case does not show"),
)
"""(word, pattern, what a README must tell)."""


def check_case(folder: Path, root: Path) -> list[Finding]:
    """Everything that a reviewer would say of the folder; nothing of it is executed."""
    findings = list(check_shape(folder, root))
    label = shown(folder / "case.toml", root)
    if not can_be_read(folder, LARGEST_DATA):
        return distinct(findings)
    case = CaseFolder(folder, root / "suite")
    findings += check_readme(folder, shown(folder / "README.md", root))
    try:
        spec = case.spec
    except UsageProblem as problem:
        return distinct([*findings, told(problem, label)])
    findings += check_spec(case, spec, label)
    findings += check_data(case, spec, root)
    findings += check_python(case, spec, root)
    findings += check_use(case, root, label)
    return distinct(findings)


def check_readme(folder: Path, label: str) -> Iterator[Finding]:
    """README.md tells data, target, one measured result, and what was not run."""
    path = folder / "README.md"
    text = text_of(path)
    if not text.strip():
        yield Finding(label, "missing or empty", "tell " + "; ".join(words for _, _, words in SECTIONS))
        return
    script = "[script]" in text_of(folder / "case.toml")
    for word, pattern, words in SECTIONS:
        # Somebody else's program, run as it is, may have neither a target of ours nor a result yet.
        if not re.search(pattern, text, re.IGNORECASE) and not (script and word in ("target", "measured")):
            yield Finding(label, f"says nothing of: {word}", f"tell {words}")


def check_spec(case: CaseFolder, spec: CaseSpec, label: str) -> Iterator[Finding]:
    """case.toml beyond its types: a target for every preset, sources that cite, nothing mutable that decides."""
    if "mini" not in spec.presets and not spec.is_script:
        yield Finding(label, "no preset mini", "add one: tiny, on small real data, in about a minute on two CPU cores")
    for preset in spec.presets:
        lineage = [spec.preset[name] for name in spec.lineage(preset) if name in spec.preset]
        if not any(scope.target for scope in (spec, *lineage)):
            yield Finding(
                label, f"preset {preset} has no [target]", "say which value quality must reach, and its source"
            )
    yield from _hidden(spec, label)
    for key in sorted(set(spec.mutable) & set(NOT_MUTABLE)):
        yield Finding(label, f"mutable lists {key}", "take it out: when and by which lot a case is judged is its own")
    for where, scope in _scopes(spec):
        yield from _sources(scope, where, label)


def _hidden(spec: CaseSpec, label: str) -> Iterator[Finding]:
    """What the root's target says of an evaluation does not hold for a preset that has a target of its own."""
    for name, preset in spec.preset.items():
        if spec.target is None or preset.target is None:
            continue
        said = [key for key in ("counted", "asked") if getattr(spec.target, key) is not None]
        if lost := [key for key in said if getattr(preset.target, key) is None]:
            yield Finding(
                label,
                f"[preset.{name}.target] takes the place of [target] whole, and has no {' and no '.join(lost)}",
                "say there what its own evaluation asks",
            )


def _scopes(spec: CaseSpec) -> Iterator[tuple[str, Scope]]:
    yield "", spec
    for mode, scope in spec.mode.items():
        yield f"mode.{mode}.", scope
    for name, preset in spec.preset.items():
        yield f"preset.{name}.", preset
        for mode, scope in preset.mode.items():
            yield f"preset.{name}.mode.{mode}.", scope


def _sources(scope: Scope, where: str, label: str) -> Iterator[Finding]:
    told_by = [(f"[{where}target]", scope.target), (f"[{where}limit]", scope.limit)]
    told_by += [(f"[[{where}check]] {check.name}", check) for check in scope.check]  # type: ignore[misc]
    for table, entry in told_by:
        source = entry.source.strip() if entry is not None else None
        if source is not None and (len(source) < SHORTEST_SOURCE // 2 or PLACEHOLDER.search(source)):
            yield Finding(label, f"{table} source = {source[:60]!r} cites nothing", "say who set it, when, and why")


def check_data(case: CaseFolder, spec: CaseSpec, root: Path) -> Iterator[Finding]:
    """data.toml names every file with its licence, and what travels with the case is what it says."""
    label = shown(case.path / "data.toml", root)
    try:
        files = case.data.file
    except UsageProblem as problem:
        yield told(problem, label)
        return
    for entry in files:
        for preset in sorted(set(entry.presets) - set(spec.presets)):
            hint = did_you_mean(preset, spec.presets)
            yield Finding(
                label, f"{entry.path} is of preset {preset!r}, which case.toml lacks{hint}", "name one of these"
            )
        if PLACEHOLDER.search(entry.licence) or NO_LICENCE.search(entry.licence):
            yield Finding(label, f"{entry.path}: licence = {entry.licence!r}", "name it; data without one stays out")
        if entry.path.startswith("case:"):
            yield from _travels(case.path / "data" / entry.path.removeprefix("case:"), entry.bytes, entry.sha256, root)


def _travels(path: Path, size: int, sha256: str, root: Path) -> Iterator[Finding]:
    label = shown(path, root)
    remedy = "run python -m tools data verify MODEL, and write what it prints into data.toml"
    if path.is_dir():
        return  # its tree digest is `data verify`'s to compute
    if not path.is_file():
        yield Finding(label, "missing, though data.toml lists it", "add the file, or remove the entry")
    elif size and path.stat().st_size != size:
        yield Finding(label, f"{path.stat().st_size:,} bytes, data.toml says {size:,}", remedy)
    elif sha256 and hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        yield Finding(label, "not the content whose sha256 data.toml has", remedy)


def check_python(case: CaseFolder, spec: CaseSpec, root: Path) -> Iterator[Finding]:
    """The test is there and judges; the training imports the drivers alone and names no device."""
    test = case.path / f"test_{case.model.replace('-', '_').replace('.', '_')}.py"
    if not any(case.path.glob("test_*.py")):
        yield Finding(shown(test, root), "missing", "write the three lines: def test_…(plan, train, judge)")
    if not spec.is_script and not (case.path / "train.py").is_file():
        yield Finding(shown(case.path / "train.py", root), "missing", "write the task, or a [script] in case.toml")
    for path in plain_files(case.path):
        if path.name == "__init__.py":
            yield Finding(shown(path, root), "makes the folder a package", "remove it: pytest would mix up the tests")
        if path.suffix == ".py":
            yield from _module(path, spec, shown(path, root))


def _module(path: Path, spec: CaseSpec, label: str) -> Iterator[Finding]:
    try:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        yield Finding(f"{label}:{getattr(error, 'lineno', None) or 1}", "not valid Python", "mend it")
        return
    if path.name.startswith("test_"):
        if not re.search(r"def test_\w+\(plan, train, judge\)", text) or not re.search(r"judge\(\s*train\(", text):
            yield Finding(
                label, "does not judge what it trains", "write judge(train(plan)) in test_…(plan, train, judge)"
            )
        return
    for node in ast.walk(tree):
        for module in _imports(node):
            ours = module.partition(".")[0] in ("suite", "fixtures", "reports", "tools", "pytest")
            if ours and not module.startswith(DRIVERS):
                yield Finding(
                    f"{label}:{_line(node)}", f"imports {module}", "the training side imports only suite.drivers"
                )
    if found := re.search("cuda", text, re.IGNORECASE):
        line = text.count("\n", 0, found.start()) + 1
        yield Finding(f"{label}:{line}", f"names {found[0]!r}", "speak of self.device; only device.py knows an API")
    if path.name == "train.py":
        for slot in sorted(set(spec.extern.slots) - {"optimizer"}):
            if not re.search(rf"[\"']{re.escape(slot)}[\"']", text):
                yield Finding(label, f"knows no slot {slot!r}, which case.toml lists", "add it to default_slots()")


def _imports(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        yield node.module


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 1)


def check_use(case: CaseFolder, root: Path, label: str) -> Iterator[Finding]:
    """Some vendor trains it: without a configuration nothing is planned."""
    catalog = Catalog(root / "suite")
    if not any((vendor.path / case.model / case.framework).is_dir() for vendor in catalog.vendors.values()):
        where = f"suite/vendors/cpu/{case.model}/{case.framework}/config_default.toml"
        yield Finding(label, "no vendor trains it", f"write {where}, an empty one will do")
