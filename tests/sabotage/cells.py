"""Every sabotage of the driver as the toy is trained with it, and the healthy twins."""

from __future__ import annotations

from suite.drivers.sabotage import TABLE, Sabotage
from tests.sabotage.toy import Job


def job_of(sabotage: Sabotage, mode: str) -> Job:
    """Where `sabotage` shows."""
    return Job(
        sabotage=sabotage.name,
        mode=mode,
        ranks=sabotage.ranks,
        repeat=2 if sabotage.needs == "repeats" else 1,
        accumulation=2 if sabotage.needs == "accumulation" else 1,
        requality=sabotage.needs == "requality",
    )


BROKEN = [
    (sabotage, job_of(sabotage, mode))
    for sabotage in TABLE
    for mode in ("converge", "throughput")
    if sabotage.mode in ("both", mode) and sabotage.name != "half_devices"
]
HEALTHY = [
    Job(requality=True),
    Job(repeat=2),
    Job(accumulation=2),
    Job(mode="throughput"),
    Job(mode="throughput", repeat=2),
    Job(mode="throughput", accumulation=2),
    Job(ranks=2),
    Job(ranks=2, mode="throughput"),
]
HALF = Job(sabotage="half_devices", ranks=2)
