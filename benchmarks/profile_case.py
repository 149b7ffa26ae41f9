"""Where the time of a case's training step goes on one device: the kernels of a few steady steps, longest first.

`python benchmarks/profile_case.py MODEL --vendor V --machine M [--preset P] [--set KEY=VALUE] [--steps N] [--top K]
[--standard]`

The plan is the suite's own (mode throughput, 1x1, random data); model, optimizer and precision are made by the driver.
Prints the step's wall time, the sum of its kernels (what is missing between the two is waiting) and a line a kernel.
A profile is no measurement of speed: `pytest suite --mode throughput` is.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from suite.catalog import load_catalog  # noqa: E402
from suite.drivers.command_line import Parser  # noqa: E402
from suite.drivers.pytorch import Task  # noqa: E402
from suite.drivers.pytorch.compiling import compile_options  # noqa: E402
from suite.drivers.pytorch.device import Device  # noqa: E402
from suite.drivers.pytorch.optimizer import decayed_groups, make_optimizer  # noqa: E402
from suite.drivers.pytorch.precision import Precision  # noqa: E402
from suite.drivers.slots import Slots, fill_slots  # noqa: E402
from suite.errors import UsageProblem  # noqa: E402
from suite.plan import Plan, Request  # noqa: E402
from suite.selection import plans  # noqa: E402

WARM_UP = 10


def planned(given: argparse.Namespace) -> Plan:
    """The one plan that was asked for. Raises UsageProblem."""
    request = Request(
        vendor=given.vendor,
        machine=given.machine,
        models=(given.model,),
        frameworks=("pytorch",),
        topologies=("1x1",),
        presets=(given.preset,),
        mode="throughput",
        sets=tuple(given.set),
    )
    return plans(load_catalog(ROOT / "suite"), request)[0]


def trainer(case: Path) -> ModuleType:
    """The case's train.py, with its siblings importable."""
    sys.path.insert(0, str(case))
    spec = importlib.util.spec_from_file_location("train", case / "train.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def filled(plan: Plan, task_class: type[Task], standard: bool) -> Slots:
    """The case's slots, with what the vendor fills unless the `standard` ones are asked for."""
    extern = ROOT / "suite" / "vendors" / plan.vendor / plan.model / plan.framework / "extern"
    names = [] if standard else [step.slot for step in plan.slots]
    return fill_slots(task_class.default_slots(), str(extern) if names and extern.is_dir() else None, names)


class Training:
    """A step of the planned case, on the device."""

    def __init__(self, plan: Plan, standard: bool = False) -> None:
        self.device = Device.open(plan.device.model_dump(), 0)
        params = dict(plan.params)
        self.device.autotune(params.get("autotune", False))
        self.precision = Precision(params["precision"], self.device)
        case = Path(plan.case_dir)
        module = trainer(case)
        task_class = next(
            value for value in vars(module).values() if isinstance(value, type) and Task in value.__bases__
        )
        run = SimpleNamespace(params=params, seed=1, mode="throughput", data_dir=None, case_dir=str(case))
        self.task = task_class(run, self.device, filled(plan, task_class, standard), 0, 1)
        model = self.task.build().to(self.device.torch_device).train()
        self.forward = torch.compile(model, **compile_options(params)) if params["compile"] else model
        groups = self.task.parameter_groups(model) or decayed_groups(model, params["weight_decay"])
        fused = self.device.torch_device.type != "cpu"
        self.optimizer = make_optimizer(params, groups, fused)
        stream = iter(self.task.synthetic_batches())
        first = next(stream)
        self.samples = self.task.count(first)["samples"]
        self.batches = [self.device.to(batch) for batch in (first, next(stream))]

    def step(self, index: int) -> None:
        """Forward, backward, update."""
        with self.precision.autocast():
            loss = self.task.loss(self.forward, self.batches[index % 2])
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def steps(self, count: int) -> float:
        """Seconds of `count` steps, synchronised at both ends."""
        self.device.synchronize()
        start = time.perf_counter()
        for index in range(count):
            self.step(index)
        self.device.synchronize()
        return time.perf_counter() - start


def kernels(training: Training, steps: int) -> tuple[Counter[str], Counter[str]]:
    """(milliseconds, launches) of a step, by kernel; on a CPU, by operator."""
    on_host = training.device.torch_device.type == "cpu"
    with profile(activities=[ProfilerActivity.CPU if on_host else ProfilerActivity.CUDA]) as seen:
        training.steps(steps)
    times: Counter[str] = Counter()
    launches: Counter[str] = Counter()
    for event in seen.events():
        if on_host or event.device_type != torch.autograd.DeviceType.CPU:
            spent: Any = event.self_cpu_time_total if on_host else event.device_time
            times[event.name] += spent / 1e3 / steps
            launches[event.name] += 1
    return times, launches


def main() -> int:
    """Parse, warm up, profile, print; 4 for wrong usage."""
    parser = Parser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--vendor", default="cpu")
    parser.add_argument("--machine")
    parser.add_argument("--preset", default="full")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--standard", action="store_true", help="leave out the vendor's extern/")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--top", type=int, default=20)
    given = parser.parse_args()
    try:
        plan = planned(given)
    except UsageProblem as problem:
        print(problem, file=sys.stderr)
        return 4
    training = Training(plan, given.standard)
    training.steps(WARM_UP)
    step_ms = training.steps(given.steps) / given.steps * 1e3
    times, launches = kernels(training, given.steps)
    print(f"{given.model} {given.preset}: {training.samples} samples, {step_ms:.2f} ms a step")
    print(f"kernels {sum(times.values()):.2f} ms in {sum(launches.values()) / given.steps:.0f} launches a step")
    for name, spent in times.most_common(given.top):
        print(f"{spent:9.3f} ms  x{launches[name] / given.steps:<6.0f} {name[:120]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
