"""A model evaluated again inside a container: without a network, with one writable folder, and gone afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from suite.verdict import judge_folder
from tests.container.engines import BASE, dockerd, inventory
from tests.container.private_engine import PrivateEngine
from tests.line_toy import ID, line_checkout

__all__ = ["dockerd"]


@pytest.mark.slow
def test_a_model_is_evaluated_in_a_sandbox_of_its_own(dockerd: PrivateEngine, tmp_path: Path) -> None:
    checkout = line_checkout(tmp_path / "a clone")
    done = checkout.pytest("suite", "--vendor", "cpu", "--topology", "1x1", "--session", "s")
    assert done.code == 0, done.out
    site = checkout.write(
        "site.toml",
        f'[container]\nurl = "{dockerd.url}"\nhost_python = true\nimages = {{ pytorch = "{BASE}" }}\n'
        f'[policy]\ntrust_vendor_code = false\n[lease]\ndir = "{tmp_path}/leases"\n',
    )
    before = inventory(dockerd)
    command = [sys.executable, "-m", "fixtures.requality", "s", "--container", "docker", "--site", str(site)]
    again = subprocess.run(
        command, cwd=checkout.root, env=checkout.variables(), capture_output=True, text=True, timeout=300, check=False
    )
    assert again.returncode == 0, again.stdout + again.stderr
    plan = checkout.root / "s" / ID
    facts = json.loads((plan / "requality/r1/container-node0.json").read_text())
    assert facts["network"] == "none" and facts["exit_code"] == 0
    header = json.loads((plan / "requality/r1/events/rank0.jsonl").read_text().splitlines()[0])
    assert header["host"] == facts["hostname"], "it ran inside"
    result = judge_folder(plan)
    (check,) = [check for check in result.checks if check.name == "requality"]
    assert (result.outcome.status, check.status) == ("passed", "pass")
    assert inventory(dockerd) == before, "the container is gone"
