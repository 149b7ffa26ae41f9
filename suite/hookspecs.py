"""The one hook through which the rooms meet."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.hookspec
def pytest_trainmark_record(record: dict[str, Any]) -> None:
    """Fixtures and judge announce plain JSON dicts, reports write them down.

    `{kind: session|plan|attempt|phase|outcome|verdict, …}`: docs/contracts.md, section 5.
    """
