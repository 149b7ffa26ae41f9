"""A matrix that was cut short goes on where it was; several programs share what is left of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import sabotage_matrix, sabotage_table
from benchmarks.sabotage_cells import Cell, cells, with_twins
from benchmarks.sabotage_ended import Ended, Kept
from tests.sabotage.toy import ROOT

WHERE = {"cpu": "a CPU", "cores": 2, "python": "3.11.0", "torch": "2.13.0", "day": "2026-11-30"}
CHOSEN = ["lr_zero", "seed_reused", "rank_frozen"]


def ended(cell: Cell, reason: str = "") -> Ended:
    return Ended(cell, cell.status, cell.category, reason, 1.5, WHERE)


def ran(monkeypatch, kept: Kept, folder: Path) -> list[str]:  # type: ignore[no-untyped-def]
    """The names of the cells that the matrix runs."""
    names: list[str] = []

    def run_cell(cell: Cell, session: Path, vendor: Path) -> Ended:
        names.append(cell.name)
        return ended(cell)

    monkeypatch.setattr(sabotage_matrix, "run_cell", run_cell)
    sabotage_matrix.matrix(cells("vivit", CHOSEN), folder, folder, kept)
    return names


def test_each_shape_has_one_twin_before_its_first_cell() -> None:
    every = list(with_twins(cells("vivit", CHOSEN)))
    assert [cell.key.removeprefix("vivit-") for cell in every] == [
        "healthy-converge-1x1",
        "lr_zero-converge-1x1",
        "healthy-converge-1x2",
        "rank_frozen-converge-1x2",
        "seed_reused-converge-1x1",
    ]


def test_what_ended_is_not_run_again_and_is_in_the_table(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    kept = Kept(tmp_path / "kept")
    first = next(cells("vivit", CHOSEN))
    kept.keep(ended(first, "told before"), tmp_path / "session")
    assert ran(monkeypatch, kept, tmp_path) == ["", "", "rank_frozen", "seed_reused"]
    assert ran(monkeypatch, kept, tmp_path) == []
    assert kept.find(first) == ended(first, "told before")
    assert "told before" in kept.find(first).row()  # type: ignore[union-attr]


def test_what_another_program_runs_is_left_to_it_until_it_dies(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    kept = Kept(tmp_path / "kept")
    script = (
        "import sys, time; from pathlib import Path; from benchmarks.sabotage_cells import cells\n"
        "from benchmarks.sabotage_ended import Kept\n"
        "with Kept(Path(sys.argv[1])).claim(next(cells('vivit', ['lr_zero']))) as ours:\n"
        "    print(ours, flush=True); time.sleep(600)\n"
    )
    argv = [sys.executable, "-c", script, str(tmp_path / "kept")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    other = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None and other.stdout.readline() == "True\n"
        assert "lr_zero" not in ran(monkeypatch, kept, tmp_path)
    finally:
        other.kill()
        other.communicate()
    assert ran(monkeypatch, kept, tmp_path) == ["lr_zero"]


def test_of_a_cell_that_did_not_end_as_named_the_session_is_kept_without_its_models(tmp_path: Path) -> None:
    kept, session = Kept(tmp_path / "kept"), tmp_path / "session"
    (session / "r1" / "checkpoints").mkdir(parents=True)
    (session / "r1" / "checkpoints" / "latest.pt").write_text("a model")
    (session / "r1" / "run.json").write_text("{}")
    one, other = list(cells("vivit", ["lr_zero", "seed_reused"]))
    kept.keep(ended(one)._replace(status="passed"), session)
    kept.keep(ended(other), session)
    assert not kept.find(one).as_named and kept.find(other).as_named  # type: ignore[union-attr]
    files = {str(path.relative_to(tmp_path / "kept")) for path in (tmp_path / "kept").rglob("*") if path.is_file()}
    assert files == {f"{one.key}.json", f"{other.key}.json", f"{one.key}/r1/run.json"}


def test_the_page_says_of_each_cell_how_it_ended(tmp_path: Path) -> None:
    """One that did not end as named stands out, with its reason; one that nobody ran is no blank."""
    lr_zero, seed_reused = cells("vivit", ["lr_zero", "seed_reused"])
    bad = ended(seed_reused, "nothing was told")._replace(status="passed", category="")
    table, notes = sabotage_table.grid({lr_zero: ended(lr_zero), seed_reused: bad}, ["vivit", "glm"])
    assert "| `lr_zero` | converge 1x1 | quality | not run |" in table
    assert "| `seed_reused` | converge 1x1 | **passed** (1) | not run |" in table
    assert notes == ["(1) vivit, `seed_reused`: passed: nothing was told"]
    (tmp_path / "kept").mkdir()
    assert sabotage_table.main([str(tmp_path / "kept"), "--case", "vivit"]) == 1


def test_a_table_of_no_folder_is_wrong_usage_and_makes_none(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as left:
        sabotage_table.main([str(tmp_path / "typo")])
    assert left.value.code == 4 and not list(tmp_path.iterdir())
