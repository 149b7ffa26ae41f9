"""The plain launcher of ranks: the variables of each, and how a node ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fixtures.rank_launch import NodeLaunch
from fixtures.ranks import LAUNCHER, ranks_argv
from suite.topology import Topology

TELL = """
import json, os, sys
names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT".split()
with open(sys.argv[1] + "/" + os.environ["RANK"], "w") as file:
    json.dump([{name: os.environ[name] for name in names}, sys.argv[2:]], file)
"""
WAIT = """
import os, pathlib, signal, sys, time
def told(number, frame):
    pathlib.Path(sys.argv[1], "told" + os.environ["RANK"]).write_text(signal.Signals(number).name)
    sys.exit(143)
signal.signal(signal.SIGTERM, told)
pathlib.Path(sys.argv[1], "there" + os.environ["RANK"]).write_text("")
if os.environ["RANK"] == "1" and len(sys.argv) > 2:
    while not os.path.exists(sys.argv[1] + "/there0"):
        time.sleep(0.01)
    sys.exit(7)
time.sleep(60)
"""


def launch(folder: Path, nnodes: int, nproc: int, node: int, *program: str) -> tuple[str, ...]:
    return ranks_argv(
        NodeLaunch(
            python=sys.executable,
            topology=Topology(nnodes=nnodes, nproc=nproc),
            node=node,
            master_addr="10.0.0.1",
            master_port=29411,
            log_dir=folder,
            program=program,
        )
    )


def run(argv: tuple[str, ...]) -> int:
    return subprocess.run(argv, timeout=30, check=False, capture_output=True).returncode


def test_each_rank_is_told_its_place_and_gets_the_words_of_its_program(tmp_path: Path) -> None:
    (tmp_path / "tell.py").write_text(TELL)
    for node in (0, 1):
        assert run(launch(tmp_path, 2, 2, node, str(tmp_path / "tell.py"), str(tmp_path), "--d", "--nnodes=9")) == 0
    seen = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(4)]
    assert [words for _, words in seen] == 4 * [["--d", "--nnodes=9"]]
    places = [[told[name] for name in ("RANK", "LOCAL_RANK", "GROUP_RANK")] for told, _ in seen]
    assert places == [["0", "0", "0"], ["1", "1", "0"], ["2", "0", "1"], ["3", "1", "1"]]
    rest = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29411"}
    assert all(told.items() >= rest.items() for told, _ in seen)


def test_a_rank_that_fails_ends_the_others(tmp_path: Path) -> None:
    (tmp_path / "wait.py").write_text(WAIT)
    assert run(launch(tmp_path, 1, 2, 0, str(tmp_path / "wait.py"), str(tmp_path), "fail")) == 1
    assert (tmp_path / "told0").read_text() == "SIGTERM" and not (tmp_path / "told1").exists()


def test_a_signal_reaches_every_rank(tmp_path: Path) -> None:
    (tmp_path / "wait.py").write_text(WAIT)
    node = subprocess.Popen(launch(tmp_path, 1, 2, 0, str(tmp_path / "wait.py"), str(tmp_path)))
    try:
        deadline = time.monotonic() + 20
        while not all((tmp_path / f"there{rank}").exists() for rank in (0, 1)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        node.send_signal(signal.SIGTERM)
        assert node.wait(20) == 1
    finally:
        node.kill()
    assert [(tmp_path / f"told{rank}").read_text() for rank in (0, 1)] == ["SIGTERM", "SIGTERM"]


@pytest.mark.parametrize(
    ("words", "said"), [([], "name what each rank runs"), (["--node-rank=2", "x.py"], "node 2 of 1 with 1 ranks")]
)
def test_what_cannot_be_started_is_refused(words: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, str(LAUNCHER), *words], timeout=30, check=False, capture_output=True, text=True
    )
    assert done.returncode == 2 and said in done.stderr


def test_it_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    (tmp_path / "leave.py").write_text("")
    argv = [sys.executable, "-I", "-S", str(LAUNCHER), str(tmp_path / "leave.py")]
    done = subprocess.run(argv, timeout=30, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
