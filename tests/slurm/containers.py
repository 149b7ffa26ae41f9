"""A cluster whose srun starts steps in containers: the plug-in is a stand-in, compiled here, and so is `enroot`."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

from tests.container.host_image import host_tar
from tests.slurm.cluster import Cluster, find_program
from tests.slurm.cluster import missing as no_cluster

SOURCE = Path(__file__).with_name("container_steps.c")
MARK = "etc/image-of-the-tests"
"""A file that only the image has."""

_ENROOT = """#!/bin/sh
# enroot import --output FILE URI
echo "$(hostname) $@" >> {folder}/calls
echo "importing $4 for the tests"
case "$4" in *slow*) sleep 60;; *broken*) echo half > "$3"; echo "no space left" >&2; exit 1;; esac
cp {image} "$3"
"""


def missing() -> str:
    """Why there can be none here; empty: there can."""
    return no_cluster() or ("" if shutil.which("cc") or shutil.which("gcc") else "no C compiler (gcc, libc6-dev)")


@contextlib.contextmanager
def container_cluster(root: Path) -> Iterator[Cluster]:
    """Two nodes that know the options of Pyxis."""
    plugin, scratch = root / "container_steps.so", root / "rootfs"
    scratch.mkdir(parents=True)
    compiler = shutil.which("cc") or "gcc"
    argv = [compiler, "-shared", "-fPIC", "-O1", f"-DSLURM_VERSION={_version()}", "-o", str(plugin), str(SOURCE)]
    subprocess.run(argv, check=True, timeout=60)
    cluster = Cluster(root / "slurm", plugins=f"required {plugin} scratch={scratch}\n")
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()


def make_image(target: Path) -> Path:
    """What the stand-in takes for a squashfs: a tar file of this host's shell, coreutils and libraries, with MARK."""
    host_tar(target)
    with tarfile.open(target, "a") as tar:
        mark = tarfile.TarInfo(MARK)
        tar.addfile(mark, io.BytesIO())
    return target


def make_enroot(folder: Path, image: Path) -> Path:
    """A folder for PATH with an `enroot` that imports `image` under whatever name, and notes in `folder`/calls."""
    program = folder / "bin" / "enroot"
    program.parent.mkdir(parents=True)
    program.write_text(_ENROOT.format(folder=folder, image=image), encoding="utf-8")
    program.chmod(0o755)
    return program.parent


def _version() -> int:
    """As the plug-in interface counts: one byte each for year, month and patch."""
    said = subprocess.run(
        [find_program("slurmctld") or "", "-V"], capture_output=True, text=True, timeout=30, check=True
    ).stdout
    major, minor, patch = map(int, re.findall(r"\d+", said)[:3])
    return major << 16 | minor << 8 | patch
