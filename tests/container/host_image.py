"""A base image for tests, made of this host's own files: shell, coreutils, the libraries of a Python. No download."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

PROGRAMS = (
    "bash", "sh", "env", "cat", "ls", "cp", "mv", "rm", "mkdir", "rmdir", "ln", "chmod", "chown", "touch", "echo",
    "printf", "head", "tail", "sort", "uniq", "wc", "cut", "tr", "sed", "grep", "awk", "find", "xargs", "tar",
    "gzip", "date", "sleep", "true", "false", "test", "id", "hostname", "uname", "nproc", "df", "du", "tee", "seq",
    "kill", "ps", "stat", "readlink", "dirname", "basename", "mktemp", "getent", "timeout", "which", "expr", "ip",
)  # fmt: skip

_SEARCH = "/usr/bin:/usr/sbin:/bin:/sbin"
_LOADED = (
    "libnss_*.so.*",
    "libstdc++.so.6",
    "libgcc_s.so.1",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libutil.so.1",
)
"""Loaded by name while something runs, so that ldd does not show them."""
_LINKS = ("bin", "sbin", "lib", "lib64")
_FOLDERS = ("dev", "etc", "home", "mnt", "opt", "proc", "root", "run", "sys", "tmp", "usr/bin", "usr/sbin", "var/tmp")
_COPIED = ("etc/passwd", "etc/group", "etc/nsswitch.conf", "etc/ssl/certs/ca-certificates.crt")
_WHEELS = "opt/wheels"
"""What this host's pip finds beside its index, it finds in the image too."""
_EMPTY = ("etc/hosts", "etc/resolv.conf", "etc/hostname")


def host_tar(target: Path, *, python: bool = False) -> Path:
    """Write the image's files to `target`; with `python`, this interpreter too, as /usr/local, without packages."""
    programs = {name: Path(found) for name in PROGRAMS if (found := shutil.which(name, path=_SEARCH))}
    needed = [*programs.values(), Path(sys.executable).resolve(), *_modules()]
    with tarfile.open(target, "w", dereference=True) as tar:  # no hard links: two names may be one file here
        for folder in _FOLDERS:
            _folder(tar, folder, 0o1777 if folder.endswith("tmp") else 0o755)
        for link in _LINKS:
            _link(tar, link, f"usr/{link}")
        for name, path in programs.items():
            tar.add(path.resolve(), f"usr/bin/{name}")
        libraries = {f"usr/{library.removeprefix('/usr').lstrip('/')}": library for library in _libraries(needed)}
        for name, library in sorted(libraries.items()):
            tar.add(library, name)
        for name in _COPIED:
            if Path("/", name).exists():
                tar.add(Path("/", name).resolve(), name)
        for name in _EMPTY:
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
        if python:
            _python(tar)
    return target


def _folder(tar: tarfile.TarFile, name: str, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    tar.addfile(entry)


def _link(tar: tarfile.TarFile, name: str, to: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, to
    tar.addfile(entry)


def _modules() -> Iterator[Path]:
    """Shared objects of the standard library, and of a framework where there is one: their libraries are needed too."""
    yield from Path(sys.base_prefix).glob("lib/python3*/lib-dynload/*.so")
    yield from Path(sys.prefix).glob("lib/python3*/site-packages/torch/lib/*.so")


def _libraries(files: Iterable[Path]) -> Iterator[str]:
    """What the loader finds for them, the loader itself, and the name service's."""
    found = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=False, timeout=60)
    for library in re.findall(r"(?:=> |^\t)(/\S+) \(0x", found.stdout, re.MULTILINE):
        if library.startswith(("/lib", "/usr/lib")):
            yield library
    for folder in Path("/lib").glob("*-linux-gnu"):
        yield from (str(path) for pattern in _LOADED for path in folder.glob(pattern))


def _python(tar: tarfile.TarFile) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = Path(sys.base_prefix)
    library = base / "lib" / version

    def wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        parts = Path(entry.name).parts
        return None if {"__pycache__", "test", "site-packages", "idlelib"} & set(parts) else entry

    tar.add(library, f"usr/local/lib/{version}", filter=wanted)
    for package in ("pip", *(path.name for path in (library / "site-packages").glob("pip-*.dist-info"))):
        tar.add(library / "site-packages" / package, f"usr/local/lib/{version}/site-packages/{package}")
    for shared in base.glob("lib/libpython3*.so*"):
        tar.add(shared, f"usr/lib/{shared.name}")
    for folder in os.environ.get("PIP_FIND_LINKS", "").split():
        for wheel in Path(folder).glob("*.whl"):
            tar.add(wheel, f"{_WHEELS}/{wheel.name}")
    tar.add(Path(sys.executable).resolve(), f"usr/local/bin/{version}")
    _link(tar, "usr/local/bin/python3", version)
    _link(tar, "usr/local/bin/python", version)


def import_image(url: str, repository: str, tag: str, *, python: bool = False) -> str:
    """Make `repository:tag` in the engine at `url`; its name."""
    import docker

    target = Path(os.environ.get("TMPDIR", "/tmp")) / f"host-image-{os.getpid()}.tar"
    try:
        host_tar(target, python=python)
        client = docker.APIClient(base_url=url, timeout=120, version="auto")
        settings = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PIP_FIND_LINKS": f"/{_WHEELS}"}
        settings["PIP_CERT"] = "/etc/ssl/certs/ca-certificates.crt"
        changes = ["CMD /bin/bash", *(f"ENV {name}={value}" for name, value in settings.items())]
        answer = client.import_image_from_file(str(target), repository=repository, tag=tag, changes=changes)
        found = re.search(r"sha256:[0-9a-f]{64}", str(answer))
        assert found, answer
        client.tag(found[0], repository, tag, force=True)  # Podman ignores the tag that it was given
    finally:
        target.unlink(missing_ok=True)
    return f"{repository}:{tag}"
