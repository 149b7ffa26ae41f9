"""Whether the scaling gate is calibrated: how often its 95 % interval holds a truth that is known, and what it decides.

`python -m benchmarks.scaling_gate [--gates 4000] [--events 400] [--real 24 --vendor cpu --topology 1x2 --repeat 3]`
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.scaling_events import played_gate
from benchmarks.scaling_hosts import HOSTS, Host
from benchmarks.scaling_real import ROOT, checkout, real_gate, true_speedup
from benchmarks.scaling_sim import BAND, Coverage, answers, coverage, gate, gate_plan
from suite.catalog import load_catalog
from suite.drivers.command_line import Parser
from suite.errors import UsageProblem
from suite.result import CheckResult
from suite.topology import Topology

TRUTH = 0.87
REPEATS = (1, 2, 3, 5, 10)
MARGINS = (-0.1, -0.05, -0.02, 0.0, 0.02, 0.05, 0.1)
"""The truth over the threshold, minus one."""


def simulated(host: Host, repeat: int, gates: int, truth: float = TRUTH) -> list[CheckResult]:
    """That many gates, the same ones whenever they are asked for."""
    plan, chance = gate_plan(repeat, TRUTH), random.Random(f"{host.name} {repeat} {truth}")
    return [gate(plan, truth, host, chance) for _ in range(gates)]


def shown(found: Coverage) -> str:
    """A cell: coverage, a mark where it is outside the band, and the interval's half width."""
    return f"{found.share:.1%}{'' if found.is_calibrated else ' !'} (±{found.half_width:.1%})"


def coverage_table(gates: int) -> Iterator[str]:
    """Hosts down, repeats across."""
    margin = Coverage(gates=gates, held=gates, half_width=0.0).margin
    yield f"{gates} simulated gates a cell: ±{margin:.1%}. `!` is outside {BAND[0]:.1%} to {BAND[1]:.1%}."
    yield ""
    yield "| host | " + " | ".join(f"--repeat {repeat}" for repeat in REPEATS) + " |"
    yield "|---" * (len(REPEATS) + 1) + "|"
    for host in HOSTS:
        cells = [shown(coverage(simulated(host, repeat, gates), TRUTH)) for repeat in REPEATS]
        yield f"| {host.name} | " + " | ".join(cells) + " |"


def decision_table(host: Host, gates: int) -> Iterator[str]:
    """Red, open and green gates by how far the truth lies from the threshold."""
    yield f"{gates} gates a cell on the host «{host.name}»: red / open / green, in per cent."
    yield ""
    yield "| truth over threshold | " + " | ".join(f"--repeat {repeat}" for repeat in REPEATS) + " |"
    yield "|---" * (len(REPEATS) + 1) + "|"
    for margin in MARGINS:
        cells = []
        for repeat in REPEATS:
            said = answers(simulated(host, repeat, gates, TRUTH * (1 + margin)))
            cells.append(" / ".join(f"{100 * share:.1f}" for share in said.values()))
        yield f"| {margin:+.0%} | " + " | ".join(cells) + " |"


def played(host: Host, repeat: int, gates: int, scratch: Path) -> Coverage:
    """Gates whose runs are event streams, through the whole judge."""
    plan, chance = gate_plan(repeat, TRUTH), random.Random(f"played {host.name} {repeat}")
    found = []
    for number in range(gates):
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            found.append(played_gate(Path(folder) / f"gate{number}", plan, TRUTH, host, chance))
    return coverage(found, TRUTH)


def real(given: argparse.Namespace, scratch: Path) -> Iterator[str]:
    """Gates of the real suite, one line each, then how many held the truth."""
    truth, found = true_speedup(given.topology), []
    root = checkout(scratch / "checkout", vendor=given.vendor, threshold=truth)
    for number in range(1, given.real + 1):
        session, where = scratch / f"gate{number}", {"vendor": given.vendor, "topology": given.topology}
        try:
            check = real_gate(root, session, **where, repeat=given.repeat, seed=number)
        except UsageProblem as problem:
            yield f"gate {number}: not measured: {problem}"
            continue
        found.append(check)
        facts = check.baseline or {}
        yield f"gate {number}: {check.value:.4g}, {facts['low']} to {facts['high']}, {check.status}"
    if found:
        result = coverage(found, truth)
        yield (
            f"{result.held} of {result.gates} measured gates held the true speedup {truth:.4g} "
            f"(of {given.real}; {given.repeat} repeats, half width {result.half_width:.1%})"
        )


def refuse(given: argparse.Namespace) -> None:
    """Raises UsageProblem, before anything is simulated, for what could not be run or would print nothing."""
    for name in ("gates", "events", "real"):
        if (count := getattr(given, name)) < 0:
            raise UsageProblem(f"--{name} {count}: a number of gates is 0 or more")
    if not (given.gates or given.events or given.real):
        raise UsageProblem("--gates 0 --events 0 --real 0: nothing is asked for; name a number of one of them")
    if given.repeat < 1:
        raise UsageProblem(f"--repeat {given.repeat}: at least 1 run is needed")
    if given.real:
        load_catalog(ROOT / "suite").vendor(given.vendor)
        Topology.parse(given.topology)


def report(given: argparse.Namespace) -> Iterator[str]:
    """All that was asked for, line by line."""
    if given.gates:
        yield from coverage_table(given.gates)
        yield ""
        yield from decision_table(HOSTS[1], given.gates)
    with tempfile.TemporaryDirectory(prefix="scaling-gate-") as folder:
        for host in HOSTS[:2] if given.events else ():
            result = played(host, given.repeat, given.events, Path(folder))
            yield f"{result.gates} played trainings, «{host.name}», {given.repeat} repeats: {shown(result)}"
        yield from real(given, Path(folder)) if given.real else ()


def main(argv: Sequence[str] | None = None) -> int:
    """0, or 4 for wrong usage."""
    parser = Parser(prog="python -m benchmarks.scaling_gate")
    parser.add_argument("--gates", type=int, default=4000, help="simulated gates a cell of the tables; 0: no tables")
    parser.add_argument("--events", type=int, default=400, help="gates over played event streams; 0: none")
    parser.add_argument("--real", type=int, default=0, help="gates over real runs of the suite, a minute each")
    parser.add_argument("--repeat", type=int, default=3, help="runs of a played or real gate")
    parser.add_argument("--vendor", default="cpu", help="whose devices the real runs take")
    parser.add_argument("--topology", default="1x2", help="of the real runs")
    try:
        given = parser.parse_args(argv)
        refuse(given)
        for line in report(given):
            print(line, flush=True)
    except UsageProblem as problem:
        print(problem, file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
