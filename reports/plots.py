"""The plots of a report as PNG files, drawn by matplotlib without a display; without matplotlib there are none.

PNG, because a content policy that forbids inline styles also empties an SVG. Backgrounds are transparent and colours
keep their meaning when a dark page inverts the lightness, so that one file serves screen, dark and paper.
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from reports.html_scaling import ScalingPoint
from reports.html_series import QUANTITIES, RunSeries
from suite.measurement import LEDGER_PHASES, Point
from suite.rates import percentile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN, HEIGHT_IN, DPI = 6.4, 2.7, 200
CSS_DPI = 100
"""Pixels of the page an inch: files have twice as many, for dense screens and for paper."""

INK, FAINT = "#24292f", "#8c959f"
LINES = ("#0b62b8", "#c2410c", "#15803d", "#7e22ce", "#0e7490", "#a16207", "#be185d", "#4d7c0f")
TARGET = "#b42318"

PHASE_COLOURS = dict(
    zip(
        LEDGER_PHASES,
        (
            *("#d0d7de", "#b8c0c8", "#a0a9b2", "#8893a0", "#6e7b8a"),  # queue stage image prepare launch
            *("#fcd34d", "#f59e0b", "#fdba74"),  # init compile warmup
            *("#2f7fd0", "#d9485f", "#3fa66a", "#9a6ad6"),  # train data_wait eval checkpoint
            "#57606a",  # teardown
        ),
    )
)
UNACCOUNTED = "unaccounted_s"

AXES_NAMES = {"utilisation": "utilisation (%)", "power_w": "power (W)", "memory_gib": "memory (GiB)"}
MAX_LABELLED = 8
"""Lines with an entry in the legend; more would cover the plot."""


@dataclass(frozen=True, slots=True)
class Plot:
    """One picture, and what it says in words for whoever does not see it."""

    name: str
    """Of the file, without its ending."""
    title: str
    png: bytes
    alt: str
    note: str = ""
    """What a reader should know of how it was drawn."""
    width: int = round(WIDTH_IN * CSS_DPI)
    height: int = round(HEIGHT_IN * CSS_DPI)


def available() -> bool:
    """matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def loss_plot(runs: Sequence[RunSeries]) -> Plot | None:
    """Training loss over steps, a line for each run; None where no run has any."""
    drawn = [run for run in runs if run.losses]
    if not drawn:
        return None
    figure, axes = _figure()
    for index, run in enumerate(drawn):
        steps, losses = zip(*run.losses)
        axes.plot(steps, losses, color=LINES[index % len(LINES)], linewidth=1, label=f"run {run.n}")
    _finish(axes, "step", "training loss", legend=len(drawn) > 1)
    first, last = drawn[0].losses[0], drawn[0].losses[-1]
    alt = f"Training loss of run {drawn[0].n}: {first[1]:.4g} at step {first[0]}, {last[1]:.4g} at step {last[0]}."
    return Plot("loss", "Training loss", _png(figure), alt)


def quality_plot(
    curves: Mapping[int, Sequence[Point]], target: float | None, op: str, time_to_train_s: float | None
) -> Plot | None:
    """Evaluations over time, a line for each run, with the target; None where nothing finite was evaluated."""
    drawn = {n: [(p.t, p.value) for p in curve if not isinstance(p.value, str)] for n, curve in curves.items()}
    drawn = {n: points for n, points in drawn.items() if points}
    if not drawn:
        return None
    metric = next(point.metric for curve in curves.values() for point in curve)
    figure, axes = _figure()
    for index, (n, points) in enumerate(drawn.items()):
        times, values = zip(*points)
        axes.plot(times, values, color=LINES[index % len(LINES)], marker="o", markersize=3.5, label=f"run {n}")
    said = "no target"
    if target is not None:
        said = f"target {op} {target:.4g}"
        axes.axhline(target, color=TARGET, linestyle=(0, (5, 3)), linewidth=1.3, label=said)
    if time_to_train_s is not None:
        axes.axvline(time_to_train_s, color=FAINT, linestyle=":", linewidth=1.3, label="time to train")
    _finish(axes, "seconds since training began", metric, legend=True)
    n, points = next(iter(drawn.items()))
    when, last = points[-1]
    alt = f"{metric} of run {n} over {len(points)} evaluations, the last {last:.4g} after {when:.4g} s; {said}."
    left_out = sum(isinstance(point.value, str) for curve in curves.values() for point in curve)
    return Plot("quality", "Quality", _png(figure), alt, f"{left_out} not finite, not drawn" if left_out else "")


def step_plot(run: RunSeries) -> Plot | None:
    """Distribution of the steady step times of one run; None where it has fewer than two."""
    if len(run.steps_s) < 2:
        return None
    ordered = sorted(1000 * step for step in run.steps_s)
    middle, high = median(ordered), percentile(ordered, 0.95)
    edge = max(percentile(ordered, 0.99) * 1.15, middle * 1.02)
    inside = [step for step in ordered if step <= edge]
    figure, axes = _figure()
    axes.hist(inside, bins=min(60, max(10, len(inside) // 4)), color=LINES[0], alpha=0.75)
    axes.axvline(middle, color=INK, linewidth=1.3, label=f"median {middle:.4g} ms")
    axes.axvline(high, color=TARGET, linestyle=(0, (5, 3)), linewidth=1.3, label=f"95th percentile {high:.4g} ms")
    _finish(axes, "step time (ms)", "steps", legend=True)
    alt = f"Times of {len(ordered)} steps of run {run.n}: median {middle:.4g} ms, 95th percentile {high:.4g} ms."
    note = f"Run {run.n}"
    note += f", each step on the slowest of {run.streams} ranks" if run.streams > 1 else ""
    note += f"; without {run.left_out} steps of warm-up" if run.left_out else ""
    if beyond := len(ordered) - len(inside):
        note += f"; {beyond} slower ones lie beyond the right edge, the slowest at {ordered[-1]:.4g} ms"
    return Plot("steps", "Step times", _png(figure), alt, note)


def ledger_plot(ledgers: Mapping[int, Mapping[str, float]]) -> Plot | None:
    """Where the time of each run went, as stacked bars; None where no run has a ledger."""
    drawn = {n: ledger for n, ledger in ledgers.items() if any(ledger.get(phase, 0) > 0 for phase in _PHASES)}
    if not drawn:
        return None
    height = 1.75 + 0.3 * len(drawn)
    figure, axes = _figure(height)
    figure.subplots_adjust(top=1 - 0.65 / height)
    rows = range(len(drawn))
    left = [0.0] * len(drawn)
    for phase in _PHASES:
        widths = [max(ledger.get(phase, 0.0), 0.0) for ledger in drawn.values()]
        if not any(widths):
            continue
        hidden = phase == UNACCOUNTED
        colour = "none" if hidden else PHASE_COLOURS[phase]
        axes.barh(rows, widths, left=left, color=colour, edgecolor=FAINT if hidden else "none",
                  hatch="////" if hidden else None, linewidth=0.5, height=0.7, label=_phase_name(phase))  # fmt: skip
        left = [a + b for a, b in zip(left, widths)]
    axes.set_yticks(list(rows), [f"run {n}" for n in drawn])
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    _finish(axes, "seconds", "", legend=False)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.02), ncols=7, fontsize=7, frameon=False, labelcolor=INK,
                columnspacing=1, handlelength=1)  # fmt: skip
    n, ledger = next(iter(drawn.items()))
    largest = sorted(_PHASES, key=lambda phase: -ledger.get(phase, 0.0))[:3]
    parts = ", ".join(f"{_phase_name(phase)} {ledger.get(phase, 0.0):.4g} s" for phase in largest)
    return Plot("ledger", "Where the time went", _png(figure), f"Time of run {n} by phase; the longest: {parts}.",
                height=round(height * CSS_DPI))  # fmt: skip


def device_plot(run: RunSeries) -> Plot | None:
    """Utilisation, power and memory over time, a panel each; None where nothing was sampled."""
    shown = [quantity for quantity in QUANTITIES if quantity in run.traces]
    if not shown:
        return None
    height = 0.5 + 1.15 * len(shown)
    figure = _blank(height)
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False, gridspec_kw={"hspace": 0.16})[:, 0]
    for quantity, axes in zip(shown, panels):
        for index, trace in enumerate(run.traces[quantity]):
            times, values = zip(*trace.points)
            axes.plot(times, values, color=LINES[index % len(LINES)], linewidth=1, label=trace.device)
        if run.window is not None:
            axes.axvspan(*run.window, color=FAINT, alpha=0.15, linewidth=0)
        axes.set_ylim(bottom=0)
        _finish(axes, "", AXES_NAMES[quantity], legend=False)
        axes.yaxis.set_label_coords(-0.075, 0.5)
    panels[-1].set_xlabel("seconds since training began", color=INK, fontsize=8)
    if 1 < len(run.traces[shown[0]]) <= MAX_LABELLED:
        panels[0].legend(fontsize=7, frameon=False, labelcolor=INK, ncols=4, loc="best")
    alt = f"{', '.join(AXES_NAMES[quantity] for quantity in shown)} of {run.devices} devices over run {run.n}."
    drawn = len(run.traces[shown[0]])
    note = f"Run {run.n}; the shaded part is the time of training" if run.window else f"Run {run.n}"
    note += f"; {drawn} of {run.devices} devices are drawn" if drawn < run.devices else ""
    return Plot("devices", "Devices", _png(figure), alt, note, height=round(height * CSS_DPI))


def scaling_plot(points: Sequence[ScalingPoint], own: str) -> Plot | None:
    """Speed over the number of devices with the ideal line; `own` is the label of the plan's own point."""
    if len(points) < 2:
        return None
    least = points[0]
    figure, axes = _figure()
    counts = [point.devices for point in points]
    gains = [point.rate / least.rate for point in points]
    ends = (counts[0], counts[-1])
    axes.plot(ends, [end / least.devices for end in ends], color=FAINT, linestyle=(0, (5, 3)), label="ideal")
    axes.scatter(counts, gains, color=LINES[0], zorder=3, s=22, label="measured")
    for point, gain in zip(points, gains):
        weight = "bold" if point.label == own else "normal"
        axes.annotate(point.label, (point.devices, gain), textcoords="offset points", xytext=(5, -11), fontsize=7,
                      color=INK, weight=weight)  # fmt: skip
    axes.set_xticks(sorted({round(count) for count in counts}))
    axes.margins(0.12)
    axes.set_ylim(bottom=0)
    _finish(axes, "devices", f"speed over {least.label}", legend=True)
    alt = "; ".join(f"{point.label}: {gain:.3g} times the speed of {least.label}" for point, gain in zip(points, gains))
    return Plot("scaling", "Scaling", _png(figure), f"{alt}; ideal is the number of devices over {least.devices:.0f}.")


_PHASES = (*LEDGER_PHASES, UNACCOUNTED)


def _phase_name(phase: str) -> str:
    return "unaccounted" if phase == UNACCOUNTED else phase.replace("_", " ")


def _blank(height: float) -> Figure:
    """A figure with margins fixed in inches: a layout engine would draw everything twice."""
    from matplotlib.figure import Figure  # imported here: only a report that draws needs it

    figure = Figure(figsize=(WIDTH_IN, height), dpi=DPI)
    figure.subplots_adjust(left=0.66 / WIDTH_IN, right=1 - 0.12 / WIDTH_IN, bottom=0.45 / height, top=1 - 0.1 / height)
    return figure


def _figure(height: float = HEIGHT_IN) -> tuple[Figure, Axes]:
    figure = _blank(height)
    return figure, figure.add_subplot()


def _finish(axes: Axes, x: str, y: str, *, legend: bool) -> None:
    """Names and a quiet frame."""
    axes.set_xlabel(x, color=INK, fontsize=8)
    axes.set_ylabel(y, color=INK, fontsize=8)
    axes.tick_params(colors=INK, labelsize=7.5, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.grid(True, axis="both", color=FAINT, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    if legend:
        axes.legend(fontsize=7.5, frameon=False, labelcolor=INK)


def _png(figure: Figure) -> bytes:
    """The figure on nothing, in few colours: a fifth of the bytes, and nobody sees it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image  # what matplotlib itself writes its files with

    for patch in (figure.patch, *(axes.patch for axes in figure.axes)):
        patch.set_alpha(0)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = bytes(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    image = Image.frombytes("RGBA", canvas.get_width_height(), pixels)
    file = io.BytesIO()
    image.quantize(colors=96, method=Image.Quantize.FASTOCTREE).save(file, format="png", optimize=True)
    return file.getvalue()
