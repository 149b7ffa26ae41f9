"""What a change can affect: from the paths that it touches to the plans whose numbers it may move."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from suite.config_name import DEFAULT_CONFIG, parse_config_name
from suite.digest import drivers_of
from suite.errors import UsageProblem
from suite.plan import Plan

INERT = (
    "*.md", "LICENSE", "docs/*", "mkdocs.yml", "tests/*", "benchmarks/*", "tools/*", ".github/*", ".ci/*", ".gitignore",
    ".pre-commit-config.yaml", "Jenkinsfile", "suite/schemas/*", "suite/conformance/*", "fixtures/sites/*",
)  # fmt: skip
"""Globs of what no plan reads or runs. Whatever is not known here counts as the harness: rather once too often."""

ANY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Plans that one path can affect; `*` stands for all."""

    model: str = ANY
    framework: str = ANY
    vendor: str = ANY
    machine: str = ANY
    topology: str = ANY
    driver: str = ANY
    """A folder of suite/drivers."""

    def holds(self, plan: Plan) -> bool:
        """The path is part of `plan`, or of the base that its speedup is measured against."""
        return any(self._names(one) for one in (plan, plan.base) if one is not None)

    def _names(self, plan: Plan) -> bool:
        if self.driver not in (ANY, *drivers_of(plan.framework, script=plan.script is not None)):
            return False
        return all(
            wanted in (ANY, found)
            for wanted, found in (
                (self.model, plan.model),
                (self.framework, plan.framework),
                (self.vendor, plan.vendor),
                (self.machine, plan.machine),
                (self.topology, str(plan.topology)),
            )
        )


@dataclass(frozen=True, slots=True)
class Affected:
    """All that a set of paths can affect."""

    reaches: frozenset[Reach]

    def selects(self, plan: Plan) -> bool:
        """Whether `plan` has to be run again."""
        return any(reach.holds(plan) for reach in self.reaches)


def affected(paths: Iterable[str]) -> Affected:
    """What changes to `paths` (relative to the checkout, forward slashes, both names of what was moved) can affect."""
    return Affected(frozenset(reach for path in paths if (reach := _reach(path)) is not None))


def _reach(path: str) -> Reach | None:
    """None: no plan reads it."""
    if any(fnmatchcase(path, glob) for glob in INERT):
        return None
    parts = path.split("/")
    match parts:
        case ["suite", "cases", model, framework, _, *_]:
            return Reach(model=model, framework=framework)
        case ["suite", "cases", model, _]:
            return Reach(model=model)
        case ["suite", "drivers", framework, _, *_]:
            return Reach(driver=framework)
        case ["suite", "vendors", vendor, *inside]:
            return _vendor_reach(vendor, inside)
        case ["baselines", vendor, _, *_]:
            return Reach(vendor=vendor)
        case _:
            return Reach()


def _vendor_reach(vendor: str, inside: list[str]) -> Reach:
    """Never wider than the vendor itself."""
    match inside:
        case ["machines", file] if file.endswith(".toml"):
            return Reach(vendor=vendor, machine=file.removesuffix(".toml"))
        case ["runtime" | "images", framework, _, *_]:
            return Reach(vendor=vendor, framework=framework)
        case [model, framework, file] if file.endswith(".toml") and file != DEFAULT_CONFIG:
            try:
                machine, topology = parse_config_name(file)
            except UsageProblem:
                return Reach(vendor=vendor, model=model, framework=framework)
            return Reach(
                vendor=vendor, model=model, framework=framework, machine=machine, topology=str(topology)
            )  # fmt: skip
        case [model, framework, _, *_] if model != "machines":
            return Reach(vendor=vendor, model=model, framework=framework)
        case _:
            return Reach(vendor=vendor)
