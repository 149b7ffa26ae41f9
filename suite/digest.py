"""Digests: what can move a number, what is run, and what may be compared with what."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from suite.catalog import CaseFolder
from suite.errors import UsageProblem
from suite.plan import Plan
from suite.syntax_text import syntax_text

_WORDS_ONLY = frozenset(
    {"title", "check", "limit", "deadlines", "estimate_s", "mutable", "source", "licence", "prepare"}
    | {"table", "requality_within", "reference_points", "counted", "asked"}
)
"""Keys of a case's TOML that judge, budget or explain: none of them changes what is trained or how it is timed."""

_CODE = (".py", ".toml")
"""Of a case and a driver."""


def digest(data: object) -> str:
    """SHA-256 of plain data, the same on every machine and version."""
    return _hashed(_canonical(data))


def code_digest(folders: Iterable[Path], suffixes: tuple[str, ...] = ()) -> str:
    """Of all files below `folders` (with `suffixes`, if any), but no comments, docstrings, Markdown, tests, caches."""
    parts = []
    for folder in folders:
        files = _files(folder, suffixes)
        told = (f"[{_canonical(path.relative_to(folder).as_posix())},{_content(path)}]" for path in files)
        parts.append(f"[{','.join(told)}]")
    return _hashed(f"[{','.join(parts)}]")


def data_digest(case: CaseFolder, preset: str) -> str:
    """Of the data.toml entries that `preset` reads; a file that travels with the case counts by its content."""
    entries = []
    for entry in case.data.of(preset):
        sha256, own = entry.sha256, case.path / "data" / entry.path.removeprefix("case:")
        if not sha256 and entry.path.startswith("case:") and own.is_file():
            sha256 = hashlib.sha256(own.read_bytes()).hexdigest()
        entries.append([entry.path, entry.bytes, sha256])
    return digest(sorted(entries))


def measurement_version(case: CaseFolder, suite_dir: Path) -> str:
    """`case:1 driver/pytorch:1`; a framework without a driver of ours has only the first part. Raises UsageProblem."""
    words = [f"case:{case.spec.measurement_version}"]
    for driver in drivers_of(case.framework, script=case.spec.is_script):
        folder = suite_dir / "drivers" / driver
        if not folder.is_dir():
            continue
        path = folder / "VERSION"
        text = path.read_text(encoding="utf-8", errors="replace").strip() if path.is_file() else ""
        if not text.isascii() or not text.isdigit():
            raise UsageProblem(
                f"suite/drivers/{driver}/VERSION: {text!r} is not an integer; write the driver's version"
            )
        words.append(f"driver/{driver}:{int(text)}")
    return " ".join(words)


def drivers_of(framework: str, *, script: bool) -> tuple[str, ...]:
    """The folders of suite/drivers whose code tells how a case is timed: a callback shares PyTorch's clocks."""
    return ("scripts", "pytorch") if script else (framework,)


def comparability_key(plan: Plan, environment: Mapping[str, object]) -> str:
    """Equal where the same thing was measured the same way; what `environment` does not tell counts as unknown."""
    told = ("precision", "image", "framework", "versions", "driver_version")
    return digest(
        {
            "case": [plan.model, plan.framework],
            "device": [plan.vendor, plan.machine, str(plan.topology)],
            "preset": plan.preset,
            "mode": plan.mode,
            "measurement_version": plan.measurement_version,
            "data": plan.data_digest,
            "environment": {name: environment.get(name) for name in told},
        }
    )


class Digests:
    """Digests of one planning, each file read once."""

    def __init__(self, suite_dir: Path) -> None:
        self._suite = suite_dir
        self._drivers = suite_dir / "drivers"
        self._known: dict[object, str] = {}
        self._opened: set[object] = set()

    def case(self, case: CaseFolder) -> str:
        """Code and TOML of the case and of the drivers that serve it."""
        if case.path in self._known:
            return self._known[case.path]
        drivers = self._drivers_of(case)
        if drivers not in self._known:
            shared = (f"{_canonical(path.name)}:{_content(path)}" for path in sorted(self._drivers.glob("*.py")))
            self._known[drivers] = _hashed(f"[{{{','.join(shared)}}},{_canonical(code_digest(drivers, _CODE))}]")
        self._known[case.path] = digest([code_digest([case.path], _CODE), self._known[drivers]])
        return self._known[case.path]

    def require_readable(self, case: CaseFolder) -> None:
        """Open what `case` would read, at a hundredth of its cost: a session that needs no digest has its OSErrors."""
        if case.path in self._opened:
            return
        drivers = self._drivers_of(case)
        if drivers not in self._opened:
            _open_each(sorted(self._drivers.glob("*.py")))
        for folder in {*drivers, case.path} - self._opened:
            _open_each(_files(folder, _CODE))
        self._opened |= {drivers, *drivers, case.path}

    def version(self, case: CaseFolder) -> str:
        """As `measurement_version`."""
        key = ("version", case.path)
        if key not in self._known:
            self._known[key] = measurement_version(case, self._suite)
        return self._known[key]

    def data(self, case: CaseFolder, preset: str) -> str:
        """As `data_digest`."""
        key = (case.path, preset)
        if key not in self._known:
            self._known[key] = data_digest(case, preset)
        return self._known[key]

    def code(self, folders: tuple[Path, ...]) -> str:
        """As `code_digest`, of everything in a vendor's folders of code."""
        if folders not in self._known:
            self._known[folders] = code_digest(folders)
        return self._known[folders]

    def _drivers_of(self, case: CaseFolder) -> tuple[Path, ...]:
        return tuple(self._drivers / name for name in drivers_of(case.framework, script=case.spec.is_script))


def _files(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Those below `folder` that count, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and _counts(path.relative_to(folder), suffixes))


def _open_each(paths: Sequence[Path]) -> None:
    for path in paths:
        path.open("rb").close()


def _counts(path: Path, suffixes: tuple[str, ...]) -> bool:
    hidden = any(part.startswith(".") or part in ("__pycache__", "tests") for part in path.parts)
    test = path.name.startswith("test_") or path.name == "conftest.py"
    return not hidden and not test and path.suffix not in (".md", ".pyc") and (not suffixes or path.suffix in suffixes)


def _content(path: Path) -> str:
    """Canonical JSON of the file without what cannot move a number; one that does not parse counts by its bytes."""
    raw = path.read_bytes()
    try:
        if path.suffix == ".py":
            return syntax_text(raw)
        if path.suffix == ".toml":
            return _canonical(_without_words(tomllib.loads(raw.decode("utf-8"))))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    return _canonical(hashlib.sha256(raw).hexdigest())


def _canonical(data: object) -> str:
    """Plain data as JSON in one spelling: no blanks, keys sorted, ASCII."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _without_words(value: object) -> object:
    if isinstance(value, dict):
        return {
            key: item if key == "params" else _without_words(item)
            for key, item in value.items()
            if key not in _WORDS_ONLY
        }
    return [_without_words(item) for item in value] if isinstance(value, list) else value
