"""The fault kit itself: its fakes behave when nobody tells them not to, and another project can load it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures.faults.checkout import ROOT
from fixtures.faults.leftovers import leftovers
from fixtures.testing import FaultyRun, MakeCheckout, fake_accelerators, faulty_run, toy_checkout

__all__ = ["fake_accelerators", "faulty_run", "toy_checkout"]

Run = Callable[..., FaultyRun]


CLEAN = [("basalt", "1x2"), ("quill", "2x1"), ("zephyr", "1x2"), ("cinder", "1x1")]


@pytest.mark.parametrize(("vendor", "topology"), CLEAN)
def test_a_training_without_a_script_passes(
    toy_checkout: MakeCheckout, vendor: str, topology: str, fake_accelerators: tuple[str, ...]
) -> None:
    assert vendor in fake_accelerators
    checkout = toy_checkout()
    if vendor == "zephyr":
        checkout.use_library()
    assert checkout.run(checkout.command(vendor=vendor, topology=topology)) == 0, checkout.output
    result = checkout.session()["results"][0]
    assert result["outcome"]["status"] == "passed"
    assert [point["value"] for point in result["curve"]] == [0.35, 0.6, 0.8]
    assert leftovers(checkout) == []


def test_the_library_shows_its_devices(toy_checkout: MakeCheckout) -> None:
    checkout = toy_checkout()
    checkout.use_library()
    checkout.write("devices", "count 3\nleak 256\nforeign 7\n")
    probe = [sys.executable, "-m", "fixtures.nvml_probe"]
    done = subprocess.run(probe, cwd=ROOT, env=checkout.environment(), capture_output=True, timeout=60, check=True)
    told = json.loads(done.stdout)
    assert [device["index"] for device in told["devices"]] == [0, 1, 2]
    assert len({device["uuid"] for device in told["devices"]}) == 3
    assert {(device["used_bytes"] >> 20, tuple(device["pids"])) for device in told["devices"]} == {(768, (7,))}


def test_an_action_that_nobody_knows_is_told(faulty_run: Run) -> None:
    run = faulty_run("explode@20")
    assert run.outcome == "error: crash"
    assert "script 'explode@20' is none of: abort," in run.result["outcome"]["reason"]


def test_actions_keep_to_their_rank_and_attempt(faulty_run: Run) -> None:
    run = faulty_run("tell=QLINK 1 is down@20:1#1,leave=1@20:1#1", vendor="quill", topology="1x2")
    assert (run.outcome, run.result["runs"][0]["attempts"]) == ("passed", 2)
    assert [line["what"].partition("=")[0] for line in run.checkout.injected()] == ["tell", "leave"]
    assert run.left == ()


def test_what_is_left_is_seen(toy_checkout: MakeCheckout) -> None:
    checkout = toy_checkout()
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(sleeper, env=checkout.environment()) as process:
        (found,) = leftovers(checkout)
        process.kill()
    assert found.startswith(f"process {process.pid} (")
    assert leftovers(checkout) == []


OTHER = """
def test_of_another_project(faulty_run):
    run = faulty_run("lie=loss/nan@20")
    assert (run.outcome, run.exit, run.left) == ("failed: nonfinite_loss", 1, ())
"""


def test_another_project_loads_the_kit(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ("fixtures.testing",)\n')
    (tmp_path / "test_adapter.py").write_text(OTHER)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        f"pythonpath={shlex.quote(str(ROOT))}",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
