"""Runs over real sshd on two hosts of their own network: they train, and whatever breaks has its name."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fixtures.bundle import ROOT
from fixtures.hardware import Probe
from fixtures.hosts_probe import probe_hosts
from fixtures.node import processes
from fixtures.site import Hosts, Launch, Lease, Site
from fixtures.training import Runs
from suite.outcome import Outcome
from suite.plan import Deadlines, Plan
from tests.hosts.network import Network, lacking
from tests.launch_toy import GOOD, TRAIN, Watcher, catalog, tagged_with, toy_plan, trainer, until
from tests.run_folders import read_lines
from tests.spine import BRIEF_BASE

WHERE = "import socket; print('on', socket.gethostname(), os.environ['TRAINMARK_RUN'], sys.path[0], flush=True)\n"
SAVE = "with open(os.path.join(run['run_dir'], 'checkpoints', 'latest.pt'), 'w') as file: file.write('c')\n"
ENDLESS = TRAIN + "steps()\nwhile True:\n    say('heartbeat', step=1); time.sleep(0.05)\n"
ONCE = TRAIN + "steps()\nwhile run['attempt'] == 1:\n    say('heartbeat', step=1); time.sleep(0.05)\nsteps(2); stop()\n"
GREEDY = (
    TRAIN
    + """
steps()
with open(os.path.join(run["run_dir"], "greed"), "wb") as hoard:
    while rank == 1:
        hoard.write(b"x" * (1 << 20)); hoard.flush()
while True:
    say('heartbeat', step=1); time.sleep(0.05)
"""
)


@dataclass
class Lab:
    """Two hosts, and plans that run on them."""

    network: Network
    apart: Path
    """A folder of ours that the hosts do not see."""

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(self.network.address(name) for name in self.network.names)

    def site(self, **hosts: Any) -> Site:
        wanted = {
            "names": self.addresses, "user": "root", "key": str(self.network.key), "python": sys.executable,
            "known_hosts": str(self.network.known_hosts), "cache": str(self.network.cache),
        }  # fmt: skip
        lease = Lease(dir=str(self.network.root / "leases"))
        return Site(hosts=Hosts(**(wanted | hosts)), launch=Launch(launcher="ssh"), lease=lease)

    def probe(self, **hosts: Any) -> Probe:
        return probe_hosts(catalog().vendor("cpu"), self.site(**hosts))

    def train(self, plan: Plan, folder: Path, watcher: Watcher | None = None, probe: Probe | None = None, **hosts: Any):
        """The runs of a plan: `folder` holds its session."""
        return trainer(folder, watcher, site=self.site(**hosts), probe=probe or self.probe())(plan)

    def left(self, name: str) -> list[str]:
        """Run folders in the cache of a host."""
        return [path.name for path in self.network.seen_by(name, self.network.cache).glob("run-*")]


@pytest.fixture(scope="module")
def hosts() -> Iterator[Lab]:
    """The network for all tests of this module."""
    if why := lacking():
        if os.environ.get("CI"):
            pytest.fail(f"CI tests the launcher ssh for real, and {why}; see .ci/run", pytrace=False)
        pytest.skip(f"no hosts for ssh here: {why}")
    root = Path(tempfile.mkdtemp(prefix="trainmark-hosts-"))
    (root / "apart").mkdir()
    lab = Lab(Network(root), root / "apart")
    try:
        lab.network.up({lab.apart: "16m"}, {"h2": "600m"})
        yield lab
    finally:
        lab.network.down()
        shutil.rmtree(root)


@pytest.fixture
def lab(hosts: Lab) -> Iterator[Lab]:
    """On the network, and with both cables in again afterwards."""
    with hosts.network.entered():
        yield hosts
    for name in hosts.network.names:
        hosts.network.plug(name)
    until(lambda: not tagged_with(f"toy-{os.getpid()}"))


def ended(runs: Runs, run: str = "r1") -> Outcome:
    """How a run ended."""
    lines = [line for line in read_lines(runs.folder / run / "harness.jsonl") if line["event"] == "ended"]
    keys = ("status", "category", "reason", "rank", "log_tail")
    return Outcome.model_validate({key: lines[-1][key] for key in keys})


def settled(runs: Runs) -> Outcome:
    return Outcome.model_validate(read_lines(runs.folder / "harness.jsonl")[-1]["outcome"])


def once(word: str, act: Any) -> Any:
    """An act of a Watcher: at rank 1's first event of that name."""
    done: list[bool] = []

    def on_event(rank: int, event: Mapping[str, object]) -> None:
        if rank == 1 and event["event"] == word and not done:
            done.append(True)
            act()

    return on_event


def test_the_hosts_are_probed_in_the_order_of_the_site(lab: Lab) -> None:
    one, two = lab.addresses
    found = lab.probe(names=(two, one))
    assert found.hosts == (two, one)
    assert [device.key for device in found.devices if device.local_key == "cpu0"] == [f"{two}:cpu0", f"{one}:cpu0"]
    assert found.problem == ""


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "apart"])
def test_two_hosts_train_together(lab: Lab, tmp_path: Path, shared: bool) -> None:
    """With our folders on the hosts nothing is copied; without, code goes there and files come back."""
    folder = tmp_path if shared else Path(tempfile.mkdtemp(dir=lab.apart))
    train = GOOD + SAVE + WHERE
    plan = toy_plan(folder, train, topology="2x1")
    runs = lab.train(plan, folder)
    run = runs.folder / "r1"
    assert ended(runs).status == "passed", (run / "harness.jsonl").read_text()
    for rank, name in enumerate(lab.network.names):
        _, host, spec, code = (run / "logs" / f"rank{rank}.log").read_text().splitlines()[-1].split()
        assert host == name
        assert (spec == str(run / "run.json"), code == str(plan.case_dir)) == (shared, shared)
        assert json.loads((run / "exits" / f"rank{rank}.json").read_text())["returncode"] == 0
        assert read_lines(run / "events" / f"rank{rank}.jsonl")[-1]["event"] == "run_stop"
        assert lab.left(name) == []
    assert (run / "checkpoints" / "latest.pt").read_text() == "c"
    assert {"monitor.jsonl", "monitor-node1.jsonl"} < {path.name for path in run.iterdir()}
    lines = read_lines(run / "harness.jsonl")
    assert ("stage" in {line["name"] for line in lines if line["event"] == "phase"}) == (not shared)
    started = {line["node"]: line["host"] for line in lines if line["event"] == "started"}
    assert started == dict(enumerate(lab.addresses))
    if not shared:  # where one file was written by both, one is kept whole
        assert "checkpoints/latest.pt of" in next(line["problem"] for line in lines if line["event"] == "monitor")
    assert not list(runs.folder.rglob(".seen-*"))


def of_node_one() -> list[int]:
    """Processes of our runs on the second host."""
    return [pid for pid in tagged_with(f"toy-{os.getpid()}") if processes.environment(pid).get(processes.NODE) == "1"]


def test_a_pulled_cable_is_a_lost_node(lab: Lab, tmp_path: Path) -> None:
    emptied: list[float] = []

    def pull() -> None:
        lab.network.unplug("h2")
        start = time.monotonic()

        def wait() -> None:
            until(lambda: not of_node_one(), 20)
            emptied.append(time.monotonic() - start)

        threading.Thread(target=wait).start()

    watcher = Watcher(once("steps", pull))
    runs = lab.train(toy_plan(tmp_path, ENDLESS, topology="2x1"), tmp_path, watcher)
    outcome = ended(runs)
    assert (outcome.status, outcome.category) == ("error", "lost_node")
    assert lab.addresses[1] in outcome.reason, outcome.reason
    assert emptied
    assert emptied[0] < 10, "within 5 s by contract; the rest is for a machine that is too busy to look"
    assert not (runs.folder / "r1.2").exists(), "the host did not come back, so there is no second attempt"
    assert any("cannot be had again" in note for note in watcher.notes)
    until(lambda: not tagged_with(f"toy-{os.getpid()}"), 5)


def ssh_clients() -> list[int]:
    """The ssh clients below this process that lead to agents of runs, the youngest last."""
    below = processes.descendants(os.getpid())
    return sorted(process.pid for process in below if processes.command(process.pid)[:1] == ["ssh"])


def test_a_killed_ssh_client_is_a_lost_node_and_tried_again(lab: Lab, tmp_path: Path) -> None:
    watcher = Watcher(once("steps", lambda: os.kill(ssh_clients()[-1], signal.SIGKILL)))
    runs = lab.train(toy_plan(tmp_path, ONCE, topology="2x1"), tmp_path, watcher)
    outcome = ended(runs)
    assert (outcome.status, outcome.category) == ("error", "lost_node")
    assert lab.addresses[1] in outcome.reason
    assert ended(runs, "r1.2").status == "passed"


def test_a_killed_agent_is_a_lost_node_and_leaves_nothing(lab: Lab, tmp_path: Path) -> None:
    def kill() -> None:
        for process in processes.snapshot().values():
            tags = processes.environment(process.pid)
            words = processes.command(process.pid)
            if tags.get(processes.NODE) == "1" and words[-1:] == [str(ROOT / "fixtures" / "agent.py")]:
                os.kill(process.pid, signal.SIGKILL)

    runs = lab.train(toy_plan(tmp_path, ONCE, topology="2x1"), tmp_path, Watcher(once("steps", kill)))
    outcome = ended(runs)
    assert (outcome.status, outcome.category) == ("error", "lost_node")
    assert lab.addresses[1] in outcome.reason
    assert ended(runs, "r1.2").status == "passed"


CONTROLLER = """
import sys
from pathlib import Path
from fixtures.hardware import Probe
from fixtures.site import Site
from suite.plan import Plan
from tests.launch_toy import trainer
folder, plan, site, probe = sys.argv[1:]
plan, site, probe = Plan.read(Path(plan)), Site.model_validate_json(site), Probe.model_validate_json(probe)
trainer(Path(folder), site=site, probe=probe)(plan)
"""


def test_a_killed_controller_leaves_nothing_on_any_host(lab: Lab, tmp_path: Path) -> None:
    toy_plan(tmp_path, ENDLESS, topology="2x1").write(tmp_path / "plan.json")
    site, probe = lab.site().model_dump_json(), lab.probe().model_dump_json()
    process = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, str(tmp_path), str(tmp_path / "plan.json"), site, probe], cwd=ROOT
    )
    try:
        until(lambda: len(list(tmp_path.glob("session/*/r1/events/rank*.jsonl"))) == 2, 60)
    finally:
        process.kill()
        process.wait(5)
    until(lambda: not tagged_with(f"toy-{process.pid}"), 10)
    until(lambda: not [pid for pid in processes.snapshot() if str(lab.network.key) in processes.command(pid)], 10)


def test_a_disk_that_fills_up_there_is_one_sentence(lab: Lab) -> None:
    folder = Path(tempfile.mkdtemp(dir=lab.apart))
    plan = toy_plan(folder, GREEDY, topology="2x1", deadlines=Deadlines(total_s=60))
    runs = lab.train(plan, folder)
    outcome = ended(runs)
    assert (outcome.status, outcome.category) == ("error", "provision")
    assert f"the disk of {lab.network.cache} on h2 is full" in outcome.reason
    assert "set [hosts] cache in the site" in outcome.reason
    assert lab.left("h2") == []


def test_no_room_for_the_code_is_one_sentence(lab: Lab) -> None:
    folder = Path(tempfile.mkdtemp(dir=lab.apart))
    plan = toy_plan(folder, topology="2x1")
    # More than fits, once it is packed and unpacked side by side.
    with (plan.case_dir / "data.bin").open("wb") as data:
        data.truncate(320 << 20)
    runs = lab.train(plan, folder)
    outcome = ended(runs)
    assert (outcome.status, outcome.category) == ("error", "provision")
    assert f"{lab.addresses[1]}: the disk of the cache folder {lab.network.cache} is full" in outcome.reason
    assert {path.name[:5] for path in lab.network.seen_by("h2", lab.network.cache).iterdir()} <= {"tree-"}
    shutil.rmtree(folder)


def test_an_unreachable_host_is_told_before_anything_starts(lab: Lab, tmp_path: Path) -> None:
    lab.network.unplug("h2")
    found = lab.probe()
    assert {device.host for device in found.devices} == {lab.addresses[0]}
    assert found.problem.startswith(f"{lab.addresses[1]} cannot be used by ssh: ")
    runs = lab.train(toy_plan(tmp_path, topology="2x1"), tmp_path, probe=found)
    assert (settled(runs).status, settled(runs).category) == ("not_started", "unavailable")
    assert lab.addresses[1] in settled(runs).reason


def test_a_host_that_is_gone_since_the_probe_is_a_provision_error(lab: Lab, tmp_path: Path) -> None:
    found = lab.probe()
    lab.network.unplug("h2")
    runs = lab.train(toy_plan(tmp_path, topology="2x1"), tmp_path, probe=found)
    assert (settled(runs).status, settled(runs).category) == ("error", "provision")
    assert settled(runs).reason.startswith(f"{lab.addresses[1]} cannot be used by ssh: ")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"port": 2}, "Connection refused; start sshd there, or correct [hosts] port"),
        ({"known_hosts": "/dev/null"}, "Host key verification failed; the host's key is not the one on record"),
        ({"user": "nobody"}, "put the public half of [hosts] key into authorized_keys"),
        ({"python": "/nowhere/python3"}, "install Python 3.8 or newer there, or name one in [hosts] python"),
        ({"cache": "/proc/cache"}, "cannot make the cache folder /proc/cache"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_a_host_refuses_is_one_sentence(lab: Lab, changed: dict[str, Any], words: str) -> None:
    found = lab.probe(**changed)
    assert found.devices == ()
    first, second = found.problem.split("; " + lab.addresses[1])
    assert first.startswith(lab.addresses[0])
    assert words in first
    assert words in second
    assert "\n" not in found.problem


def test_a_changed_host_key_is_refused_also_where_new_ones_are_not(lab: Lab, tmp_path: Path) -> None:
    known = tmp_path / "known"
    assert lab.probe(known_hosts=str(known), strict_host_keys=False).problem == ""
    kind, key, *_ = lab.network.key.with_suffix(".pub").read_text().split()
    known.write_text("".join(f"{address} {kind} {key}\n" for address in lab.addresses))
    assert "key is not the one on record" in lab.probe(known_hosts=str(known), strict_host_keys=False).problem


def test_one_machine_under_two_names_is_refused(lab: Lab) -> None:
    found = lab.probe(names=(lab.addresses[0], lab.network.add_address("h1")))
    assert "of [hosts] names are one machine, h1; name each host once" in found.problem


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "quality"),
    [
        pytest.param(["--set", "max_samples=1600", *BRIEF_BASE], "fail", id="1600 samples"),
        pytest.param([], "pass", id="to its target"),
    ],
)
@pytest.mark.nightly
def test_glm_trains_on_two_hosts_that_share_nothing(hosts: Lab, settings: list[str], quality: str) -> None:
    """As a user says it, from a checkout that the hosts do not see."""
    pytest.importorskip("torch")
    folder = Path(tempfile.mkdtemp(dir=hosts.apart))
    leave_out = shutil.ignore_patterns(".git", "results", "__pycache__", ".*_cache", ".venv", "venv", ".hypothesis")
    shutil.copytree(ROOT, folder / "checkout", ignore=leave_out)
    site = hosts.site(names=hosts.network.names)
    (hosts.network.root / "site.toml").write_text(
        f"[hosts]\nnames = ['h1', 'h2']\nuser = 'root'\nkey = '{site.hosts.key}'\npython = '{sys.executable}'\n"
        f"known_hosts = '{site.hosts.known_hosts}'\ncache = '{site.hosts.cache}'\n"
        f"[launch]\nlauncher = 'ssh'\n[lease]\ndir = '{site.lease.dir}'\n[environment]\nGLOO_SOCKET_IFNAME = 'eth0'\n"
    )
    words = [sys.executable, "-m", "pytest", "suite", "-k", "glm and 2x1", "--vendor", "cpu", "-p", "no:cacheprovider"]
    place = ["--site", str(hosts.network.root / "site.toml"), "--session", str(folder / "session"), *settings]
    done = subprocess.run(
        hosts.network.command(*words, *place),
        cwd=folder / "checkout",
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    plan = folder / "session" / "glm-pytorch-cpu-host-mini-2x1"
    checks = {check["name"]: check for check in json.loads((plan / "result.json").read_text())["checks"]}
    assert checks["quality"]["status"] == quality, done.stdout
    assert checks["ranks_in_sync"]["status"] == "pass", done.stdout
    headers = [read_lines(plan / "r1" / "events" / f"rank{rank}.jsonl")[0] for rank in range(2)]
    assert [header["host"] for header in headers] == ["h1", "h2"]
    assert [hosts.left(name) for name in hosts.network.names] == [[], []]
    assert (plan / "r1" / "checkpoints" / "latest.pt").stat().st_size > 1000
