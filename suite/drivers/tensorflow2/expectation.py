"""What the plan says against what the ranks see from inside. A difference ends the run on every rank."""

import fnmatch
import socket

from suite.drivers.tensorflow2.problem import EnvironmentProblem


def check_expectations(run, place, device, precision, control):
    """Raises the same EnvironmentProblem on every rank where any rank finds one."""
    own = {
        "host": socket.gethostname(),
        "identity": device.identity,
        "problem": _own_problem(run, place, device, precision),
    }
    views = control.gather(own)
    problems = [f"rank {rank}: {view['problem']}" for rank, view in enumerate(views) if view["problem"]]
    if not run.device.get("shared", False):
        problems += _shared_devices(views)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise EnvironmentProblem(problems[0] + more)


def _own_problem(run, place, device, precision):
    expect = run.expect
    if place.world_size != expect.world_size:
        return f"world size is {place.world_size} where the plan says {expect.world_size}: start as many ranks"
    if precision["compute"] != expect.precision:
        return (
            f"computes in {precision['compute']} where the plan says {expect.precision}: "
            "the chip or its environment has no such precision, plan another"
        )
    if expect.device_match and not any(fnmatch.fnmatchcase(device.name, glob) for glob in expect.device_match):
        return (
            f"device {device.name!r} is no {run.machine} ({', '.join(expect.device_match)}): name the right --machine"
        )
    return ""


def _shared_devices(views):
    """Sentences about devices that several ranks of one host hold."""
    owners, problems = {}, []
    for rank, view in enumerate(views):
        first = owners.setdefault((view["host"], view["identity"]), rank)
        if first != rank:
            problems.append(
                f"ranks {first} and {rank} hold one device, {view['identity']} of {view['host']}: bind one to each rank"
            )
    return problems
