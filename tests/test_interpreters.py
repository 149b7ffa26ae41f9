"""Which Python a framework runs in: who may name it, in which order, and what is said of one that is not there."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from fixtures.interpreter import check_named, interpreter, unusable
from fixtures.site import Site, load_site
from fixtures.topology import node_launch
from suite.catalog import VendorFolder, load_catalog
from suite.errors import UsageProblem
from tests.launch_toy import toy_plan, trainer
from tests.planning_toys import CPU, make_suite, write
from tests.run_folders import read_lines

NAMED = "TRAINMARK_PYTHON_TENSORFLOW2"


@pytest.fixture(autouse=True)
def _nobody_named_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs these tests may have named interpreters of their own."""
    for name in [name for name in os.environ if name.startswith("TRAINMARK_PYTHON_")]:
        monkeypatch.delenv(name)


def vendor_of(folder: Path, more: str = "") -> VendorFolder:
    """The toy CPU."""
    suite = make_suite(folder)
    write(suite, {"vendors/cpu/vendor.toml": CPU.replace("[launch]", more + "[launch]")})
    return load_catalog(suite).vendor("cpu")


def site_of(folder: Path, text: str) -> Site:
    """A site file."""
    (folder / "site.toml").write_text(text, encoding="utf-8")
    return load_site(folder / "site.toml")


def python(folder: Path, name: str = "bin/python", script: str = "") -> Path:
    """Something that can be run, `exec`ing our own interpreter unless told otherwise."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script or f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def test_the_site_s_word_goes_over_all_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vendor = vendor_of(tmp_path, '[frameworks.tensorflow2]\npython = "/v/tf"\n')
    site = site_of(tmp_path, '[frameworks.tensorflow2]\npython = "venvs/tf/bin/python"\n')
    monkeypatch.setenv(NAMED, "/e/python")
    asked = [interpreter("tensorflow2", vendor, each).path for each in (site, Site())]
    monkeypatch.delenv(NAMED)
    asked += [interpreter(name, vendor, Site()).path for name in ("tensorflow2", "pytorch")]
    assert asked == [str(tmp_path / "venvs/tf/bin/python"), "/e/python", "/v/tf", sys.executable]


def test_the_vendor_s_and_the_hosts_words_hold_for_every_framework(tmp_path: Path) -> None:
    vendor = vendor_of(tmp_path / "b")
    write(tmp_path / "b", {"suite/vendors/cpu/vendor.toml": CPU + 'python = "/l/python"\n'})
    assert interpreter("paddle", vendor, Site()).path == "/l/python"
    hosts = site_of(tmp_path, '[launch]\nlauncher = "ssh"\n[hosts]\nnames = ["n1"]\npython = "/h/python"\n')
    assert interpreter("paddle", vendor_of(tmp_path / "a"), hosts).path == "/h/python"


def test_the_launcher_is_started_by_it(tmp_path: Path) -> None:
    site = site_of(tmp_path, '[frameworks.pytorch]\npython = "/s/python"\n')
    assert node_launch("pytorch", vendor_of(tmp_path), site).python == "/s/python"


def test_a_named_one_that_is_not_there_is_told_before_anything_is_planned(tmp_path: Path) -> None:
    site = site_of(tmp_path, '[frameworks.tensorflow2]\npython = "venvs/tf/bin/python"\n')
    check_named(["pytorch"], vendor_of(tmp_path / "a"), site)
    with pytest.raises(UsageProblem) as caught:
        check_named(["tensorflow2"], vendor_of(tmp_path / "b"), site)
    said = str(caught.value)
    assert "site.toml [frameworks.tensorflow2] python" in said
    assert f"python3 -m venv {tmp_path}/venvs/tf && {tmp_path}/venvs/tf/bin/pip install -e '.[tensorflow2]'" in said


def test_a_vendor_s_that_is_not_there_is_an_environment_error(tmp_path: Path) -> None:
    outcome = unusable("paddle", vendor_of(tmp_path, '[frameworks.paddle]\npython = "/nowhere/python"\n'), Site())
    assert outcome is not None
    assert (outcome.status, outcome.category) == ("error", "environment")
    assert "/nowhere/python" in outcome.reason


def test_what_nobody_asked_for_and_is_not_installed_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fixtures.interpreter.MODULES", {"nemo": "no_such_module", "jax": "json"})
    vendor = vendor_of(tmp_path)
    outcome = unusable("nemo", vendor, Site())
    assert outcome is not None
    assert (outcome.status, outcome.category) == ("not_started", "unavailable")
    assert "pip install -e '.[nemo]'" in outcome.reason
    assert unusable("jax", vendor, Site()) is None
    assert unusable("pytorch", vendor, Site()) is None


def test_a_named_one_without_the_framework_is_an_environment_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINMARK_PYTHON_NEMO", str(python(tmp_path)))
    monkeypatch.setattr("fixtures.interpreter.MODULES", {"nemo": "no_such_module"})
    outcome = unusable("nemo", vendor_of(tmp_path), Site())
    assert outcome is not None
    assert (outcome.status, outcome.category) == ("error", "environment")
    assert outcome.reason.startswith("TRAINMARK_PYTHON_NEMO: nemo is not installed in ")


def test_elsewhere_nothing_is_looked_at(tmp_path: Path) -> None:
    away = site_of(tmp_path, '[container]\nengine = "docker"\n[frameworks.jax]\npython = "/nowhere/python"\n')
    check_named(["jax"], vendor_of(tmp_path), away)
    assert unusable("jax", vendor_of(tmp_path / "b"), away) is None


def test_a_plan_without_its_framework_settles_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fixtures.interpreter.MODULES", {"pytorch": "no_such_module"})
    runs = trainer(tmp_path)(toy_plan(tmp_path))
    (settled,) = [line for line in read_lines(runs.folder / "harness.jsonl") if line["event"] == "settled"]
    assert settled["outcome"]["category"] == "unavailable"
    assert "pip install -e '.[local]'" in settled["outcome"]["reason"]
