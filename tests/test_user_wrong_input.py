"""Wrong command lines: one clean sentence with the remedy on standard error, exit 4, no traceback, no folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.user_toy import Checkout, make_checkout

WRONG: tuple[tuple[str, str], ...] = (
    ("--vendor acne", "--vendor acne: no such folder under suite/vendors (did you mean 'acme'?)"),
    ("--vendor ''", "--vendor '' is empty; it takes NAME"),
    ("--vendor-path nowhere", "--vendor-path 'nowhere': no such folder"),
    ("--vendor-path tests", "no vendor.toml in it"),
    ("--machine A2 --vendor acme", "--machine A2: no such file under suite/vendors/acme/machines (have: A1, Z9)"),
    ("--model toi", "--model toi: matches nothing (did you mean 'toy'?)"),
    ("--framework pytorhc", "--framework pytorhc: matches nothing (did you mean 'pytorch'?)"),
    ("--preset minni", "--preset minni: matches nothing (did you mean 'mini'?)"),
    ("--topology 1*8", "--topology: topology '1*8' is not <nodes>x<devices>, as in 1x8"),
    ("--topology 0x1", "topology '0x1' is not <nodes>x<devices>"),
    ("--topology 7x7", "--topology 7x7: matches nothing"),
    ("--mode convergence", "--mode 'convergence' is not known (did you mean 'converge'?)"),
    ("--repeat 0", "--repeat '0' is not a whole number from 1 to 1000"),
    ("--repeat -1", "--repeat '-1' is not a whole number from 1 to 1000"),
    ("--repeat many", "--repeat 'many' is not a whole number"),
    ("--seed 1.5", "--seed '1.5' is not a whole number from 0 to 2147483647"),
    ("--set lr", "--set 'lr' is not KEY=VALUE, as in --set lr=0.003"),
    ("--set lr=", "--set 'lr=' gives no value; write one, as in --set lr=0.003"),
    ("--set =1", "--set '=1' is not KEY=VALUE, as in --set lr=0.003"),
    ("--set params.lr=1", "'params.lr' is not the name of a parameter (did you mean 'lr'?); --plan lists them"),
    ("--set l-r=1", "--set 'l-r=1': 'l-r' is not the name of a parameter; --plan lists them"),
    ("--set lr=x", "lr"),
    ("--set rl=1.0", "no planned case has a parameter 'rl'"),
    ("--set fused=1", "fused"),
    ("--site nowhere.toml", "--site 'nowhere.toml': no such file"),
    ("--site sites/typo.toml", "unknown table 'polcy'"),
    ("--site sites/torn.toml", "sites/torn.toml"),
    ("--site sites/latin.toml", "is not UTF-8"),
    ("--site sites/slurm.toml", "extra: '--time=5' is set by the suite itself; leave it out"),
    ("--site sites/strange.toml", "no case trains 'toi' (did you mean 'toy'?)"),
    ("--launcher ssh", "--launcher ssh: [hosts] names is empty; name the hosts in a site file, and say --site FILE"),
    ("--launcher shh", "--launcher 'shh' is not known (did you mean 'ssh'?)"),
    ("--container dcoker", "--container 'dcoker'"),
    ("--data-dir nowhere", "--data-dir 'nowhere': no such folder"),
    ("--data-dir toi=tests", "--data-dir toi=…: no case trains 'toi' (did you mean 'toy'?)"),
    ("--data-dir toy=", "--data-dir 'toy=' names no folder"),
    ("--cases nowhere.toml", "--cases 'nowhere.toml': no such file"),
    ("--cases sites/row.toml", "sites/row.toml"),
    ("--results pytest.ini", "--results 'pytest.ini' is not a folder"),
    ("--session tests", "is not empty (it holds test_nothing.py); name an empty or absent folder"),
    ("--session pytest.ini", "is not a folder; name an empty or absent one"),
    ("--session new --results other", "--session 'new' names the folder itself; leave out --results 'other'"),
    ("--baseline nowhere", "--baseline 'nowhere': no such path"),
    ("--time-budget 30m", "--time-budget '30m' is not a duration; write a number and a unit, as in 90s"),
    ("--time-budget 0s", "--time-budget '0s' leaves no time"),
    ("--max-device-hours -3", "--max-device-hours '-3' is not a number above zero"),
    ("--max-device-hours nan", "--max-device-hours 'nan' is not a number above zero"),
    ("--wait-for-devices soon", "--wait-for-devices 'soon' is not a duration"),
    ("--sabotage labels_shufled", "--sabotage 'labels_shufled' is not known (did you mean 'labels_shuffled'?)"),
    ("--detect 5%", "--detect 5% is part of the plan's text; say --plan --detect 5%"),
    ("--plan --detect 0%", "--detect '0%' is not a share above 0"),
    ("--plan --detect 5%,x", "--detect 'x' is not a share above 0"),
    ("suite/cases/blob/pytorch/test_blob.py --vendor cpu", "vendor cpu plans nothing here (it plans: toy/pytorch)"),
    ("--vendor \x1b[31mred", "--vendor \\x1b[31mred: no such folder"),
)

SITES = {
    "sites/typo.toml": "[polcy]\ntrust_vendor_code = true\n",
    "sites/torn.toml": "[data\n",
    "sites/slurm.toml": '[launch]\nlauncher = "slurm"\n[slurm]\nextra = ["--time=5"]\n',
    "sites/strange.toml": '[data]\ncases = { toi = "/data" }\n',
    "sites/row.toml": '"toy:pytorch:host:1" = ""\n',
}

RUN_ALL = """
import contextlib, io, json, os, shlex, sys
import pytest
answers = []
for line in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        arguments = shlex.split(line)
        start = [] if arguments[0].startswith("suite/") else ["suite"]
        code = pytest.main([*start, "-p", "no:cacheprovider", *arguments])
    answers.append([int(code), out.getvalue(), err.getvalue()])
json.dump(answers, sys.stdout)
"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """One checkout for all: nothing is ever written to it."""
    checkout = make_checkout(tmp_path_factory.mktemp("wrong") / "a clone")
    for name, text in SITES.items():
        checkout.write(name, text)
    (checkout.root / "sites" / "latin.toml").write_bytes('[data]\ndefault = "\u00e9"\n'.encode("latin-1"))
    return checkout


@pytest.fixture(scope="module")
def answers(clone: Checkout) -> dict[str, tuple[int, str, str]]:
    """Exit code, output and complaint of every wrong command line; one process, since each start costs a second."""
    lines = [line for line, _ in WRONG]
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL], input=json.dumps(lines), cwd=clone.root, env=clone.variables(),
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    return {line: (code, out, err) for line, (code, out, err) in zip(lines, json.loads(done.stdout))}


@pytest.mark.parametrize(("line", "sentence"), WRONG, ids=[f"{number}" for number in range(len(WRONG))])
def test_wrong_input_is_one_sentence(answers: dict[str, tuple[int, str, str]], line: str, sentence: str) -> None:
    """The sentence names what was wrong; standard error holds it and nothing else."""
    code, out, err = answers[line]
    assert code == 4, (out, err)
    assert sentence in err
    assert err.strip().startswith("ERROR: ")
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in out + err
    assert "\x1b" not in err


def test_wrong_input_leaves_nothing_behind(answers: dict[str, tuple[int, str, str]], clone: Checkout) -> None:
    """No results, no session folder."""
    assert len(answers) == len(WRONG)
    names = {path.name for path in clone.root.iterdir()}
    assert not names & {"results", "new", "other"}


@pytest.mark.parametrize("line", ["--vendor acne", "--repeat 0", "--topology 7x7", "--session tests"])
def test_wrong_input_is_the_same_under_xdist(clone: Checkout, line: str) -> None:
    """With workers too: exit 4, the sentence, no internal error."""
    done = clone.pytest("suite", "-n", "2", *line.split())
    assert done.code == 4, done.out
    assert dict(WRONG)[line] in done.err
    assert "INTERNALERROR" not in done.out
    assert "Traceback" not in done.out


def test_broken_vendor_stops_only_its_own_session(clone: Checkout, tmp_path: Path) -> None:
    """A folder that nobody asked for may be broken."""
    checkout = make_checkout(tmp_path / "clone")
    checkout.write("suite/vendors/acme/vendor.toml", "title = \n")
    assert checkout.pytest("suite", "--vendor", "cpu", "--collect-only", "-q").code == 0
    done = checkout.pytest("suite", "--vendor", "acme", "--collect-only", "-q")
    assert done.code == 4
    assert "suite/vendors/acme/vendor.toml:1" in done.err


def test_untrusted_vendor_code_does_not_run_on_the_host(tmp_path: Path) -> None:
    """A site that distrusts vendors refuses a plan with vendor code, naming file and remedy."""
    checkout = make_checkout(tmp_path / "clone")
    checkout.write("suite/vendors/cpu/toy/pytorch/csrc/kernel.cpp", "int x;\n")
    checkout.write("gate.toml", "[policy]\ntrust_vendor_code = false\n")
    done = checkout.pytest("suite", "--vendor", "cpu", "--site", "gate.toml")
    assert done.code == 4, done.out
    assert "trust_vendor_code = false" in done.err
    assert "(csrc); run it in a container" in done.err
