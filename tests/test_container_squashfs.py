"""The squashfs image of a site: imported once, owned while that lasts, and nothing left of what fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from fixtures.engine import EngineProblem
from fixtures.site import Container, Site
from fixtures.squashfs import Importer, import_words, provide_squash, squash_path
from suite.errors import UsageProblem
from tests.launch_toy import ROOT, tagged_with, until


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
    return Site(container=Container(engine="pyxis", squash_dir=str(tmp_path / "shared")), path="site.toml")


def importer(folder: Path, **more: Any) -> Importer:
    """One that imports here."""
    return Importer(log=folder / "logs" / "enroot.log", **more)


def images(folder: Path) -> list[str]:
    """What lies in the shared folder, but for the locks."""
    return sorted(path.name for path in (folder / "shared").iterdir() if path.suffix != ".lock")


def test_imported_once_by_two_sessions(tmp_path: Path, site: Site) -> None:
    enroot(tmp_path, 'sleep 0.3; echo squashfs > "$3"')
    found: list[Path] = []
    both = [
        threading.Thread(target=lambda: found.append(provide_squash(site, "a/b:1", importer(tmp_path))))
        for _ in range(2)
    ]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(30)
    assert found == [tmp_path / "shared" / "a_b_1.sqsh"] * 2
    assert len((tmp_path / "calls").read_text().splitlines()) == 1
    assert images(tmp_path) == ["a_b_1.sqsh"]


def test_the_lock_lies_where_every_host_sees_it(tmp_path: Path, site: Site) -> None:
    from filelock import FileLock

    enroot(tmp_path, 'echo squashfs > "$3"')
    with (
        FileLock(tmp_path / "shared" / ".a_b_1.sqsh.lock"),
        pytest.raises(EngineProblem, match=r"another session was still importing .*a_b_1.sqsh after 0\.3 s"),
    ):
        provide_squash(site, "a/b:1", importer(tmp_path, limit_s=0.3))
    assert provide_squash(site, "a/b:1", importer(tmp_path)).is_file()


def test_what_a_lost_import_left_is_removed_by_the_next(tmp_path: Path, site: Site) -> None:
    enroot(tmp_path, 'echo squashfs > "$3"')
    (tmp_path / "shared" / ".a_b_1.sqsh.gone-1-00.partial.sqsh").write_text("half")
    provide_squash(site, "a/b:1", importer(tmp_path))
    assert images(tmp_path) == ["a_b_1.sqsh"]


def test_an_import_that_fails_leaves_no_image(tmp_path: Path, site: Site) -> None:
    enroot(tmp_path, 'echo half > "$3"; echo "API_TOKEN=hush" >&2; echo "no space" >&2; exit 1')
    with pytest.raises(EngineProblem, match=r"enroot import a/b:1 left with status 1; see .*enroot\.log") as caught:
        provide_squash(site, "a/b:1", importer(tmp_path))
    assert "no space" in caught.value.lines and not any("hush" in line for line in caught.value.lines)
    assert images(tmp_path) == []


def test_an_import_has_a_budget_of_its_own_and_leaves_no_process(tmp_path: Path, site: Site) -> None:
    enroot(tmp_path, f'echo half > "$3"; sh -c "echo \\$\\$ > {tmp_path}/child; exec sleep 60" & wait')
    for limit_s in (0.5, 5.0, 30.0):
        with pytest.raises(EngineProblem, match=rf"was not over after {limit_s:g} s"):
            provide_squash(site, "a/b:1", importer(tmp_path, limit_s=limit_s))
        assert images(tmp_path) == []
        if (tmp_path / "child").exists():  # a busy host may not have come so far
            break
    assert not Path(f"/proc/{(tmp_path / 'child').read_text().strip()}").exists()


KILLED = """
import sys
from pathlib import Path
from fixtures.site import Container, Site
from fixtures.squashfs import Importer, provide_squash
folder = Path(sys.argv[1])
site = Site(container=Container(engine="pyxis", squash_dir=str(folder / "shared")))
provide_squash(site, "a/b:1", Importer(log=folder / "enroot.log"))
"""


def test_a_killed_harness_takes_its_import_with_it(tmp_path: Path, site: Site) -> None:
    enroot(tmp_path, f'echo $TRAINMARK_RUN_ID > {tmp_path}/tag; echo half > "$3"; sleep 60 & wait')
    argv = [sys.executable, "-c", KILLED, str(tmp_path)]
    harness = subprocess.Popen(argv, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL)
    try:
        until(lambda: images(tmp_path), 20)
    finally:
        harness.send_signal(signal.SIGKILL)
        harness.wait(10)
    tag = (tmp_path / "tag").read_text().strip()
    assert tag.startswith("import-")
    until(lambda: not tagged_with(tag), 8)
    enroot(tmp_path, 'echo squashfs > "$3"')
    provide_squash(site, "a/b:1", importer(tmp_path))
    assert images(tmp_path) == ["a_b_1.sqsh"]


def test_what_is_missing_is_said(tmp_path: Path, site: Site) -> None:
    with pytest.raises(EngineProblem, match="enroot is not installed here"):
        provide_squash(site, "a/b:1", importer(tmp_path))
    with pytest.raises(UsageProblem, match=r"needs \[container\] squash_dir"):
        squash_path(Site(), "a/b:1")
    gone = site.model_copy(update={"container": Container(engine="pyxis", squash_dir=str(tmp_path / "nowhere"))})
    enroot(tmp_path, "true")
    with pytest.raises(EngineProblem, match=r"squash_dir .*nowhere: no such folder; make it where every node sees it"):
        provide_squash(gone, "a/b:1", importer(tmp_path))
    ready = tmp_path / "shared" / "ready.sqsh"
    with pytest.raises(EngineProblem, match="does not exist; import it: enroot import"):
        provide_squash(site, str(ready), importer(tmp_path))
    ready.touch()
    assert provide_squash(site, str(ready), importer(tmp_path)) == ready


def test_a_relative_path_means_another_file_on_every_node(site: Site) -> None:
    with pytest.raises(UsageProblem, match=r"image images/x\.sqsh is a relative path; write it from / on"):
        squash_path(site, "images/x.sqsh")
