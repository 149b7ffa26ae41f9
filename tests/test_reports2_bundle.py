"""Bundles: judged again elsewhere to the same verdict, without names if public, and never trusted when opened."""

from __future__ import annotations

import io
import json
import shutil
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports import unbundle
from reports.__main__ import main
from reports.bundle import pack
from reports.json_report import read_session, write_result
from reports.lost import lost_result
from reports.redact import Redactor
from reports.replan import own_plans
from suite.artifacts import event_seals
from suite.catalog import load_catalog
from suite.errors import UsageProblem
from suite.outcome import Outcome
from suite.plan import Plan, Request
from suite.selection import plans
from suite.topology import Topology
from suite.verdict import judge_folder
from tests.reports2_toy import real_session, result_with, session_with
from tests.run_folders import tiny_plan, with_base, write_plan_folder
from tests.user_toy import Checkout

SECRETS = (
    "gpu17.lab.example.org",
    "gpu17",
    "GPU-11112222-serial",
    "alice",
    "10.20.30.40",
    "aa:bb:cc:dd:ee:ff",
    "hunter2",
)


def named_session(folder: Path) -> Path:
    """A judged session whose files name hosts, users and devices, sealed by the harness."""
    session, plan = real_session(folder)
    run = session / plan.id / "r1"
    for rank in (0, 1):
        path = run / "events" / f"rank{rank}.jsonl"
        text = path.read_text().replace('"host": "host"', '"host": "gpu17.lab.example.org"')
        path.write_text(text.replace(f'"identity": "host/{rank}"', f'"identity": "GPU-11112222-serial{rank}"'))
    environment = json.loads((run / "environment.json").read_text())
    environment |= {
        "host": "gpu17.lab.example.org", "python": "/home/alice/venv/bin/python", "image": "base@sha256:abcdef",
        "devices": [{"uuid": "GPU-11112222-serial0", "host": "gpu17"}], "driver_version": "5.10.0.13",
        "note": "10.20.30.40 aa:bb:cc:dd:ee:ff alice@gpu17",
    }  # fmt: skip
    (run / "environment.json").write_text(json.dumps(environment))
    (run / "command.txt").write_text("python --master-addr gpu17 /home/alice/train.py\n")
    (run / "logs" / "rank0.log").write_text("the password is hunter2\n")
    lines = [json.loads(line) for line in (run / "harness.jsonl").read_text().splitlines()]
    for line in lines:
        if line["event"] == "witness":
            line["events"] = event_seals(run)
    (run / "harness.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = judge_folder(session / plan.id)
    assert result.outcome.status == "passed", result.outcome
    write_result(result, session / plan.id)
    return session_with(session, [result], command="pytest --site /home/alice/site.toml", ci={"JOB_NAME": "hunter2"})


def members(path: Path) -> dict[str, bytes]:
    """Name -> content."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_bundle_is_judged_again_to_the_same_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = named_session(tmp_path / "s1")
    assert main(["bundle", str(session), "--output", str(tmp_path / "s1.zip")]) == 0
    out = capsys.readouterr().out
    assert "1 plans, sha256 " in out and "left out: checkpoints" in out
    shutil.rmtree(session)
    assert main(["rejudge", str(tmp_path / "s1.zip")]) == 0
    assert "the same as the stored result.json" in capsys.readouterr().out


def test_the_same_session_makes_the_same_bytes(tmp_path: Path) -> None:
    session = named_session(tmp_path / "s1")
    digests = {pack(session, tmp_path / f"{n}.zip", public=public).sha256 for n in range(2) for public in (True,)}
    assert len(digests) == 1


def test_a_public_bundle_names_nobody_and_is_still_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = named_session(tmp_path / "s1")
    assert main(["bundle", str(session), "--public", "--output", str(tmp_path / "p.zip")]) == 0
    content = members(tmp_path / "p.zip")
    for name, data in content.items():
        for secret in SECRETS:
            assert secret.encode() not in data and secret not in name, (name, secret)
    assert not any("/logs/" in name or "journal" in name for name in content)
    environment = json.loads(next(data for name, data in content.items() if name.endswith("r1/environment.json")))
    assert environment["host"] == "host-1" and environment["devices"][0]["uuid"].startswith("device-")
    assert environment["image"] == "base@sha256:abcdef" and environment["driver_version"] == "5.10.0.13"
    capsys.readouterr()
    assert main(["rejudge", str(tmp_path / "p.zip")]) == 0, "the seals hold over what was taken out"
    assert "the same as the stored result.json" in capsys.readouterr().out


def test_a_seal_that_was_broken_before_stays_broken(tmp_path: Path) -> None:
    session = named_session(tmp_path / "s1")
    (events,) = session.glob("*/r1/events/rank1.jsonl")
    events.write_text(events.read_text().replace("gpu17", "gpu18"))
    with pytest.raises(UsageProblem, match="its outcome cannot be had"):
        pack(session, tmp_path / "p.zip", public=True)
    assert not list(tmp_path.glob("*.zip*"))


def test_an_edited_bundle_is_red(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pack(named_session(tmp_path / "s1"), tmp_path / "s1.zip")
    content = members(tmp_path / "s1.zip")
    with zipfile.ZipFile(tmp_path / "edited.zip", "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data.replace(b"0.75", b"0.95") if "rank0.jsonl" in name else data)
    assert main(["rejudge", str(tmp_path / "edited.zip")]) == 1
    assert "not the file that the harness saw" in capsys.readouterr().out


def test_a_base_of_another_session_travels_along(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = with_base(tiny_plan())
    assert plan.base is not None
    other = write_plan_folder(tmp_path / "earlier" / plan.base.id, plan.base, runs=({"step_s": 0.2}, {"step_s": 0.2}))
    session = tmp_path / "s1"
    folder = write_plan_folder(session / plan.id, plan)
    with (folder / "harness.jsonl").open("a") as file:
        base = {"event": "base", "t": 9.0, "t_wall": 9.0, "folder": str(other), "reused": True, "note": ""}
        file.write(json.dumps(base | {"plan_digest": plan.base.plan_digest}) + "\n")
    result = judge_folder(folder)
    assert result.metrics["speedup"].value > 1.5
    write_result(result, folder)
    session_with(session, [result])
    pack(session, tmp_path / "s1.zip")
    shutil.rmtree(tmp_path / "earlier")
    assert main(["rejudge", str(tmp_path / "s1.zip")]) == 0
    capsys.readouterr()


def test_a_session_that_has_not_ended_is_not_packed(tmp_path: Path) -> None:
    session = session_with(tmp_path / "s", [result_with()], exit_status=None)
    with pytest.raises(UsageProblem, match="has not ended"):
        pack(session, tmp_path / "s.zip")


def zipped(tmp_path: Path, fill: Callable[[zipfile.ZipFile], None]) -> Path:
    """An archive that somebody else has made."""
    path = tmp_path / "evil.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        fill(archive)
    return path


def link(archive: zipfile.ZipFile) -> None:
    """A symbolic link, and a file through it."""
    member = zipfile.ZipInfo("p/out")
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    archive.writestr(member, "/etc")


def twice(archive: zipfile.ZipFile) -> None:
    """One name, two contents."""
    archive.writestr("session.json", "{}")
    with pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("session.json", "[]")


def bomb(archive: zipfile.ZipFile) -> None:
    """Far more than any session holds."""
    with archive.open("p/zeros", "w") as file:
        for _ in range(100):
            file.write(bytes(1 << 20))


def both(archive: zipfile.ZipFile) -> None:
    """One name for a file and a folder."""
    archive.writestr("p", "x")
    archive.writestr("p/q", "x")


def many(archive: zipfile.ZipFile) -> None:
    """Four members."""
    for number in range(4):
        archive.writestr(f"p/{number}", "")


HOSTILE: dict[str, Callable[[zipfile.ZipFile], None]] = {
    "up": lambda archive: archive.writestr("../escaped", "x"),
    "up inside": lambda archive: archive.writestr("p/../../escaped", "x"),
    "absolute": lambda archive: archive.writestr("/tmp/escaped", "x"),
    "backslash": lambda archive: archive.writestr("p\\..\\escaped", "x"),
    "drive": lambda archive: archive.writestr("C:/escaped", "x"),
    "control": lambda archive: archive.writestr("p/\x1b[31m", "x"),
    "long": lambda archive: archive.writestr("p/" * 300 + "x", "x"),
    "method": lambda archive: archive.writestr("p/x", "x" * 999, compress_type=zipfile.ZIP_LZMA),
    "link": link,
    "twice": twice,
    "file and folder": both,
    "base elsewhere": lambda archive: archive.writestr("p/harness.jsonl", '{"event": "base", "folder": "/etc"}\n'),
    "base above": lambda archive: archive.writestr("p/harness.jsonl", '{"event": "base", "folder": "../q"}\n'),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_are_refused_in_one_sentence(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = zipped(tmp_path, HOSTILE[name])
    assert main(["rejudge", str(path)]) == 4
    error = capsys.readouterr().err
    assert "nothing of it was used" in error and len(error.splitlines()) == 1 and "\x1b" not in error
    assert not list(tmp_path.rglob("escaped")) and not Path("/tmp/escaped").exists()


def test_a_bomb_ends_before_it_fills_the_disk(tmp_path: Path) -> None:
    path = zipped(tmp_path, bomb)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(UsageProblem, match="more comes out of it"), unbundle.unpacked(path):
        pass


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unbundle, "MAX_MEMBERS", 3)
    path = zipped(tmp_path, many)
    with pytest.raises(UsageProblem, match="4 members"), unbundle.unpacked(path):
        pass


@given(st.binary(max_size=200), st.integers(0, 400))
def test_any_damage_is_a_sentence_or_harmless(noise: bytes, place: int) -> None:
    import tempfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("session.json", "{}" * 50)
        archive.writestr("p/plan.json", "{}")
    data = bytearray(buffer.getvalue())
    data[place : place + len(noise)] = noise
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.zip"
        path.write_bytes(bytes(data))
        try:
            with unbundle.unpacked(path) as opened:
                assert all(file.resolve().is_relative_to(opened) for file in opened.rglob("*"))
        except UsageProblem as problem:
            assert "x.zip" in str(problem)


def test_a_redactor_keeps_words_of_the_project_and_parts_of_words() -> None:
    redactor = Redactor(["cpu"])
    redactor.learn({"hosts": ["vm", "cpu"], "identity": "uuid"})
    assert redactor.text("vm: vmlinux on toy-cpu-vm-1x1, vm.") == "host-1: vmlinux on toy-cpu-vm-1x1, host-1."
    told = {"host": "cpu", "vendor": "cpu", "log_tail": ["x"], "foreign": [{"pid": 1, "name": "y"}]}
    clean = {"host": "host-2", "vendor": "cpu", "log_tail": [], "foreign": [{"pid": 1, "name": "process"}]}
    assert redactor.value(told) == clean


def test_a_strangers_thresholds_are_replaced_by_this_checkouts(
    checkout: Checkout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = checkout.root / "suite"
    ours = plans(load_catalog(suite), Request(vendor="cpu", machine="host", models=("toy",), topologies=("1x2",)))[0]
    softer = {check.name: check.model_copy(update={"threshold": 0.1}) for check in ours.checks}
    checks = tuple(softer[check.name] if check.name == "quality" else check for check in ours.checks)
    soft = ours.model_copy(update={"checks": checks})
    folder = write_plan_folder(tmp_path / ours.id, soft, runs=({"quality": (0.3, 0.5, 0.6)},))
    own_plans([folder], suite_dir=suite)
    again = Plan.read(folder / "plan.json")
    assert again.checks == ours.checks and again.seeds == soft.seeds
    assert judge_folder(folder).outcome.category == "quality", "0.6 is not the target of this checkout"
    for change, sentence in (
        ({"plan_digest": "other"}, "plan_digest other was run"),
        ({"id": "x"}, "contradicts itself"),
    ):
        soft.model_copy(update=change).write(folder / "plan.json")
        with pytest.raises(UsageProblem, match=sentence):
            own_plans([folder], suite_dir=suite)
    capsys.readouterr()


def test_a_judged_bundle_becomes_a_session_for_the_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pack(named_session(tmp_path / "s1"), tmp_path / "s1.zip")
    assert main(["rejudge", str(tmp_path / "s1.zip"), "--output", str(tmp_path / "judged")]) == 0
    assert read_session(tmp_path / "judged").results[0].outcome.status == "passed"
    assert (tmp_path / "judged" / "junit.xml").is_file()
    (tmp_path / "none").mkdir()
    assert main(["gate", str(tmp_path / "judged"), "--baseline", str(tmp_path / "none")]) == 0
    assert main(["rejudge", str(tmp_path / "s1"), "--output", str(tmp_path / "x")]) == 4
    assert main(["rejudge", str(tmp_path / "s1.zip"), "--write"]) == 4
    capsys.readouterr()


def test_what_is_no_plan_of_this_checkout_is_one_sentence(tmp_path: Path) -> None:
    folder = write_plan_folder(
        tmp_path / "toy-pytorch-cpu-host-mini-1x2", tiny_plan(topology=Topology(nnodes=1, nproc=2))
    )
    with pytest.raises(UsageProblem):
        own_plans([folder])


def test_a_vendor_names_the_bundle_that_verified_it(checkout: Checkout) -> None:
    path = checkout.root / "suite/vendors/cpu/vendor.toml"
    good = f'verified = {{ date = "2026-01-31", bundle_sha256 = "{"a" * 64}", by = "a vendor" }}'
    text = path.read_text()
    request = Request(vendor="cpu", machine="host", models=("toy",), topologies=("1x1",))
    for line, verified in ((good, True), ("verified = true", True), ("verified = false", False)):
        path.write_text(text.replace("verified = true", line))
        assert plans(load_catalog(checkout.root / "suite"), request)[0].verified is verified
    path.write_text(text.replace("verified = true", 'verified = { date = "soon" }'))
    with pytest.raises(UsageProblem, match="verified"):
        plans(load_catalog(checkout.root / "suite"), request)


def test_a_plan_that_was_lost_is_still_lost_in_the_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session, plan = real_session(tmp_path / "s1")
    (session / plan.id / "result.json").unlink()
    lost = Outcome(status="error", category="interrupted", reason="SIGTERM on gpu17.lab.example.org by alice@gpu17")
    never = lost_result(tiny_plan(id="never"), Outcome(status="not_started", category="budget", reason="no time"))
    session_with(session, [lost_result(plan, lost), never], exit_status=2)
    pack(session, tmp_path / "s1.zip", public=True)
    assert main(["rejudge", str(tmp_path / "s1.zip"), "--output", str(tmp_path / "judged")]) == 1
    assert "the same as the stored result.json" in capsys.readouterr().out
    report = read_session(tmp_path / "judged")
    assert [result.outcome.category for result in report.results] == ["interrupted", "budget"]
    assert "alice" not in report.model_dump_json() and report.session.exit_status == 2
