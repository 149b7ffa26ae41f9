"""The toy's trainings, made once for all tests here, whichever worker comes first."""

from __future__ import annotations

from pathlib import Path

import pytest
from filelock import FileLock

from tests.sabotage.acts import TOY_JOBS
from tests.sabotage.cells import BROKEN, HALF, HEALTHY
from tests.sabotage.toy import play

WAIT_S = 600


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder of all plans, trained by one process, or by two that are two ranks."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared if worker_id == "master" else shared.parent
    folder = shared / "sabotage"
    with FileLock(shared / "sabotage.lock", timeout=WAIT_S):
        if not (folder / "done").exists():
            jobs = [*HEALTHY, *(job for _, job in BROKEN)]
            play(folder, list(dict.fromkeys([*(job for job in jobs if job.ranks == 1), *TOY_JOBS])))
            # A rank that aborts ends its process, so that one comes last.
            play(folder, [*(job for job in jobs if job.ranks == 2), HALF])
            (folder / "done").touch()
    return folder
