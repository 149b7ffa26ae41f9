"""The main job in containers: GLM on two nodes of a private network, with either engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.container.engines import BASE, dockerd, either, inventory
from tests.container.private_engine import PrivateEngine
from tests.launch_toy import ROOT
from tests.spine import BRIEF_BASE

__all__ = ["dockerd", "either"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "code"),
    [
        pytest.param(("--set", "max_samples=1600", *BRIEF_BASE), 1, id="1600 samples"),
        pytest.param((), 0, id="to its target", marks=pytest.mark.nightly),
    ],
)
def test_glm_trains_on_two_containers(
    either: PrivateEngine, tmp_path: Path, settings: tuple[str, ...], code: int
) -> None:
    before = inventory(either)
    site, session = tmp_path / "site.toml", tmp_path / "session"
    site.write_text(
        f'[container]\nurl = "{either.url}"\nhost_python = true\nimages = {{ pytorch = "{BASE}" }}\n'
        f'[lease]\ndir = "{tmp_path}/leases"\n'
    )
    words = ("-k", "glm and 2x1", "--vendor", "cpu", "--container", either.name, "--site", str(site))
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "suite", *words, "--session", str(session)]
    done = subprocess.run([*argv, *settings], cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == code, done.stdout[-3000:]
    run = next(session.glob("glm-*-2x1/r1"))
    hosts = {json.loads(path.read_text().splitlines()[0])["host"] for path in (run / "events").iterdir()}
    named = {json.loads((run / f"container-node{node}.json").read_text())["hostname"] for node in (0, 1)}
    assert hosts == named and len(hosts) == 2
    result = json.loads((run.parent / "result.json").read_text())
    status = {check["name"]: check["status"] for check in result["checks"]}
    assert (status["ranks_in_sync"], status["quality"]) == ("pass", "fail" if code else "pass")
    assert inventory(either) == before


def glm(session: Path, *words: str) -> dict[str, object]:
    """The result of GLM at 1x1, trained with the further options, but too briefly to reach its target."""
    chosen = ("-k", "glm and 1x1", "--vendor", "cpu", "--set", "max_samples=3200", "--session", str(session))
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "suite", *chosen, *words]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 1, done.stdout[-3000:]
    return dict(json.loads(next(session.glob("glm-*/result.json")).read_text()))


def losses(session: Path) -> list[float]:
    """The loss of every step of the one run."""
    (stream,) = session.glob("glm-*/r1/events/rank0.jsonl")
    events = [json.loads(line) for line in stream.read_text().splitlines()]
    return [loss for event in events if event["event"] == "steps" for loss in event["loss"]]


@pytest.mark.slow
@pytest.mark.nightly
def test_a_container_changes_only_what_it_must(dockerd: PrivateEngine, tmp_path: Path) -> None:
    """The same plan, the same losses and curve to the last digit; image, host's name and clock's readings differ."""
    site = tmp_path / "site.toml"
    site.write_text(
        f'[container]\nurl = "{dockerd.url}"\nhost_python = true\nimages = {{ pytorch = "{BASE}" }}\n'
        f'[lease]\ndir = "{tmp_path}/leases"\n'
    )
    inside = glm(tmp_path / "in", "--container", dockerd.name, "--site", str(site))
    outside = glm(tmp_path / "out")
    same = ("id", "outcome", "params", "origins", "division", "case_digest", "data_digest", "seeds", "quality")
    assert {key: inside.get(key) for key in same} == {key: outside.get(key) for key in same}
    curves = [[(point["samples"], point["value"]) for point in result["curve"]] for result in (inside, outside)]
    assert curves[0] == curves[1] and len(curves[0]) == 2
    assert losses(tmp_path / "in") == losses(tmp_path / "out") and len(losses(tmp_path / "in")) == 100
    verdicts = [
        [(check["name"], check["status"]) for check in r["checks"] if check["required"]] for r in (inside, outside)
    ]
    assert verdicts[0] == verdicts[1]
    facts = [result["environment"] for result in (inside, outside)]
    assert facts[0]["container"] == dockerd.name and facts[1]["container"] == "none"
    assert facts[0]["precision"] == facts[1]["precision"] and facts[0]["framework"] == facts[1]["framework"]
