"""A stranger's vendor folder in a gate's container: whatever it tries beyond its run folder is refused or contained."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

from fixtures.secrets import SecretSource
from fixtures.site import Policy
from tests.container.engines import dockerd, either, inventory, site_of
from tests.container.private_engine import PrivateEngine
from tests.launch_toy import ROOT, TRAIN, toy_plan, trainer
from tests.test_container_runs import outcome_of, vendor_with

__all__ = ["dockerd", "either"]

TRIES = """
import ctypes, socket, subprocess
told = {}
ESCAPE = '''
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x10000000 | 0x00020000) == 0, "no user namespace of one's own"
place = sys.argv[1].encode()
assert libc.mount(None, place, None, 32 | 4096, None) == 0, "mounts of the container stay read-only in it"
open(os.path.join(sys.argv[1], "was-here"), "w").close()
'''
def attempt(name, act):
    try: told[name] = f"done: {act()!r}"
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as problem: told[name] = type(problem).__name__
def call(number, *words):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, number)(*words) != 0: raise OSError(ctypes.get_errno(), number)
want = json.load(open(os.path.join(run["case_dir"], "want.json")))
attempt("a service of the host", lambda: socket.create_connection(("127.0.0.1", want["port"]), 2))
attempt("the network", lambda: socket.create_connection(("192.0.2.1", 80), 2))
attempt("a name", lambda: socket.getaddrinfo("registry.example", 443))
attempt("a secret's file", lambda: open(want["secret"]).read())
attempt("a secret's variable", lambda: os.environ["HF_TOKEN"])
attempt("the user's keys", lambda: os.listdir(os.path.expanduser("~root/.ssh")))
attempt("the engine's socket", lambda: os.stat(want["socket"]))
attempt("the harness's environment", lambda: open(f"/proc/{want['pid']}/environ").read())
attempt("the harness", lambda: os.kill(want["pid"], 0))
attempt("a mount", lambda: call("mount", b"none", b"/mnt", b"tmpfs", 0, None))
attempt("a namespace's rights over a mount", lambda: subprocess.run(
    [sys.executable, "-c", ESCAPE, run["case_dir"]], check=True, stderr=subprocess.DEVNULL).returncode)
attempt("another user", lambda: os.setuid(12345))
attempt("a device", lambda: os.mknod(os.path.join(run["run_dir"], "disk"), 0o60600, os.makedev(8, 0)))
for place in ("case_dir", "session", "plan", "checkout", "data"):
    path = {"session": os.path.dirname(os.path.dirname(run["run_dir"])), "plan": os.path.dirname(run["run_dir"]),
            "checkout": want["checkout"], "data": want["data"], "case_dir": run["case_dir"]}[place]
    attempt("writing into " + place, lambda: open(os.path.join(path, "was-here"), "w").close())
json.dump(told, open(os.path.join(run["run_dir"], "told.json"), "w"))
print("the last word of the container", flush=True)
steps(1); stop()
"""


def test_what_a_stranger_tries_reaches_nothing(either: PrivateEngine, tmp_path: Path) -> None:
    before = inventory(either)
    folder, catalog = vendor_with(tmp_path, "")
    secret, data = tmp_path / "secret", tmp_path / "data"
    secret.write_text("s3cret-of-the-site")
    secret.chmod(0o600)
    data.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as service:
        plan = toy_plan(tmp_path, TRAIN + TRIES, topology="1x1", vendor_dir=folder)
        want = {
            "port": service.getsockname()[1], "secret": str(secret), "pid": os.getpid(), "checkout": str(ROOT),
            "socket": either.url.removeprefix("unix://"), "data": str(data),
        }  # fmt: skip
        (plan.case_dir / "want.json").write_text(json.dumps(want))
        site = site_of(either, tmp_path).model_copy(
            update={
                "policy": Policy(trust_vendor_code=False),
                "secrets": {"HF_TOKEN": SecretSource(file=str(secret))},
                "path": "gate.toml",
            }
        )
        runs = trainer(tmp_path, site=site, catalog=catalog)(plan)
    assert outcome_of(runs.folder).status == "passed", outcome_of(runs.folder)
    told = json.loads((runs.folder / "r1/told.json").read_text())
    assert len(told) == 18
    reached = {name: what for name, what in told.items() if what.startswith("done")}
    # Written files of the container's own root are gone with it: only what is seen outside counts.
    assert {name for name in reached if not name.startswith("writing into")} == set(), reached
    assert list(tmp_path.rglob("was-here")) == [] and not (ROOT / "was-here").exists()
    assert list(runs.folder.rglob("disk")) == []
    everything = [path.read_bytes() for path in (tmp_path / "session").rglob("*") if path.is_file()]
    assert not any(b"s3cret-of-the-site" in text for text in everything)
    assert "the last word of the container" in (runs.folder / "r1/logs/rank0.log").read_text()
    assert (runs.folder / "r1/logs/container-node0.log").is_file()
    assert inventory(either) == before
