"""`python -m tools convert`, as its user sees it."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools import toml_text
from tools.__main__ import main

TEST_CONF = '''"""Test configs."""
# -*- coding: utf-8 -*-
VENDOR = "nvidia"
ACCE_CONTAINER_OPT = " --gpus all" + \\
    " -v '/my data:/data'"
ACCE_VISIBLE_DEVICE_ENV_NAME = "CUDA_VISIBLE_DEVICES"
PIP_SOURCE = "https://index.example/simple"
FLAGPERF_PATH = "/opt/flagperf/training"
FLAGPERF_LOG_PATH = FLAGPERF_PATH + "/result/"
FLAGPERF_LOG_LEVEL = 'debug'
SHM_SIZE = "32G"
CLEAR_CACHES = True
"""
A text that describes the format.
"""
CASES = {
    # "cpm:pytorch_1.8:A100:1:8:1": "/data/cpm/train/",
    "glm:pytorch_1.8:A100:1:8:1": "/data/glm/train/",
    "glm:pytorch:A100:2:8:3": f"{FLAGPERF_PATH}/glm",
    "bert:pytorch_1.8:A100:1:8:1": "/data/bert/train/",
}
'''

CLUSTER_CONF = '''"""Cluster configs."""
HOSTS = ["node1", "node2"]
HOSTS_PORTS = ["2222"]
MASTER_PORT = "29501"
SSH_PORT = "2222"
'''

CASE = """
title = "GLM"
measurement_version = 1
mutable = ["train_batch_size", "eval_batch_size", "precision", "lr", "warmup_ratio", "schedule_steps", "max_samples"]
[quality]
metric = "accuracy"
better = "higher"
[params]
train_batch_size = 8
eval_batch_size = 8
precision = "fp32"
lr = 1e-5
warmup_ratio = 0.1
schedule_steps = 4338
max_samples = 100
hidden_size = 1024
compile = false
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with one case and one vendor."""
    case = tmp_path / "checkout/suite/cases/glm/pytorch"
    vendor = tmp_path / "checkout/suite/vendors/nvidia"
    (vendor / "glm/pytorch").mkdir(parents=True)
    case.mkdir(parents=True)
    (case / "case.toml").write_text(CASE)
    (vendor / "vendor.toml").write_text("")
    (vendor / "glm/pytorch/config_A100x1x8.toml").write_text("")
    return tmp_path / "checkout"


def flagperf(folder: Path, test: str = TEST_CONF, cluster: str | None = CLUSTER_CONF) -> Path:
    """A checkout of FlagPerf with these two files."""
    config = folder / "flagperf/training/run_benchmarks/config"
    config.mkdir(parents=True)
    (config / "test_conf.py").write_text(test)
    if cluster is not None:
        (config / "cluster_conf.py").write_text(cluster)
    return folder / "flagperf"


def convert(root: Path, folder: Path, out: Path, *more: str) -> int:
    """Run the command; its exit status."""
    return main(["convert", "flagperf", str(folder), "--out", str(out), *more], root)


def test_both_files_become_a_table_and_a_site(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "my site"
    assert convert(root, flagperf(tmp_path), out) == 0
    told = capsys.readouterr()
    assert tomllib.loads((out / "cases.toml").read_text()) == {"glm:pytorch:A100:1:8:1": "/data/glm/train/"}
    assert tomllib.loads((out / "site.toml").read_text()) == {
        "hosts": {"names": ["node1", "node2"], "port": 2222, "master_port": 29501},
        "launch": {"launcher": "ssh"},
        "container": {"engine": "none", "options": ["--gpus", "all", "-v", "/my data:/data"], "shm_size": "32G"},
        "policy": {"package_index": "https://index.example/simple"},
        "log": {"level": "debug", "clear_caches": True},
    }
    command = shlex.split(told.out.splitlines()[-1].removeprefix("run: "))
    assert command[:4] == ["pytest", "suite", "--vendor", "nvidia"]
    assert command[4:] == ["--cases", str(out / "cases.toml"), "--site", str(out / "site.toml")]


def test_rows_without_a_plan_stay_as_comments_with_the_reason(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    convert(root, flagperf(tmp_path), tmp_path)
    text = (tmp_path / "cases.toml").read_text()
    assert '# "bert:pytorch:A100:1:8:1" = "/data/bert/train/"' in text
    assert "# the suite has no case bert/pytorch" in text
    assert '# "glm:pytorch:A100:2:8:3" = "/opt/flagperf/training/glm"' in text
    assert "# vendors/nvidia/glm/pytorch has neither config_A100x2x8.toml nor config_default.toml" in text
    notes = capsys.readouterr().err
    assert "version 1.8 of pytorch" in notes
    assert "FLAGPERF_LOG_PATH is not carried over" in notes
    assert "HOSTS_PORTS is not carried over" in notes


def test_a_single_host_runs_here(root: Path, tmp_path: Path) -> None:
    convert(root, flagperf(tmp_path, cluster='HOSTS = ["node1"]\nMASTER_PORT = 29501\n'), tmp_path)
    site = tomllib.loads((tmp_path / "site.toml").read_text())
    assert site["launch"] == {"launcher": "local"}
    assert site["hosts"] == {"names": ["node1"], "master_port": 29501}


def test_without_a_cluster_file_there_are_no_hosts(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert(root, flagperf(tmp_path, cluster=None), tmp_path) == 0
    assert "hosts" not in tomllib.loads((tmp_path / "site.toml").read_text())
    assert "cluster_conf.py: no such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("SSH_PORT = '70000'", "SSH_PORT '70000' left out: not a port"),
        ("MASTER_PORT = True", "MASTER_PORT True left out: not a port"),
        ("HOSTS = 'node1'", "HOSTS 'node1' left out: not a list of host names"),
        ("HOSTS = open('hosts').readlines()", "HOSTS: Call is not evaluated"),
    ],
)
def test_what_a_site_cannot_hold_is_named(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, note: str
) -> None:
    assert convert(root, flagperf(tmp_path, cluster=line), tmp_path) == 0
    assert note in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("SHM_SIZE = '32 GB'", "SHM_SIZE '32 GB' left out"),
        ("FLAGPERF_LOG_LEVEL = 'loud'", "FLAGPERF_LOG_LEVEL 'loud' left out"),
        ("PIP_SOURCE = 3", "PIP_SOURCE 3 left out: not a text"),
        ("ACCE_CONTAINER_OPT = '-v \"x'", "ACCE_CONTAINER_OPT '-v \"x' left out"),
        ("CASES = {'glm:pytorch:A100:1:8': 'd'}", "has not the six fields"),
        ("CASES = {'glm:pytorch:A100:one:8:1': 'd'}", "'onex8' is not <nodes>x<devices>"),
        ("CASES = {'glm:pytorch:A100:1:8:0': 'd'}", "repeat '0' is not a whole number"),
        ("CASES = {'glm:pytorch:A100:1:8:1': 3}", "the data folder 3 is not a text"),
        ("CASES = {}", "CASES has no active row"),
        ("CASES['x'] = 1", "CASES: Assign is not an assignment of a constant"),
    ],
)
def test_a_wrong_setting_is_named_and_the_rest_converted(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, note: str
) -> None:
    status = convert(root, flagperf(tmp_path, test=f"{TEST_CONF}\n{line}\n"), tmp_path)
    assert note in capsys.readouterr().err
    assert status == (1 if line.startswith("CASES") else 0)
    tomllib.loads((tmp_path / "site.toml").read_text())


def test_two_versions_of_one_row_are_one_row(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = 'CASES = {"glm:pytorch_1.8:A100:1:8:1": "/a", "glm:pytorch_1.13:A100:1:8:1": "/b"}'
    assert convert(root, flagperf(tmp_path, test=f"{TEST_CONF}\n{rows}\n"), tmp_path) == 0
    assert tomllib.loads((tmp_path / "cases.toml").read_text()) == {"glm:pytorch:A100:1:8:1": "/a"}
    assert "is the same row as glm:pytorch_1.8:A100:1:8:1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("test", "sentence"),
    [
        ("X = 1", "VENDOR is None"),
        ("VENDOR = ['a']", "VENDOR is ['a']"),
        ("VENDOR = 'a'\nCASES = [1]", "CASES is not a mapping"),
        ("VENDOR = (", "test_conf.py:1: not Python 3"),
    ],
)
def test_unusable_input_is_exit_4_and_one_sentence(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], test: str, sentence: str
) -> None:
    assert convert(root, flagperf(tmp_path, test=test), tmp_path / "out") == 4
    told = capsys.readouterr().err
    assert sentence in told
    assert told.startswith("trainmark: ") and told.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_without_the_files_is_exit_4(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert convert(root, tmp_path / "nowhere", tmp_path) == 4
    assert "nowhere: no test_conf.py there" in capsys.readouterr().err


def test_files_that_exist_are_kept_unless_forced(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "site.toml").write_text("mine")
    source = flagperf(tmp_path)
    assert convert(root, source, tmp_path) == 4
    assert "site.toml: exists already; say --force" in capsys.readouterr().err
    assert (tmp_path / "site.toml").read_text() == "mine"
    assert not (tmp_path / "cases.toml").exists()
    assert convert(root, source, tmp_path, "--force") == 0
    assert (tmp_path / "site.toml").read_text() != "mine"


def vendor_config(folder: Path, text: str, name: str = "config_A100x2x8.py") -> Path:
    """A vendor's configuration in FlagPerf's place."""
    path = folder / "training/nvidia/glm-pytorch/config" / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


CONFIG = """
fp16 = True
ddp_type = "apex"
train_batch_size = 16
eval_batch_size = 8
dist_backend = "nccl"
lr = 1e-5
warmup = 0
lr_decay_iters = 2169.0
training_event = None
max_samples_termination = 1388270 * 4
target_accuracy = 0.5
hidden_size = 2048
wamrup = 0.2
compile = "yes"
betas = [0.9, 0.98]
scaler = GradScaler()
"""


def test_a_vendor_configuration_keeps_only_what_it_may_change(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", "flagperf-config", str(vendor_config(tmp_path, CONFIG))], root) == 0
    told = capsys.readouterr()
    assert tomllib.loads(told.out) == {
        "precision": "fp16",
        "train_batch_size": 16,
        "warmup_ratio": 0.0,
        "schedule_steps": 2169,
        "max_samples": 5553080,
    }
    for note in (
        "ddp_type = 'apex' left out",
        "dist_backend = 'nccl' left out",
        "target_accuracy = 0.5 left out: a target belongs to the case",
        "hidden_size = 2048 left out: hidden_size of glm/pytorch is not mutable, it stays 1024",
        "wamrup = 0.2 left out: unknown to glm/pytorch",
        "compile = 'yes' left out: compile of glm/pytorch is a bool",
        "betas = [0.9, 0.98] left out: not a value",
        "scaler: Call is not evaluated",
        "equal to the case's own value: eval_batch_size, lr",
    ):
        assert note in told.err


def test_a_converted_configuration_is_written_under_its_name(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = vendor_config(tmp_path, "train_batch_size = 4\n")
    assert main(["convert", "flagperf-config", str(source), "--out", str(tmp_path)], root) == 0
    assert tomllib.loads((tmp_path / "config_A100x2x8.toml").read_text()) == {"train_batch_size": 4}
    assert "its place is suite/vendors/nvidia/glm/pytorch/" in capsys.readouterr().out


def test_a_case_that_is_not_here_is_translated_but_not_checked(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = vendor_config(tmp_path, "warmup = 0.1\n")
    assert main(["convert", "flagperf-config", str(source), "--model", "bert"], root) == 0
    told = capsys.readouterr()
    assert tomllib.loads(told.out) == {"warmup_ratio": 0.1}
    assert "the suite has no case bert/pytorch" in told.err


@pytest.mark.parametrize("name", ["config_common.py", "settings.py", "config_.py"])
def test_other_files_are_refused(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["convert", "flagperf-config", str(vendor_config(tmp_path, "a = 1\n", name))], root) == 4
    assert f"{name}: not named config_<machine>x<nnodes>x<nproc>.py" in capsys.readouterr().err


def test_a_path_that_names_no_case_asks_for_it(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config_A100x1x8.py"
    path.write_text("lr = 1e-5\n")
    assert main(["convert", "flagperf-config", str(path)], root) == 4
    assert "say --model and --framework" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [[], ["convert"], ["frobnicate"], ["convert", "flagperf"], ["data", "status"]])
def test_a_wrong_command_line_is_exit_4(root: Path, capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    assert main(argv, root) == 4
    told = capsys.readouterr().err
    assert told.startswith("trainmark: python -m tools") and told.count("\n") == 1


SCALARS = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)


@given(name=st.text(st.characters(exclude_categories=["Cs"])), value=SCALARS | st.lists(SCALARS, max_size=4))
def test_what_the_writer_writes_tomllib_reads(name: str, value: toml_text.TomlValue) -> None:
    assert tomllib.loads(toml_text.entry(name, value)) == {name: value}


@given(sentence=st.text())
def test_a_comment_stays_a_comment(sentence: str) -> None:
    text = toml_text.comment(sentence).encode("utf-8", "replace").decode()
    assert tomllib.loads(text + "\n") == {}
