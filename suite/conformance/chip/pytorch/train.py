"""One rank of a conformance run: it measures, and writes a `finding` for each check; the harness judges."""

import contextlib
import os
import sys
import traceback
from pathlib import Path

import torch

from suite.conformance.chip.pytorch import capabilities, clocks, collectives, load, memory, numerics, sabotage, seeds
from suite.conformance.chip.pytorch.finding import Findings, Unobservable
from suite.drivers.events import EventWriter, RunProblem, RunSpec, find_place
from suite.drivers.pytorch.device import Device, EnvironmentProblem
from suite.drivers.pytorch.distributed import Group
from suite.drivers.pytorch.expectation import check_expectations
from suite.drivers.pytorch.header import write_header
from suite.drivers.pytorch.precision import Precision
from suite.drivers.pytorch.pulse import Pulse, write_stop
from suite.drivers.pytorch.slots import Runtime

EXIT_EXCEPTION, EXIT_ENVIRONMENT = 1, 3


class Rank:
    """This process, from the header to run_stop."""

    def __init__(self, run, place, writer):
        self.run, self.place, self.writer = run, place, writer
        self.findings = Findings(writer)
        self.broken = sabotage.named(run.sabotage)

    def examine(self):
        """Everything, in the order of checks.py; the ranks keep in step, for they may share what they run on."""
        device = self._open()
        pulse = Pulse(self.writer, self.run.heartbeat_s, lambda: (0, 0))
        self._tell("init_start")
        group = Group(self.place, device)
        self._tell("init_stop")
        self._tell("run_start")
        for part in (self._alone, self._together, self._observed):
            part(device, group)
        if self.place.rank == 0 and self.run.params["probes"]:
            self._probe(device)
        group.barrier()
        write_stop(self.writer, "success", "examined", "", 0, 0)
        pulse.stop()
        group.farewell()
        group.close()

    def _open(self):
        """The device as the driver opens it. What was recorded about the chip is not believed: it is asked again."""
        device = None
        try:
            device = Device.open(self.run.device, self.place.local_rank)
            if device.is_host:
                torch.set_num_threads(1)  # a device of a host is a core
            Runtime(self.run.runtime_dir).setup(device, self.run)
            facts = Precision("fp32", device).facts()
        except BaseException:
            write_header(self.writer, self.run, self.place, device)
            raise
        write_header(self.writer, self.run, self.place, device, facts)
        self.broken.break_device(device)
        return device

    def _alone(self, device, group):
        """What each rank can say of its own chip."""
        self.findings.measure("devices", lambda: self._devices(device, group))
        work = self.broken.work(device)
        self.findings.measure("synchronise", lambda: clocks.late_share(device, work))
        self.findings.measure("timers", lambda: clocks.timer_faults(device))
        self.findings.measure("event_timing", lambda: clocks.event_error(device, work))
        for name in numerics.DTYPES:
            group.barrier()
            with self.broken.products():
                self.findings.measure(f"dtype_{name}", lambda name=name: numerics.worst_error(device, name))
        self.findings.measure("seeds", lambda: seeds.draws_not_reproduced(device))
        group.barrier()
        self.findings.measure("memory_returned", lambda: memory.kept_mib(device, self._holder(), group.barrier))

    def _devices(self, device, group):
        """0, or 1 with the sentence that a training would have ended with; its precision has a check of its own."""
        try:
            check_expectations(self.run, self.place, device, {"compute": self.run.expect.precision}, group)
        except EnvironmentProblem as problem:
            return 1.0, str(problem)
        return 0.0, f"{device.name}, {device.identity}"

    def _holder(self):
        return memory.Holder(self.place.local_rank, self.run.params["hold_mib"])

    def _together(self, device, group):
        if group.world_size == 1:
            return
        exchange = self.broken.exchange(collectives.Exchange(), group)
        for name in collectives.COLLECTIVES:
            group.barrier()
            self.findings.measure(name, lambda name=name: collectives.wrong(name, exchange, device, group))
        self.findings.measure("backend", lambda: collectives.backend_wrong(device))
        if self.run.topology.nnodes == 1:
            group.barrier()
            self.findings.measure("fast_path", lambda: collectives.exchange_ratio(device, group))

    def _observed(self, device, group):
        """Rest, then load, on all devices at once."""
        group.barrier()
        rest, busy = load.rest_and_load(device, self.run.params["rest_s"], self.run.params["load_s"])
        self.findings.tell("monitor", None, rest=rest, load=busy)

    def _probe(self, device):
        for name, has, remark in capabilities.probe(device):
            self.writer.write("capability", name=name, has=has, remark=remark)

    def _tell(self, event):
        if self.place.rank == 0:
            self.writer.write(event)

    def abort(self, reason, detail, code):
        """The last line, then leave at once: a destructor may wait for ranks that are gone."""
        print(detail, file=sys.stderr)
        write_stop(self.writer, "aborted", reason, detail[:2000], 0, 0)
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def main():
    """Examine the chip as run.json says."""
    run, place = RunSpec.load(), find_place()
    rank = Rank(run, place, EventWriter(str(Path(run.run_dir, "events", f"rank{place.rank}.jsonl"))))
    try:
        rank.examine()
    except (EnvironmentProblem, Unobservable) as problem:
        rank.abort("environment", str(problem), EXIT_ENVIRONMENT)
    except RunProblem as problem:
        rank.abort("config", str(problem), EXIT_EXCEPTION)
    except BaseException as problem:
        traceback.print_exc()
        rank.abort("exception", f"{type(problem).__name__}: {problem}", EXIT_EXCEPTION)


if __name__ == "__main__":
    main()
