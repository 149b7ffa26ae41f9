"""Pyxis and Enroot: the exact words, and an import that happens once. `enroot` itself is played by a script."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from fixtures.container_pyxis import explain, import_words, provide_squash, squash_path, srun_words
from fixtures.engine import EngineProblem, Mount
from fixtures.site import Container, Lease, Site
from suite.errors import UsageProblem


def test_the_words_for_srun() -> None:
    mounts = (Mount(path="/lustre/data"), Mount(path="/lustre/run", writable=True), Mount(path="/a", inside="/b"))
    assert srun_words(Path("/lustre/images/x.sqsh"), mounts, workdir="/lustre/run", name="r1") == (
        "--container-image=/lustre/images/x.sqsh",
        "--container-mounts=/lustre/data:/lustre/data:ro,/lustre/run:/lustre/run,/a:/b:ro",
        "--container-workdir=/lustre/run",
        "--no-container-mount-home",
        "--container-name=r1",
    )
    with pytest.raises(UsageProblem, match="cannot mount a path with a colon or a comma"):
        srun_words("x", (Mount(path="/a,b"),), workdir="/")


@pytest.mark.parametrize(
    ("reference", "uri"),
    [
        ("nvcr.io/nvidia/pytorch:25.03-py3", "docker://nvcr.io#nvidia/pytorch:25.03-py3"),
        ("library/python:3.11", "docker://library/python:3.11"),
        ("dockerd://trainmark-cpu-pytorch:abc", "dockerd://trainmark-cpu-pytorch:abc"),
    ],
)
def test_the_words_for_enroot(reference: str, uri: str) -> None:
    assert import_words(reference, Path("/t/x.sqsh")) == ("enroot", "import", "--output", "/t/x.sqsh", uri)


def test_what_srun_says_without_the_plug_in() -> None:
    said = "srun: unrecognized option '--container-image=x'\nTry \"srun --help\" for more information\n"
    assert "this cluster's srun has no working pyxis (srun: unrecognized option" in explain(said)
    assert explain("srun: error: Unable to allocate resources: Invalid partition name specified") == ""


def enroot(folder: Path, body: str) -> None:
    """An `enroot` that logs its arguments."""
    program = folder / "bin" / "enroot"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\n{body}\n')
    program.chmod(0o755)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin:/bin")
    (tmp_path / "shared").mkdir()
    container = Container(engine="pyxis", squash_dir=str(tmp_path / "shared"))
    return Site(container=container, lease=Lease(dir=str(tmp_path / "leases")), path="site.toml")


def test_imported_once_by_two_sessions(tmp_path: Path, site: Site) -> None:
    enroot(tmp_path, 'sleep 0.3; echo squashfs > "$3"')
    found: list[Path] = []

    def take() -> None:
        found.append(provide_squash(site, "a/b:1", tmp_path / "log"))

    both = [threading.Thread(target=take) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(30)
    assert found == [tmp_path / "shared" / "a_b_1.sqsh"] * 2
    assert len((tmp_path / "calls").read_text().splitlines()) == 1
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["a_b_1.sqsh"]


def test_an_import_that_fails_leaves_no_image(tmp_path: Path, site: Site) -> None:
    enroot(tmp_path, 'echo half > "$3"; echo "no space" >&2; exit 1')
    with pytest.raises(EngineProblem, match="enroot import a/b:1 left with status 1") as caught:
        provide_squash(site, "a/b:1", tmp_path / "logs" / "import.log")
    assert "no space" in caught.value.lines
    assert list((tmp_path / "shared").iterdir()) == []


def test_an_import_has_a_budget_of_its_own(tmp_path: Path, site: Site) -> None:
    enroot(tmp_path, "exec sleep 30")
    with pytest.raises(EngineProblem, match=r"was not over after 0\.5 s"):
        provide_squash(site, "a/b:1", tmp_path / "log", limit_s=0.5)


def test_what_is_missing_is_said(tmp_path: Path, site: Site) -> None:
    with pytest.raises(EngineProblem, match="enroot is not installed here"):
        provide_squash(site, "a/b:1", tmp_path / "log")
    with pytest.raises(UsageProblem, match=r"needs \[container\] squash_dir"):
        squash_path(Site(), "a/b:1")
    ready = tmp_path / "shared" / "ready.sqsh"
    with pytest.raises(EngineProblem, match="does not exist; import it: enroot import"):
        provide_squash(site, str(ready), tmp_path / "log")
    ready.touch()
    assert provide_squash(site, str(ready), tmp_path / "log") == ready
