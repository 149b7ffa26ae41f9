"""The main job in containers: GLM on two nodes of a private network, with either engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.container.engines import BASE, either, inventory
from tests.container.private_engine import PrivateEngine
from tests.launch_toy import ROOT

__all__ = ["either"]


@pytest.mark.slow
def test_glm_trains_on_two_containers(either: PrivateEngine, tmp_path: Path) -> None:
    before = inventory(either)
    site, session = tmp_path / "site.toml", tmp_path / "session"
    site.write_text(
        f'[container]\nurl = "{either.url}"\nhost_python = true\nimages = {{ pytorch = "{BASE}" }}\n'
        f'[lease]\ndir = "{tmp_path}/leases"\n'
    )
    words = ("-k", "glm and 2x1", "--vendor", "cpu", "--container", either.name, "--site", str(site))
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "suite", *words, "--session", str(session)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    run = next(session.glob("glm-*-2x1/r1"))
    hosts = {json.loads(path.read_text().splitlines()[0])["host"] for path in (run / "events").iterdir()}
    named = {json.loads((run / f"container-node{node}.json").read_text())["hostname"] for node in (0, 1)}
    assert hosts == named and len(hosts) == 2
    result = json.loads((run.parent / "result.json").read_text())
    in_sync = next(check for check in result["checks"] if check["name"] == "ranks_in_sync")
    assert in_sync["status"] == "pass"
    assert inventory(either) == before
