"""The lines of healthy_seeds as a table: what the runs of each mini reached, and the target that the rule gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.seed_rule import Spread, target_of
from benchmarks.seed_runs import Mini

BROKEN = {"lr_0": ("--set", "lr=0.0"), "labels_shuffled": ("--sabotage", "labels_shuffled")}
"""What a target must tell from a healthy run, and the options that make it."""

Line = dict[str, Any]


def faults(mini: Mini) -> list[str]:
    """The kinds of broken runs that this mini can be asked for."""
    return [name for name, options in BROKEN.items() if not (mini.script and "--sabotage" in options)]


def told(line: Mapping[str, Any]) -> str:
    """One line for a person, as soon as a run is written down."""
    outcome = line["outcome"] + (f": {line['category']}" if line["category"] else "")
    end = f"{line['end']:.4g} at the end" if line["end"] is not None else f"no end ({line['lost']})"
    return f"{line['case']} {line['kind']} seed {line['seed']}: {outcome}, {end}, {line['wall_s']:.0f} s"


def summary(cases: Sequence[Mini], lines: Sequence[Line]) -> Iterator[str]:
    """The table in Markdown: the healthy runs of each case, its target, and what the rule gives."""
    yield "| case | n | passed | worst | mean | sd | broken, at best | target now | by the rule |"
    yield "|---|---|---|---|---|---|---|---|---|"
    latest = {line["key"]: line for line in lines}
    for mini in cases:
        mine = [line for line in latest.values() if line["case"] == mini.name]
        yield _row(mini, [line for line in mine if line["kind"] == "healthy"], nearest(mini, mine))


def nearest(mini: Mini, lines: Sequence[Line]) -> dict[str, float]:
    """By fault, the best evaluation of all its runs: what the target has to stay away from."""
    pick = max if mini.better == "higher" else min
    found: dict[str, float] = {}
    for line in lines:
        if line["kind"] in BROKEN and line["best"] is not None:
            found[line["kind"]] = pick(line["best"], found.get(line["kind"], line["best"]))
    return found


def _row(mini: Mini, healthy: Sequence[Line], broken: Mapping[str, float]) -> str:
    ends = [line["end"] for line in healthy if line["end"] is not None]
    passed = sum(line["outcome"] == "passed" for line in healthy)
    spread = Spread.of(ends, mini.better)
    figures = f"{spread.worst:.4g} | {spread.mean:.4g} | {spread.deviation:.2g}" if spread else " | | "
    away = ", ".join(f"{name} {value:.3g}" for name, value in sorted(broken.items()))
    rule = _by_rule(mini, ends, broken)
    return f"| {mini.name} | {len(healthy)} | {passed} | {figures} | {away} | {mini.target:g} | {rule} |"


def _by_rule(mini: Mini, ends: Sequence[float], broken: Mapping[str, float]) -> str:
    spread = Spread.of(ends, mini.better)
    if spread is None:
        return f"none: {len(ends)} runs to the end"
    if lost := sorted(set(faults(mini)) - set(broken)):
        return f"none: no run of {', '.join(lost)}"
    target, why = target_of(spread, broken, mini.better, len(ends))
    return f"none: {why}" if target is None else f"{target:g}"
