"""Compares two sides: refuses what must not be compared, and calls a change only what is significant and large."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from reports import statistics
from reports.comparison import Comparison, Pair, Row, Sample, Verdict
from reports.sides import Side
from suite.baseline_file import Baseline
from suite.convergence import ALPHA, convergence, olympic_mean
from suite.errors import UsageProblem
from suite.figures import KEPT, Figures
from suite.metrics import METRICS

TOLERANCES: Mapping[str, float] = {"throughput_train": 0.01, "time_to_train_s": 0.05}
"""What gates, and the change that is accepted: speed repeats to half a percent, the samples to a target do not."""

ACROSS = ("machine", "measurement_version", "data")
"""What both sides must have in common, unless told otherwise."""


def compare(
    old: Side, new: Side, *, across: Collection[str] = (), tolerances: Mapping[str, float] = TOLERANCES
) -> Comparison:
    """`new` against `old`, plan by plan. Raises UsageProblem for sides that must not be compared, or share nothing."""
    tasks: dict[object, list[Figures]] = {}
    for one in old.figures:
        tasks.setdefault(one.task, []).append(one)
    pairs_of = ((partner(after, tasks.get(after.task, ()), across), after) for after in new.figures)
    matched = [(before, after) for before, after in pairs_of if before]
    if not matched:
        raise UsageProblem(f"{old.name} and {new.name} have no plan in common; compare sessions of the same cases")
    for before, after in matched:
        _refuse(before, after, across)
    pairs = adjusted([measured(before, after, tolerances) for before, after in matched])
    taken = {id(one) for pair in matched for one in pair}
    return Comparison(
        old=old.name,
        new=new.name,
        across=tuple(sorted(across)),
        pairs=tuple(pairs),
        only_old=tuple(one.id for one in old.figures if id(one) not in taken),
        only_new=tuple(one.id for one in new.figures if id(one) not in taken),
    )


def partner(figures: Figures, others: Sequence[Figures], across: Collection[str]) -> Figures | None:
    """The figures of the same task, of the same machine or of another if that is allowed. Raises UsageProblem."""
    same_task = [other for other in others if other.task == figures.task]
    found = [other for other in same_task if other.place == figures.place]
    if not found and same_task:
        if "machine" not in across:
            places = ", ".join(sorted({"/".join(other.place) for other in same_task}))
            raise UsageProblem(
                f"{figures.id}: measured on {'/'.join(figures.place)}, the other side on {places}; numbers of different"
                " machines say nothing about a change; if the machines are what you compare, say --across machine"
            )
        found = same_task
    closest = [other for other in found if other.fingerprint == figures.fingerprint] or found
    closest = [other for other in closest if isinstance(other, Baseline) and other.state == "approved"] or closest
    if len(closest) > 1:
        raise UsageProblem(
            f"{figures.id}: the other side has {len(closest)} measurements of it, perhaps baselines of several"
            " environments; name one file"
        )
    return closest[0] if closest else None


def _refuse(old: Figures, new: Figures, across: Collection[str]) -> None:
    """Raise UsageProblem where the numbers were made by different rules, or from different data."""
    for name, before, after in (
        ("measurement_version", old.measurement_version, new.measurement_version),
        ("data", old.data_digest, new.data_digest),
    ):
        if before != after and name not in across:
            what = "data_digest" if name == "data" else name
            raise UsageProblem(
                f"{new.id}: {what} is {after[:40]!r}, on the other side {before[:40]!r}; the numbers do not mean the"
                f" same; measure the old revision again, or say --across {name}"
            )


class Measured(NamedTuple):
    """A pair whose tests still have to be adjusted for their number."""

    pair: Pair
    tested: tuple[int, ...]
    """Positions of the rows that count as comparisons."""


def measured(old: Figures, new: Figures, tolerances: Mapping[str, float] = TOLERANCES) -> Measured:
    """Both figures beside each other, not yet judged."""
    gates = not [one for one in (old, new) if one.division == "open" or one.evidence == "log"]
    rows = [_row(old, new, name, tolerances.get(name)) for name in KEPT if name in old.metric or name in new.metric]
    tested = tuple(
        position for position, row in enumerate(rows) if gates and row.tolerance is not None and row.p is not None
    )
    notes = tuple(_notes(old, new, gates=gates))
    return Measured(Pair(id=new.id, old_id=old.id, gates=gates, notes=notes, rows=tuple(rows)), tested)


def _row(old: Figures, new: Figures, name: str, tolerance: float | None) -> Row:
    before, after = _sample(old, name), _sample(new, name)
    unit = (new.metric.get(name) or old.metric[name]).unit
    row = Row(id=new.id, metric=name, unit=unit, old=before, new=after, tolerance=tolerance, verdict="shown")
    if before is None or after is None or min(*before.values, *after.values) <= 0:
        return row
    row = row.model_copy(
        update={
            "ratio": after.median / before.median,
            "effect": statistics.superiority(before.values, after.values),
        }
    )
    # An interval costs thousands of resamples: what never gates does without.
    return row if tolerance is None else row.model_copy(update=_tests(before.values, after.values))


def _tests(old: Sequence[float], new: Sequence[float]) -> dict[str, float | None]:
    """Interval and test of a gating row, as far as the number of runs allows any."""
    able = statistics.smallest_p(len(old), len(new)) < ALPHA
    interval = statistics.bootstrap_ratio(old, new) if min(len(old), len(new)) > 1 else None
    return {
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "p": statistics.mann_whitney(old, new) if able else None,
        "detectable": statistics.detectable(old, new),
    }


def _sample(figures: Figures, name: str) -> Sample | None:
    metric = figures.metric.get(name)
    if metric is None or not metric.values:
        return None
    values = metric.values
    return Sample(
        median=statistics.middle(values),
        values=values,
        variation=statistics.variation(values),
        olympic_mean=olympic_mean(values) if len(values) > 2 else None,
    )


def adjusted(pairs: Sequence[Measured]) -> list[Pair]:
    """The pairs with every gating row judged, each p adjusted for the number of comparisons in all of them."""
    tests = [(index, position) for index, (_, tested) in enumerate(pairs) for position in tested]
    ps = statistics.holm([pairs[index].pair.rows[position].p or 0.0 for index, position in tests])
    by_row = dict(zip(tests, ps))
    # With more runs each row that has a ratio would be tested: the advice is for all of them at once.
    testable = sum(_counts(pair, row) and row.ratio is not None for pair, _ in pairs for row in pair.rows)
    return [
        pair.model_copy(
            update={
                "rows": tuple(
                    _judged(row, by_row.get((index, position)), len(tests), testable) if _counts(pair, row) else row
                    for position, row in enumerate(pair.rows)
                )
            }
        )
        for index, (pair, _) in enumerate(pairs)
    ]


def _counts(pair: Pair, row: Row) -> bool:
    return pair.gates and row.tolerance is not None


def _judged(row: Row, p: float | None, comparisons: int, testable: int) -> Row:
    verdict, reason = _verdict(row, p, comparisons, testable)
    return row.model_copy(update={"p_adjusted": p, "verdict": verdict, "reason": reason})


def _verdict(row: Row, p: float | None, comparisons: int, testable: int) -> tuple[Verdict, str]:
    """Significant and large is a change; an interval inside the tolerance is none; anything else stays open."""
    if row.old is None or row.new is None:
        return "inconclusive", f"the {'old' if row.old is None else 'new'} side did not measure it"
    before, after = len(row.old.values), len(row.new.values)
    if row.ratio is None or row.tolerance is None:
        return "inconclusive", "a value is not above zero"
    if p is None or row.low is None or row.high is None:
        needed = statistics.runs_needed(testable)
        reason = f"{before} against {after} runs cannot be significant, whatever they say: --repeat {needed} can"
        return "inconclusive", reason
    higher = METRICS[row.metric].better == "higher"
    # As gains: above 1 is better, whichever way the metric points.
    low, high = (row.low, row.high) if higher else (1 / row.high, 1 / row.low)
    if p < ALPHA and high < 1 - row.tolerance:
        return "regression", f"worse by {_percent(row.ratio)}, {100 * row.tolerance:.2g} % accepted"
    if p < ALPHA and low > 1 + row.tolerance:
        return "improvement", f"better by {_percent(row.ratio)}"
    if low >= 1 - row.tolerance and high <= 1 + row.tolerance:
        return "same", ""
    if statistics.smallest_p(before, after) * comparisons >= ALPHA:
        needed = statistics.runs_needed(comparisons)
        return "inconclusive", f"too few runs for {comparisons} comparisons at once: --repeat {needed} can tell"
    return "inconclusive", "the interval reaches beyond the tolerance on one side only: repeat more"


def _percent(ratio: float) -> str:
    return f"{abs(ratio - 1) * 100:.2g} %"


def _notes(old: Figures, new: Figures, *, gates: bool) -> list[str]:
    """What a reader must know beside the numbers."""
    notes = [f"{side}: {one.outcome}" for side, one in (("old", old), ("new", new)) if one.outcome != "passed"]
    for side, one in (("old", old), ("new", new)):
        if one.division == "open" or one.evidence == "log":
            why = "division open" if one.division == "open" else "evidence log"
            notes.append(f"{side}: {why}, shown and never a gate")
        if isinstance(one, Baseline) and one.state != "approved":
            notes.append(f"{side}: the baseline is {one.state}" + (f": {one.reason}" if one.reason else ""))
    for name, before, after in (
        ("machine", "/".join(old.place), "/".join(new.place)),
        ("measurement_version", old.measurement_version, new.measurement_version),
        ("data_digest", old.data_digest[:12], new.data_digest[:12]),
        ("case_digest", old.case_digest[:12], new.case_digest[:12]),
    ):
        if before != after:
            notes.append(f"{name} differs: {before} and {after}")
    notes += differing_environment(old, new)
    if warning := _convergence(old, new):
        notes.append(warning)
    return notes


def differing_environment(old: Figures, new: Figures) -> list[str]:
    """A sentence for each part of the fingerprints' environments that differs."""
    names = sorted({*old.environment, *new.environment})
    return [
        f"{name} differs: {old.environment.get(name, 'unknown')} and {new.environment.get(name, 'unknown')}"
        for name in names
        if old.environment.get(name) != new.environment.get(name)
    ]


def _convergence(old: Figures, new: Figures) -> str:
    """Whether the new runs need another number of samples than the old ones explain; empty: no, or too few runs."""
    before, after = (one.metric.get("samples_trained") for one in (old, new))
    if new.mode != "converge" or before is None or after is None or len(before.values) < 5 or len(after.values) < 3:
        return ""
    limits = convergence(before.values, len(after.values))
    mean = olympic_mean(after.values)
    told = f"{mean:.6g} samples to the target, the old runs allow {limits.fewest:.6g} to {limits.most:.6g}"
    if mean < limits.fewest:
        return f"converges better than luck explains: {told}; find out why before believing it"
    return f"converges more slowly: {told}" if mean > limits.most else ""
