"""Wrong words of somebody new: each is one sentence that says how to go on, before anything is run."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmarks import log_flood, overheads, reduce_events, sabotage_matrix, scaling_gate, time_to_train
from fixtures.hardware import Probe
from fixtures.options import Options, read, register
from fixtures.request import machine_for
from fixtures.site import load_site
from reports.__main__ import main as reports_main
from suite.catalog import load_catalog
from suite.errors import UsageProblem
from tests.reports2_toy import result_with, session_with

ROOT = Path(__file__).resolve().parent.parent


def gate_requires(folder: Path, check: str) -> int:
    """Exit status of a gate that has no baselines, over a session of one plan that passed."""
    (folder / "baselines").mkdir()
    session = session_with(folder / "session", [result_with("plan0")])
    return reports_main(["gate", str(session), "--baseline", str(folder / "baselines"), "--require", check])


@pytest.mark.parametrize(
    ("required", "told"),
    [
        ("baselin", "the plan has no such check (did you mean 'baseline'?)"),
        ("baseline", "python -m reports baseline propose"),
    ],
)
def test_what_a_gate_requires_and_lacks_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], required: str, told: str
) -> None:
    assert gate_requires(tmp_path, required) == 2
    assert told in capsys.readouterr().out


def test_a_check_that_the_plan_has_needs_no_hint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gate_requires(tmp_path, "ledger") == 0
    assert "no such check" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["azure-a100", "oci-a100", "oci-h100"])
def test_a_cluster_of_another_vendor_names_its_site_and_the_option(name: str) -> None:
    """On a login node without devices the vendor is cpu, and nobody has said --machine."""
    path, catalog = ROOT / f"fixtures/sites/{name}.toml", load_catalog(ROOT / "suite")
    site, machine = load_site(path), name.rpartition("-")[2].upper()
    with pytest.raises(UsageProblem, match=rf"{name}\.toml \[slurm\] machine = '{machine}'.*say --vendor NAME"):
        machine_for(Options(), catalog.vendor("cpu"), Probe(), site)
    assert machine_for(Options(), catalog.vendor("nvidia"), Probe(), site) == machine
    assert machine_for(Options(machine="host"), catalog.vendor("cpu"), Probe(), site) == "host"


def test_a_sabotage_of_chips_names_the_command_it_belongs_to(tmp_path: Path) -> None:
    parser = pytest.Parser(_ispytest=True)
    register(parser)
    with pytest.raises(UsageProblem, match=r"'no_synchronise' breaks a chip.*pytest suite/conformance"):
        read(parser.parse(["--sabotage", "no_synchronise"], argparse.Namespace()), tmp_path)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--gates", "-3"], "--gates -3"),
        (["--gates", "0", "--events", "0"], "nothing is asked for"),
        (["--repeat", "0"], "--repeat 0"),
        (["--real", "1", "--vendor", "nobody"], "--vendor nobody"),
        (["--real", "1", "--topology", "two"], "topology 'two'"),
    ],
)
def test_the_scaling_gate_refuses_before_it_simulates(
    words: Sequence[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scaling_gate.main(words) == 4
    said = capsys.readouterr()
    assert told in said.err and not said.out


def test_the_matrix_writes_into_no_folder_that_holds_something(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("kept")
    assert sabotage_matrix.main(["--results", str(tmp_path)]) == 4
    assert f"--results {tmp_path}" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("main", [reduce_events.main, log_flood.main], ids=["reduce_events", "log_flood"])
@pytest.mark.parametrize(("word", "status"), [("--help", 0), ("many", 4)])
def test_the_lone_benchmarks_explain_themselves(
    main: Callable[[], int],
    word: str,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmark", word])
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr()
    assert left.value.code == status and ("usage:" in said.out or "--help" in said.err)


def test_overheads_explain_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    assert overheads.main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in overheads.NAMES)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "--data-dir DIR is needed"),
        (["--data-dir", "{home}/absent"], "/absent, which is no folder"),
        (["--data-dir", "{home}", "--preset", "124m_tex"], "--preset 124m_tex.*have: .*124m_text"),
        (["--data-dir", "{home}", "--seeds", "0"], "--seeds 0"),
    ],
)
def test_time_to_train_refuses_before_it_trains(tmp_path: Path, words: Sequence[str], told: str) -> None:
    with pytest.raises(SystemExit, match=told):
        time_to_train.main([word.format(home=tmp_path) for word in words])


def test_time_to_train_names_the_package_that_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_to_train, "PACKAGES", ("no-such-trainer",))
    with pytest.raises(SystemExit, match=re.escape("no-such-trainer is not installed")):
        time_to_train.main(["--data-dir", str(tmp_path)])


def test_lines_of_the_reference_are_read_or_named(tmp_path: Path) -> None:
    lines = tmp_path / "eager.jsonl"
    lines.write_text('a shell\'s word\n{"seed": 1}\n{"seed": ')
    with pytest.raises(SystemExit, match=r"eager\.jsonl:3: a torn line"):
        time_to_train.reference_lines([lines])
    with pytest.raises(SystemExit, match=r"absent\.jsonl: no such file"):
        time_to_train.reference_lines([tmp_path / "absent.jsonl"])
    lines.write_text('a shell\'s word\n{"seed": 1}\n')
    assert time_to_train.reference_lines([lines]) == [{"seed": 1}]


def test_every_page_is_found_from_the_readme() -> None:
    """No page of docs/ stands where only a listing of the folder shows it."""
    seen, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        for word in re.findall(r"\]\(([^)\s#:]+\.md)", page.read_text(encoding="utf-8")):
            linked = (page.parent / word).resolve()
            if linked.is_file() and linked not in seen:
                seen.add(linked)
                ahead.append(linked)
    assert set((ROOT / "docs").glob("*.md")) <= seen
