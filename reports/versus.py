"""Compares two chips: what is the same, what differs, and the figures of the same recipe and of each side's best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from reports import prices, statistics
from reports.censored import Amount, Range, ratio_range
from reports.contender import ENDS_AT_TARGET, RATES, Contender
from reports.versus_record import Duel, Line, Versus, View
from suite.errors import UsageProblem
from suite.metrics import METRICS
from suite.plan import Better
from suite.price import Price

PRICE = "price_to_target"
ENERGY = frozenset({"energy_j", "energy_per_sample_j", "power_mean_w"})
"""What a power reading goes into: comparable only where both readings cover the same."""

VOID = frozenset(
    {"failed: invalid_measurement", "failed: ranks_diverged", "failed: nonfinite_loss", "failed: too_good"}
)
"""Outcomes whose numbers nobody may rely on."""

INTERVALS = frozenset({"time_to_train_s", "throughput_train", "energy_j", "energy_per_sample_j", PRICE})
"""Metrics that get an interval, which costs thousands of resamples."""


class Corner(NamedTuple):
    """One side."""

    name: str
    contenders: tuple[Contender, ...]
    remarks: tuple[str, ...] = ()
    """A sentence for each result that was left out."""


def versus(a: Corner, b: Corner, known: Mapping[str, Price] | None = None) -> Versus:
    """B beside A, in both views. Raises UsageProblem where nothing of theirs can stand beside each other."""
    known = known or {}
    same = list(_same_recipe(a.contenders, b.contenders))
    best = list(_best_recipe(a.contenders, b.contenders))
    views: dict[tuple[int, int], list[View]] = {}
    for pair in same:
        views[pair] = ["same recipe"]
    for pair in best:
        views.setdefault(pair, []).append("best recipe")
    if not views:
        raise UsageProblem(
            f"{a.name} and {b.name} have no case, mode, data, target and number of devices in common; "
            "run the same case and preset on both"
        )
    duels = [duel(a.contenders[i], b.contenders[j], tuple(shown), known) for (i, j), shown in views.items()]
    machines = dict.fromkeys(one.machine for side in (a, b) for one in side.contenders)
    return Versus(
        a=a.name,
        b=b.name,
        duels=tuple(duels),
        not_compared=tuple(_not_compared(a, b, same, views)),
        prices=tuple(prices.told(machine, known[machine]) for machine in machines if machine in known),
    )


def _same_recipe(a: Sequence[Contender], b: Sequence[Contender]) -> Iterator[tuple[int, int]]:
    """Pairs that were to learn the same from the same, on as many nodes and devices."""
    for j, other in enumerate(b):
        for i, one in enumerate(a):
            if not recipe_differences(one, other):
                yield i, j


def recipe_differences(a: Contender, b: Contender) -> tuple[str, ...]:
    """Names of what keeps two contenders from being one recipe; empty: it is the same."""
    fixed = ("model", "preset", "mode", "topology", "data_digest", "target")
    found = [name for name in fixed if getattr(a, name) != getattr(b, name)]
    if a.recipe is None or b.recipe is None:
        return (*found, "parameters (a baseline does not keep them)")
    if a.framework == b.framework:
        found += ["measurement_version"] if a.measurement_version != b.measurement_version else []
        names = sorted({*a.recipe, *b.recipe})
    else:  # Each framework's file names parameters that the other does not know.
        names = sorted({*a.recipe} & {*b.recipe})
    return (*found, *(name for name in names if a.recipe.get(name) != b.recipe.get(name)))


def _best_recipe(a: Sequence[Contender], b: Sequence[Contender]) -> Iterator[tuple[int, int]]:
    """For each task, the best of either side, whatever its recipe."""
    found: dict[tuple[int, int], None] = {}
    for task in dict.fromkeys((_task(one), one.target) for one in b):
        left, right = (_best(side, *task) for side in (a, b))
        if left is not None and right is not None:
            found[left, right] = None
    return iter(found)


def _task(one: Contender) -> tuple[str, str, str, int]:
    """What best recipes must have in common beside the target."""
    return (one.model, one.mode, one.data_digest, one.devices)


def _best(side: Sequence[Contender], task: tuple[str, str, str, int], target: str) -> int | None:
    # A baseline keeps no target; it is then for its reader to know, and said.
    able = [
        (i, one)
        for i, one in enumerate(side)
        if _task(one) == task and (one.target or target) == (target or one.target)
    ]
    ranked = [(rank, index) for index, one in able if (rank := _rank(one)) is not None]
    return min(ranked)[1] if ranked else None


def _rank(one: Contender) -> tuple[bool, float, float] | None:
    """Smaller is better; None: it measured nothing that holds. What makes no claim comes last, as do bounds."""
    claimless = one.facts.get("division") == "open" or one.facts.get("evidence") == "log"
    name = "throughput_train" if one.mode == "throughput" else "time_to_train_s"
    amount = one.amounts.get(name)
    if amount is None or one.outcome in VOID:
        return None
    low, high = amount.range
    if one.mode == "throughput":
        return (claimless, -low, 0.0)
    return (claimless, float("inf") if high is None else high, low)


def duel(a: Contender, b: Contender, views: tuple[View, ...], known: Mapping[str, Price]) -> Duel:
    """Two contenders beside each other."""
    names = list(dict.fromkeys([*a.facts, *b.facts]))
    both = [name for name in names if name in a.facts and name in b.facts]
    return Duel(
        a=a.id,
        b=b.id,
        views=views,
        same=tuple(name for name in both if a.facts[name] == b.facts[name] and a.facts[name] != "unknown"),
        differs={name: (a.facts[name], b.facts[name]) for name in both if a.facts[name] != b.facts[name]},
        unknown=tuple(name for name in names if name not in both or a.facts[name] == b.facts[name] == "unknown"),
        notes=tuple(_notes(a, b)),
        lines=tuple(_lines(a, b, known)),
    )


def _notes(a: Contender, b: Contender) -> Iterator[str]:
    for side, one in (("A", a), ("B", b)):
        if one.outcome != "passed":
            yield f"{side}: {one.outcome}"
        if one.missed:
            yield (
                f"{side}: {one.missed} of {one.runs} runs missed the target; each counts as censored:"
                " above what it had come to at its last evaluation, by an amount that nobody knows"
            )
        if one.lost:
            yield f"{side}: {one.lost} of {one.runs} runs were lost or void; nothing is known of them but that"
        if one.kept == "baseline":
            yield f"{side}: a baseline; it keeps no target, parameters, slots or host"
        if one.facts.get("division") == "open" or one.facts.get("evidence") == "log":
            yield f"{side}: division {one.facts['division']}, evidence {one.facts['evidence']}: shown, no claim"
        if one.facts.get("verified") == "false":
            yield f"{side}: the vendor's folder {one.vendor!r} was never run on the chip (verified = false)"


def _lines(a: Contender, b: Contender, known: Mapping[str, Price]) -> Iterator[Line]:
    if barred := _barred(a, b):
        none = dict.fromkeys(("gain", "at_least", "at_most", "low", "high"))
        yield from (line.model_copy(update={**none, "reason": barred}) for line in _measured(a, b))
        return
    yield from _measured(a, b)
    if line := _price(a, b, known):
        yield line


def _barred(a: Contender, b: Contender) -> str:
    """Why no number of one may be held against one of the other; empty: it may."""
    for side, one in (("A", a), ("B", b)):
        if one.outcome in VOID:
            return f"not compared: {side} {one.outcome}"
    if a.target and b.target and a.target != b.target:
        return f"not compared: the targets differ ({a.target}, {b.target})"
    if a.framework == b.framework and a.measurement_version != b.measurement_version:
        return f"not compared: measured by other rules ({a.measurement_version}, {b.measurement_version})"
    return ""


def _measured(a: Contender, b: Contender) -> Iterator[Line]:
    for name in (*ENDS_AT_TARGET, *RATES):
        one, other = a.amounts.get(name), b.amounts.get(name)
        if one is None and other is None:
            continue
        better = None if name == "quality_best" else METRICS[name].better
        line = Line(metric=name, better=better, a=one, b=other)
        if name in ENERGY and (reason := _scopes(a, b)):
            yield line.model_copy(update={"reason": reason})
        else:
            yield _judged(line)


def _scopes(a: Contender, b: Contender) -> str:
    """Why energy must not be compared; empty: both readings cover the same."""
    if "unknown" in (a.power_scope, b.power_scope):
        side = "A" if a.power_scope == "unknown" else "B"
        return f"not compared: what the power reading of {side} covers is unknown"
    if a.power_scope != b.power_scope:
        return f"not compared: power is read of the {a.power_scope} on A and of the {b.power_scope} on B"
    return ""


def _price(a: Contender, b: Contender, known: Mapping[str, Price]) -> Line | None:
    """Price to target, from the time; None: no time, or nobody named a price."""
    pair = [(one, known.get(one.machine), one.amounts.get("time_to_train_s")) for one in (a, b)]
    if not any(price and time for _, price, time in pair):
        return None
    amounts = [_priced(one, price, time) if price and time else None for one, price, time in pair]
    line = Line(metric=PRICE, better="lower", a=amounts[0], b=amounts[1])
    for side, (one, price, time) in zip("AB", pair):
        if time and not price:
            return line.model_copy(update={"reason": f"no site names a price of {one.machine}, the machine of {side}"})
    if amounts[0] and amounts[1] and amounts[0].unit != amounts[1].unit:
        reason = f"not compared: {amounts[0].unit} and {amounts[1].unit}"
        return line.model_copy(update={"reason": reason})
    return _judged(line)


def _priced(one: Contender, price: Price, time: Amount) -> Amount:
    def paid(seconds: Sequence[float]) -> tuple[float, ...]:
        return tuple(prices.cost(second, one.devices, price) for second in seconds)

    return Amount(unit=price.currency, values=paid(time.values), bounds=paid(time.bounds))


def _judged(line: Line) -> Line:
    """The line with its gain, as far as its values allow one."""
    a, b, better = line.a, line.b, line.better
    if better is None:
        return line
    if a is None or b is None:
        return line.model_copy(update={"reason": f"{'A' if a is None else 'B'} did not measure it"})
    if a.unit != b.unit:
        return line.model_copy(update={"reason": f"not compared: {a.unit} and {b.unit}"})
    if min(a.values + b.values, default=1.0) <= 0:
        return line.model_copy(update={"reason": "a value is not above zero"})
    found = _gain(a.range, b.range, better)
    if found is None:
        return line.model_copy(update={"reason": "too many runs missed the target: nothing is known of the ratio"})
    if not found.exact:
        bounds = {"at_least": found.low or None, "at_most": found.high}
        return line.model_copy(update={**bounds, "reason": "a bound: runs missed the target"})
    return line.model_copy(update={"gain": found.low, **_interval(line.metric, a, b, better)})


def _gain(a: Range, b: Range, better: Better) -> Range | None:
    return ratio_range(b, a) if better == "higher" else ratio_range(a, b)


def _interval(metric: str, a: Amount, b: Amount, better: Better) -> dict[str, object]:
    if metric not in INTERVALS:
        return {}
    if a.bounds or b.bounds:
        return {"reason": "no interval: runs missed the target"}
    if min(len(a.values), len(b.values)) < 2:
        return {"reason": "no interval from one run: --repeat 4 at least"}
    old, new = (a.values, b.values) if better == "higher" else (b.values, a.values)
    low, high = statistics.bootstrap_ratio(old, new)
    return {"low": low, "high": high}


def _not_compared(
    a: Corner, b: Corner, same: Sequence[tuple[int, int]], views: Mapping[tuple[int, int], object]
) -> Iterator[str]:
    for side, mine, theirs, place in (("A", a, b, 0), ("B", b, a, 1)):
        yield from (f"{side}: {remark}" for remark in mine.remarks)
        for index, one in enumerate(mine.contenders):
            if not any(pair[place] == index for pair in views):
                yield f"{side}: {one.id}: nothing on the other side stands beside it"
            if side == "B" and not any(pair[1] == index for pair in same):
                yield from _other_recipe(one, theirs.contenders)


def _other_recipe(one: Contender, others: Sequence[Contender]) -> Iterator[str]:
    """Why no plan of the other side is the same recipe, told of the nearest."""
    near = [other for other in others if (other.model, other.mode) == (one.model, one.mode)]
    if near:
        closest = min(near, key=lambda other: len(recipe_differences(other, one)))
        what = ", ".join(recipe_differences(closest, one))
        yield f"B: {one.id}: no plan of A has its recipe; of {closest.id} differs: {what}"
