"""A limit on the size of files (`ulimit -f`) is told as what it is, whoever meets it."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fixtures import file_limit
from fixtures.cause import find_cause
from fixtures.event_tail import Exit
from fixtures.faults.checkout import ROOT, ToyCheckout
from fixtures.file_limit import refused_write
from fixtures.testing import MakeCheckout, toy_checkout

__all__ = ["toy_checkout"]

TORN = "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 25152 vs 25046"
ADVICE = "a file is at the file size limit of 204,800 bytes; raise it: ulimit -f unlimited"


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process as if it had been started below a limit."""
    monkeypatch.setattr(file_limit.resource, "getrlimit", lambda what: (204800, resource.RLIM_INFINITY))
    yield


def ended(folder: Path, stop: dict[str, Any] | None, *, number: int | None = None, log: str = "") -> Any:
    """The outcome of a run whose one rank left so."""
    (folder / "logs").mkdir()
    (folder / "logs" / "rank0.log").write_text(log)
    left = Exit(rank=0, returncode=1 if number is None else 128 + number, signal=number, ended_wall=1.0)
    return find_cause(folder, 1, {0: left}, {0: stop} if stop else {}, ())


def aborted(detail: str) -> dict[str, Any]:
    """A run_stop with this exception."""
    return {"event": "run_stop", "status": "aborted", "reason": "exception", "detail": detail, "t_wall": 1.0}


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize("detail", ["OSError: [Errno 27] File too large", TORN])
def test_a_rank_that_meets_the_limit_ends_in_its_environment(tmp_path: Path, detail: str) -> None:
    outcome = ended(tmp_path, aborted(detail))
    assert (outcome.status, outcome.category) == ("error", "environment")
    assert outcome.reason == f"rank 0 stopped with exception: {detail}: {ADVICE}"


@pytest.mark.usefixtures("limited")
def test_a_rank_that_the_limit_kills_ends_in_its_environment(tmp_path: Path) -> None:
    outcome = ended(tmp_path, None, number=int(signal.SIGXFSZ))
    assert (outcome.status, outcome.category) == ("error", "environment")
    assert outcome.reason == f"rank 0 was killed by SIGXFSZ (signal 25): {ADVICE}"


def test_a_torn_checkpoint_without_a_limit_is_not_blamed_on_one(tmp_path: Path) -> None:
    outcome = ended(tmp_path, aborted(TORN))
    assert (outcome.category, "limit" in outcome.reason) == ("crash", False)


@pytest.mark.usefixtures("limited")
def test_another_problem_of_the_environment_speaks_of_no_limit(tmp_path: Path) -> None:
    outcome = ended(tmp_path, None, log="No module named 'torch'\n")
    assert outcome.category == "environment" and "limit" not in outcome.reason


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize(
    ("number", "category", "words"),
    [(errno.EFBIG, "environment", ADVICE), (errno.ENOSPC, "provision", "see to that folder and its disk")],
)
def test_results_that_cannot_be_written(number: int, category: str, words: str) -> None:
    outcome = refused_write(OSError(number, "no", "/r/harness.jsonl"), Path("/r"))
    assert (outcome.status, outcome.category) == ("error", category)
    assert outcome.reason.startswith("/r/harness.jsonl: results cannot be written (no)") and words in outcome.reason


def run_below(checkout: ToyCheckout, limit: int) -> tuple[int, str]:
    """Exit status and output of a session whose files may not be larger; nothing of it is cached: ours is shared."""
    environment = {**checkout.environment(), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        checkout.command(), cwd=checkout.root, env=environment, capture_output=True, text=True, timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    "limit",
    [
        8192,
        pytest.param(4096, marks=[pytest.mark.slow, pytest.mark.nightly]),
        pytest.param(16384, marks=[pytest.mark.slow, pytest.mark.nightly]),
    ],
)
def test_wherever_a_session_meets_the_limit_the_harness_is_not_to_blame(toy_checkout: MakeCheckout, limit: int) -> None:
    code, told = run_below(toy_checkout(), limit)
    assert "error: harness" not in told and "INTERNALERROR" not in told, told
    assert code in (0, 1), told
    assert code == 0 or f"file size limit of {limit:,} bytes; raise it: ulimit -f unlimited" in told, told


def test_no_module_is_cached_cut_short(tmp_path: Path) -> None:
    (tmp_path / "large.py").write_text("TEXT = " + repr("x" * 9000) + "\n")
    code = "import fixtures, large; print(len(large.TEXT))"
    environment = {"PYTHONPATH": f"{ROOT}:{tmp_path}", "PATH": os.environ["PATH"]}

    def lower(limit: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    for limit in (4096, resource.RLIM_INFINITY):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60,
            preexec_fn=partial(lower, limit),
        )  # fmt: skip
        assert done.stdout == "9000\n", done.stderr
