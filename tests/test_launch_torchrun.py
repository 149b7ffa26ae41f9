"""The real launcher: its command line, and two ranks that meet."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from fixtures.attempt import torchrun_command
from fixtures.site import Site
from fixtures.topology import describe
from suite.plan import Deadlines
from suite.vendor_spec import Launch
from tests.launch_toy import TRAIN, tagged_with, toy_plan, trainer
from tests.run_folders import read_lines

SUM = (
    TRAIN
    + """
import datetime, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
total = torch.ones(1)
dist.all_reduce(total)
steps()
print("sum", int(total), "threads", os.environ["OMP_NUM_THREADS"], "node", os.environ["GROUP_RANK"], flush=True)
if rank == 1 and run["sabotage"]:
    os.kill(os.getpid(), signal.SIGKILL)
dist.all_reduce(total)
dist.destroy_process_group()
stop()
"""
)


def test_the_command_of_a_node(tmp_path: Path) -> None:
    plan = toy_plan(tmp_path, topology="2x4")
    launch = Launch(prefix=("numactl", "--all"), python="/opt/python")
    argv = torchrun_command(plan, launch, 1, "127.0.0.1", 20123, tmp_path)
    assert argv[:5] == ("numactl", "--all", "/opt/python", "-m", "torch.distributed.run")
    assert {"--nnodes=2", "--nproc-per-node=4", "--node-rank=1", "--master-port=20123", "--max-restarts=0"} < set(argv)
    script, train = argv[-2:]
    assert script.endswith("suite/drivers/rank.py")
    assert train == str(plan.case_dir / "train.py")
    assert not any(word.startswith("-") for word in argv[argv.index(script) :]), "torchrun would read it as its own"


def test_the_plan_shows_a_line_for_each_node_and_no_secret(tmp_path: Path) -> None:
    site = Site(environment={"TOKEN": "s3cret"})
    plan = toy_plan(tmp_path / "a blank", topology="2x1", environment={"A": "two words"})
    lines = describe(plan, site)
    assert len(lines) == 2
    for node, line in enumerate(lines):
        words = shlex.split(line)
        assert words[0] == "env"
        assert "A=two words" in words
        assert f"--node-rank={node}" in words
        assert words[-1] == str(plan.case_dir / "train.py")
        assert "s3cret" not in line


@pytest.mark.parametrize("topology", ["1x2", "2x1"])
def test_two_ranks_meet_through_torchrun(tmp_path: Path, topology: str) -> None:
    pytest.importorskip("torch")
    plan = toy_plan(tmp_path, SUM, topology=topology, params={"threads": 1}, deadlines=Deadlines(total_s=240))
    runs = trainer(tmp_path, command=torchrun_command)(plan)
    run = runs.folder / "r1"
    ended = next(line for line in read_lines(run / "harness.jsonl") if line["event"] == "ended")
    assert ended["status"] == "passed", (run / "logs" / "node0.log").read_text()
    nodes = ["0", "0"] if topology == "1x2" else ["0", "1"]
    for rank in range(2):
        assert f"sum 2 threads 1 node {nodes[rank]}" in (run / "logs" / f"rank{rank}.log").read_text()
    assert tagged_with(f"toy-{os.getpid()}") == []


def test_a_rank_that_dies_under_torchrun_is_named(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    plan = toy_plan(tmp_path, SUM, params={"threads": 1}, sabotage="x", deadlines=Deadlines(total_s=240))
    runs = trainer(tmp_path, command=torchrun_command)(plan)
    ended = next(line for line in read_lines(runs.folder / "r1" / "harness.jsonl") if line["event"] == "ended")
    assert (ended["category"], ended["rank"]) == ("crash", 1)
    assert ended["reason"] == "rank 1 was killed by SIGKILL (signal 9)"
