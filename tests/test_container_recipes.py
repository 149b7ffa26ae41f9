"""The recipes of images that are shipped: each can be found, and its Dockerfile be built on another base."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from fixtures import engine_build
from fixtures.container_image import Recipe, find_recipe
from tests.container.engines import BASE, connect, dockerd, inventory
from tests.container.private_engine import PrivateEngine
from tests.launch_toy import ROOT

__all__ = ["dockerd"]

VENDORS = ROOT / "suite" / "vendors"
SHIPPED = sorted(path.parent for path in VENDORS.glob("*/images/*/Dockerfile"))
NAMES = [f"{path.parents[1].name}/{path.name}" for path in SHIPPED]


def shipped(folder: Path) -> Recipe:
    """As the harness finds it."""
    return find_recipe({f"trainmark-{folder.parents[1].name}": folder.parent}, folder.name)


def test_the_promised_ones_are_there() -> None:
    assert {"cpu/pytorch", "nvidia/pytorch", "nvidia/tensorflow2"} <= set(NAMES)


@pytest.mark.parametrize("folder", SHIPPED, ids=NAMES)
def test_a_base_by_tag_that_a_site_can_replace_and_a_script_that_stops_at_its_first_error(folder: Path) -> None:
    found = shipped(folder)
    text = (folder / "Dockerfile").read_text(encoding="utf-8")
    base = re.search(r"^ARG BASE=(\S+)$", text, re.MULTILINE)
    assert base and re.fullmatch(r"[\w.-]+\.\w+/[\w./-]+:[\w.-]+", base[1]) and not base[1].endswith(":latest")
    assert "\nFROM ${BASE}\n" in text
    assert found.install is not None
    script = found.install.read_text(encoding="utf-8")
    assert "set -euo pipefail" in script and re.search(r"python3 -c .*import", script), "what it made is looked at"
    subprocess.run(["bash", "-n", str(found.install)], check=True, timeout=30)


@pytest.mark.parametrize("folder", SHIPPED, ids=NAMES)
def test_its_dockerfile_is_built_on_the_base_that_the_site_names(dockerd: PrivateEngine, folder: Path) -> None:
    """The install scripts need frameworks and packages; that of cpu/pytorch is run by the self-contained image."""
    engine, before = connect(dockerd), inventory(dockerd)
    built = engine_build.build(
        engine, folder, args={"BASE": BASE}, labels={"of": "a test"}, network="none", output=lambda line: None,
        limit_s=60,
    )  # fmt: skip
    engine_build.remove_image(engine, built)
    assert inventory(dockerd) == before
