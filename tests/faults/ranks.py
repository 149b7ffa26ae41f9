"""Ranks that die, and ranks that hang."""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path

import pytest

from tests.faults.fault import Fault
from tests.faults.scene import Scene

MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")
UNIFIED_GROUPS = Path("/sys/fs/cgroup")
GROUP = "trainmark-fault"


def kill_rank_1(scene: Scene) -> None:
    """From outside, as an administrator would."""
    scene.trains(1)
    scene.signal(scene.header(1)["pid"], signal.SIGKILL, "rank 1")


def terminate_rank_1(scene: Scene) -> None:
    """A SIGTERM of somebody who has nothing to do with the run."""
    scene.trains(1)
    scene.signal(scene.header(1)["pid"], signal.SIGTERM, "rank 1")


def kill_wrapper_1(scene: Scene) -> None:
    """The process that would have recorded the exit of rank 1."""
    scene.trains(1)
    wrapper = Path(f"/proc/{scene.header(1)['pid']}/stat").read_text().rpartition(")")[2].split()[1]
    scene.signal(int(wrapper), signal.SIGKILL, "the wrapper of rank 1")


def memory_group(scene: Scene) -> None:
    """A control group of 64 MiB, and its folder in the script."""
    v1 = (MEMORY_GROUPS / "memory.limit_in_bytes").exists()
    parent, limit = (MEMORY_GROUPS, "memory.limit_in_bytes") if v1 else (UNIFIED_GROUPS, "memory.max")
    folder = parent / f"{GROUP}-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
        scene.stack.callback(os.rmdir, folder)
        (folder / limit).write_text(str(64 << 20))
        swap = folder / ("memory.memsw.limit_in_bytes" if v1 else "memory.swap.max")
        if swap.exists():
            swap.write_text(str(64 << 20) if v1 else "0")
    except OSError as problem:
        pytest.skip(f"no control group can be made here: {problem}")
    scene.checkout.variables["FAULT_GROUP"] = str(folder)


FAULTS = (
    Fault(
        name="rank_killed",
        what="a rank is killed with SIGKILL from outside",
        topology="1x2",
        act=kill_rank_1,
        expect="error: crash",
        exit=1,
        rank=1,
        says="rank 1 was killed by SIGKILL (signal 9)",
    ),
    Fault(
        name="rank_killed_2x1",
        what="the same with two nodes, an agent each",
        topology="2x1",
        act=kill_rank_1,
        expect="error: crash",
        exit=1,
        rank=1,
        says="rank 1 was killed by SIGKILL (signal 9)",
    ),
    Fault(
        name="rank_killed_torchrun",
        what="the same under the real torchrun",
        topology="1x2",
        act=kill_rank_1,
        real_launcher=True,
        expect="error: crash",
        exit=1,
        rank=1,
        says="rank 1 was killed by SIGKILL (signal 9)",
    ),
    Fault(
        name="rank_terminated",
        what="somebody sends SIGTERM to a rank",
        topology="1x2",
        act=terminate_rank_1,
        expect="error: crash",
        exit=1,
        rank=1,
        says="rank 1 was killed by SIGTERM",
    ),
    Fault(
        name="wrapper_killed",
        what="the wrapper that records a rank's exit is killed",
        topology="1x2",
        act=kill_wrapper_1,
        expect="error: crash",
        exit=1,
        rank=1,
        says="rank 1 was killed by SIGKILL",
    ),
    Fault(
        name="segfault",
        what="a native library of a rank reads where nothing is",
        topology="1x2",
        script="segfault@20:1",
        expect="error: crash",
        exit=1,
        rank=1,
        says="SIGSEGV",
    ),
    Fault(
        name="abort_signal",
        what="a native assertion aborts a rank",
        script="signal_self=ABRT@20",
        expect="error: crash",
        exit=1,
        rank=0,
        says="SIGABRT",
    ),
    Fault(
        name="exception",
        what="a rank raises",
        topology="1x2",
        script="fail=no such layer@20:1",
        expect="error: crash",
        exit=1,
        rank=1,
        says="no such layer",
    ),
    Fault(
        name="exit_7",
        what="a rank leaves with status 7, without a word",
        script="leave=7@20",
        expect="error: crash",
        exit=1,
        rank=0,
        says="rank 0 left with status 7",
    ),
    Fault(
        name="exit_7_torchrun",
        what="the same under the real torchrun",
        script="leave=7@20",
        real_launcher=True,
        expect="error: crash",
        exit=1,
        rank=0,
        says="rank 0 left with status 7",
    ),
    Fault(
        name="exit_0_early",
        what="every rank leaves with status 0 before run_stop",
        script="leave=0@20",
        expect="error: crash",
        exit=1,
        rank=0,
        says="without run_stop",
    ),
    Fault(
        name="deep_recursion",
        what="a traceback of a thousand lines",
        script="recurse@20",
        expect="error: crash",
        exit=1,
        rank=0,
        says="RecursionError",
    ),
    Fault(
        name="missing_requirement",
        what="a module that is not installed",
        script="import_missing",
        expect="error: crash",
        exit=1,
        rank=0,
        says="No module named 'a_module_that_nobody_installed'",
    ),
    Fault(
        name="environment_mismatch",
        what="a rank finds another precision than planned",
        script="abort=environment",
        expect="error: environment",
        exit=1,
        rank=0,
        says="the plan says bf16",
    ),
    Fault(
        name="memory_error",
        what="an allocation beyond the limit of the process",
        script="memory_error@20",
        expect="error: out_of_memory",
        exit=1,
        rank=0,
        says="MemoryError",
    ),
    Fault(
        name="oom_kill",
        what="the kernel kills a rank for want of memory",
        script="oom_kill@20",
        before=memory_group,
        expect="error: out_of_memory",
        exit=1,
        rank=0,
        says="the kernel killed for want of memory",
    ),
    Fault(
        name="oom_text",
        what="a vendor's own words for out of memory, declared in its vendor.toml",
        vendor="quill",
        script="tell=QERR_POOL_EXHAUSTED 24 GiB@20,leave=1@20",
        expect="error: out_of_memory",
        exit=1,
        rank=0,
    ),
    Fault(
        name="link_down",
        what="a vendor's own words for a lost link: tried again, and passed",
        vendor="quill",
        script="tell=QLINK 3 is down@20#1,leave=1@20#1",
        expect="passed",
        exit=0,
        attempts=2,
    ),
    Fault(
        name="hang_in_collective",
        what="a rank never comes to a collective",
        topology="1x2",
        script="hang@30:1",
        deadlines={"no_progress_s": 2},
        expect="error: hang",
        exit=1,
        says="no rank made progress for 2 s",
    ),
    Fault(
        name="hang_deaf",
        what="the same, and the rank ignores SIGTERM",
        topology="1x2",
        script="deafen,hang@30:1",
        deadlines={"no_progress_s": 2},
        expect="error: hang",
        exit=1,
    ),
    Fault(
        name="hang_torchrun",
        what="a rank never comes to a collective, under the real torchrun",
        topology="1x2",
        script="hang@30:1",
        real_launcher=True,
        deadlines={"no_progress_s": 2},
        expect="error: hang",
        exit=1,
    ),
    Fault(
        name="rank_stopped",
        what="a rank is stopped with SIGSTOP",
        topology="1x2",
        script="signal_self=STOP@30:1",
        deadlines={"no_progress_s": 2},
        expect="error: hang",
        exit=1,
        rank=1,
    ),
    Fault(
        name="silent_rank",
        what="a rank writes nothing more, not even a heartbeat",
        topology="1x2",
        script="die_silently@30:1",
        deadlines={"no_progress_s": 2},
        expect="error: hang",
        exit=1,
        rank=1,
    ),
    Fault(
        name="hang_in_teardown",
        what="a rank writes run_stop and does not leave",
        script="hang@stop",
        deadlines={"teardown_s": 2},
        expect="error: hang",
        exit=1,
        rank=0,
        says="wrote run_stop and did not leave within 2 s",
    ),
    Fault(
        name="no_header",
        what="a rank does not get as far as its header",
        topology="1x2",
        script="hang@start:1",
        deadlines={"launch_s": 4},
        expect="error: timeout",
        exit=1,
        rank=1,
        says="rank 1 did not start within 4 s",
    ),
    Fault(
        name="no_first_step",
        what="a rank compiles for ever",
        script="hang@init",
        deadlines={"first_step_s": 2},
        expect="error: timeout",
        exit=1,
        says="no step was done 2 s after the start",
    ),
    Fault(
        name="deadline_5s",
        what="a run that goes on and on meets its deadline of 5 s",
        arguments=("--set", "steps=100000", "--set", "train_batch_size=1"),
        script="lie=quality/0.1",
        deadlines={"total_s": 5},
        expect="error: timeout",
        exit=1,
        says="deadline total_s",
    ),
    Fault(
        name="time_budget",
        what="the session's time budget ends in the middle of a run",
        arguments=("--time-budget", "5s", "--set", "steps=100000"),
        script="lie=quality/0.1",
        expect="error: timeout",
        exit=1,
        says="--time-budget",
    ),
)
