"""`python -m tools check`: one planted fault at a time, and silence on everything that is shipped."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lint_toys import ROOT, edit, findings, gone, make_checkout, put
from tools.__main__ import main
from tools.check import folders_of
from tools.check_threshold import cited

V = "suite/vendors/acme"
F = f"{V}/toy/pytorch"
C = "suite/cases/toy/pytorch"
ONE, EIGHT = f"{F}/config_A1x1x1.toml", f"{F}/config_A1x1x8.toml"
Change = Callable[[Path], None]


def link(path: str, target: str) -> Change:
    return lambda root: (root / path).symlink_to(target)


def mode(path: str, bits: int) -> Change:
    return lambda root: (root / path).chmod(bits)


def binary(path: str) -> Change:
    def change(root: Path) -> None:
        (root / path).write_bytes(b"\x7fELF\0\1")

    return change


def pipe(path: str) -> Change:
    return lambda root: os.mkfifo(root / path)


def both_gone(root: Path) -> None:
    gone(ONE)(root)
    gone(EIGHT)(root)


VENDOR_FAULTS: dict[str, tuple[Change, str, str]] = {
    # fault: (how it is made, the file that the message begins with, words that it must hold: what and the remedy)
    "a lowered target": (put(ONE, "[target]\nvalue = 0.1\nsource = 'mine'\n"), ONE, "sets target.*remove it"),
    "a lowered target of a preset": (
        put(ONE, "[preset.mini.target]\nvalue = 0.1\nsource = 'm'\n"),
        ONE,
        "sets preset.mini.target.*remove it",
    ),
    "a limit": (put(ONE, "[limit]\ntime_to_train_s = 9\nsource = 'm'\n"), ONE, "sets limit.*remove it"),
    "a typo in a key": (put(ONE, "train_batch_sise = 4\n"), ONE, "unknown key.*did you mean 'train_batch_size'"),
    "a key that is not mutable": (put(ONE, "depth = 1\n"), ONE, "'depth' is not mutable.*mutable: lr"),
    "a value of another type": (put(ONE, "lr = 'fast'\n"), ONE, 'lr = "fast".*is a float, as in 0.1'),
    "not TOML": (put(ONE, "lr = \n"), ONE, "not valid TOML"),
    "a preset that the case lacks": (
        put(ONE, "[preset.maxi]\nlr = 0.3\n"),
        ONE,
        "no preset of toy/pytorch.*have: full",
    ),
    "a missing source": (
        put(EIGHT, "[threshold.throughput]\nvalue = 48\n"),
        EIGHT,
        "source is missing; .*has every key",
    ),
    "a source that cites nothing": (
        put(EIGHT, "[threshold.throughput]\nvalue = 48\nsource = 'TODO: measure it some day'\n"),
        EIGHT,
        "cites nothing; say who measured it",
    ),
    "a source without a figure": (
        put(EIGHT, "[threshold.throughput]\nvalue = 48\nsource = 'measured by our own laboratory'\n"),
        EIGHT,
        "no figure in it; say who measured it",
    ),
    "a threshold far below its run": (
        edit(EIGHT, "value = 48.0", "value = 12.0"),
        EIGHT,
        "12 is far below the 50 that it cites; hold the chip",
    ),
    "a time limit far above its run": (
        put(EIGHT, "[threshold.time_to_train]\nvalue = 900\nsource = 'acme, 2026-01-31, ten runs: 300 s'\n"),
        EIGHT,
        "900 is far above the 300 that it cites; hold the chip",
    ),
    "a speedup far below its runs": (
        put(EIGHT, "[threshold.speedup]\nvalue = 2\nsource = 'acme 2026: 400 (1x8) / 50 (1x1) = 8.0'\n"),
        EIGHT,
        "2 is far below the 8 that it cites",
    ),
    "a tolerance without end": (edit(EIGHT, "0.05", "0.5"), EIGHT, "tolerance = 0.5; at most 0.15"),
    "an impossible threshold name": (put(EIGHT, "[threshold.speed]\nvalue = 2\nsource = 's'\n"), EIGHT, "threshold"),
    "a file for a machine that is unknown": (
        put(f"{F}/config_A2x1x1.toml", ""),
        f"{F}/config_A2x1x1.toml",
        "no machines/A2.toml.*write it, or rename",
    ),
    "a foreign vendor's file": (
        put(f"{F}/config_B7x1x1.toml", ""),
        f"{F}/config_B7x1x1.toml",
        "B7 is a machine of other; move it",
    ),
    "a configuration that nobody reads": (
        put(f"{F}/config_A1.toml", ""),
        f"{F}/config_A1.toml",
        "no configuration's name",
    ),
    "1x1 is missing": (gone(ONE), F, "no configuration of 1x1.*write config_<machine>x1x1.toml"),
    "a listed topology is missing": (gone(EIGHT), F, "no configuration of 1x8.*or take it out of vendor.toml"),
    "vendor.toml lists no 1x1": (edit(f"{V}/vendor.toml", '"1x1", ', ""), f"{V}/vendor.toml", 'lacks "1x1"; add it'),
    "a folder of no case": (
        put(f"{V}/toi/pytorch/config_default.toml", ""),
        f"{V}/toi/pytorch",
        "no case toi/pytorch.*did you mean 'toy/pytorch'.*rename",
    ),
    "a case without configuration": (
        both_gone,
        F,
        "nothing is planned; write config_default.toml",
    ),
    "vendor.toml is missing": (gone(f"{V}/vendor.toml"), f"{V}/vendor.toml", "missing; write it"),
    "a typo in vendor.toml": (
        edit(f"{V}/vendor.toml", "backend", "back_end"),
        f"{V}/vendor.toml",
        "unknown key 'device.back_end'.*did you mean 'backend'",
    ),
    "a wrong type in vendor.toml": (
        edit(f"{V}/vendor.toml", "verified = false", "verified = 'yes'"),
        f"{V}/vendor.toml",
        "verified",
    ),
    "a privileged container": (
        edit(f"{V}/vendor.toml", "--shm-size=1g", "--privileged"),
        f"{V}/vendor.toml",
        "--privileged; name the devices",
    ),
    "the host's network": (
        edit(f"{V}/vendor.toml", "--shm-size=1g", "--network=host"),
        f"{V}/vendor.toml",
        "--network, which reaches into the host.*take it out",
    ),
    "the host's memory": (
        edit(f"{V}/vendor.toml", '/dev/acme0"', '/dev/mem"'),
        f"{V}/vendor.toml",
        "'/dev/mem', which is the host's; name the chip's own",
    ),
    "a shell as monitor": (
        edit(f"{V}/vendor.toml", '["acme-smi", "--list"]', '["bash", "-c", "id"]'),
        f"{V}/vendor.toml",
        "probe.command starts 'bash'.*name the vendor's own tool",
    ),
    "a pipe in a command": (
        edit(f"{V}/vendor.toml", '"--list"]', '"--list; id"]'),
        f"{V}/vendor.toml",
        "only a shell would understand; write plain words",
    ),
    "detected everywhere": (
        edit(f"{V}/vendor.toml", "/dev/acme[0-9]*", "/dev/*"),
        f"{V}/vendor.toml",
        "fits files of any host; name the chip's own",
    ),
    "another vendor's PCI id": (
        edit(f"{V}/vendor.toml", "0xacac", "0x0ddd"),
        f"{V}/vendor.toml",
        "is other's; name what only this chip has",
    ),
    "a fault in every line": (
        edit(f"{V}/vendor.toml", "ACME_OUT_OF_MEMORY", "loss|memory"),
        f"{V}/vendor.toml",
        "a healthy line; sharpen the pattern",
    ),
    "an image without digest": (
        edit(f"{V}/vendor.toml", "[container]", "[container]\nimages = {pytorch = 'registry.example/acme:1'}"),
        f"{V}/vendor.toml",
        "has no digest; write NAME@sha256",
    ),
    "a peak with sparsity": (
        edit(f"{V}/machines/A1.toml", "bf16 = 200", "bf16 = 400"),
        f"{V}/machines/A1.toml",
        "bf16 = 400 beside fp16 = 200 is not possible; write the dense peak",
    ),
    "a peak of another type": (
        edit(f"{V}/machines/A1.toml", "fp8 = 400", "fp8 = 800"),
        f"{V}/machines/A1.toml",
        "fp8 = 800 beside fp16 = 200",
    ),
    "a peak in another unit": (
        edit(f"{V}/machines/A1.toml", "fp32 = 20", "fp32 = 20e12"),
        f"{V}/machines/A1.toml",
        "no peak of one device; write TFLOPS",
    ),
    "peaks without a source": (
        edit(f"{V}/machines/A1.toml", "peak_source", "# peak_source"),
        f"{V}/machines/A1.toml",
        "peak_source is missing: say where",
    ),
    "peaks of unknown confidence": (
        edit(f"{V}/machines/A1.toml", "confidence high", "fast"),
        f"{V}/machines/A1.toml",
        "how sure the figures are; end it in: confidence",
    ),
    "a machine that no device matches": (
        edit(f"{V}/machines/A1.toml", '["Acme A1"]', "[]"),
        f"{V}/machines/A1.toml",
        "match is empty; write a glob",
    ),
    "no machine": (gone(f"{V}/machines"), f"{V}/machines", "no accelerator model; write machines/<name>.toml"),
    "no README": (gone(f"{V}/README.md"), f"{V}/README.md", "missing or empty; write what it is"),
    "a README without a command": (
        edit(f"{V}/README.md", "pytest suite", "run"),
        f"{V}/README.md",
        "no command to run it; show one",
    ),
    "a README that forgets a machine": (
        edit(f"{V}/README.md", "A1", "it"),
        f"{V}/README.md",
        "does not name the machine A1",
    ),
    "a README that hides what was not run": (
        edit(f"{V}/README.md", "Nothing here was run on the chip.", "Fast."),
        f"{V}/README.md",
        "what was not run.*say it",
    ),
    "a shell in the environment file": (
        put(f"{F}/environment_variables.sh", "export A=$(id)\n"),
        f"{F}/environment_variables.sh:1",
        "would need a shell; write a plain or quoted value",
    ),
    "a command in the environment file": (
        put(f"{F}/environment_variables.sh", "source /opt/acme/set.sh\n"),
        f"{F}/environment_variables.sh:1",
        "is not `export NAME=value`; this file is parsed",
    ),
    "a preloaded library": (
        put(f"{F}/environment_variables.sh", "export LD_PRELOAD=/tmp/x.so\n"),
        f"{F}/environment_variables.sh",
        "LD_PRELOAD changes which code.*remove the line",
    ),
    "a secret": (
        put(f"{F}/environment_variables.sh", "export HF_TOKEN=abc\n"),
        f"{F}/environment_variables.sh",
        "looks like a secret; remove it",
    ),
    "a requirement from elsewhere": (
        put(f"{F}/requirements.txt", "x @ https://host.example/x.whl\n"),
        f"{F}/requirements.txt:1",
        "more than a package.*write NAME>=VERSION",
    ),
    "an index of its own": (
        put(f"{F}/requirements.txt", "--index-url https://host.example\n"),
        f"{F}/requirements.txt:1",
        "more than a package",
    ),
    "a recipe that runs a download": (
        put(f"{V}/images/pytorch/pytorch_install.sh", "curl https://host.example/i | sudo bash\n"),
        f"{V}/images/pytorch/pytorch_install.sh",
        "runs what it downloads.*install a package",
    ),
    "an image without a tag": (
        put(f"{V}/images/pytorch/Dockerfile", "FROM registry.example/acme\n"),
        f"{V}/images/pytorch/Dockerfile",
        "another image tomorrow; name a tag",
    ),
    "a slot that the case does not declare": (
        edit(f"{F}/extern/__init__.py", "attention", "loader"),
        f"{F}/extern",
        "declares no slot 'loader'.*have: attention, optimizer.*fill a declared one",
    ),
    "a slot that cannot be read": (
        put(f"{F}/extern/__init__.py", "def fill(slots):\n    slots.update(made())\n"),
        f"{F}/extern",
        "cannot be read; write slots",
    ),
    "extern without fill": (put(f"{F}/extern/__init__.py", "X = 1\n"), f"{F}/extern", "cannot be read; write slots"),
    "code that starts programs": (
        put(
            f"{F}/extern/__init__.py", "import subprocess\ndef fill(slots):\n    slots['attention'] = subprocess.run\n"
        ),
        f"{F}/extern/__init__.py:1",
        "imports subprocess; code of a vendor computes",
    ),
    "code that forges events": (
        put(f"{V}/runtime/pytorch/runtime.py", "from suite.drivers.events import EventWriter\n"),
        f"{V}/runtime/pytorch/runtime.py:1",
        "imports suite.drivers.events.*take it out",
    ),
    "code that hides code": (
        put(f"{V}/runtime/pytorch/runtime.py", "exec('1')\n"),
        f"{V}/runtime/pytorch/runtime.py:1",
        r"calls exec\(\); write out",
    ),
    "code that is none": (
        put(f"{V}/runtime/pytorch/runtime.py", "def (\n"),
        f"{V}/runtime/pytorch/runtime.py:1",
        "not valid Python; mend it",
    ),
    "a script": (
        put(f"{F}/setup.sh", "id\n"),
        f"{F}/setup.sh",
        "no place.*variables belong into environment_variables.sh",
    ),
    "a module out of place": (
        put(f"{V}/conftest.py", "X = 1\n"),
        f"{V}/conftest.py",
        "no place.*extern/, csrc/ and runtime/",
    ),
    "a hidden file": (put(f"{V}/.netrc", "x\n"), f"{V}/.netrc", "no place in a vendor's folder"),
    "a link out": (
        link(f"{F}/requirements.md", "/etc/passwd"),
        f"{F}/requirements.md",
        "link to '/etc/passwd'; put the file",
    ),
    "a link as a folder": (link(f"{V}/images/jax", "/etc"), f"{V}/images/jax", "link to '/etc'; put the file"),
    "a binary": (binary(f"{F}/extern/kernel.py"), f"{F}/extern/kernel.py", "is a binary file; give the source"),
    "a setuid bit": (mode(ONE, 0o4644), ONE, "setuid or setgid; remove the bits"),
    "an executable file": (mode(ONE, 0o755), ONE, "can be executed.*chmod -x"),
    "a pipe": (pipe(f"{F}/requirements.md"), f"{F}/requirements.md", "neither a file nor a folder; remove it"),
    "a large file": (put(f"{F}/csrc/table.h", "0," * 600_000), f"{F}/csrc/table.h", "more than 1,048,576 bytes"),
    "a copyright without licence": (
        put(f"{F}/csrc/k.cc", "// Copyright 2024 Somebody\n"),
        f"{F}/csrc/k.cc",
        "a copyright and no licence; add an SPDX",
    ),
    "code that may not be given on": (
        put(f"{F}/csrc/k.cc", "// (c) All rights reserved.\n"),
        f"{F}/csrc/k.cc",
        "does not allow it here; only code",
    ),
    "one person's folder": (
        put(f"{F}/environment_variables.sh", "export ACME=/home/eve/acme\n"),
        f"{F}/environment_variables.sh",
        "one person's machine, '/home/eve/'; write a path",
    ),
}

CASE_FAULTS: dict[str, tuple[Change, str, str]] = {
    "a typo": (edit(f"{C}/case.toml", "title", "titel"), f"{C}/case.toml", "unknown key 'titel'.*did you mean 'title'"),
    "mutable names nothing": (edit(f"{C}/case.toml", '"lr", ', '"lrr", '), f"{C}/case.toml", "mutable names 'lrr'"),
    "when it is judged is mutable": (
        edit(f"{C}/case.toml", '"lr", ', '"lr", "eval_every_samples", '),
        f"{C}/case.toml",
        "mutable lists eval_every_samples; take it out",
    ),
    "no target": (edit(f"{C}/case.toml", "[target]", "[target.x]"), f"{C}/case.toml", "target"),
    "what an evaluation asks, where the preset's own target hides it": (
        edit(f"{C}/case.toml", "[target]\n", "[target]\ncounted = 300\nasked = '0123456789abcdef'\n"),
        f"{C}/case.toml",
        r"\[preset\.mini\.target\] takes the place of \[target\] whole, and has no counted and no asked; say there",
    ),
    "a source that cites nothing": (
        edit(f"{C}/case.toml", "the paper, table 2: 0.8", "tbd"),
        f"{C}/case.toml",
        r"\[target\] source = 'tbd' cites nothing; say who",
    ),
    "no mini": (edit(f"{C}/case.toml", "preset.mini.", "preset.small."), f"{C}/case.toml", "no preset mini; add one"),
    "no README": (gone(f"{C}/README.md"), f"{C}/README.md", "missing or empty; tell where the data"),
    "no word on the target": (
        edit(f"{C}/README.md", "## Target", "## Aim"),
        f"{C}/README.md",
        "says nothing of: target; tell why",
    ),
    "data of no licence": (edit(f"{C}/data.toml", "CC0", "unknown"), f"{C}/data.toml", "licence = 'unknown'; name it"),
    "data without a licence": (edit(f"{C}/data.toml", "licence", "# licence"), f"{C}/data.toml", "licence is missing"),
    "a file that is absent": (
        gone(f"{C}/data/words.txt"),
        f"{C}/data/words.txt",
        "missing, though data.toml lists it; add",
    ),
    "a file of another size": (
        put(f"{C}/data/words.txt", "w"),
        f"{C}/data/words.txt",
        "1 bytes, data.toml says 6; run",
    ),
    "a file of other content": (
        edit(f"{C}/data.toml", "bytes = 6", f'sha256 = "{"0" * 64}"'),
        f"{C}/data/words.txt",
        "not the content whose sha256.*run python -m tools data verify",
    ),
    "no test": (gone(f"{C}/test_toy.py"), f"{C}/test_toy.py", "missing; write the three lines"),
    "a test that judges nothing": (
        edit(f"{C}/test_toy.py", "judge(train(plan))", "train(plan)"),
        f"{C}/test_toy.py",
        "does not judge; write judge|does not judge what it trains; write",
    ),
    "no training": (gone(f"{C}/train.py"), f"{C}/train.py", "missing; write the task"),
    "an import of the harness": (
        edit(f"{C}/train.py", "suite.drivers.pytorch", "suite.plan"),
        f"{C}/train.py:1",
        "imports suite.plan; the training side",
    ),
    "a device's name": (
        edit(f"{C}/train.py", "None}", "'cuda'}"),
        f"{C}/train.py:3",
        "names 'cuda'; speak of self.device",
    ),
    "a slot that train.py does not know": (
        edit(f"{C}/train.py", "attention", "loss"),
        f"{C}/train.py",
        "knows no slot 'attention'",
    ),
    "a package": (put(f"{C}/__init__.py", ""), f"{C}/__init__.py", "makes the folder a package; remove it"),
    "no vendor": (gone(F), f"{C}/case.toml", "no vendor trains it; write"),
    "a link out": (link(f"{C}/notes.md", "/etc/passwd"), f"{C}/notes.md", "link to '/etc/passwd'; put the file"),
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout without a fault."""
    return make_checkout(tmp_path)


def one_line(root: Path, folder: str, file: str, words: str) -> None:
    """One of the messages names the file first, then what is wrong and the remedy."""
    told = [str(finding) for finding in findings(root, folder)]
    fitting = [line for line in told if line.startswith(f"{file}:") and re.search(words, line)]
    assert fitting, "\n".join(told) or "silent"
    assert all("; " in line and "\n" not in line for line in told)


@pytest.mark.parametrize("folder", [V, C])
def test_a_folder_without_a_fault_is_met_with_silence(checkout: Path, folder: str) -> None:
    assert findings(checkout, folder) == []


@pytest.mark.parametrize("fault", VENDOR_FAULTS)
def test_a_fault_of_a_vendor_is_told_with_file_and_remedy(checkout: Path, fault: str) -> None:
    change, file, words = VENDOR_FAULTS[fault]
    change(checkout)
    one_line(checkout, V, file, words)


@pytest.mark.parametrize("fault", CASE_FAULTS)
def test_a_fault_of_a_case_is_told_with_file_and_remedy(checkout: Path, fault: str) -> None:
    change, file, words = CASE_FAULTS[fault]
    change(checkout)
    one_line(checkout, C, file, words)


def test_there_are_more_than_25_faults_of_a_vendor() -> None:
    assert len(VENDOR_FAULTS) >= 25


SHIPPED = sorted(folder for name in ("cases", "vendors") for folder in folders_of(ROOT / "suite" / name))


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda path: path.relative_to(ROOT / "suite").as_posix())
def test_nothing_is_found_in_what_is_shipped(folder: Path) -> None:
    assert [str(finding) for finding in findings(ROOT, folder.relative_to(ROOT).as_posix())] == []


def test_the_command_says_how_many_and_leaves_with_1(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"], checkout) == 1  # the other vendor has no README
    put(ONE, "lrr = 1.0\n")(checkout)
    assert main(["check", str(checkout / F)], checkout) == 1
    out = capsys.readouterr().out
    assert f"{ONE}: unknown key 'lrr' in toy/pytorch (did you mean 'lr'?)" in out
    assert f"{V}: 1 finding" in out


def test_the_command_leaves_with_0_where_nothing_is_found(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(checkout / V), str(checkout / C)], checkout) == 0
    assert capsys.readouterr().out == f"{C}, {V}: no findings\n"


@pytest.mark.parametrize("path", ["nowhere", "suite/drivers"])
def test_a_path_that_means_nothing_is_a_sentence(checkout: Path, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(checkout / path)], checkout) == 4
    told = capsys.readouterr().err
    assert told.startswith(f"trainmark: {checkout / path}: ")
    assert told.count("\n") == 1
    assert "name the folder of a case or a vendor" in told


def test_a_folder_outside_the_checkout_is_checked_against_its_cases(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pull request's folder, laid anywhere: `--vendor-path` takes the same one."""
    place = tmp_path_factory.mktemp("pr") / "acme"
    (checkout / V).rename(place)
    assert main(["check", str(place)], checkout) == 0
    (place / "toy/pytorch/config_A1x1x1.toml").write_text("depth = 1\n")
    assert main(["check", str(place)], checkout) == 1
    assert "'depth' is not mutable" in capsys.readouterr().out


BASELINE = """
id = "toy-pytorch-acme-A1-1x8"
model = "toy"
framework = "pytorch"
vendor = "acme"
machine = "A1"
topology = "1x8"
preset = "full"
mode = "converge"
division = "closed"
evidence = "driver"
measurement_version = "case:1 driver/pytorch:1"
data_digest = ""
case_digest = ""
plan_digest = ""
fingerprint = "f"
state = "approved"
proposed = "2026-01-31"
approved = "2026-02-01"
approved_by = "a reviewer"
source = "20260131T101500Z-1a2b"
[metric.throughput_train]
value = 200.0
unit = "point/s"
values = [199.0, 200.0, 202.0]
"""


@pytest.mark.parametrize(("value", "found"), [(100.0, True), (190.0, False)])
def test_a_threshold_is_held_to_the_recorded_run_that_it_names(checkout: Path, value: float, found: bool) -> None:
    put("baselines/acme/toy-pytorch-acme-A1-1x8-f.toml", BASELINE)(checkout)
    source = "acme's lab, session 20260131T101500Z-1a2b"
    put(EIGHT, f'[threshold.throughput]\nvalue = {value}\nsource = "{source}"\n')(checkout)
    told = [str(finding) for finding in findings(checkout, V)]
    far = f"{EIGHT}: [threshold.throughput] value = {value:g} is far below the 200 that it cites; "
    assert bool(told) is found
    assert not told or told[0].startswith(far)


def test_a_name_speaks_to_no_terminal(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(f"{V}/\x1b[2J\n::error::x\udcff", "")(checkout)
    assert main(["check", str(checkout / V)], checkout) == 1
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 2
    assert f"{V}/?[2J?::error::x?: a file that has no place" in out


def test_behind_a_link_nothing_is_read(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("elsewhere") / "secret.toml"
    place.write_text("a secret\n")
    (checkout / ONE).unlink()
    link(ONE, str(place))(checkout)
    assert [finding.problem for finding in findings(checkout, V)] == [f"a symbolic link to {str(place)!r}"]


def test_nothing_of_the_folder_is_executed(checkout: Path) -> None:
    mark = checkout / "ran"
    code = f"open({str(mark)!r}, 'w')\ndef fill(slots):\n    slots['attention'] = 1\n"
    for path in (f"{F}/extern/__init__.py", f"{V}/runtime/pytorch/runtime.py", f"{C}/train.py", f"{C}/test_toy.py"):
        put(path, code)(checkout)
    put(f"{F}/environment_variables.sh", f"export A=$(touch {mark})\n")(checkout)
    findings(checkout, V)
    findings(checkout, C)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("name", "source", "figures"),
    [
        ("throughput", "FlagPerf 1x8, batch 8: p_train 42.4 samples/s (driver 470.129.06)", [42.4]),
        ("throughput", "over InfiniBand 200 Gb/s: p_train 1,116 sequences/s", [1116]),
        ("time_to_train", "e2e_time 2763 s to accuracy 0.808, at 42.4 samples/s", [2763]),
        ("speedup", "42.4 (1x8) / 5.5 (1x1) = 7.71; else 43.5 / 5.5 = 7.91", [7.71, 7.91]),
        ("mfu", "ten runs: 38 %", [0.38]),
        ("memory", "peak 39.5 GiB of 40", [39.5]),
        ("throughput", "measured in the lab", []),
    ],
)
def test_the_figures_that_a_source_cites(name: str, source: str, figures: list[float]) -> None:
    assert cited(name, source) == pytest.approx(figures)
