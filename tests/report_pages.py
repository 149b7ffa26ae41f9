"""Sessions to make pages of, a web server with the strictest policy a CI server sends, and a browser to look with."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from reports.json_report import Git, SessionFacts, SessionReport, write_session
from reports.lost import lost_result
from suite.outcome import Outcome
from suite.plan import Plan
from suite.result import Result
from suite.topology import Topology
from suite.verdict import judge_folder
from tests.run_folders import tiny_plan, with_base, write_plan_folder

JENKINS = "sandbox; default-src 'none'; img-src 'self'; style-src 'self'"
"""The content policy under which Jenkins serves what a build has left."""
JENKINS_WITH_SCRIPT = "sandbox allow-scripts; default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'"

HOSTILE = "</title></pre><script>document.title='stolen'</script><img src=x onerror=alert(1)> \x1b[31m \u202egnp"
"""What a log may hold: markup, a terminal's escape, a mark that reverses the reading order."""


def page_plan(name: str, topology: str = "1x1", **over: Any) -> Plan:
    """A plan of the case `name`."""
    mode = "-throughput" if over.get("mode") == "throughput" else ""
    id = f"{name}-pytorch-cpu-host-mini{mode}-{topology}"
    return tiny_plan(**{"model": name, "id": id, "topology": Topology.parse(topology), **over})


def write_report_session(folder: Path, results: Sequence[Result]) -> SessionReport:
    """session.json of `results` in `folder`."""
    facts = SessionFacts(
        id="20260131T120000Z-4f2a",
        started="2026-01-31T12:00:00Z",
        finished="2026-01-31T13:05:00Z",
        command="pytest suite --vendor cpu --preset mini --seed 7 --session out -n 2 --set lr=0.1",
        exit_status=1,
        git=Git(commit="0123456789abcdef0123456789abcdef01234567", dirty=True),
        versions={"python": "3.11.7", "pytest": "9.2.0"},
        ci={"BUILD_URL": "https://ci.example.org/job/trainmark/7/", "JOB_NAME": "javascript:alert(1)"},
    )
    report = SessionReport(session=facts, selected=tuple(result.id for result in results), results=tuple(results))
    folder.mkdir(parents=True, exist_ok=True)
    write_session(report, folder)
    return report


def mixed_session(folder: Path) -> SessionReport:
    """Every kind of outcome, with the run folders of those that ran: judged by the suite, not made up."""
    slow = {"step_s": 0.2}
    ran = [
        (page_plan("glm", "1x1"), {"runs": [{"power_w": 210.0}, {"power_w": 212.0}], "repeat": 2}),
        (with_base(page_plan("glm", "1x2"), threshold=1.2), {"runs": [{"power_w": 220.0}], "base_runs": [slow, slow]}),
        (with_base(page_plan("glm", "1x4"), threshold=3.9), {"runs": [{"step_s": 0.12}], "base_runs": [slow, slow]}),
        (page_plan("bert", "1x1"), {"runs": [{"quality": (0.2, 0.3, 0.41)}]}),
        (page_plan("bert", "1x2", division="open", division_reasons=("lr is not mutable",)),
         {"runs": [{"faults": ("crash", "no_run_stop")}]}),
        (page_plan("mobilenetv2", "1x1", mode="throughput"), {"runs": [{}]}),
    ]  # fmt: skip
    results = []
    for plan, made in ran:
        repeat = made.pop("repeat", 1)
        plan = plan.model_copy(update={"repeat": repeat, "seeds": tuple(range(1, repeat + 1))})
        results.append(judge_folder(write_plan_folder(folder / plan.id, plan, **made)))
    unavailable = Outcome(status="not_started", category="unavailable", reason="8 devices wanted, 2 here")
    results.append(lost_result(page_plan("glm", "1x8"), unavailable))
    hostile = Outcome(status="error", category="out_of_memory", reason=HOSTILE, rank=0, log_tail=(HOSTILE, "the end"))
    results.append(lost_result(page_plan("faster_rcnn", "2x1", origins={"lr": HOSTILE}), hostile))
    return write_report_session(folder, results)


def large_session(folder: Path, results: Sequence[Result], count: int) -> SessionReport:
    """`count` plans with the numbers of `results`, in ten topologies; no run folder lies beside them."""
    made = []
    for index in range(count):
        like, topology = results[index % len(results)], Topology(nnodes=1 + index % 2, nproc=1 << (index // 2 % 5))
        model = f"case{index // 10:03d}"
        id = f"{model}-pytorch-cpu-host-mini-{topology}"
        made.append(like.model_copy(update={"model": model, "id": id, "topology": topology}))
    return write_report_session(folder, made)


@contextmanager
def served(folder: Path, policy: str) -> Iterator[str]:
    """The address at which `folder` is served under the content policy `policy`."""

    class Handler(SimpleHTTPRequestHandler):
        """Static files, each with the policy."""

        def end_headers(self) -> None:
            """Add the policy."""
            self.send_header("Content-Security-Policy", policy)
            super().end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)
