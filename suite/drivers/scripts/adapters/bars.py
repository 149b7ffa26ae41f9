"""Progress bars as tqdm draws them, and which of them is the training's. Standard library only."""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, Optional, Tuple

from suite.drivers.scripts.adapters.observed import Bar, Observation
from suite.drivers.scripts.adapters.text import clock_seconds, finite

_BAR = re.compile(
    r"(?P<percent>\d{1,3})%\|[^|]*\| *(?P<step>\d+)/(?P<total>\d+) "
    r"\[(?P<spent>[\d:]+)<(?P<left>[\d:?]+)(?P<rest>(?:, [^\]]*)?)\]"
)
_COUNTER = re.compile(r"(?P<step>\d+)[a-zA-Z]+ \[(?P<spent>[\d:]+)(?P<rest>(?:, [^\]]*)?)\]")
"""A bar whose total is not known: `128it [27:08, 12.72s/it]`."""
_RATE = re.compile(r" *(?P<number>[\d.]+)(?P<unit>s/[a-zA-Z]+|[a-zA-Z]+/s)")
_TITLE = re.compile(r"(?:.*[\]\r\n])?(?P<title>[^\]]*?)[:\s]*", re.DOTALL)
_EPOCH = re.compile(r"epoch\D{0,3}(\d+)", re.IGNORECASE)
EVALUATION = re.compile(r"eval|valid|test", re.IGNORECASE)
"""Titles of bars that count an evaluation."""
OTHERS = re.compile(
    r"eval|valid|test|sanity|predict|generat|map|load|download|fetch|filter|token|extract", re.IGNORECASE
)
"""Titles of bars that count something else than training steps."""
_MOST_TITLE = 80


def bars_in(line: str) -> Iterator[Bar]:
    """Every whole bar in the line, in order. What is torn or contradicts itself is none."""
    end = 0
    for found in _BAR.finditer(line):
        title, end = _title(line[end : found.start()]), found.end()
        bar = _bar(found, title, int(found["total"]))
        # A bar that another one was written into shows a percentage of other numbers.
        if bar is not None and bar.total and abs(100 * bar.step / bar.total - int(found["percent"])) <= 1:
            yield bar
    if end == 0:
        for found in _COUNTER.finditer(line):
            title, end = _title(line[end : found.start()]), found.end()
            bar = _bar(found, title, None)
            if bar is not None:
                yield bar


def _title(before: str) -> str:
    found = _TITLE.fullmatch(before[-_MOST_TITLE:])
    title = found["title"].strip() if found else ""
    return "" if title.isdecimal() else title  # the label that srun put before it


def _bar(found: re.Match[str], title: str, total: Optional[int]) -> Optional[Bar]:
    spent, step = clock_seconds(found["spent"]), int(found["step"])
    if spent is None or (total is not None and step > total):
        return None
    rate, values = _rest(found["rest"])
    return Bar(title, step, total, spent, rate, values)


def _rest(text: str) -> Tuple[Optional[float], Dict[str, str]]:
    """(seconds of a step, values by name) of what follows the times in a bar."""
    rate: Optional[float] = None
    values: Dict[str, str] = {}
    for part in text.split(",")[1:]:
        name, equals, value = part.partition("=")
        found = _RATE.fullmatch(part)
        if equals:
            values[name.strip()] = value.strip()
        elif found is not None:
            per = finite(found["number"])
            rate = None if not per else per if found["unit"].startswith("s/") else 1 / per
    return rate, values


def read_bars(line: str) -> List[Observation]:
    """The bars of a line, as observations."""
    return list(bars_in(line))


class TrainingBar:
    """Tells the training's bar from those of data sets, downloads and evaluations.

    Where the log says how many steps there are, it is the bar of that total without another purpose in its title.
    Otherwise it is the first bar that shows a loss or names training or an epoch, or that has no title and is seen at
    two different steps before its end. Once chosen it stays.
    """

    def __init__(self) -> None:
        self._chosen: Optional[Tuple[str, Optional[int]]] = None
        self._seen: Dict[Tuple[str, Optional[int]], int] = {}
        self._before = 0
        """Steps of the epochs whose bars are complete."""
        self._last: Optional[Bar] = None

    @property
    def chosen(self) -> bool:
        """It is known which one."""
        return self._chosen is not None

    def step_of(self, bar: Bar, steps: Optional[int]) -> Optional[int]:
        """Steps done by all epochs, if this is the training's bar; `steps`: how many there will be, if known."""
        if self._chosen is None and self._fits(bar, steps):
            self._chosen = _kind(bar)
        if self._chosen != _kind(bar):
            return None
        last, self._last = self._last, bar
        # Every epoch draws a bar of its own where the title counts epochs; any other step backwards is a repetition.
        if last is not None and _epoch(bar) > _epoch(last) and bar.step <= last.step:
            self._before += last.total or last.step
        return self._before + bar.step

    def _fits(self, bar: Bar, steps: Optional[int]) -> bool:
        if OTHERS.search(bar.title):
            return False
        if steps is not None:
            return bar.total == steps
        if re.search("train|epoch", bar.title, re.IGNORECASE) or any("loss" in name for name in bar.values):
            return True
        if bar.title or bar.complete or bar.step == 0:
            return False
        return self._seen.setdefault(_kind(bar), bar.step) != bar.step


def epoch_of(bar: Bar) -> Optional[int]:
    """The epoch that the bar's title names, as it counts; None: it names none."""
    found = _EPOCH.search(bar.title)
    return int(found[1]) if found else None


def _epoch(bar: Bar) -> int:
    return epoch_of(bar) or 0


def _kind(bar: Bar) -> Tuple[str, Optional[int]]:
    """Title without what changes in it, and total: two drawings of one bar have both in common."""
    return re.sub(r"\d+", "#", bar.title), bar.total
