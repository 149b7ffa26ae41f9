"""A Docker daemon or a Podman service in folders of its own, for one command or one test; nothing of it is left.

    python -m tests.container.private_engine docker -- COMMAND ...

runs COMMAND with DOCKER_HOST (podman: CONTAINER_HOST) naming the engine's socket. Needs root. The host's firewall, its
default bridge and its images are left alone: containers have no network, the host's, or a private one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

START_S = 30.0
STOP_S = 40.0

_LIBC = ctypes.CDLL(None)
_DOCKERD = ("--bridge=none", "--iptables=false", "--ip-masq=false", "--ip-forward=false")


@dataclass
class PrivateEngine:
    """A running engine."""

    name: str
    folder: Path
    process: subprocess.Popen[bytes]
    argv: list[str]
    environment: dict[str, str]

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"unix://{self.folder / 'sock'}"

    @property
    def variables(self) -> dict[str, str]:
        """What points a program at it."""
        return {"DOCKER_HOST" if self.name == "docker" else "CONTAINER_HOST": self.url}

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End the daemon; its images and containers stay on disk."""
        self.process.send_signal(number)
        self.process.wait(STOP_S)

    def start_again(self) -> None:
        """The same engine after `stop`."""
        (self.folder / "pid").unlink(missing_ok=True)
        self.process = _start(self.argv, self.folder, self.environment)
        _await(self.process, self.folder)


def missing(name: str) -> str:
    """Why the engine cannot be had here; empty: it can."""
    program = "dockerd" if name == "docker" else "podman"
    if shutil.which(program) is None:
        return f"{program} is not installed"
    if name == "podman" and not (shutil.which("runc") and shutil.which("netavark", path="/usr/lib/podman:/usr/bin")):
        return "podman's runc or netavark is not installed"
    return "" if os.geteuid() == 0 else "a private engine needs root"


@contextlib.contextmanager
def private_engine(name: str, disk_mb: int = 0) -> Iterator[PrivateEngine]:
    """Start `docker` or `podman`, on a disk of its own if asked, and leave no process, mount or folder behind."""
    folder = Path(tempfile.mkdtemp(prefix="engine", dir="/tmp"))  # short: a socket's path has at most 108 bytes
    try:
        if disk_mb:
            (folder / "root").mkdir()
            mount = ["mount", "-t", "tmpfs", "-o", f"size={disk_mb}m", "tmpfs", str(folder / "root")]
            subprocess.run(mount, check=True, timeout=30)
        argv, environment = _dockerd(folder) if name == "docker" else _podman(folder)
        process = _start(argv, folder, environment)
        engine = PrivateEngine(name, folder, process, argv, environment)
        try:
            _await(process, folder)
            yield engine
        finally:
            if engine.process.poll() is None:
                _remove_containers(engine)
                engine.stop()
    finally:
        _unmount(folder)
        _remove_tree(folder)


def _dockerd(folder: Path) -> tuple[list[str], dict[str, str]]:
    argv = ["dockerd", "--data-root", str(folder / "root"), "--exec-root", str(folder / "exec"), *_DOCKERD]
    return [*argv, "--pidfile", str(folder / "pid"), "--host", f"unix://{folder / 'sock'}"], {}


def _podman(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Without CAP_SYS_RESOURCE its own default limits cannot be set, and crun refuses hybrid cgroups."""
    files, processes = (min(resource.getrlimit(kind)[1], most) for kind, most in _PODMAN_LIMITS)
    (folder / "containers.conf").write_text(
        f'[containers]\ndefault_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]\n'
        f'[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "runc"\n'
        f'[network]\nnetwork_config_dir = "{folder / "networks"}"\n',
        encoding="utf-8",
    )
    places = ["--root", str(folder / "root"), "--runroot", str(folder / "run"), "--tmpdir", str(folder / "tmp")]
    argv = ["podman", *places, "system", "service", "--time", "0", f"unix://{folder / 'sock'}"]
    return argv, {"CONTAINERS_CONF": str(folder / "containers.conf")}


_PODMAN_LIMITS = ((resource.RLIMIT_NOFILE, 20000), (resource.RLIMIT_NPROC, 32768))


def _start(argv: list[str], folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            argv,
            cwd=folder,  # conmon notes an out-of-memory kill in a file of its working folder
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **environment},
            start_new_session=True,
            preexec_fn=lambda: _LIBC.prctl(1, int(signal.SIGTERM)),  # it ends with whoever started it
        )


def _await(process: subprocess.Popen[bytes], folder: Path) -> None:
    due = time.monotonic() + START_S
    ping = ["curl", "-sf", "--max-time", "5", "--unix-socket", str(folder / "sock"), "http://engine/_ping"]
    while subprocess.run(ping, capture_output=True, check=False, timeout=10).returncode != 0:
        if process.poll() is not None or time.monotonic() > due:
            last = (folder / "log").read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
            raise RuntimeError(f"the engine did not start: {' / '.join(last)}")
        time.sleep(0.1)


def _remove_containers(engine: PrivateEngine) -> None:
    """All: the engine is nobody else's."""
    import docker

    with contextlib.suppress(Exception):
        client = docker.DockerClient(base_url=engine.url, timeout=30, version="auto")
        for container in client.containers.list(all=True):
            container.remove(force=True)
        for network in client.networks.list():
            if network.name not in ("bridge", "host", "none", "podman"):
                network.remove()


def _unmount(folder: Path) -> None:
    """What a killed daemon leaves mounted, the innermost first."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    ours = [mount for mount in mounts if mount.startswith(f"{folder}/")]
    for mount in sorted(ours, reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=False, timeout=30)


def _remove_tree(folder: Path) -> None:
    """A layer's files may vanish a moment late; a large image takes its time."""
    for _ in range(100):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)
    raise RuntimeError(f"{folder} cannot be removed")


def main(arguments: list[str]) -> int:
    """`ENGINE -- COMMAND…`; the command's own exit status."""
    name, dashes, *command = arguments if len(arguments) > 2 else ("", "")
    if name not in ("docker", "podman") or dashes != "--":
        print("usage: python -m tests.container.private_engine docker|podman -- COMMAND …", file=sys.stderr)
        return 4
    if reason := missing(name):
        print(reason, file=sys.stderr)
        return 4
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(143))
    with private_engine(name) as engine:
        print(f"{name} at {urllib.parse.urlparse(engine.url).path}", file=sys.stderr)
        return subprocess.run(command, env={**os.environ, **engine.variables}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
