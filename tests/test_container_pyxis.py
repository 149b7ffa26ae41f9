"""Pyxis: the exact words for srun, and what its own words mean. Steps that run: tests/test_slurm_containers.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fixtures.container_options import Flags, read_options
from fixtures.container_pyxis import StepBox, complaint, explain, kept, require_plugin, srun_words
from fixtures.engine import Mount
from fixtures.site import Container, Launch, Site
from fixtures.slurm_job import Unprovided
from fixtures.slurm_script import agent_step_argv
from fixtures.topology import describe
from suite.errors import UsageProblem
from tests.launch_toy import toy_plan

ABSENT = "srun: unrecognized option '--container-image=x'\nTry \"srun --help\" for more information\n"


def test_the_words_for_srun() -> None:
    mounts = (Mount(path="/lustre/data"), Mount(path="/lustre/run", writable=True), Mount(path="/a", inside="/b"))
    assert srun_words(Path("/lustre/images/x.sqsh"), mounts, workdir="/lustre/run") == (
        "--container-image=/lustre/images/x.sqsh",
        "--container-mounts=/lustre/data:/lustre/data:ro,/lustre/run:/lustre/run,/a:/b:ro",
        "--container-workdir=/lustre/run",
        "--no-container-mount-home",
    )
    with pytest.raises(UsageProblem, match="cannot mount a path with a colon or a comma"):
        srun_words("x", (Mount(path="/a,b"),), workdir="/")


def test_the_step_of_a_nodes_agent() -> None:
    box = StepBox(image="/i/x.sqsh", python="python3", mounts=(Mount(path="/code"),))
    options = box.words("/s/p/r1", further=(Mount(path="/s/p/r0/latest.pt"),))
    marks = {"TRAINMARK_RUN_ID": "r", "TRAINMARK_NODE": "1"}
    task = ("/usr/bin/env", "python3", "/code/agent.py")
    assert agent_step_argv("12", "n2", options=options, marks=marks, task=task) == (
        "srun", "--jobid=12", "--overlap", "--nodelist=n2", "--nodes=1", "--ntasks=1",
        "--export=ALL,TRAINMARK_RUN_ID=r,TRAINMARK_NODE=1", "--kill-on-bad-exit=0", "--mpi=none", "--unbuffered",
        "--container-image=/i/x.sqsh",
        "--container-mounts=/code:/code:ro,/s/p/r0/latest.pt:/s/p/r0/latest.pt:ro,/s/p/r1:/s/p/r1",
        "--container-workdir=/s/p/r1", "--no-container-mount-home", "/usr/bin/env", "python3", "/code/agent.py",
    )  # fmt: skip


def test_what_srun_says_without_the_plug_in() -> None:
    assert "this cluster's srun has no working pyxis (srun: unrecognized option" in explain(ABSENT)
    assert explain("srun: error: Unable to allocate resources: Invalid partition name specified") == ""


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (ABSENT, "no working pyxis"),
        (
            "warming up\nslurmstepd: error: pyxis: failed to create container filesystem for image /i.sqsh\nbye\n",
            "(srun left with status 1: slurmstepd: error: pyxis: failed to create container filesystem for image",
        ),
        (
            "srun: error: n1: task 0: Exited with exit code 1\nerror: the cause\nerror: 2\nerror: 3\nerror: 4\n",
            "(srun left with status 1: error: the cause; error: 2; error: 3)",
        ),
        ("only this\n", "(srun left with status 1: only this)"),
        ("", "(srun left with status 1: without a word)"),
    ],
)
def test_why_a_container_did_not_start(said: str, words: str) -> None:
    assert words in complaint(said, 1)


def srun(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """An `srun` that notes its arguments."""
    program = folder / "bin" / "srun"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\n{body}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}/usr/bin:/bin")


def test_srun_is_asked_without_starting_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    srun(tmp_path, monkeypatch, "echo slurm 24.05.1")
    require_plugin()
    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert call.startswith("--container-image=none") and call.endswith(" --version")


def test_a_host_whose_srun_knows_no_containers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    srun(tmp_path, monkeypatch, "echo \"srun: unrecognized option '$1'\" >&2; exit 255")
    with pytest.raises(Unprovided) as caught:
        require_plugin()
    outcome = caught.value.outcome
    assert (outcome.status, outcome.category) == ("not_started", "unavailable")
    assert "'--container-image=none'); say --container none" in outcome.reason


def test_a_step_takes_mounts_and_variables_and_says_what_it_cannot() -> None:
    mounts, environment, said = kept(read_options(("-v", "/a:/b:ro", "-e", "A=1", "--gpus=all"), "x"))
    assert (mounts, environment) == ((Mount(path="/a", inside="/b"),), {"A": "1"})
    assert said == "--container pyxis leaves out --gpus: a step has what Slurm grants it"
    assert kept(Flags()) == ((), {}, "")


def test_a_plan_shows_the_step(tmp_path: Path) -> None:
    site = Site(
        launch=Launch(launcher="slurm"),
        container=Container(engine="pyxis", images={"pytorch": "lab/pytorch:1"}, squash_dir="/shared"),
    )
    (line,) = describe(toy_plan(tmp_path, topology="1x1"), site)
    assert (
        line.startswith("srun --container-image=/shared/lab_pytorch_1.sqsh ")
        and " --no-container-mount-home env " in line
    )
    assert " python3 -m torch.distributed.run" in line
