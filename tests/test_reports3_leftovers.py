"""Small things that users met: what a rerun carries along, what is missing, named badly, or does not fit."""

from __future__ import annotations

import os
import resource
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from fixtures.faults.checkout import ToyCheckout
from fixtures.option_table import OPTIONS
from fixtures.site import load_site
from fixtures.testing import MakeCheckout, toy_checkout
from reports.__main__ import main
from reports.html_rerun import SWITCHES, rerun_command
from suite.errors import UsageProblem
from tests.reports2_toy import real_session, result_with
from tests.reports_toy import run_reports, session_of
from tests.user_toy import Checkout

__all__ = ["toy_checkout"]


def test_the_rerun_line_keeps_that_inconclusive_counts(checkout: Checkout) -> None:
    checkout.behave(toy="inconclusive:noise")
    done = checkout.pytest("suite", "-k", "toy and 1x1", "--vendor", "cpu", "--fail-inconclusive")
    (line,) = [line for line in done.out.splitlines() if line.startswith("rerun: ")]
    assert line.endswith("--fail-inconclusive")
    again = checkout.pytest(*shlex.split(line.removeprefix("rerun: pytest ")))
    assert again.code == 1, again.out


def test_the_rerun_line_of_the_pages_keeps_it_too() -> None:
    """A switch takes no value: the word behind it is not its own."""
    given = "pytest suite --fail-inconclusive --results elsewhere --repeat 3 -n 2"
    result = result_with()
    assert rerun_command(result, given).endswith(
        f"'[{result.id}]' --vendor cpu --fail-inconclusive --results elsewhere --repeat 3"
    )
    assert set(SWITCHES) == {option.name for option in OPTIONS if option.rerun and not option.takes}


def test_a_set_that_the_filters_leave_without_effect_is_told(checkout: Checkout) -> None:
    case = checkout.root / "suite/cases/toy/pytorch/case.toml"
    case.write_text(case.read_text().replace("fused = false", "fused = false\nglue = 1"))
    checkout.write("suite/vendors/cpu/blob/pytorch/config_default.toml", "")
    for workers in ((), ("-n", "1")):
        done = checkout.pytest("suite", "-k", "blob and 1x1", "--vendor", "cpu", "--set", "glue=2", *workers)
        assert "warning: --set glue=2: none of the selected plans has this key" in done.out
    done = checkout.pytest("suite", "-k", "toy and 1x1", "--vendor", "cpu", "--set", "glue=2")
    assert "warning: --set" not in done.out


def outcome(checkout: ToyCheckout) -> tuple[str, str, str]:
    told = checkout.session()["results"][0]["outcome"]
    return told["status"], told["category"], told["reason"]


def test_a_case_without_its_program_is_a_mistake_of_configuration(toy_checkout: MakeCheckout) -> None:
    checkout = toy_checkout()
    (checkout.root / "suite/cases/toy/pytorch/train.py").unlink()
    assert checkout.run(checkout.command()) == 1
    status, category, reason = outcome(checkout)
    assert (status, category) == ("error", "config")
    assert "train.py does not exist; a case folder holds train.py" in reason


def test_results_that_do_not_fit_a_limit_are_no_fault_of_the_harness(toy_checkout: MakeCheckout) -> None:
    checkout = toy_checkout()
    done = subprocess.run(
        checkout.command(), cwd=checkout.root, env={**checkout.environment(), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048)),
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "error: environment: " in done.stdout and "error: harness" not in done.stdout
    assert "results cannot be written (File too large): a file is at the file size limit of 2,048 bytes" in done.stdout
    assert "raise it: ulimit -f unlimited" in done.stdout


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """A judged session, and in it a folder that calls itself a plan under a name that is no text."""
    folder, plan = real_session(tmp_path / "s")
    (folder / "journal-main.jsonl").write_text("")
    strange = os.fsencode(folder) + b"/bad\xff"
    shutil.copytree(os.fsencode(folder / plan.id), strange)
    return folder


def test_a_name_that_is_no_text_stops_no_rebuild(session: Path) -> None:
    done = run_reports("rebuild", "--no-plots", session)
    assert done.returncode == 0, done.stderr
    assert "its name is not UTF-8, so it is no plan of ours; rename or remove it" in done.stderr
    assert len(session_of(session)["results"]) == 1
    assert run_reports("rejudge", session).returncode == 0


def test_a_name_that_is_no_text_stops_no_bundle(session: Path, tmp_path: Path) -> None:
    for run in session.glob("*/r1"):
        Path(os.fsdecode(os.fsencode(run) + b"/logs/n\xff.log")).write_text("of a run that likes odd names")
    done = run_reports("bundle", session, "--output", tmp_path / "b.zip")
    assert done.returncode == 0, done.stderr
    assert "files or folders whose names are not UTF-8" in done.stdout
    assert run_reports("rejudge", tmp_path / "b.zip").returncode == 0


@pytest.mark.parametrize("verb", ["junit", "bundle", "compare"])
def test_an_output_that_cannot_be_written_is_named_as_it_was_given(
    tmp_path: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = real_session(tmp_path / "s")
    target = tmp_path / "absent" / "file"
    words = [verb, str(folder)] + ([str(folder)] if verb == "compare" else []) + ["--output", str(target)]
    assert main(words) == 4
    assert capsys.readouterr().err == f"error: {target}: No such file or directory\n"


@pytest.mark.parametrize("key", ["lease.dir", "hosts.user", "container.images.pytorch", "data.default"])
def test_a_nul_in_a_site_is_told_when_it_is_read(tmp_path: Path, key: str) -> None:
    table, _, name = key.rpartition(".")
    (tmp_path / "site.toml").write_text(f'[{table}]\n{name} = "a\\u0000b"\n')
    with pytest.raises(UsageProblem, match=rf"site.toml.*{key} holds a NUL"):
        load_site(tmp_path / "site.toml")
