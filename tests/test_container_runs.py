"""Runs in containers of a real engine: what they see, what they leave, and what becomes of their faults."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fixtures.container_options import Flags
from fixtures.engine_labels import OWNER
from fixtures.site import Policy
from suite.catalog import load_catalog
from suite.outcome import Outcome
from tests.container.engines import connect, dockerd, either, inventory, site_of
from tests.container.private_engine import PrivateEngine
from tests.kernel_kills import kernel_kills
from tests.launch_toy import GOOD, ROOT, TRAIN, Watcher, tagged_with, toy_plan, trainer, until

__all__ = ["dockerd", "either"]

SEES = TRAIN + (
    "import socket\n"
    "facts = {'host': socket.gethostname(), 'uid': os.getuid(), 'env': dict(os.environ)}\n"
    "facts['nets'] = sorted(os.listdir('/sys/class/net'))\n"
    "facts['caps'] = [l.split()[1] for l in open('/proc/self/status') if l.startswith('CapEff')][0]\n"
    "for place in (os.path.dirname(os.path.dirname(os.environ['TRAINMARK_RUN'])), '/usr', run['case_dir'], '/etc'):\n"
    "    try:\n"
    "        open(os.path.join(place, 'written'), 'w').close(); facts[place] = 'written'\n"
    "    except OSError as problem: facts[place] = type(problem).__name__\n"
    "json.dump(facts, open(os.path.join(run['run_dir'], 'facts.json'), 'w'))\n"
    "steps(1); stop()\n"
)


def outcome_of(folder: Path) -> Outcome:
    """How the plan in `folder` ended, by its own record."""
    found = None
    for line in (folder / "harness.jsonl").read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["event"] in ("settled", "attempt"):
            found = Outcome.model_validate(event["outcome"])
    assert found is not None
    return found


def attempts(folder: Path) -> list[str]:
    lines = map(json.loads, (folder / "harness.jsonl").read_text(encoding="utf-8").splitlines())
    return [
        f"{line['outcome']['status']}: {line['outcome']['category']}" for line in lines if line["event"] == "attempt"
    ]


def on_first_step(act: Any) -> Watcher:
    """Do something once the training is under way."""

    def react(rank: int, event: Mapping[str, object]) -> None:
        if rank == 0 and event["event"] == "steps":
            act()

    return Watcher(react)


LONG = TRAIN + "steps(1)\nfor n in range(2, 600): time.sleep(0.1); steps(n)\nstop()\n"


def test_a_run_sees_its_container_and_nothing_else(either: PrivateEngine, tmp_path: Path) -> None:
    before = inventory(either)
    site = site_of(either, tmp_path)
    runs = trainer(tmp_path, site=site)(toy_plan(tmp_path, SEES, topology="1x1"))
    assert outcome_of(runs.folder).status == "passed"
    run = runs.folder / "r1"
    facts = json.loads((run / "facts.json").read_text())
    header = json.loads((run / "events" / "rank0.jsonl").read_text().splitlines()[0])
    record = json.loads((run / "container-node0.json").read_text())
    assert facts["host"] == record["hostname"] != os.uname().nodename
    assert header["run"] in record["name"]
    assert facts["nets"] == ["lo"]
    assert int(facts["caps"], 16) == 0, "no capabilities"
    refused = {place: facts[place] for place in ("/usr", str(tmp_path / "suite/cases/toy/pytorch"))}
    assert refused[str(tmp_path / "suite/cases/toy/pytorch")] == "OSError", "the case is read-only"
    assert not Path("/usr/written").exists() and not (runs.folder / "written").exists()
    assert (run / "facts.json").stat().st_uid == os.getuid()
    assert (record["status"], record["exit_code"]) == ("exited", 0)
    environment = json.loads((run / "environment.json").read_text())
    assert environment["image"].startswith("host:base@sha256:")
    assert environment["container_engine"].startswith(either.name)
    phases = {json.loads(line).get("name") for line in (run / "harness.jsonl").read_text().splitlines()}
    assert {"image", "prepare", "launch", "teardown"} <= phases
    assert inventory(either) == before


def test_two_nodes_meet_in_a_network_of_their_own(either: PrivateEngine, tmp_path: Path) -> None:
    meet = TRAIN + (
        "import socket\n"
        "if rank == 0:\n"
        "    server = socket.create_server(('', 29400)); server.settimeout(30)\n"
        "    connection, address = server.accept(); connection.sendall(socket.gethostname().encode())\n"
        "else:\n"
        "    for _ in range(300):\n"
        "        try: connection = socket.create_connection(('node0', 29400), 5); break\n"
        "        except OSError: time.sleep(0.1)\n"
        "    print('met', connection.recv(100).decode(), sorted(os.listdir('/sys/class/net')), flush=True)\n"
        "    try: socket.create_connection(('192.0.2.1', 80), 2); print('outside', flush=True)\n"
        "    except OSError: print('inside', flush=True)\n"
        "steps(1); stop()\n"
    )
    before = inventory(either)
    runs = trainer(tmp_path, site=site_of(either, tmp_path))(toy_plan(tmp_path, meet, topology="2x1"))
    assert outcome_of(runs.folder).status == "passed", outcome_of(runs.folder)
    hosts = {json.loads(path.read_text().splitlines()[0])["run"] for path in (runs.folder / "r1/events").iterdir()}
    assert len(hosts) == 1
    said = (runs.folder / "r1/logs/rank1.log").read_text()
    names = [json.loads((runs.folder / f"r1/container-node{node}.json").read_text())["hostname"] for node in (0, 1)]
    assert f"met {names[0]} ['eth0', 'lo']" in said and "inside" in said and names[0] != names[1]
    assert inventory(either) == before


def test_a_killed_container_is_a_lost_node(either: PrivateEngine, tmp_path: Path) -> None:
    before = inventory(either)
    engine = connect(either)

    def kill() -> None:
        for identity, _, _ in engine.containers(OWNER):
            engine.kill(identity)

    runs = trainer(tmp_path, on_first_step(kill), site=site_of(either, tmp_path))(
        toy_plan(tmp_path, LONG, topology="1x1")
    )
    assert attempts(runs.folder) == ["error: lost_node", "error: lost_node"]
    assert "container trainmark-" in outcome_of(runs.folder).reason
    assert "status 137" in outcome_of(runs.folder).reason
    assert json.loads((runs.folder / "r1/container-node0.json").read_text())["exit_code"] == 137
    assert inventory(either) == before


def test_a_container_out_of_memory_is_told_as_that(either: PrivateEngine, tmp_path: Path) -> None:
    hungry = TRAIN + "steps(1); time.sleep(0.3); held = [bytearray(1 << 20) for _ in range(900)]; stop()\n"
    site = site_of(either, tmp_path, options=("--memory=100m",))
    with kernel_kills(brought_about=True):
        runs = trainer(tmp_path, site=site)(toy_plan(tmp_path, hungry, topology="1x1"))
    assert outcome_of(runs.folder).category == "out_of_memory", outcome_of(runs.folder)


def test_limits_above_the_hosts_are_lowered_and_said(either: PrivateEngine, tmp_path: Path) -> None:
    options = ("--ulimit memlock=-1", "--ulimit stack=67108864", "--shm-size=1g")
    runs = trainer(tmp_path, site=site_of(either, tmp_path, options=options))(toy_plan(tmp_path, GOOD, topology="1x1"))
    assert outcome_of(runs.folder).status == "passed", outcome_of(runs.folder)
    said = json.loads((runs.folder / "r1/container-node0.json").read_text())["limits"]
    import resource

    limited = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] != resource.RLIM_INFINITY
    assert bool(said) == limited
    assert all("hard limit" in sentence for sentence in said)


def test_an_engine_that_is_away_is_told_in_a_sentence(dockerd: PrivateEngine, tmp_path: Path) -> None:
    dockerd.stop()
    try:
        runs = trainer(tmp_path, site=site_of(dockerd, tmp_path))(toy_plan(tmp_path, GOOD, topology="1x1"))
    finally:
        dockerd.start_again()
    outcome = outcome_of(runs.folder)
    assert (outcome.status, outcome.category) == ("error", "provision")
    assert "docker does not answer at unix://" in outcome.reason and "start it" in outcome.reason


def test_an_engine_that_goes_away_loses_the_node(dockerd: PrivateEngine, tmp_path: Path) -> None:
    before = inventory(dockerd)
    runs = trainer(tmp_path, on_first_step(dockerd.stop), site=site_of(dockerd, tmp_path))(
        toy_plan(tmp_path, LONG, topology="1x1")
    )
    assert attempts(runs.folder) == ["error: lost_node", "error: provision"]
    run = json.loads((runs.folder / "r1/run.json").read_text())["run"]
    assert tagged_with(run) == []
    dockerd.start_again()
    again = trainer(tmp_path, site=site_of(dockerd, tmp_path))(toy_plan(tmp_path, GOOD, topology="1x1"))
    assert outcome_of(again.folder).status == "passed"
    assert inventory(dockerd) == before


HARNESS = """
import sys
from pathlib import Path
from tests.container.engines import site_of
from tests.launch_toy import toy_plan, trainer
from tests.test_container_runs import LONG
class Private: name, url = sys.argv[1], sys.argv[2]
folder = Path(sys.argv[3])
trainer(folder, site=site_of(Private, folder))(toy_plan(folder, LONG, topology="2x1"))
"""


def test_what_a_killed_harness_leaves_ends_and_is_swept(either: PrivateEngine, tmp_path: Path) -> None:
    before = inventory(either)
    argv = [sys.executable, "-c", HARNESS, either.name, either.url, str(tmp_path)]
    harness = subprocess.Popen(argv, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL)
    try:
        until(lambda: len(list(tmp_path.glob("session/*/r1/events/rank*.jsonl"))) == 2, 60)
        time.sleep(0.3)
    finally:
        harness.send_signal(signal.SIGKILL)
        harness.wait(10)
    engine = connect(either)
    left = engine.containers(OWNER)
    assert len(left) == 2
    until(lambda: all(engine.state(identity).status == "exited" for identity, _, _ in left), 15)
    name = json.loads(next(iter(tmp_path.glob("session/*/r1/run.json"))).read_text())["run"]
    until(lambda: tagged_with(name) == [], 10)
    stranger = engine.api.create_container(
        "host:base", ["sleep", "60"], name="somebody-elses", labels={"trainmarkish": "1"}
    )
    progress, later = Watcher(), tmp_path / "later"
    later.mkdir()
    try:
        runs = trainer(later, progress, site=site_of(either, later))(toy_plan(later, GOOD, topology="1x1"))
        assert outcome_of(runs.folder).status == "passed"
        assert sum("left behind" in note for note in progress.notes) == 3  # two containers and their network
        assert engine.state(stranger["Id"]).status == "created"
    finally:
        engine.remove(stranger["Id"])
    assert inventory(either) == before


def test_a_run_goes_on_from_a_checkpoint_of_another_runs_folder(dockerd: PrivateEngine, tmp_path: Path) -> None:
    saved = tmp_path / "elsewhere" / "latest.pt"
    saved.parent.mkdir()
    saved.write_text("here")
    train = TRAIN + "assert open(run['resume']).read() == 'here'\nsteps(1); stop()\n"
    runs = trainer(tmp_path, site=site_of(dockerd, tmp_path), resume=saved)(toy_plan(tmp_path, train, topology="1x1"))
    assert outcome_of(runs.folder).status == "passed", outcome_of(runs.folder)


def test_an_interrupt_removes_the_container(dockerd: PrivateEngine, tmp_path: Path) -> None:
    before = inventory(dockerd)

    once = iter([KeyboardInterrupt("received SIGTERM")])

    def interrupt() -> None:
        for signal_of_the_user in once:
            raise signal_of_the_user

    with pytest.raises(KeyboardInterrupt):
        trainer(tmp_path, on_first_step(interrupt), site=site_of(dockerd, tmp_path))(
            toy_plan(tmp_path, LONG, topology="2x1")
        )
    assert inventory(dockerd) == before


def vendor_with(folder: Path, table: str) -> Any:
    """A copy of vendor cpu whose [container] is `table`, and the catalog with it."""
    text = (ROOT / "suite/vendors/cpu/vendor.toml").read_text(encoding="utf-8")
    head, _, rest = text.partition("[container]")
    tail = rest[rest.index("[[faults]]") :]
    place = folder / "vendors" / "cpu"
    (place / "machines").mkdir(parents=True)
    (place / "machines" / "host.toml").write_text('match = ["*"]\n')
    (place / "vendor.toml").write_text(f"{head}[container]\n{table}\n{tail}", encoding="utf-8")
    return place, load_catalog(ROOT / "suite", [place])


def test_devices_that_are_not_visible_inside_are_an_error(dockerd: PrivateEngine, tmp_path: Path) -> None:
    place, catalog = vendor_with(tmp_path, 'health = ["test", "-e", "/dev/acme0"]')
    plan = toy_plan(tmp_path, GOOD, topology="1x1", vendor_dir=place)
    outcome = outcome_of(trainer(tmp_path, site=site_of(dockerd, tmp_path), catalog=catalog)(plan).folder)
    assert (outcome.status, outcome.category) == ("error", "provision")
    assert "the devices of cpu cannot be used inside the container (test -e left with status 1)" in outcome.reason


def test_a_tool_of_the_host_watches_from_outside(dockerd: PrivateEngine, tmp_path: Path) -> None:
    place, _ = vendor_with(tmp_path, "")
    tool = tmp_path / "acme-smi"
    tool.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\necho 'id, use'\necho '0, 55'\n")
    tool.chmod(0o755)
    text = (place / "vendor.toml").read_text()
    fields = '{ index = "id", utilisation = { column = "use", unit = "%" } }'
    table = f'command = ["{tool}"]\nformat = "csv"\nfields = {fields}'
    assert 'method = "proc"\nperiod_s = 1.0' in text
    text = text.replace('method = "proc"\nperiod_s = 1.0', f'method = "command"\nperiod_s = 0.2\n{table}')
    (place / "vendor.toml").write_text(text)
    catalog = load_catalog(ROOT / "suite", [place])
    plan = toy_plan(tmp_path, GOOD.replace("sleep(0.1)", "sleep(1.0)"), topology="1x1", vendor_dir=place)
    runs = trainer(tmp_path, site=site_of(dockerd, tmp_path), catalog=catalog)(plan)
    assert outcome_of(runs.folder).status == "passed", outcome_of(runs.folder)
    samples = [json.loads(line) for line in (runs.folder / "r1/monitor.jsonl").read_text().splitlines()]
    assert (tmp_path / "asked").exists(), "the tool is the host's: no container could run it"
    assert any(device.get("utilisation") for sample in samples for device in sample["devices"]), samples


def test_an_engine_without_the_devices_runtime_says_so(dockerd: PrivateEngine, tmp_path: Path) -> None:
    place, catalog = vendor_with(tmp_path, 'options = ["--gpus=all"]')
    plan = toy_plan(tmp_path, GOOD, topology="1x1", vendor_dir=place)
    outcome = outcome_of(trainer(tmp_path, site=site_of(dockerd, tmp_path), catalog=catalog)(plan).folder)
    assert outcome.category == "provision" and "capabilities: [[gpu]]" in outcome.reason


def test_secrets_reach_ranks_and_no_file(
    dockerd: PrivateEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTER", "s3cret-of-the-site")
    say = TRAIN + "print('has it:', len(os.environ['HF_TOKEN']), flush=True); steps(1); stop()\n"
    site = site_of(dockerd, tmp_path).model_copy(update={"secrets": {"HF_TOKEN": secret("OUTER")}})
    runs = trainer(tmp_path, site=site)(toy_plan(tmp_path, say, topology="1x1"))
    assert "has it: 18" in (runs.folder / "r1/logs/rank0.log").read_text()
    everything = [path.read_bytes() for path in (tmp_path / "session").rglob("*") if path.is_file()]
    assert everything and not any(b"s3cret-of-the-site" in text for text in everything)


def test_strangers_code_gets_no_secret(dockerd: PrivateEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTER", "s3cret-of-the-site")
    say = TRAIN + "print('HF_TOKEN' in os.environ, 'OUTER' in os.environ, flush=True); steps(1); stop()\n"
    site = site_of(dockerd, tmp_path).model_copy(
        update={"secrets": {"HF_TOKEN": secret("OUTER")}, "policy": Policy(trust_vendor_code=False)}
    )
    runs = trainer(tmp_path, site=site)(toy_plan(tmp_path, say, topology="1x1"))
    assert "False False" in (runs.folder / "r1/logs/rank0.log").read_text()


def secret(variable: str) -> Any:
    from fixtures.secrets import SecretSource

    return SecretSource(env=variable)


def test_files_belong_to_the_user_of_the_container(either: PrivateEngine, tmp_path: Path) -> None:
    from fixtures.engine import Container, Mount
    from fixtures.engine_config import finished

    engine, folder = connect(either), tmp_path / "mine"
    folder.mkdir()
    os.chown(folder, 4321, 4321)
    tmp_path.chmod(0o755)
    container = Container(
        name=f"owner-{either.name}", image="host:base", argv=("touch", f"{folder}/file"), labels={}, user="4321:4321",
        mounts=(Mount(path=str(folder), writable=True),), flags=Flags(),
    )  # fmt: skip
    with finished(engine, container, lambda line: None, 30) as (_, code):
        assert code == 0
    assert ((folder / "file").stat().st_uid, (folder / "file").stat().st_gid) == (4321, 4321)
