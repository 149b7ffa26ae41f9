"""Hosts with sshd on this machine, for tests: each a network, a host name, processes and some folders of its own.

`python -m tests.hosts.network up|down ROOT`, then `python -m tests.hosts.network run ROOT COMMAND …` as on a machine
beside them. Needs root. Addresses are 198.18.N.0/24, which no route leads to.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

NEEDED = ("ip", "nsenter", "unshare", "mount", "ssh", "ssh-keygen", "/usr/sbin/sshd")
"""Programs; Debian: apt-get install -y --no-install-recommends openssh-server iproute2."""

_CALL_S = 20.0
_UP_S = 15.0
_NEWNET = 0x40000000
_HOST = Path(__file__).with_name("host.py")

_CONFIG = """
Port 22
HostKey {root}/hostkey
AuthorizedKeysFile {root}/id.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
StrictModes no
PidFile none
MaxStartups 100
PrintMotd no
"""


def lacking() -> str:
    """Why there can be no such hosts here; empty: there can."""
    absent = [name for name in NEEDED if shutil.which(name) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    if os.geteuid() != 0:
        return "network namespaces need root"
    probe = f"tmprobe{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, timeout=_CALL_S, check=False)
    if made.returncode:
        return f"no network namespace: {made.stderr.strip()}"
    _call("ip", "netns", "del", probe)
    return ""


class Network:
    """A private network with the controller's place in it, and its hosts."""

    def __init__(self, root: Path, names: Sequence[str] = ("h1", "h2")) -> None:
        self.root = root
        self.names = tuple(names)
        self.number = 1 + os.getpid() % 250
        self.tag = f"tm{os.getpid()}"

    @property
    def key(self) -> Path:
        """The private key that all hosts accept."""
        return self.root / "id"

    @property
    def known_hosts(self) -> Path:
        """The hosts' keys, by name and by address."""
        return self.root / "known_hosts"

    @property
    def cache(self) -> Path:
        """A folder that is private to each host."""
        return self.root / "cache"

    @property
    def space(self) -> Path:
        """The network namespace of the controller."""
        return Path(f"/run/netns/{self.tag}c")

    def address(self, name: str) -> str:
        """Of a host."""
        return f"198.18.{self.number}.{2 + self.names.index(name)}"

    def up(self, private: Mapping[Path, str] | None = None, cache_size: Mapping[str, str] | None = None) -> None:
        """Start all. `private`: folders that exist here and are empty on every host, with their sizes there."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.cache.mkdir(exist_ok=True)
        Path("/run/sshd").mkdir(exist_ok=True)
        self._write_files()
        control = f"{self.tag}c"
        _call("ip", "netns", "add", control)
        _call("ip", "-n", control, "link", "set", "lo", "up")
        _call("ip", "-n", control, "link", "add", "br0", "type", "bridge")
        _call("ip", "-n", control, "addr", "add", f"198.18.{self.number}.1/24", "dev", "br0")
        _call("ip", "-n", control, "link", "set", "br0", "up")
        for name in self.names:
            self._connect(name)
            size = (cache_size or {}).get(name, "1g")
            self.start(name, {self.cache: size} | dict(private or {}))
        with self.entered():
            for name in self.names:
                _await_port(self.address(name))

    def _write_files(self) -> None:
        for name in ("hostkey", "id"):
            if not (self.root / name).exists():
                _call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(self.root / name))
        (self.root / "sshd_config").write_text(_CONFIG.format(root=self.root), encoding="ascii")
        lines = [f"{self.address(name)} {name}" for name in self.names]
        (self.root / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]), encoding="ascii")
        key = (self.root / "hostkey.pub").read_text(encoding="ascii")
        known = [f"{name},{self.address(name)} {key}" for name in self.names]
        self.known_hosts.write_text("".join(known), encoding="ascii")

    def _connect(self, name: str) -> None:
        own, control = f"{self.tag}{name}", f"{self.tag}c"
        _call("ip", "netns", "add", own)
        _call("ip", "-n", own, "link", "set", "lo", "up")
        _call("ip", "link", "add", "eth0", "netns", own, "type", "veth", "peer", "name", f"v{name}", "netns", control)
        _call("ip", "-n", control, "link", "set", f"v{name}", "master", "br0", "up")
        _call("ip", "-n", own, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
        _call("ip", "-n", own, "link", "set", "eth0", "up")

    def start(self, name: str, private: Mapping[Path, str]) -> None:
        """Power on one host; nothing of it outlives the process whose number is kept."""
        folders = [f"{folder}={size}" for folder, size in private.items()]
        own = [str(self.root / part) for part in ("hosts", "sshd_config", f"{name}.log")]
        process = subprocess.Popen(
            [
                "nsenter", f"--net=/run/netns/{self.tag}{name}",
                "unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                sys.executable, str(_HOST), name, *own, *folders,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        (self.root / f"{name}.pid").write_text(f"{process.pid}", encoding="ascii")

    def add_address(self, name: str) -> str:
        """A second one, by which a host is known as well."""
        address = f"198.18.{self.number}.{102 + self.names.index(name)}"
        _call("ip", "-n", f"{self.tag}{name}", "addr", "add", f"{address}/24", "dev", "eth0")
        key = (self.root / "hostkey.pub").read_text(encoding="ascii")
        with self.known_hosts.open("a", encoding="ascii") as file:
            file.write(f"{address} {key}")
        return address

    def seen_by(self, name: str, path: Path) -> Path:
        """A path as that host sees it."""
        keeper = int((self.root / f"{name}.pid").read_text(encoding="ascii"))
        children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text(encoding="ascii").split()
        return Path(f"/proc/{children[0]}/root") / path.relative_to("/")

    def unplug(self, name: str) -> None:
        """Pull the cable: packets are lost, nothing is closed."""
        _call("ip", "-n", f"{self.tag}{name}", "link", "set", "eth0", "down")

    def plug(self, name: str) -> None:
        """Put it back."""
        _call("ip", "-n", f"{self.tag}{name}", "link", "set", "eth0", "up")

    def power_off(self, name: str) -> None:
        """End every process of a host at once; idempotent."""
        file = self.root / f"{name}.pid"
        with contextlib.suppress(OSError, ValueError):
            pid = int(file.read_text(encoding="ascii"))
            os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        file.unlink(missing_ok=True)

    def down(self) -> None:
        """Everything gone; idempotent."""
        for name in self.names:
            self.power_off(name)
        for name in (*self.names, "c"):
            subprocess.run(
                ["ip", "netns", "del", f"{self.tag}{name}"], capture_output=True, timeout=_CALL_S, check=False
            )

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """This thread, and the threads and processes it starts, are on the network as the controller."""
        libc = ctypes.CDLL(None, use_errno=True)
        with Path("/proc/thread-self/ns/net").open("rb") as home, self.space.open("rb") as there:
            if libc.setns(there.fileno(), _NEWNET):
                raise OSError(ctypes.get_errno(), f"setns {self.space}")
            try:
                yield
            finally:
                libc.setns(home.fileno(), _NEWNET)

    def command(self, *words: str) -> list[str]:
        """A command as on a machine beside the hosts, which knows their names."""
        inner = [sys.executable, "-m", "tests.hosts.network", "inside", str(self.root), *words]
        return ["nsenter", f"--net={self.space}", "unshare", "--uts", "--mount", *inner]

    def save(self) -> None:
        """So that another process can find it."""
        (self.root / "network.json").write_text(json.dumps([self.names, self.number, self.tag]), encoding="ascii")

    @classmethod
    def load(cls, root: Path) -> Network:
        """The one that was saved there."""
        network = cls(root)
        names, network.number, network.tag = json.loads((root / "network.json").read_text(encoding="ascii"))
        network.names = tuple(names)
        return network


def _call(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_CALL_S, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(argv)}: {done.stderr.strip()}")


def _await_port(address: str) -> None:
    due = time.monotonic() + _UP_S
    while True:
        try:
            with socket.create_connection((address, 22), timeout=1):
                return
        except OSError:
            if time.monotonic() > due:
                raise
            time.sleep(0.05)


def _inside(root: Path, words: Sequence[str]) -> None:
    """Become the command, with the names of the hosts."""
    socket.sethostname("control")
    _call("mount", "--bind", str(root / "hosts"), "/etc/hosts")
    os.execvp(words[0], list(words))


def main(verb: str, root: str, *words: str) -> None:
    """The command line."""
    folder = Path(root).resolve()
    if verb == "inside":
        _inside(folder, words)
    elif verb == "up":
        network = Network(folder)
        network.up()
        network.save()
    elif verb == "down":
        Network.load(folder).down()
    elif verb == "run":
        command = Network.load(folder).command(*words)
        os.execvp(command[0], command)
    else:
        raise SystemExit(f"{verb!r} is none of: up, down, run")


if __name__ == "__main__":
    main(*sys.argv[1:])
