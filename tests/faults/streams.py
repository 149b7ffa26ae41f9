"""Numbers, streams and logs that cannot be trusted."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from fixtures.node import processes
from tests.faults.fault import Fault
from tests.faults.scene import Scene

WINDOWS = 6
FLOOD_MIB = 200
"""A tenth of what benchmarks/log_flood.py writes."""

MOST_MIB = 300
"""The harness's own memory, whatever a run logs."""


def watch_memory(scene: Scene) -> None:
    """The highest resident set of pytest and its agents."""
    scene.trains()
    watched = [scene.process.pid, *scene.agents().values()]
    peaks: dict[int, int] = {}
    while scene.process.poll() is None:
        for pid in watched:
            if process := processes.read(pid):
                peaks[pid] = max(peaks.get(pid, 0), process.rss_pages * 4096 >> 20)
        scene.pause()
    assert peaks
    assert max(peaks.values()) < MOST_MIB, peaks


def require_throughput(scene: Scene) -> None:
    """A threshold, so that the number counts."""
    text = '[threshold.throughput]\nvalue = 10\nsource = "a data sheet"\n'
    scene.checkout.write("suite/vendors/basalt/toy/pytorch/config_default.toml", text)


def junit_is_xml(scene: Scene) -> None:
    """Whatever a log holds, the report can be read, and no control byte of it reaches a terminal."""
    text = (scene.checkout.results / "junit.xml").read_bytes()
    assert "after" in (ElementTree.fromstring(text).findtext(".//system-out") or "")
    assert not [c for c in scene.checkout.output if ord(c) < 0x20 and c not in "\n\t"]


def no_secret_shown(scene: Scene) -> None:
    """Nothing of the file that a link led to."""
    assert "FAULT_SCENE=" not in scene.checkout.output
    assert "FAULT_SCENE=" not in (scene.checkout.results / "junit.xml").read_text(encoding="utf-8")


def plan_as_planned(scene: Scene) -> None:
    """The threshold is the one that was planned."""
    quality = next(check for check in scene.result()["checks"] if check["name"] == "quality")
    assert quality["threshold"] == 0.7


def large_log_is_there(scene: Scene) -> None:
    """All of it is kept, and the tail alone is shown."""
    log = next(Path(scene.checkout.results).glob("toy-*/r1/logs/rank0.log"))
    assert log.stat().st_size > (FLOOD_MIB - 8) << 20
    assert (scene.checkout.results / "junit.xml").stat().st_size < 1 << 20


VOID = {"expect": "failed: invalid_measurement", "exit": 1}

FAULTS = (
    Fault(
        name="nan_loss",
        what="the loss becomes NaN",
        script="lie=loss/nan@20",
        expect="failed: nonfinite_loss",
        exit=1,
        rank=0,
        says="not finite at step 21",
    ),
    Fault(
        name="inf_loss",
        what="the loss of one rank becomes infinite",
        topology="1x2",
        script="lie=loss/inf@20:1",
        expect="failed: nonfinite_loss",
        exit=1,
        rank=1,
        says="not finite at step 21",
    ),
    Fault(
        name="nan_quality",
        what="every evaluation yields NaN",
        script="lie=quality/nan",
        expect="failed: quality",
        exit=1,
        says="finite",
    ),
    Fault(
        name="target_missed",
        what="the model does not learn",
        script="lie=quality/0.4",
        expect="failed: quality",
        exit=1,
        says="0.4 is not >= 0.7",
    ),
    Fault(
        name="ranks_diverged",
        what="gradients are not averaged: the ranks' parameters differ",
        topology="1x2",
        script="lie=spread/1",
        expect="failed: ranks_diverged",
        exit=1,
    ),
    Fault(
        name="noise",
        what="step times that never settle, where a throughput is required",
        arguments=("--mode", "throughput", "--set", "steps=100"),
        script="lie=noise/1",
        before=require_throughput,
        expect="inconclusive: no_steady_state",
        exit=5,
    ),
    Fault(
        name="clock_set_back",
        what="the wall clock is set back by an hour during the run",
        script="lie=wall/-3600@30",
        says="t_wall",
        **VOID,
    ),
    Fault(
        name="clock_back_mono",
        what="the monotonic clock goes back",
        script="lie=t/-5@30",
        says="t goes back",
        **VOID,
    ),
    Fault(
        name="forged_time",
        what="the events claim more time than passed",
        script="lie=t/100@30,lie=wall/100@30",
        says="the harness saw only",
        **VOID,
    ),
    Fault(
        name="forged_samples",
        what="a rank counts its samples twice",
        topology="1x2",
        script="lie=samples/2:1",
        says="more than",
        **VOID,
    ),
    Fault(
        name="forged_window",
        what="a window claims half of the time of its steps",
        script="lie=window/0.5@20",
        says="window_s",
        **VOID,
    ),
    Fault(
        name="bad_line",
        what="a line in the stream is no JSON",
        script="write=text@20",
        says="events/rank0.jsonl",
        **VOID,
    ),
    Fault(
        name="bare_nan",
        what="a bare NaN, as many JSON writers leave it",
        script="write=nan@20",
        says="not strict JSON",
        **VOID,
    ),
    Fault(
        name="unknown_event",
        what="an event of a name that nobody knows",
        script="write=unknown@20",
        says="is not the name of an event",
        **VOID,
    ),
    Fault(
        name="torn_line_death",
        what="a rank is killed in the middle of a line",
        script="tear@20,signal_self=KILL@20",
        expect="error: crash",
        exit=1,
        rank=0,
        says="SIGKILL",
    ),
    Fault(
        name="torn_last_line",
        what="half a line after run_stop: tolerated",
        script="tear@stop",
        expect="passed",
        exit=0,
    ),
    Fault(
        name="line_after_stop",
        what="a whole line after run_stop",
        script="write=late@stop",
        says="events/rank0.jsonl",
        **VOID,
    ),
    Fault(
        name="long_line",
        what="a line of 70 MiB",
        script="long_line=70@20",
        says="more than 64 MiB",
        **VOID,
    ),
    Fault(
        name="deep_line",
        what="JSON of 200,000 brackets",
        script="deep_line@20",
        says="events/rank0.jsonl",
        **VOID,
    ),
    Fault(
        name="missing_stream",
        what="the events of a rank are removed before it ends",
        topology="1x2",
        script="pause=1@stop:1,drop_stream@stop:1",
        says="rank1.jsonl",
        **VOID,
    ),
    Fault(
        name="pipe_for_stream",
        what="a pipe in place of the events: whoever opens it waits for ever",
        script="pipe_stream@20",
        expect="error: crash",
        exit=1,
        rank=0,
    ),
    Fault(
        name="stream_of_nobody",
        what="the stream of a rank that does not exist",
        script="forge_stream=7",
        says="rank7.jsonl",
        **VOID,
    ),
    Fault(
        name="forged_exit",
        what="a failing rank writes a good exit record and a passing verdict",
        script="claim@20,leave=9@20",
        expect="error: crash",
        exit=1,
        rank=0,
    ),
    Fault(
        name="forged_success",
        what="a rank claims success in its events and its exit record, and leaves with 9",
        script="claim@stop,pause=0.5@stop,leave=9@stop",
        expect="error: crash",
        exit=1,
        rank=0,
        says="status 9",
    ),
    Fault(
        name="run_json_edited",
        what="the code under test lowers the target in run.json",
        script="edit=target,lie=quality/0.3",
        says="met is False at 0.3, but the target is 0.1",
        check=plan_as_planned,
        **VOID,
    ),
    Fault(
        name="plan_json_edited",
        what="the code under test lowers the threshold in plan.json",
        script="edit=threshold,lie=quality/0.3",
        says="plan.json",
        check=plan_as_planned,
        **VOID,
    ),
    Fault(
        name="control_bytes",
        what="bytes 0x00 to 0x1f, escape sequences and broken UTF-8 in the log of a rank that fails",
        script="log_bytes@20,leave=1@20",
        expect="error: crash",
        exit=1,
        rank=0,
        check=junit_is_xml,
    ),
    Fault(
        name="log_link",
        what="a link in place of a log leads to a file that is nobody's business",
        script="log_link@20,leave=1@20",
        expect="error: crash",
        exit=1,
        rank=0,
        check=no_secret_shown,
    ),
    Fault(
        name="log_flood",
        what=f"a rank logs {FLOOD_MIB} MiB: pytest and its agents stay under {MOST_MIB} MiB",
        script=f"flood={FLOOD_MIB // WINDOWS + 1}",
        act=watch_memory,
        expect="passed",
        exit=0,
        check=large_log_is_there,
    ),
)
