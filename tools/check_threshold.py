"""Thresholds against what they cite: a source with a figure, and a value that is not far below it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from suite.spec import CheckSpec
from suite.vendor_spec import Threshold, VendorScope
from tools.check_recorded import Recorded, figures
from tools.finding import Finding

FAR = 0.9
"""A threshold that a run of nine tenths of the cited speed would pass is far below it."""
LARGEST_TOLERANCE = 0.15
SHORTEST_SOURCE = 20
PLACEHOLDER = re.compile(
    r"\b(?:todo|tbd|fixme|xxx)\b|^\W*$|\?\?|who measured it, when"
    r"|\bskeleton\b|\bmade[ -]up\b|\breplace (?:it|this) by\b",
    re.IGNORECASE,
)
"""What stands where a source will be, the templates' own words among it."""

NUMBER = r"(\d[\d,]*(?:\.\d+)?)"
FIGURES = {
    "throughput": rf"{NUMBER} ?[a-z]+/s\b(?!ec)",
    "time_to_train": rf"{NUMBER} ?(?:s|seconds)\b(?!/)",
    "speedup": rf"(?:= ?|by |of |speedup ){NUMBER}(?:\b|x)",
    "memory": rf"{NUMBER} ?GiB\b",
    "mfu": rf"{NUMBER} ?%",
}
"""How a source writes what was measured, by the threshold's name."""

LOWER_IS_BETTER = frozenset({"time_to_train", "memory"})


def check_thresholds(scope: VendorScope, where: str, label: str, preset: str, runs: Recorded) -> Iterator[Finding]:
    """Every threshold and check of one scope; `where` is its table, as its author wrote it."""
    for name, threshold in scope.threshold.items():
        measured = figures(name, threshold, preset, runs) or cited(name, threshold.source)
        yield from _check_one(name, threshold, measured, f"[{where}threshold.{name}]", label)
    for check in scope.check:
        yield from _check_source(check, f"[[{where}check]] {check.name}", label)


def _check_one(name: str, threshold: Threshold, measured: Sequence[float], table: str, label: str) -> Iterator[Finding]:
    yield from _check_source(threshold, table, label)
    if threshold.tolerance > LARGEST_TOLERANCE:
        remedy = f"at most {LARGEST_TOLERANCE:g}: a wider one accepts what nobody measured"
        yield Finding(label, f"{table} tolerance = {threshold.tolerance:g}", remedy)
    if not measured:
        return
    slack = 1 - threshold.tolerance if name not in LOWER_IS_BETTER else 1 + threshold.tolerance
    bound = threshold.value * slack
    near = min(measured, key=lambda figure: abs(figure - threshold.value))
    far = bound * FAR > near if name in LOWER_IS_BETTER else bound < FAR * near
    if far:
        side = "above" if name in LOWER_IS_BETTER else "below"
        remedy = "hold the chip to what the run reached, or cite the run that the value comes from"
        yield Finding(label, f"{table} value = {threshold.value:g} is far {side} the {near:g} that it cites", remedy)


def _check_source(of: Threshold | CheckSpec, table: str, label: str) -> Iterator[Finding]:
    source = of.source.strip()
    remedy = "say who measured it, when, with what, and the figure"
    if len(source) < SHORTEST_SOURCE or PLACEHOLDER.search(source):
        yield Finding(label, f"{table} source = {source[:60]!r} cites nothing", remedy)
    elif not re.search(r"\d", source):
        yield Finding(label, f"{table} source has no figure in it", remedy)


def cited(name: str, source: str) -> list[float]:
    """The figures in a source that are in the threshold's own unit; a percentage as a fraction."""
    found = [float(text.replace(",", "")) for text in re.findall(FIGURES[name], source)]
    return [value / 100 for value in found] if name == "mfu" else found
