"""The monitor on and off beside a training, a few seconds each in turns. Aim: at most 0.5 % of the training.

Told is what the training's steps take of CPU and of wall time in either turn, and, from the monitor's side, how much of
a second its sampling takes of one core.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.sidebyside import Pair, told
from fixtures.node import monitor

PERIOD_S = 1.0
"""As the vendor cpu samples."""
TURN_S, PAIRS = 5.0, 14
AIM = 0.005

_TRAINING = """
import sys, time, torch
torch.set_num_threads(1)
net = torch.nn.Sequential(*[torch.nn.Linear(768, 768) for _ in range(4)])
x, sgd = torch.randn(64, 768), torch.optim.SGD(net.parameters(), lr=1e-6)
steps = 0
for _ in sys.stdin:
    print(steps, time.process_time(), time.monotonic(), flush=True)
    end = time.monotonic() + {turn_s}
    steps = 0
    while time.monotonic() < end:
        net(x).square().mean().backward()
        sgd.step()
        sgd.zero_grad()
        steps += 1
    print(steps, time.process_time(), time.monotonic(), flush=True)
"""


def _turn(training: subprocess.Popen[str]) -> tuple[float, float]:
    """CPU and wall seconds of a step, over one turn."""
    assert training.stdin is not None and training.stdout is not None
    print("go", file=training.stdin, flush=True)
    (_, cpu, wall), (steps, cpu_after, wall_after) = (map(float, training.stdout.readline().split()) for _ in range(2))
    return (cpu_after - cpu) / steps, (wall_after - wall) / steps


def _monitored(training: subprocess.Popen[str], output: Path) -> tuple[float, float, float]:
    """As `_turn`, with a monitor beside it; also the CPU seconds that it took of each second."""
    spec: dict[str, object] = {"method": "proc", "period_s": PERIOD_S, "path": str(output), "devices": []}
    begin = time.monotonic()
    pid, reading = monitor.start(spec, os.getpid(), "overhead", [])
    try:
        cpu, wall = _turn(training)
    finally:
        os.kill(pid, signal.SIGKILL)
        _, _, used = os.wait4(pid, 0)
        os.close(reading)
    return cpu, wall, (used.ru_utime + used.ru_stime) / (time.monotonic() - begin)


def measure() -> list[str]:
    """Lines to print."""
    argv = [sys.executable, "-c", _TRAINING.format(turn_s=TURN_S)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen(argv, text=True, **pipes) as training:
        _turn(training)
        output = Path(folder, "monitor.jsonl")
        taken = [(_monitored(training, output), _turn(training)) for _ in range(PAIRS)]
        assert training.stdin is not None
        training.stdin.close()
    cpu = Pair(a=tuple(on[0] for on, _ in taken), b=tuple(off[0] for _, off in taken))
    wall = Pair(a=tuple(on[1] for on, _ in taken), b=tuple(off[1] for _, off in taken))
    shares = told([on[2] for on, _ in taken], unit="%", scale=100)
    return [
        cpu.line("a step, CPU: monitor on", "off", unit="ms", scale=1000),
        wall.line("a step, wall: monitor on", "off", unit="ms", scale=1000),
        f"of one core, the monitor takes {shares} (aim {AIM:.1%} of the training, which takes a core at least)",
    ]
