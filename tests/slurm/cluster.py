"""A real two-node Slurm cluster on loopback addresses, for tests: `python -m tests.slurm.cluster up|down ROOT`.

Every node is a slurmd with a host name and a hosts file of its own (UTS and mount namespace), so that ranks of two
nodes show two names; network, process ids and /tmp are this machine's. Needs root and the packages in NEEDED.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

NEEDED = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "munged", "unshare", "mount", "hostname")
"""Programs; Debian: apt-get install -y --no-install-recommends slurmctld slurmd slurm-client munge."""

_CALL_S = 30.0
_UP_S = 60.0
_GRACE_S = 10.0

_CONF = """
ClusterName=virt
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={root}/run/munge.sock
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/run/slurmctld.pid
SlurmdPidFile={root}/run/slurmd-%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd-%n.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
InactiveLimit=0
KillWait=5
UnkillableStepTimeout=15
MinJobAge=3600
JobRequeue=0
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
JobCompType=jobcomp/filetxt
JobCompLoc={root}/log/jobcomp.txt
JobAcctGatherType=jobacct_gather/linux
PlugStackConfig={root}/etc/plugstack.conf
"""


def missing() -> str:
    """Why no cluster can be made here; empty: one can."""
    if os.geteuid() != 0:
        return "a Slurm cluster of one's own needs root"
    absent = [name for name in NEEDED if find_program(name) is None]
    return f"{', '.join(absent)}: not installed (slurmctld slurmd slurm-client munge)" if absent else ""


class Cluster:
    """One controller and `nodes` nodes n1, n2 … in `root`; `port` and the ones above it must be free.

    `plugins` is the text of plugstack.conf: what srun and the nodes load.
    """

    def __init__(self, root: Path, *, nodes: int = 2, port: int | None = None, plugins: str = "") -> None:
        self.root = root.resolve()
        self._plugins = plugins
        self.names = tuple(f"n{index + 1}" for index in range(nodes))
        self._port = port or _free_ports(nodes + 1)
        self.conf = self.root / "etc" / "slurm.conf"

    @property
    def env(self) -> dict[str, str]:
        """What a client needs: our own environment and the place of the configuration."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        return {**kept, "SLURM_CONF": str(self.conf)}

    def up(self) -> None:
        """Start everything; returns once all nodes are idle. Raises RuntimeError with the logs' last lines."""
        for name in ("etc", "run", "state", "log", *(f"spool/{node}" for node in self.names)):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        for folder in (self.root, self.root / "run"):
            folder.chmod(0o755)
        key = self.root / "etc" / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        self._configure()
        run = self.root / "run"
        self._daemon(
            ["munged", "--force", f"--key-file={key}", f"--socket={run}/munge.sock", f"--pid-file={run}/munged.pid",
             f"--log-file={self.root}/log/munged.log", f"--seed-file={run}/munge.seed", "--num-threads=2"]
        )  # fmt: skip
        self.start_controller()
        for node in self.names:
            self.start_node(node)
        self.await_idle()

    def down(self) -> None:
        """End everything; nothing of the cluster is left."""
        for name in (*(f"slurmd-{node}" for node in self.names), "slurmctld", "munged"):
            self._end(name)
        # A step whose slurmd was killed waits for it for ever; everything of this cluster carries its configuration.
        mark = f"SLURM_CONF={self.conf}".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if int(path.parent.name) != os.getpid() and mark in path.read_bytes().split(b"\0"):
                    os.kill(int(path.parent.name), signal.SIGKILL)

    def start_controller(self) -> None:
        """slurmctld, with the state that it left."""
        self._daemon(["slurmctld"])

    def stop_controller(self) -> None:
        """slurmctld, as for maintenance."""
        self._end("slurmctld")

    def start_node(self, node: str) -> None:
        """slurmd of that node, in namespaces of its own."""
        hosts = self.root / "etc" / "hosts"
        script = 'set -e; hostname "$1"; mount --bind "$2" /etc/hosts; exec slurmd -N "$1"'
        self._daemon(["unshare", "--mount", "--uts", "bash", "-c", script, "node", node, str(hosts)])

    def kill_node(self, node: str) -> None:
        """SIGKILL for that node's slurmd; what it had started runs on."""
        self._end(f"slurmd-{node}", hard=True)

    def queue(self) -> list[str]:
        """Ids of all jobs that are waiting or running."""
        return self.client("squeue", "-h", "-o", "%i").split()

    def client(self, *argv: str) -> str:
        """The output of a Slurm command."""
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=_CALL_S, check=True)
        return done.stdout

    def await_idle(self, limit_s: float = _UP_S) -> None:
        """Wait until every node is idle."""
        due = time.monotonic() + limit_s
        while time.monotonic() < due:
            with contextlib.suppress(subprocess.CalledProcessError):
                if self.client("sinfo", "-h", "-p", "main", "-N", "-t", "idle", "-o", "%N").split() == list(self.names):
                    return
            time.sleep(0.1)
        tails = [f"{path.name}: {path.read_text(errors='replace')[-400:]}" for path in self.root.glob("log/*.log")]
        raise RuntimeError(f"not all nodes are idle after {limit_s:g} s\n" + "\n".join(tails))

    def _configure(self) -> None:
        host = socket.gethostname().partition(".")[0]
        lines = [_CONF.strip().format(host=host, port=self._port, root=self.root)]
        hosts = [Path("/etc/hosts").read_text(encoding="utf-8")]
        for index, node in enumerate(self.names):
            address = f"127.0.0.{index + 2}"
            hosts.append(f"{address} {node}\n")
            lines.append(
                f"NodeName={node} NodeHostname={node} NodeAddr={address} Port={self._port + 1 + index}"
                " CPUs=8 RealMemory=8000"
            )
        every = ",".join(self.names)
        lines.append(f"PartitionName=main Nodes={every} Default=YES MaxTime=INFINITE DefaultTime=10 PriorityTier=1")
        lines.append(f"PartitionName=short Nodes={every} MaxTime=1 PriorityTier=1")
        lines.append(f"PartitionName=urgent Nodes={every} MaxTime=10 PriorityTier=10")
        self.conf.write_text("\n".join(lines) + "\n", encoding="utf-8")
        (self.root / "etc" / "plugstack.conf").write_text(self._plugins, encoding="utf-8")
        (self.root / "etc" / "hosts").write_text("".join(hosts), encoding="utf-8")

    def _daemon(self, argv: list[str]) -> None:
        """Run a program that goes into the background by itself."""
        path = find_program(argv[0]) or argv[0]
        with (self.root / "log" / "start.log").open("ab") as log:
            subprocess.run(
                [path, *argv[1:]], env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                timeout=_CALL_S, check=True, cwd="/",
            )  # fmt: skip

    def _end(self, name: str, hard: bool = False) -> None:
        path = self.root / "run" / f"{name}.pid"
        if not path.is_file() or not (text := path.read_text().strip()):
            return
        pid = int(text)
        for number in (signal.SIGKILL,) if hard else (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            due = time.monotonic() + _GRACE_S
            while time.monotonic() < due and _lives(pid):
                time.sleep(0.02)
        path.unlink(missing_ok=True)


def find_program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _free_ports(count: int) -> int:
    """The first of `count` neighbouring ports that nobody listens on."""
    for first in range(16800 + os.getpid() % 200 * 16, 32000, 16):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("", port))
            except OSError:
                continue
        return first
    raise RuntimeError("no free ports for a cluster")


def _lives(pid: int) -> bool:
    """Whether the process is there and no zombie: the first process of a container reaps late."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def main(argv: list[str]) -> int:
    """`up ROOT` or `down ROOT`."""
    if len(argv) != 2 or argv[0] not in ("up", "down"):
        print("usage: python -m tests.slurm.cluster up|down ROOT", file=sys.stderr)
        return 4
    if problem := missing():
        print(problem, file=sys.stderr)
        return 4
    cluster = Cluster(Path(argv[1]))
    if argv[0] == "up":
        cluster.up()
        print(f"export SLURM_CONF={cluster.conf}")
    else:
        cluster.down()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
