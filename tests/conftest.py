"""What the tests of several rooms share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.user_toy import Checkout, make_checkout


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A toy checkout of its own, in a folder whose name has a blank."""
    return make_checkout(tmp_path / "a clone")
