"""`--container pyxis` on a real cluster whose container plug-in is a stand-in: what a step sees, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures import container_pyxis, squashfs
from fixtures.container import require_trust
from fixtures.node import processes
from fixtures.secrets import SecretSource
from fixtures.site import Container, Policy, Site
from fixtures.training import Trainer
from suite.catalog import load_catalog
from suite.errors import UsageProblem
from tests.launch_toy import GOOD, ROOT, TRAIN, Watcher, tagged_with, trainer, until
from tests.run_folders import read_lines
from tests.slurm.cluster import Cluster
from tests.slurm.containers import MARK, container_cluster, make_enroot, make_image, missing
from tests.slurm_toy import ENDLESS, AtFirstStep, ended, settled, slurm_site, two_nodes
from tests.test_container_runs import vendor_with

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "a cluster can be made")

NAME = "registry.example/lab/pytorch:1"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("steps")
    make_image(folder / "image.tar")
    return folder


@pytest.fixture(scope="module")
def cluster(place: Path) -> Iterator[Cluster]:
    with container_cluster(place / "cluster") as made:
        yield made


@pytest.fixture(autouse=True)
def _clean(cluster: Cluster, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The client's environment with an `enroot`; afterwards no job, no process, no file system of a container."""
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    monkeypatch.setenv(
        "PATH", f"{make_enroot(tmp_path / 'enroot', place / 'image.tar')}{os.pathsep}{os.environ['PATH']}"
    )
    (tmp_path / "shared").mkdir()
    yield
    assert cluster.queue() == []
    until(lambda: not tagged_with(f"toy-{os.getpid()}"))
    assert not list((place / "cluster" / "rootfs").iterdir())


def site_in(folder: Path, **container: Any) -> Site:
    """Steps in containers of NAME, with this interpreter mounted."""
    fields: dict[str, Any] = {"images": {"pytorch": NAME}, "host_python": True, "squash_dir": str(folder / "shared")}
    return slurm_site(folder).model_copy(update={"container": Container(engine="pyxis", **(fields | container))})


def contained(folder: Path, progress: Watcher | None = None, **over: Any) -> Trainer:
    """A Trainer under Slurm, in containers."""
    return trainer(folder, progress, **{"site": site_in(folder), **over})


def job_of(runs_of: Path) -> str:
    """The job of the first grant."""
    lines = read_lines(next(runs_of.glob("session/toy-*/harness.jsonl")))
    return str(next(line for line in lines if line["event"] == "scheduler")["job_id"])


def imports(folder: Path) -> list[str]:
    """The calls of enroot."""
    return (folder / "enroot" / "calls").read_text().splitlines()


SEES = TRAIN + (
    f"facts = {{'host': os.uname().nodename, 'image': os.path.exists('/{MARK}'), 'home': os.environ['HOME'],\n"
    "    'tag': os.environ['TRAINMARK_RUN_ID'], 'node': os.environ['TRAINMARK_NODE']}\n"
    f"facts['checkout'] = sorted(os.listdir({str(ROOT)!r}))\n"
    "plan = os.path.dirname(run['run_dir'])\n"
    "facts['plan folder'] = sorted(os.listdir(plan))\n"
    "for place in (run['case_dir'], run['run_dir']):\n"
    "    try: open(os.path.join(place, 'written%d' % rank), 'w').close(); facts[place] = 'written'\n"
    "    except OSError as problem: facts[place] = problem.strerror\n"
    "json.dump(facts, open(os.path.join(run['run_dir'], 'facts%d.json' % rank), 'w'))\n"
    "steps(1); stop()\n"
)


def test_two_nodes_train_in_containers_of_one_image(tmp_path: Path) -> None:
    plan = two_nodes(tmp_path, SEES)
    runs = contained(tmp_path)(plan)
    assert ended(runs).status == "passed", ended(runs)
    run = runs.folder / "r1"
    facts = [json.loads((run / f"facts{rank}.json").read_text()) for rank in (0, 1)]
    assert [(each["host"], each["image"], each["home"], each["node"]) for each in facts] == [
        ("n1", True, "/tmp", "0"), ("n2", True, "/tmp", "1"),
    ]  # fmt: skip
    for each in facts:
        assert each["tag"] == json.loads((run / "run.json").read_text())["run"]
        assert each["checkout"] == ["fixtures", "suite"], "nothing else of the checkout is there"
        assert each["plan folder"] == ["r1"], "and nothing of the session but the run's own folder"
        assert each[str(plan.case_dir)] == "Read-only file system" and each[str(run)] == "written"
    environment = json.loads((run / "environment.json").read_text())
    squash = tmp_path / "shared" / "registry.example_lab_pytorch_1.sqsh"
    assert (environment["container"], environment["image"], environment["squashfs"]) == ("pyxis", NAME, str(squash))
    assert environment["scheduler"]["state"] == "COMPLETED"
    phases = {line["name"]: line["seconds"] for line in read_lines(run / "harness.jsonl") if line["event"] == "phase"}
    assert phases["image"] > 0 and phases["queue"] > 0
    options = json.loads((run / "container-node1.json").read_text())["options"]
    assert options[0] == f"--container-image={squash}" and f"{run}:{run}" in options[1]
    assert "importing docker://registry.example#lab/pytorch:1" in (tmp_path / "session/images/enroot.log").read_text()
    assert len(imports(tmp_path)) == 1


@pytest.mark.nightly
@pytest.mark.slow
def test_where_only_the_nodes_have_enroot_one_of_them_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(squashfs.Importer, "able", property(lambda self: bool(self.host)))
    runs = contained(tmp_path)(two_nodes(tmp_path, GOOD, topology="1x1"))
    assert ended(runs).status == "passed", ended(runs)
    assert [call.split()[:2] for call in imports(tmp_path)] == [["n1", "import"]]


def test_an_import_that_fails_costs_no_job(tmp_path: Path, cluster: Cluster) -> None:
    before = cluster.client("scontrol", "show", "job", "-o").count("JobId=")
    runs = contained(tmp_path, site=site_in(tmp_path, images={"pytorch": "lab/broken:1"}))(two_nodes(tmp_path, GOOD))
    outcome = settled(runs)
    assert (outcome.status, outcome.category) == ("error", "provision")
    assert "enroot import lab/broken:1 left with status 1" in outcome.reason and "no space left" in outcome.log_tail
    assert not list((tmp_path / "shared").glob("*.sqsh"))
    assert cluster.client("scontrol", "show", "job", "-o").count("JobId=") == before


def test_a_cluster_without_the_plug_in_is_told_of_before_any_job(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = cluster.client("scontrol", "show", "job", "-o").count("JobId=")
    plugins = cluster.root / "etc" / "plugstack.conf"
    text = plugins.read_text()
    plugins.write_text("")
    try:
        outcome = settled(contained(tmp_path)(two_nodes(tmp_path, GOOD)))
        assert (outcome.status, outcome.category) == ("not_started", "unavailable")
        assert "srun has no working pyxis (srun: unrecognized option '--container-image=none')" in outcome.reason
        assert "say --container none" in outcome.reason
        assert cluster.client("scontrol", "show", "job", "-o").count("JobId=") == before
        # And where this host's srun has it, and the nodes' has not.
        monkeypatch.setattr(container_pyxis, "require_plugin", lambda: None)
        runs = contained(tmp_path)(two_nodes(tmp_path, GOOD, id="nodes", topology="1x1"))
        told = ended(runs)
        assert (told.status, told.category) == ("error", "provision")
        assert "on n1" in told.reason and "srun has no working pyxis (srun: unrecognized option" in told.reason
    finally:
        plugins.write_text(text)


@pytest.mark.nightly
@pytest.mark.slow
def test_an_image_that_cannot_be_unpacked_is_a_provision_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken.sqsh"
    broken.write_text("no image at all")
    site = site_in(tmp_path, images={"pytorch": str(broken)})
    outcome = ended(contained(tmp_path, site=site)(two_nodes(tmp_path, GOOD, topology="1x1")))
    assert (outcome.status, outcome.category) == ("error", "provision")
    assert "its container did not start (srun left with status 1" in outcome.reason
    assert "failed to create container filesystem" in outcome.reason


@pytest.mark.nightly
@pytest.mark.slow
def test_the_exit_of_a_rank_is_its_own(tmp_path: Path) -> None:
    train = TRAIN + "steps(1)\nsys.exit(7)\n"
    runs = contained(tmp_path)(two_nodes(tmp_path, train, topology="1x1"))
    outcome = ended(runs)
    assert (outcome.status, outcome.category, outcome.rank) == ("error", "crash", 0)
    assert json.loads((runs.folder / "r1/exits/rank0.json").read_text())["returncode"] == 7


def agents_inside(run: str) -> list[int]:
    """The agents of a run in its containers; their own children, which fork from them, are not meant."""
    agents = {pid for pid in tagged_with(run) if str(ROOT / "fixtures/agent.py") in processes.command(pid)}
    table = processes.snapshot()
    first = [pid for pid in agents if pid in table and table[pid].parent not in agents]
    return [pid for pid in first if Path(f"/proc/{pid}/root/{MARK}").exists()]


@pytest.mark.nightly
@pytest.mark.slow
def test_a_killed_agent_is_a_lost_node_and_is_tried_again(tmp_path: Path) -> None:
    train = TRAIN + "steps(1)\nwhile run['attempt'] == 1: say('heartbeat', step=1); time.sleep(0.1)\nstop()\n"
    progress = AtFirstStep(lambda: os.kill(agents_inside(f"toy-{os.getpid()}")[0], signal.SIGKILL))
    runs = contained(tmp_path, progress)(two_nodes(tmp_path, train, topology="1x1"))
    first = ended(runs)
    assert (first.status, first.category) == ("error", "lost_node")
    assert ended(runs, "r1.2").status == "passed"
    assert not tagged_with(json.loads((runs.folder / "r1/run.json").read_text())["run"])


@pytest.mark.slow
def test_scancel_ends_the_containers_too(tmp_path: Path, cluster: Cluster) -> None:
    progress = AtFirstStep(lambda: cluster.client("scancel", job_of(tmp_path)))
    outcome = ended(contained(tmp_path, progress)(two_nodes(tmp_path, ENDLESS)))
    assert (outcome.status, outcome.category) == ("error", "interrupted")
    assert "was cancelled" in outcome.reason


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.slurm_toy import ENDLESS, two_nodes
from tests.test_slurm_containers import contained
contained(Path(sys.argv[1]))(two_nodes(Path(sys.argv[1]), ENDLESS))
"""


@pytest.mark.slow
def test_a_killed_controller_leaves_no_container(tmp_path: Path, cluster: Cluster) -> None:
    controller = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path), str(ROOT)], env=dict(os.environ))
    run = f"toy-{controller.pid}"
    try:
        until(lambda: list(tmp_path.glob("session/*/r1/events/rank1.jsonl")), 60)
        assert len(agents_inside(run)) == 2
    finally:
        os.kill(controller.pid, signal.SIGKILL)
        controller.wait()
    until(lambda: not tagged_with(run), 8)
    until(lambda: not cluster.queue(), 30)


@pytest.mark.nightly
@pytest.mark.slow
def test_inside_an_allocation_the_steps_are_of_it(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a batch script finds it, and a job of --submit."""
    told = subprocess.run(["salloc", "--no-shell", "-N1"], capture_output=True, text=True, timeout=30, check=True)
    job = next(word for word in told.stderr.split() if word.isdigit())
    try:
        monkeypatch.setenv("SLURM_JOB_ID", job)
        monkeypatch.setenv("SLURM_JOB_NODELIST", "n1")
        monkeypatch.setenv("SLURM_NTASKS", "7")  # of a step around us, and no option of ours
        runs = contained(tmp_path)(two_nodes(tmp_path, SEES, topology="1x1"))
        assert ended(runs).status == "passed", ended(runs)
        assert json.loads((runs.folder / "r1/facts0.json").read_text())["image"]
        assert cluster.queue() == [job]
    finally:
        cluster.client("scancel", job)
        until(lambda: not cluster.queue(), 30)


@pytest.mark.nightly
@pytest.mark.slow
def test_devices_that_are_not_visible_in_the_step_are_an_error(tmp_path: Path) -> None:
    folder, catalog = vendor_with(tmp_path, 'health = ["test", "-e", "/dev/acme0"]')
    plan = two_nodes(tmp_path, GOOD, topology="1x1", vendor_dir=folder)
    outcome = settled(contained(tmp_path, catalog=catalog)(plan))
    assert (outcome.status, outcome.category) == ("error", "provision")
    assert "the devices of cpu cannot be used inside the container (test -e left with status 1" in outcome.reason


@pytest.mark.nightly
@pytest.mark.slow
def test_a_tool_of_the_node_watches_from_outside(tmp_path: Path) -> None:
    folder, _ = vendor_with(tmp_path, "")
    tool = tmp_path / "acme-smi"
    tool.write_text(f"#!/bin/sh\ntest -e /{MARK} || touch {tmp_path}/asked-outside\necho 'id, use'\necho '0, 55'\n")
    tool.chmod(0o755)
    text = (folder / "vendor.toml").read_text()
    fields = '{ index = "id", utilisation = { column = "use", unit = "%" } }'
    old, table = 'method = "proc"\nperiod_s = 1.0', f'command = ["{tool}"]\nformat = "csv"\nfields = {fields}'
    assert old in text
    (folder / "vendor.toml").write_text(text.replace(old, f'method = "command"\nperiod_s = 0.2\n{table}'))
    catalog = load_catalog(ROOT / "suite", [folder])
    plan = two_nodes(tmp_path, GOOD.replace("sleep(0.1)", "sleep(1.0)"), topology="1x1", vendor_dir=folder)
    runs = contained(tmp_path, catalog=catalog)(plan)
    assert ended(runs).status == "passed", ended(runs)
    assert (tmp_path / "asked-outside").exists()
    samples = read_lines(runs.folder / "r1/monitor.jsonl")
    assert any(device.get("utilisation") for sample in samples for device in sample["devices"]), samples
    run = json.loads((runs.folder / "r1/run.json").read_text())["run"]
    until(lambda: not tagged_with(run))


def test_what_a_step_is_given_and_what_it_cannot_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The site's mounts, variables and secrets, a checkpoint of another run's folder; not its limits, which is said."""
    monkeypatch.setenv("OUTER", "s3cret-of-the-site")
    saved = tmp_path / "elsewhere" / "latest.pt"
    saved.parent.mkdir()
    saved.write_text("here")
    (tmp_path / "extra").mkdir()
    words = ("--shm-size=1g", "--ulimit=memlock=-1", "-e", "COLOUR=blue", "-v", f"{tmp_path}/extra:/extra:ro")
    train = TRAIN + (
        "assert os.environ['COLOUR'] == 'blue' and os.path.isdir('/extra')\n"
        "assert open(run['resume']).read() == 'here'\n"
        "print('has it:', len(os.environ['HF_TOKEN']), flush=True); steps(1); stop()\n"
    )
    site = site_in(tmp_path, options=words)
    site = site.model_copy(update={"secrets": {"HF_TOKEN": SecretSource(env="OUTER")}})
    progress = Watcher()
    runs = contained(tmp_path, progress, site=site, resume=saved)(two_nodes(tmp_path, train, topology="1x1"))
    assert ended(runs).status == "passed", ended(runs)
    assert any("leaves out --ulimits, --shm-size" in note for note in progress.notes), progress.notes
    assert "has it: 18" in (runs.folder / "r1/logs/rank0.log").read_text()
    everything = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(b"s3cret-of-the-site" in text for text in everything)


def test_strangers_code_is_not_let_into_a_step(tmp_path: Path) -> None:
    folder, _ = vendor_with(tmp_path, "")
    case = folder / "toy" / "pytorch"
    (case / "extern").mkdir(parents=True)
    plan = two_nodes(tmp_path, GOOD, vendor_dir=folder, vendor_case_dir=case)
    site = site_in(tmp_path).model_copy(update={"policy": Policy(trust_vendor_code=False), "path": "gate.toml"})
    with pytest.raises(UsageProblem, match="a container of pyxis has the host's network and processes; run it in"):
        require_trust(plan, site)


@pytest.mark.slow
@pytest.mark.nightly
def test_glm_trains_on_two_nodes_in_containers(tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    site.write_text(
        '[launch]\nlauncher = "slurm"\n[environment]\nGLOO_SOCKET_IFNAME = "lo"\n[container]\nhost_python = true\n'
        f'images = {{ pytorch = "{NAME}" }}\nsquash_dir = "{tmp_path}/shared"\n[lease]\ndir = "{tmp_path}/leases"\n'
    )
    argv = [sys.executable, "-m", "pytest", "suite", "-k", "glm and 2x1", "--vendor", "cpu", "-p", "no:cacheprovider"]
    argv += ["--container", "pyxis", "--site", str(site), "--session", str(tmp_path / "session")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (tmp_path / "session").glob("glm-*")
    result = json.loads((folder / "result.json").read_text())
    assert result["environment"]["container"] == "pyxis" and result["environment"]["image"] == NAME
    first = {line["name"] for line in read_lines(folder / "base/r1/harness.jsonl") if line["event"] == "phase"}
    assert {"image", "queue", "launch"} <= first  # of the plan's first run, which is its base's
