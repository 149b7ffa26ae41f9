"""The parts of the launcher ssh that need no network: command, complaints, paths, bundles, files on their way."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.allocation import allocate, unavailable
from fixtures.bundle import ROOT, Bundle, agent_bundle
from fixtures.hardware import Found, Probe
from fixtures.launch_ssh import relay_order
from fixtures.launcher import AgentSpec
from fixtures.node import devices, receive
from fixtures.node.follow import Follower, Limits
from fixtures.path_map import PathMap
from fixtures.site import Hosts, load_site
from fixtures.ssh_command import complaint, ssh_argv
from fixtures.staging import Node, Staged
from fixtures.stream import Stream
from suite.errors import UsageProblem
from tests.launch_toy import toy_plan

HOSTS = Hosts(names=("h1", "h2"))


def test_the_client_is_called_as_the_site_says() -> None:
    hosts = Hosts(names=("h1",), user="bob", port=2222, key="/keys/id", known_hosts="/keys/known")
    argv = ssh_argv(hosts, "h1", ["/opt/my python", "-c", "print('a b')"])
    assert argv[:2] == ["ssh", "-T"]
    assert {"BatchMode=yes", "ServerAliveInterval=2", "ServerAliveCountMax=2", "StrictHostKeyChecking=yes"} < set(argv)
    for name, value in (("-l", "bob"), ("-p", "2222"), ("-i", "/keys/id")):
        assert argv[argv.index(name) + 1] == value
    assert "UserKnownHostsFile=/keys/known" in argv
    assert argv[-3:-1] == ["--", "h1"], "a host's name is never read as an option"
    said = subprocess.run(["sh", "-c", argv[-1].replace("/opt/my python", sys.executable)], capture_output=True)
    assert said.stdout == b"a b\n", "every word arrives as it was"


def test_a_site_that_says_nothing_leaves_the_rest_to_ssh_config() -> None:
    argv = ssh_argv(HOSTS, "h1", ["true"])
    assert not {"-l", "-p", "-i"} & set(argv)
    loose = ssh_argv(Hosts(names=("h1",), strict_host_keys=False), "h1", ["true"])
    assert "StrictHostKeyChecking=accept-new" in loose, "a changed key is refused all the same"


@pytest.mark.parametrize(
    ("said", "words", "remedy"),
    [
        ("ssh: connect to host h1 port 22: Connection refused\r\n", "Connection refused", "start sshd there"),
        ("ssh: connect to host h1 port 22: No route to host", "No route to host", "see that it is up"),
        ("ssh: Could not resolve hostname h1: Name or service not known", "resolve", "correct [hosts] names"),
        ("No ED25519 host key is known for h1 and you have requested strict checking.\nHost key verification failed.",
         "Host key verification failed", "strict_host_keys = false"),
        ("Warning: Permanently added 'h1'\nroot@h1: Permission denied (publickey).", "Permission denied", "authorized"),
        ("bash: line 1: exec: python3: not found", "python3: not found", "name one in [hosts] python"),
        ("Python 3.6 is too old", "3.6 is too old", "Python 3.8 or newer"),
        ("Timeout, server h1 not responding.", "not responding", "see that it is up"),
        ("", "ssh left with status 255", "try: ssh h1 true"),
        ("strange \x1b[31mwords\n", "strange ?[31mwords", "try: ssh h1 true"),
    ],
)  # fmt: skip
def test_what_ssh_says_becomes_one_sentence_with_a_remedy(said: str, words: str, remedy: str) -> None:
    sentence = complaint(HOSTS, "h1", 255, said)
    assert sentence.startswith("h1 cannot be used by ssh: ")
    assert words in sentence
    assert remedy in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("names", ['["h1", "h1"]', '["-oProxyCommand=x"]', '["a b"]', '[""]'])
def test_hosts_that_are_none_are_refused(tmp_path: Path, names: str) -> None:
    site = tmp_path / "site.toml"
    site.write_text(f"[hosts]\nnames = {names}\n")
    with pytest.raises(UsageProblem, match="names holds"):
        load_site(site)


def test_ssh_without_hosts_is_refused(tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    site.write_text('[launch]\nlauncher = "ssh"\n')
    with pytest.raises(UsageProblem, match=r"\[hosts\] names is empty"):
        load_site(site).check_available()


def test_paths_are_replaced_where_they_begin_and_nowhere_else() -> None:
    places = PathMap({"/a": "/x", "/a/b": "/y", "/a/stay": "/a/stay"})
    assert places.text("/a/c") == "/x/c"
    assert places.text("/a/b/c:/a:/ab") == "/y/c:/x:/ab"
    assert places.text("--log=/a/b") == "--log=/y"
    assert places.text("/a/stay/bin/python") == "/a/stay/bin/python"
    assert places.text("/z/a/b and a/b, /a-b") == "/z/a/b and a/b, /a-b"
    assert places.value({"k": ["/a", 1, None, {"n": "/a/b"}]}) == {"k": ["/x", 1, None, {"n": "/y"}]}
    assert PathMap({}).text("/a") == "/a"


@given(st.text(alphabet="/ab:= ", max_size=30))
def test_a_map_onto_itself_changes_nothing(text: str) -> None:
    assert PathMap({"/a": "/a", "/a/b": "/a/b"}).text(text) == text


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("staged", [True, False])
def test_a_node_is_told_everything_in_its_own_paths(tmp_path: Path, shared: bool, staged: bool) -> None:
    run_dir, tree = tmp_path / "session" / "r1", "/cache/tree-1"
    (run_dir / "logs").mkdir(parents=True)
    read = {"case_dir": f"{ROOT}/suite/cases/x", "run_dir": str(run_dir), "data_dir": f"{ROOT}/data", "seed": 1}
    (run_dir / "run.json").write_text(json.dumps(read))
    spec = AgentSpec(
        run="a.r1",
        node=1,
        run_dir=str(run_dir),
        argv=(sys.executable, f"{ROOT}/suite/drivers/rank.py", f"{ROOT}/suite/cases/x/train.py"),
        env={"TRAINMARK_RUN": str(run_dir / "run.json"), "PYTHONPATH": f"{ROOT}:/other"},
        cwd=str(run_dir),
        log=str(run_dir / "logs" / "node1.log"),
        total_s=1,
    )
    node = Node(name="h2", host="h2", machine="m", address="a", cache="/cache", agent_root=str(ROOT))
    code = {str(ROOT): tree} if staged else {}
    order = relay_order(spec, node, Staged(code=code, shared=shared))
    root = tree if staged else str(ROOT)
    there = str(run_dir) if shared else "/cache/run-a.r1-node1"
    told = order["spec"]
    assert tuple(told["argv"]) == (sys.executable, f"{root}/suite/drivers/rank.py", f"{root}/suite/cases/x/train.py")
    assert told["env"]["PYTHONPATH"] == f"{root}:/other"
    assert (told["cwd"], told["log"]) == (there, f"{there}/logs/node1.log")
    if shared:
        assert order["mirror"] is None
        seen = json.loads(Path(told["env"]["TRAINMARK_RUN"]).read_text())
    else:
        assert told["env"]["TRAINMARK_RUN"] == f"{there}/run.json"
        seen = json.loads(order["mirror"]["files"]["run.json"])
    assert seen == {**read, "case_dir": f"{root}/suite/cases/x", "run_dir": there}, "data is where the site says it is"


def probe_of(*counts: int) -> Probe:
    names = tuple(f"h{n}" for n in range(1, len(counts) + 1))
    found = [
        Found(key=f"{host}:cpu{index}", name="Toy CPU", index=index, host=host)
        for host, count in zip(names, counts)
        for index in range(count)
    ]
    return Probe(devices=tuple(found), hosts=names, device_name="Toy CPU")


def test_nodes_are_the_hosts_in_their_order(tmp_path: Path) -> None:
    plan = toy_plan(tmp_path, topology="2x2")
    assert unavailable(plan, probe_of(1, 2, 4), 1) is None
    places = allocate(plan, probe_of(1, 2, 4)).places
    assert [(place.node, place.host) for place in places] == [(0, "h2"), (1, "h3")]
    assert [device.local_key for device in places[1].devices] == ["cpu0", "cpu1"]
    assert [device.key for device in places[1].devices] == ["h3:cpu0", "h3:cpu1"]


def test_too_few_hosts_say_what_each_has(tmp_path: Path) -> None:
    plan = toy_plan(tmp_path, topology="2x2")
    told = unavailable(plan, probe_of(1, 2).model_copy(update={"problem": "h3 cannot be used by ssh: refused"}), 2)
    assert told is not None
    assert "2 of host on each of 2 hosts" in told
    assert "h1: 1, h2: 2: h3 cannot be used by ssh: refused" in told


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "a tree"
    (folder / "sub" / "__pycache__").mkdir(parents=True)
    (folder / "one.py").write_text("1")
    (folder / "sub" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "sub" / "run.sh").chmod(0o755)
    (folder / "sub" / "__pycache__" / "x.pyc").write_text("not code")
    (folder / ".hidden").write_text("not ours")
    return folder


def digest_of(bundle: Bundle) -> str:
    with bundle.archive() as (_, _, digest):
        return digest


def test_a_bundle_is_known_by_its_content(tree: Path) -> None:
    first = digest_of(Bundle.of([tree]))
    os.utime(tree / "one.py", (1, 1))
    (tree / "sub" / "__pycache__" / "x.pyc").write_text("other")
    assert digest_of(Bundle.of([tree])) == first, "neither times nor caches count"
    (tree / "one.py").write_text("2")
    assert digest_of(Bundle.of([tree])) != first


def test_what_lies_in_the_checkout_keeps_its_place(tree: Path) -> None:
    places = Bundle.of([ROOT / "suite" / "drivers", tree]).parts
    assert places[ROOT / "suite" / "drivers"] == "suite/drivers"
    assert places[tree].startswith("elsewhere/")
    assert places[tree].endswith("/a tree")
    assert set(agent_bundle().parts.values()) == {"fixtures/__init__.py", "fixtures/agent.py", "fixtures/node"}


def serve(bundle: Bundle, cache: Path, *, stamp: str = "", keep_days: float = 14, cut: int = 0) -> list[dict[str, Any]]:
    """The answers of a node with that cache."""
    answers: list[dict[str, Any]] = []
    with bundle.archive() as (file, size, digest):
        order = {
            "name": "localhost", "cache": str(cache), "keep_days": keep_days, "token": None, "digest": digest,
            "bytes": size, "paths": list(map(str, bundle.parts)), "stamp": stamp,
        }  # fmt: skip
        receive.serve(order, io.BytesIO(file.read(size - cut)).read, answers.append)
    return answers


def test_staging_happens_once(tree: Path, tmp_path: Path) -> None:
    bundle, cache = Bundle.of([tree]), tmp_path / "cache"
    first, stored = serve(bundle, cache)
    assert first["have"] == ""
    root = receive.tree(cache, stored["stored"]) / bundle.parts[tree]
    assert (root / "one.py").read_text() == "1"
    assert (root / "sub" / "run.sh").stat().st_mode & 0o100
    assert {path.name for path in root.rglob("*")} == {"one.py", "sub", "run.sh"}
    assert [answer["have"] for answer in serve(bundle, cache)] == ["cache"]
    assert len(list(cache.iterdir())) == 1


def test_nothing_is_copied_onto_itself(tree: Path, tmp_path: Path) -> None:
    bundle, cache = Bundle.of([tree]), tmp_path / "cache"
    assert [answer["have"] for answer in serve(bundle, cache, stamp=bundle.stamp)] == ["source"]
    assert list(cache.iterdir()) == []


def test_half_a_bundle_is_none(tree: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(receive.Problem, match="in the middle of a bundle"):
        serve(Bundle.of([tree]), cache, cut=600)
    assert list(cache.iterdir()) == []


def test_the_cache_is_cleaned_by_age_and_only_of_what_is_ours(tree: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    serve(Bundle.of([tree]), cache)
    stored = next(cache.iterdir())
    (cache / "run-old.r1-node0").mkdir()
    (cache / "thesis").mkdir()
    for path in cache.iterdir():
        os.utime(path, (1, 1))
    receive.clean(cache, 14)
    assert [path.name for path in cache.iterdir()] == ["thesis"]
    assert not stored.exists()


def test_a_cache_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    with pytest.raises(receive.Problem, match=r"others may write .* set \[hosts\] cache"):
        receive.open_cache(str(tmp_path / "cache"))


def test_an_order_that_cannot_be_served_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    order = {"name": "x", "cache": str(tmp_path / "file" / "cache"), "limit_s": 5, "keep_days": 1}
    done = subprocess.run(
        [sys.executable, receive.__file__], input=json.dumps(order) + "\n", text=True, capture_output=True, timeout=30
    )
    assert json.loads(done.stdout)["problem"].startswith("cannot make the cache folder")
    assert done.stderr == ""


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    for name in ("events", "exits", "logs", "checkpoints"):
        (folder / name).mkdir(parents=True)
    return folder


class Link:
    """A follower on one side, a stream on the other."""

    def __init__(self, run_dir: Path, there: Path, limits: Limits) -> None:
        there.mkdir()
        self.follower = Follower(run_dir, limits)
        self.stream = Stream(there, "h1")
        self.names: list[str] = []

    def pump(self, room: int = 1 << 20, **how: bool) -> bool:
        messages, all_told = self.follower.look(room, **how)
        for message in messages:
            json.dumps(message)
            self.names.append(str(message["path"]))
            self.stream.take(message)
        return all_told


@pytest.fixture
def link(run_dir: Path, tmp_path: Path) -> Iterator[Link]:
    link = Link(run_dir, tmp_path / "there", Limits(head=1000, tail=100, events=5000, checkpoint=2000))
    yield link
    assert link.stream.problem == ""


def test_files_arrive_as_they_grow(link: Link, run_dir: Path, tmp_path: Path) -> None:
    events = run_dir / "events" / "rank0.jsonl"
    events.write_bytes(b'{"event":"header"}\n')
    assert link.pump()
    with events.open("ab") as file:
        file.write(b'{"torn')
    assert link.pump()
    assert (tmp_path / "there/events/rank0.jsonl").read_bytes() == events.read_bytes()
    (run_dir / "monitor.jsonl").write_bytes(b"{}\n")
    (run_dir / "run.json").write_bytes(b"{}")
    assert link.pump()
    assert link.names == ["events/rank0.jsonl", "events/rank0.jsonl", "monitor.jsonl"]


def test_how_a_rank_left_is_told_when_all_it_wrote_is_told(link: Link, run_dir: Path) -> None:
    (run_dir / "exits" / "rank0.json").write_text('{"rank": 0}')
    (run_dir / "events" / "rank0.jsonl").write_bytes(b"e" * 4000)
    (run_dir / "logs" / "rank0.log").write_bytes(b"l" * 5000)
    rounds = 0
    while not link.pump(room=500):
        rounds += 1
    assert rounds >= 2
    assert link.names[-1] == "exits/rank0.json"
    assert set(link.names[:-1]) == {"events/rank0.jsonl", "logs/rank0.log"}


def test_of_a_long_log_head_and_tail_arrive(link: Link, run_dir: Path, tmp_path: Path) -> None:
    log = run_dir / "logs" / "rank0.log"
    log.write_bytes(b"h" * 1000 + b"m" * 50_000 + b"t" * 100)
    assert link.pump()
    there = tmp_path / "there/logs/rank0.log"
    assert there.read_bytes() == b"h" * 1000
    assert link.pump(tails=True)
    head, note, tail = there.read_bytes().split(b"\n")
    assert (head, tail) == (b"h" * 1000, b"t" * 100)
    assert note == b"[50000 bytes are left out here: of a long log its beginning and its end are brought from h1]"
    assert link.pump(tails=True)
    assert there.stat().st_size == 1000 + len(note) + 2 + 100


def test_events_have_an_end_that_is_told(link: Link, run_dir: Path, tmp_path: Path) -> None:
    (run_dir / "events" / "rank0.jsonl").write_bytes(b"e" * 9000)
    assert link.pump()
    assert (tmp_path / "there/events/rank0.jsonl").stat().st_size == 5000
    assert link.follower.problems == ["events/rank0.jsonl is over 0 MiB: its rest is not brought back"]


def test_a_large_checkpoint_stays_and_is_told(link: Link, run_dir: Path, tmp_path: Path) -> None:
    (run_dir / "checkpoints" / "latest.pt").write_bytes(b"c" * 1500)
    (run_dir / "checkpoints" / "large.pt").write_bytes(b"c" * 3000)
    assert link.pump()
    assert link.names == [], "while the run lasts they may still change"
    assert link.pump(checkpoints=True)
    assert link.names == ["checkpoints/latest.pt"]
    assert link.follower.kept == ["checkpoints/large.pt"]
    assert f"stays on the node: {run_dir / 'checkpoints/large.pt'}" in link.follower.problems[0]


def test_what_is_no_plain_file_is_not_followed(link: Link, run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (run_dir / "logs" / "rank0.log").symlink_to(tmp_path / "secret")
    os.mkfifo(run_dir / "events" / "rank0.jsonl")
    assert link.pump()
    assert link.names == []


@pytest.mark.parametrize(
    "name", ["run.json", "harness.jsonl", "../x", "logs/../../x", "/etc/x", "logs/.x", "events/a\nb", "plan.json", ""]
)
def test_a_node_writes_nothing_but_files_of_a_run(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    stream = Stream(folder, "h1")
    stream.take({"agent": "file", "path": name, "data": base64.b64encode(b"x").decode()})
    assert "none of a run's" in stream.problem
    assert [path.name for path in tmp_path.rglob("*")] == ["run"]


def test_a_node_cannot_write_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "target").write_text("")
    (tmp_path / "logs" / "rank0.log").symlink_to(tmp_path / "target")
    stream = Stream(tmp_path, "h1")
    stream.take({"agent": "file", "path": "logs/rank0.log", "data": base64.b64encode(b"x").decode()})
    assert stream.remarks == ["logs/rank0.log of h1 is left out: another node has a file of that name"]
    assert (tmp_path / "target").read_text() == ""


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")
    stream = Stream(tmp_path, "h1")
    stream.take({"agent": "file", "path": "logs/rank0.log", "data": base64.b64encode(b"x").decode()})
    assert stream.problem.startswith(f"{tmp_path / 'logs/rank0.log'} cannot be written: ")


def test_cores_are_counted_by_what_is_allowed(tmp_path: Path) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    block = "processor\t: {cpu}\nmodel name\t: Toy 9000\nphysical id\t: 0\ncore id\t: {core}\n\n"
    text = "".join(block.format(cpu=cpu, core=0) for cpu in allowed) + block.format(cpu=9999, core=7)
    (tmp_path / "cpuinfo").write_text(text)
    found = devices.cores(tmp_path)["devices"]
    assert isinstance(found, list)
    assert [(device["key"], device["name"]) for device in found] == [("cpu0", "Toy 9000")], "siblings are one core"


def test_without_a_driver_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_LIBRARY", "libnothing-of-that-name.so.1")
    assert "NVML cannot be used" in str(devices.accelerators()["problem"])


def test_the_stamp_follows_size_and_time(tree: Path) -> None:
    first = receive.stamp([str(tree)])
    assert receive.stamp([str(tree)]) == first
    os.utime(tree / "one.py", (time.time(), 5))
    assert receive.stamp([str(tree)]) != first
    assert receive.stamp([str(tree / "absent")]) != receive.stamp([])
