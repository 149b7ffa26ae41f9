"""What of the TensorFlow driver needs no TensorFlow: ranks that meet, the cluster, refused options, checkpoints."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from suite.drivers import star
from suite.drivers.events import Place, RunProblem
from suite.drivers.progress import Progress
from suite.drivers.tensorflow2 import buffers, checkpoint, checksum, cluster, control, stream
from suite.drivers.tensorflow2.evaluation import evaluate, meets
from suite.drivers.tensorflow2.expectation import check_expectations
from suite.drivers.tensorflow2.options import check_options
from suite.drivers.tensorflow2.problem import EnvironmentProblem
from tests.launch_toy import until
from tests.launched_toy import ROOT
from tests.meeting import meeting_ports
from tests.tensorflow2_toy import PARAMS

ALONE = Place(0, 1, 0, 1, 0)


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """The environment as it was."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def port() -> Iterator[int]:
    """One to meet at."""
    with meeting_ports() as (found,):
        yield found


def together(world: int, work: Callable[[control.Control], Any]) -> list[Any]:
    """What `work` gives on each rank of a control group, each in a thread of its own."""
    with meeting_ports() as (port,):
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        return _together(world, work)


def _together(world: int, work: Callable[[control.Control], Any]) -> list[Any]:
    found: list[Any] = [None] * world

    def one(rank: int) -> None:
        group = control.Control(Place(rank, world, rank, world, 0))
        try:
            found[rank] = work(group)
        except Exception as problem:
            found[rank] = problem
        finally:
            group.close()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in reversed(range(world))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    return found


def test_ranks_meet_and_each_hears_all_in_order() -> None:
    def work(group: control.Control) -> Any:
        group.barrier()
        return group.gather({"rank": group.rank}), group.sum([group.rank, True]), group.gather("x" * 3_000_000)[-1][:1]

    assert together(3, work) == 3 * [([{"rank": 0}, {"rank": 1}, {"rank": 2}], [3, 3], "x")]


def test_a_rank_that_left_is_told_as_such() -> None:
    found = together(2, lambda group: group.gather(1) if group.rank == 0 else None)
    assert isinstance(found[0], ConnectionError) and "a rank has left" in str(found[0])


def test_a_stranger_on_the_meeting_port_is_no_rank() -> None:
    here, there = socket.socketpair()
    with here, there:
        there.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(ConnectionError, match="no rank of this run"):
            star.receive(here)


def _a_rank_of_another_run(peer: socket.socket) -> None:
    star.send(peer, b'{"rank": 1, "run": "another"}')


STRANGERS: dict[str, Callable[[socket.socket], object]] = {
    "a browser": lambda peer: peer.sendall(b"GET / HTTP/1.1\r\n\r\n"),
    "no JSON": lambda peer: peer.sendall(star.LENGTH.pack(3) + b"\xff{["),
    "no object": lambda peer: star.send(peer, b"[1]"),
    "no such rank": lambda peer: star.send(peer, b'{"rank": 7, "run": "ours"}'),
    "a rank of another run": _a_rank_of_another_run,
    "one who leaves": lambda peer: None,
}


@pytest.mark.parametrize("stranger", STRANGERS)
def test_ranks_meet_whoever_else_comes_to_the_port(stranger: str, port: int) -> None:
    """Rank 0 turns a stranger away and waits on for its own."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TRAINMARK_RUN_ID="ours")
    found: list[Any] = [None, None]

    def one(rank: int) -> None:
        group = control.Control(Place(rank, 2, rank, 2, 0))
        found[rank] = group.gather(rank)
        group.close()

    first = threading.Thread(target=one, args=(0,), daemon=True)
    first.start()
    until(lambda: listens(port))
    with socket.create_connection(("127.0.0.1", port), timeout=5) as peer:
        STRANGERS[stranger](peer)
        second = threading.Thread(target=one, args=(1,), daemon=True)
        if stranger != "one who leaves":
            assert turned_away(peer)
    second.start()
    for thread in (first, second):
        thread.join(20)
    assert found == [[0, 1], [0, 1]]


def turned_away(peer: socket.socket) -> bool:
    """The other side has closed; a reset where it left words unread."""
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


def listens(port: int) -> bool:
    """Somebody takes connections there."""
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def test_without_a_meeting_point_ranks_do_not_wait() -> None:
    os.environ.pop("MASTER_ADDR", None)
    with pytest.raises(EnvironmentProblem, match=r"MASTER_ADDR='' .*2 ranks cannot meet; export both"):
        control.Control(Place(1, 2, 1, 2, 0))


def test_the_cluster_is_one_list_of_workers_and_a_place_in_it() -> None:
    hosts = together(2, cluster.meet)
    assert hosts[0] == hosts[1] and len(set(hosts[0])) == 2
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    assert all(int(host.rpartition(":")[2]) < lowest for host in hosts[0]), "Linux gives away the others meanwhile"
    assert all(host.startswith("127.0.0.1:") for host in hosts[0])
    cluster.configure_cluster(["a:1", "b:2"], 1)
    told = json.loads(os.environ["TF_CONFIG"])
    assert told == {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}
    assert cluster.configure_cluster([], 0) is None and "TF_CONFIG" not in os.environ


@pytest.mark.parametrize(
    ("changes", "world", "said"),
    [
        ({"distribution_strategy": "parameter_server"}, 2, "update without waiting"),
        ({"distribution_strategy": "central"}, 1, "'central' is not one of off, one_device"),
        ({"distribution_strategy": "mirrored"}, 2, "is of one process, and 2 ranks train"),
        ({"distribution_strategy": "off"}, 8, "say multi_worker_mirrored"),
        ({"tpu": "pod"}, 1, "tpu = 'pod' with distribution_strategy = 'multi_worker_mirrored': set both or neither"),
        ({"distribution_strategy": "tpu"}, 1, "tpu = '' with"),
        ({"num_gpus": 8}, 1, "num_gpus = 8: a rank drives one device"),
        ({"all_reduce_alg": "nccl"}, 2, "'nccl' is for devices"),
        ({"all_reduce_alg": "hierarchical_copy"}, 2, "is not one of auto, ring, nccl"),
        ({"distribution_strategy": "mirrored"}, 1, "'ring' is not one of auto, nccl, hierarchical_copy"),
    ],
)
def test_what_cannot_be_had_is_refused_with_its_remedy(changes: dict[str, Any], world: int, said: str) -> None:
    with pytest.raises(RunProblem) as refused:
        check_options(PARAMS | changes, world, on_host=True)
    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["off", "one_device", "multi_worker_mirrored"])
def test_one_rank_may_have_any_strategy(name: str) -> None:
    check_options(PARAMS | {"distribution_strategy": name}, 1, on_host=True)
    check_options(PARAMS | {"distribution_strategy": name, "num_gpus": 1}, 1, on_host=False)


class Variable:
    """What the driver uses of a tf.Variable."""

    def __init__(self, name: str, values: list[float]) -> None:
        self.name, self.values = name, np.array(values, np.float32)

    def numpy(self) -> Any:
        return self.values

    def assign(self, values: Any) -> None:
        self.values = np.array(values)


def test_equal_parameters_are_in_sync_and_one_changed_bit_is_not() -> None:
    def work(group: control.Control, apart: float = 0.0) -> Any:
        return checksum.compare([Variable("a", [1, 2]), Variable("b", [3 + apart * group.rank])], group)

    alike = together(2, work)
    assert alike[0] == alike[1] and alike[0]["equal"] is True and alike[0]["spread"] == 0
    assert alike[0]["groups"][0]["count"] == 3 and alike[0]["uncovered"] == 0
    differ = together(2, lambda group: work(group, 2.0**-20))
    assert differ[1]["equal"] is False and differ[1]["spread"] == pytest.approx(2.0**-20)
    one = checksum.compare([Variable("a", [1, 2])], control.Control(ALONE))
    assert one["equal"] is None and one["uncovered"] == 2
    missing = together(2, lambda group: checksum.compare([Variable("a", [np.nan])], group))
    assert np.isnan(missing[0]["spread"])


def test_every_rank_evaluates_with_the_statistics_of_rank_0() -> None:
    def work(group: control.Control) -> Any:
        mean = Variable("mean", [group.rank + 0.1, -1.0])
        buffers.share([mean], group)
        return mean.values.tolist()

    first, second = together(2, work)
    assert first == second == pytest.approx([0.1, -1.0])


def test_quality_is_the_quotient_of_sums_over_uneven_shards() -> None:
    shares = [{"top1": (3, 4)}, {"top1": (0, 1)}]

    def work(group: control.Control) -> Any:
        return evaluate(SimpleNamespace(evaluate=lambda model: shares[group.rank]), None, group)

    assert together(2, work) == 2 * [({"top1": 0.6}, {"top1": 5.0}, 0, None)]
    quality = {"metric": "top1", "better": "higher", "target": 0.6}
    assert meets({"top1": 0.6}, quality) and not meets({"top1": float("nan")}, quality)
    with pytest.raises(RunProblem, match="gives no 'top1'"):
        meets({"top5": 1.0}, quality)


class Trainer:
    """A model of one variable."""

    def __init__(self) -> None:
        self.weight = np.arange(3, dtype=np.float32)

    def arrays(self) -> dict[str, Any]:
        return {"weight": self.weight}

    def restore(self, arrays: dict[str, Any], where: Any, weights_only: bool = False) -> None:
        self.weight = arrays["weight"]


def run_in(folder: Path, **changes: Any) -> Any:
    plan = {"id": "x-1x1", "mode": "converge", "preset": "mini", "seed": 1, "topology": {}, "params": {"lr": 0.1}}
    values = plan | {"sabotage": None, "run_dir": str(folder)} | changes
    return type("Run", (dict,), {"__getattr__": dict.__getitem__})(values)


def test_a_checkpoint_comes_back_and_the_one_before_is_kept(tmp_path: Path) -> None:
    group, trainer = control.Control(ALONE), Trainer()
    path, size = checkpoint.save(run_in(tmp_path), trainer, Progress(step=5, samples=80), group)
    assert (path, size) == ("checkpoints/latest.pt", (tmp_path / path).stat().st_size)
    trainer.weight = trainer.weight + 1
    checkpoint.save(run_in(tmp_path), trainer, Progress(step=6, samples=96), group)
    other = Trainer()
    progress = checkpoint.load(tmp_path / path, run_in(tmp_path), other, group)
    assert (progress.step, progress.samples, progress.segment) == (6, 96, 2) and other.weight.tolist() == [1, 2, 3]
    assert checkpoint.load(tmp_path / "checkpoints/previous.pt", run_in(tmp_path), other, group).step == 5
    assert checkpoint.load_model("checkpoints/latest.pt", run_in(tmp_path), other) == (6, 96)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": 2}, "has seed = 1, not 2: resume with the same plan"),
        ({"params": {"lr": 0.2}}, "has lr = 0.1, not 0.2: resume with the same plan"),
    ],
)
def test_a_checkpoint_of_another_plan_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    group = control.Control(ALONE)
    checkpoint.save(run_in(tmp_path), Trainer(), Progress(), group)
    with pytest.raises(RunProblem) as refused:
        checkpoint.load(tmp_path / "checkpoints/latest.pt", run_in(tmp_path, **changes), Trainer(), group)
    assert said in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04torn", b"\x80\x04cos\nsystem\n"])
def test_a_broken_file_is_no_checkpoint(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "latest.pt").write_bytes(content)
    with pytest.raises(RunProblem, match=r"cannot be read .*resume from checkpoints/previous.pt"):
        checkpoint.load(tmp_path / "latest.pt", run_in(tmp_path), Trainer(), control.Control(ALONE))


def expecting(**changes: Any) -> Any:
    expect = SimpleNamespace(**({"world_size": 1, "precision": "fp32", "device_match": []} | changes))
    device = {"shared": changes.pop("shared", True)}
    return SimpleNamespace(expect=expect, machine="X9", device=device)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"world_size": 2}, "world size is 1 where the plan says 2"),
        ({"precision": "bf16"}, "computes in fp32 where the plan says bf16"),
        ({"device_match": ["X9*"]}, "device 'Y1' is no X9"),
    ],
)
def test_what_is_not_as_planned_is_the_environment_s(changes: dict[str, Any], said: str) -> None:
    device = SimpleNamespace(name="Y1", identity="h/0")
    with pytest.raises(EnvironmentProblem, match=said):
        check_expectations(expecting(**changes), ALONE, device, {"compute": "fp32"}, control.Control(ALONE))
    check_expectations(expecting(), ALONE, device, {"compute": "fp32"}, control.Control(ALONE))


def test_two_ranks_on_one_device_are_refused_by_both() -> None:
    def work(group: control.Control) -> Any:
        place = Place(group.rank, 2, group.rank, 2, 0)
        run = expecting(world_size=2, shared=False)
        check_expectations(run, place, SimpleNamespace(name="Y1", identity="h/0"), {"compute": "fp32"}, group)

    found = together(2, work)
    assert all(isinstance(each, EnvironmentProblem) for each in found)
    assert "ranks 0 and 1 hold one device" in str(found[0]) and str(found[0]) == str(found[1])


class Numbers:
    """Three batches an epoch."""

    rank = 0

    def train_batches(self, epoch: int, skip: int = 0) -> list[dict[str, Any]]:
        return [{"y": np.arange(4) + 10 * epoch + index} for index in range(3)][skip:]

    def count(self, batch: dict[str, Any]) -> dict[str, int]:
        return {"samples": len(batch["y"]), "tokens": 0}

    def shuffle_labels(self, batch: dict[str, Any], generator: Any) -> dict[str, Any]:
        return {"y": generator.permutation(batch["y"])}


def test_a_resumed_stream_goes_on_where_it_was() -> None:
    def places(micros: Iterator[stream.Micro], count: int) -> list[Any]:
        return [
            (micro.epoch, micro.index, micro.last, micro.batch["y"].tolist()) for _, micro in zip(range(count), micros)
        ]

    whole = places(stream.epochs(Numbers()), 7)
    assert [place[:3] for place in whole[:4]] == [(1, 0, False), (1, 1, False), (1, 2, True), (2, 0, False)]
    assert places(stream.epochs(Numbers(), 1, 2), 5) == whole[2:]
    once, again = (places(stream.shuffled(stream.epochs(Numbers()), Numbers(), 3), 7) for _ in range(2))
    assert once == again != whole and [sorted(place[3]) for place in once] == [sorted(place[3]) for place in whole]


def test_every_parameter_that_the_driver_reads_is_documented() -> None:
    """On its own page, or on that of the PyTorch driver, which it names."""
    pages = "".join((ROOT / "docs" / name).read_text() for name in ("driver.md", "driver-tensorflow2.md"))
    sources = [path.read_text() for path in (ROOT / "suite/drivers/tensorflow2").glob("*.py")]
    read = {key for text in sources for key in re.findall(r'params(?:\[|\.get\()"([a-z_0-9]+)"', text)}
    assert {"lr", "distribution_strategy", "tpu", "run_eagerly"} <= read
    assert sorted(key for key in read if f"`{key}`" not in pages) == []
