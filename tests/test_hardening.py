"""What a hostile tester found beyond the faults of docs/faults.md: input of every shape, and files in false shapes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fixtures import option_values
from fixtures.harness_log import HarnessLog
from fixtures.judging import keep_plan
from fixtures.launcher import message_of
from fixtures.node import processes
from fixtures.piped_agent import PipedAgent
from fixtures.session_folder import take_session_folder
from fixtures.side_process import ask
from fixtures.signals import Interrupts, raise_lost_interrupt
from fixtures.training import Runs
from reports.journal import JournalWriter, read_journals
from reports.load import load
from reports.mllog_check import check_files
from suite.baseline import check_named
from suite.catalog import load_catalog
from suite.errors import UsageProblem
from suite.plan import Plan, Request
from suite.result import Result
from suite.selection import plans
from suite.slots import _filled
from suite.toml_file import read_toml
from tests.launch_toy import until
from tests.user_toy import ROOT, Checkout

LONG = "x" * 5000

WRONG = (
    (f"--site={LONG}", "File name too long"),
    (f"--cases={LONG}", "File name too long"),
    (f"--baseline={LONG}", "File name too long"),
    (f"--data-dir={LONG}", "File name too long"),
    (f"--vendor-path={LONG}", "File name too long"),
    (f"--resume={LONG}", "File name too long"),
    (f"--attach={LONG}", "File name too long"),
    (f"--results={LONG}", "File name too long"),
    (f"--session={LONG}", "cannot use "),
    (f"--vendor={LONG}", "File name too long"),
    ("--model=--", "--model '--' is no value; it takes NAME"),
    ("--topology=--", "--topology '--' is no value; it takes NxM"),
    ("--preset=--", "--preset '--' is no value; it takes NAME"),
    ("--session=a\udcff", "is not UTF-8"),
    ("--set=name=a\udcff", "is not UTF-8"),
)


RUN_ALL = """
import contextlib, io, json, sys
import pytest
answers = []
for argument in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = pytest.main(["suite", "-p", "no:cacheprovider", argument])
    answers.append([int(code), out.getvalue(), err.getvalue()])
json.dump(answers, sys.stdout)
"""


def test_hostile_options_are_one_sentence(checkout: Checkout) -> None:
    """Names that no file system takes, values that argparse makes up, bytes that are no text: exit 4, no traceback."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL], input=json.dumps([line for line, _ in WRONG]), cwd=checkout.root,
        env=checkout.variables(), capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    for (line, sentence), (code, out, err) in zip(WRONG, json.loads(done.stdout), strict=True):
        assert code == 4, (line[:20], out, err)
        assert sentence in err, (line[:20], err)
        assert "Traceback" not in out + err
        assert "INTERNALERROR" not in out + err
        assert len(err.strip().splitlines()) == 1, err
    assert not (checkout.root / "results").exists()


def test_a_working_folder_that_is_not_utf8_is_told() -> None:
    """No plan, journal or report could hold the path."""
    with pytest.raises(UsageProblem, match="is not UTF-8"):
        option_values.absolute("out", Path("/tmp/a\udcff"))


def test_toml_of_every_shape(tmp_path: Path) -> None:
    """A pipe is not waited for, an endless integer is told, a byte order mark is no statement."""
    pipe, number, marked = tmp_path / "pipe.toml", tmp_path / "number.toml", tmp_path / "marked.toml"
    os.mkfifo(pipe)
    number.write_text(f"x = {'9' * 5000}\n", encoding="utf-8")
    marked.write_bytes(b"\xef\xbb\xbfx = 1\r\n")
    with pytest.raises(UsageProblem, match="pipe: cannot be read: not a regular file"):
        read_toml(pipe, "pipe")
    with pytest.raises(UsageProblem, match="number: not valid TOML: Exceeds the limit"):
        read_toml(number, "number")
    assert read_toml(marked, "marked") == {"x": 1}


def test_two_sessions_do_not_share_one_folder(tmp_path: Path) -> None:
    """Both find it empty; the second is told."""
    now = datetime.now(UTC)
    take_session_folder(tmp_path / "one", now)
    with pytest.raises(UsageProblem, match="was just taken by another session"):
        take_session_folder(tmp_path / "one", now)


def test_reports_do_not_wait_for_pipes(tmp_path: Path) -> None:
    """Neither for a result.json, nor for a journal."""
    os.mkfifo(tmp_path / "result.json")
    os.mkfifo(tmp_path / "journal-x.jsonl")
    with pytest.raises(UsageProblem, match="not a regular file"):
        load(Result, tmp_path / "result.json")
    with pytest.raises(UsageProblem, match="not a regular file"):
        check_files([tmp_path / "result.json"])
    assert ["not a regular file" in problem for problem in read_journals(tmp_path).problems] == [True]


def make_plan(checkout: Checkout) -> Plan:
    """A plan of the toy."""
    request = Request(vendor="cpu", machine="host", devices=2, nodes=1, topologies=("1x1",))
    return plans(load_catalog(checkout.root / "suite"), request)[0]


def test_nobody_waits_for_a_pipe_in_place_of_plan_or_journal(tmp_path: Path) -> None:
    """A vendor's extern may put one where the harness reads or writes: an error at once, never a hang."""
    for name in ("plan.json", "journal-main.jsonl", "harness.jsonl"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(OSError, match="not a regular file"):
        Plan.read(tmp_path / "plan.json")
    with pytest.raises(OSError, match="No such device"):
        JournalWriter(tmp_path, "main").append(b"{}", durable=False)
    with pytest.raises(OSError, match="No such device"):
        HarnessLog(tmp_path / "harness.jsonl").write("settled")


@pytest.mark.parametrize("shape", ["pipe", "folder", "link"])
def test_a_plan_in_a_false_shape_is_a_changed_plan(checkout: Checkout, shape: str, tmp_path: Path) -> None:
    """The run is void, and the folder holds the plan that was run."""
    plan = make_plan(checkout)
    path = tmp_path / "plan.json"
    {"pipe": os.mkfifo, "folder": os.mkdir, "link": lambda path: path.symlink_to("/dev/zero")}[shape](path)
    keep_plan(Runs(plan, tmp_path))
    assert Plan.read(path) == plan
    assert "was changed while the plan ran" in (tmp_path / "harness.jsonl").read_text(encoding="utf-8")


@pytest.mark.parametrize("t_wall", ["1" + "0" * 400, "1e999", "NaN", "-1e300"])
def test_a_journal_of_impossible_times_is_passed_over(tmp_path: Path, t_wall: str) -> None:
    """One problem, the other lines are read."""
    record = '{"kind": "interrupt"}'
    lines = [f'{{"t_wall": {when}, "worker": "main", "record": {record}}}\n' for when in (t_wall, "1.0")]
    (tmp_path / "journal-main.jsonl").write_text("".join(lines), encoding="utf-8")
    read = read_journals(tmp_path)
    assert [entry.t_wall for entry in read.entries] == [1.0]
    assert len(read.problems) == 1


@pytest.fixture
def talker() -> Iterator[PipedAgent]:
    """An agent whose interpreter prints before it speaks."""
    said = r'print("hi from sitecustomize\n[1]\n{\"x\":1}"); print("{\"agent\": \"started\"}", flush=True)'
    process = subprocess.Popen([sys.executable, "-c", said], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    agent = PipedAgent(process, 0, "here")
    yield agent
    agent.kill()


def test_an_agent_is_understood_among_noise(talker: PipedAgent) -> None:
    """Lines of others on its stream are none of the protocol."""
    heard = []
    while not talker.gone():
        heard += talker.poll()
    assert heard == [{"agent": "started"}]
    assert message_of(b"[" * 100_000) is None


def test_a_side_process_that_hangs_ends_with_whoever_asked(tmp_path: Path) -> None:
    """Also where that one is killed, and could not end anything."""
    told = tmp_path / "pid"
    (tmp_path / "hanging_side.py").write_text(
        f"import os, time\nopen({str(told)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    argv = [sys.executable, "-c", "from fixtures.side_process import ask; ask('hanging_side', {}, 600.0)"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    with subprocess.Popen(argv, env=environment) as asking:
        until(lambda: told.exists() and told.read_text().isdigit(), 60)
        asking.kill()
    child = int(told.read_text())
    until(lambda: child not in processes.snapshot() or processes.snapshot()[child].state in "ZX")


def test_a_side_process_is_understood_among_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer is its last line."""
    (tmp_path / "noisy_side.py").write_text("print('hi')\nprint('{\"a\": 1}')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert ask("noisy_side", {}, 30.0) == {"a": 1}


@pytest.mark.parametrize("text", ["a=" + "-" * 20000 + "1", "a=" + "(" * 3000 + ")" * 3000], ids=["signs", "brackets"])
def test_code_too_deep_for_the_parser_is_told(tmp_path: Path, text: str) -> None:
    """A vendor's extern that Python's own parser refuses; a pipe among it is no code."""
    os.mkfifo(tmp_path / "a.py")
    (tmp_path / "b.py").write_text(text, encoding="utf-8")
    with pytest.raises(UsageProblem, match="not valid Python"):
        _filled(tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("b.toml", "state = 3\n", "b.toml"),
        ("b.toml", "state =", "b.toml"),
        ("r.json", "{}", "not a result.json"),
        ("r.json", "no JSON", "not a result.json"),
    ],
)
def test_a_baseline_named_outright_is_read_or_refused(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    """Passing over it would judge without what was asked for, and be green."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UsageProblem, match=sentence):
        check_named(path)
    with pytest.raises(UsageProblem, match="no regular file"):
        check_named(Path("/dev/null"))
    assert check_named(tmp_path) == tmp_path


def test_an_interrupt_that_a_destructor_swallowed_is_raised_again() -> None:
    """Python drops what is raised inside __del__; the loop that waits for a run raises it once more."""
    interrupts = Interrupts()
    interrupts.install(keep_sigint=True)

    class Unlucky:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            for _ in range(1000):  # the handler runs between two of these
                pass

    try:
        raise_lost_interrupt()
        hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
        try:
            Unlucky()
        finally:
            sys.unraisablehook = hook
        with pytest.raises(KeyboardInterrupt, match="received SIGTERM"):
            raise_lost_interrupt()
    finally:
        interrupts.restore()
    raise_lost_interrupt()
