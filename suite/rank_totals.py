"""All ranks reduced to a few numbers, one rank at a time: a thousand ranks of ten thousand steps need little memory."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from suite.rank_stream import RankStream
from suite.rounding import exact_sum
from suite.soundness import own_data
from suite.steady import Steady


@dataclass(frozen=True, slots=True)
class Work:
    """What one rank did in the steady steps."""

    samples: float
    tokens: float
    seconds: float
    wait_s: float


@dataclass(slots=True)
class RankTotals:
    """Sums and maxima over the ranks added so far. Durations are rank-local; clocks of two ranks are never compared."""

    steady: Steady
    window_samples: list[int] = field(default_factory=list)
    """Samples of all ranks, window by window."""
    rank_samples: list[int] = field(default_factory=list)
    slowest: array[float] = field(default_factory=lambda: array("d"))
    """Step times, each of the rank for which it took longest."""
    works: list[Work] = field(default_factory=list)
    medians: list[float] = field(default_factory=list)
    """Median steady step time of each rank."""
    forwards: list[float] = field(default_factory=list)
    """Median steady time of each rank's forward passes, where all tell it."""
    data: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    """(rank, what each of its first windows was trained on)."""
    hosts: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    digests: list[dict[str, str]] = field(default_factory=list)
    """Of each rank, the digest of each group of parameters that it shares, by `name holders`."""
    equal: list[bool | None] = field(default_factory=list)

    def add(self, stream: RankStream) -> None:
        """Take in one more rank; its windows must match those of the ranks before (consistency.py)."""
        samples = [window.samples for window in stream.windows]
        self.window_samples = list(map(int.__add__, self.window_samples, samples)) if self.works else samples
        self.rank_samples.append(sum(samples))
        self.slowest = array("d", map(max, self.slowest, stream.step_s)) if self.works else stream.step_s[:]
        first = self.steady.first
        self.works.append(_steady_work(stream, first))
        if first < stream.steps:
            self.medians.append(median(stream.step_s[first:]))
        if first < len(stream.forward_s) == stream.steps:
            self.forwards.append(median(stream.forward_s[first:]))
        self.data.append((stream.rank, own_data(stream)))
        self.add_facts(stream)

    def add_facts(self, stream: RankStream) -> None:
        """Take in where a rank ran and what it says of its parameters; of a log, that is all it can say."""
        host = stream.header.text("host")
        if host not in self.hosts:
            self.hosts.append(host)
        name = stream.header.table("device").get("name")
        if isinstance(name, str) and name not in self.devices:
            self.devices.append(name)
        checksum = stream.first("checksum")
        equal = checksum.data.get("equal") if checksum else None
        self.equal.append(equal if isinstance(equal, bool) else None)
        self.digests.append(_digests(checksum.data.get("groups")) if checksum else {})

    def sums(self) -> Work:
        """Samples and tokens of all ranks, time of the slowest: the job is as fast as that."""
        seconds = max((work.seconds for work in self.works), default=0.0)
        core = max((work.seconds - work.wait_s for work in self.works), default=0.0)
        samples, tokens = exact_sum(work.samples for work in self.works), exact_sum(work.tokens for work in self.works)
        return Work(samples, tokens, seconds, seconds - core)

    def imbalance(self) -> float | None:
        """Forward time of the slowest rank over the median of the others; None where not all tell it."""
        *others, slowest = sorted(self.forwards) or [0.0]
        if len(self.forwards) < len(self.works) or not others or not (usual := median(others)):
            return None
        return slowest / usual

    def wait_fraction(self) -> float | None:
        """Share of the steady time of all ranks spent waiting for data."""
        seconds = exact_sum(work.seconds for work in self.works)
        return exact_sum(work.wait_s for work in self.works) / seconds if seconds else None

    def in_sync(self) -> tuple[bool | None, str]:
        """Whether all replicas hold equal parameters, with the sentence where they do not or nobody can say."""
        seen: dict[str, str] = {}
        for rank, digests in enumerate(self.digests):
            for group, digest in digests.items():
                if seen.setdefault(group, digest) != digest:
                    return False, f"the parameters of rank {rank} differ from those of the ranks before it"
        if False in self.equal:
            return False, f"rank {self.equal.index(False)} found that the ranks' parameters differ"
        if None in self.equal:
            return None, f"rank {self.equal.index(None)} wrote no checksum of parameters held more than once"
        return True, ""


def _steady_work(stream: RankStream, first: int) -> Work:
    """The rank's work from step index `first` on; of a window it cuts, the share of its steps."""
    samples = tokens = 0.0
    index = 0
    for window in stream.windows:
        inside = max(min(index + window.count - first, window.count), 0) / window.count
        samples += window.samples * inside
        tokens += window.tokens * inside
        index += window.count
    return Work(samples, tokens, exact_sum(stream.step_s[first:]), exact_sum(stream.data_s[first:]))


def _digests(groups: object) -> dict[str, str]:
    """Digest by group, of groups held by more than one rank."""
    found: dict[str, str] = {}
    for group in groups if isinstance(groups, list | tuple) else ():
        if isinstance(group, dict) and isinstance(holders := group.get("holders"), Sequence) and len(holders) > 1:
            found[f"{group.get('name')} {holders}"] = f"{group.get('count')} {group.get('digest')}"
    return found
