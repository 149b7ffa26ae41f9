"""Whose container it is: only what a process of this host left behind is ever removed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any

import pytest

from fixtures.engine_labels import OWNER, RUN, SESSION, labels_of, sweep_dead


class Inventory:
    """An engine that lists and removes."""

    def __init__(self, *owners: str) -> None:
        self.left = {f"c{number}": owner for number, owner in enumerate(owners)}

    def containers(self, label: str) -> list[tuple[str, str, dict[str, str]]]:
        assert label == OWNER, "what does not carry our label is never listed"
        return [(identity, identity, {OWNER: owner}) for identity, owner in self.left.items()]

    def networks(self, label: str) -> list[tuple[str, str, dict[str, str]]]:
        return []

    def remove(self, identity: str) -> None:
        del self.left[identity]

    def remove_network(self, identity: str) -> None:
        raise AssertionError("there is none")


def sweep(*owners: str, idle: bool = False) -> list[str]:
    engine: Any = Inventory(*owners)
    sweep_dead(engine, idle=idle)
    return list(engine.left)


def own() -> str:
    return labels_of("run", "session")[OWNER]


def test_labels_name_run_session_and_process() -> None:
    labels = labels_of("run.r1", "session", 2)
    assert (labels[RUN], labels[SESSION], labels["trainmark.node"]) == ("run.r1", "session", "2")
    assert f"/{os.getpid()}:" in labels[OWNER]


def test_a_living_process_keeps_what_it_has() -> None:
    assert sweep(own()) == ["c0"]
    assert sweep(own(), idle=True) == []


def test_a_dead_process_loses_it() -> None:
    code = "from fixtures.engine_labels import *; print(labels_of('r', 's')[OWNER])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert sweep(done.stdout.strip(), own()) == ["c1"]


def test_a_number_that_was_given_again_is_another_process() -> None:
    head, _, start = own().rpartition(":")
    assert sweep(f"{head}:{int(start) - 1}") == []


def test_another_boot_of_this_host_is_over() -> None:
    host, _, namespace, process = own().split("/")
    assert sweep(f"{host}/00000000-another-boot/{namespace}/{process}") == []


@pytest.mark.parametrize("part", [0, 2])
def test_of_other_hosts_and_namespaces_nobody_here_can_tell(part: int) -> None:
    parts = own().split("/")
    parts[part], parts[3] = "another", "1:1"
    assert sweep("/".join(parts)) == ["c0"]


@pytest.mark.parametrize("label", ["", "x", f"{socket.gethostname()}/a/b", "///"])
def test_a_label_that_says_nothing_is_left_alone(label: str) -> None:
    assert sweep(label) == ["c0"]
