"""What the tests of several rooms share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.order import dealt
from tests.slurm_lab import Lab
from tests.user_toy import Checkout, make_checkout

# How long an example takes, or to draw it, is a figure of the machine: on a shared one it says nothing about the code.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A toy checkout of its own, in a folder whose name has a blank."""
    return make_checkout(tmp_path / "a clone")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A toy checkout under a scripted scheduler."""
    made = Lab(tmp_path)
    try:
        yield made
    finally:
        made.end()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Several workers begin with the modules that take long: nobody waits for one that was begun last."""
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers > 1:
        items[:] = dealt(items, workers)
