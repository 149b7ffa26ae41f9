"""GPT-3 by NeMo's launcher: the overrides of the guide, what is refused, what a rank becomes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from fixtures.site import Site
from fixtures.topology import describe
from suite.catalog import Catalog, load_catalog
from suite.plan import Plan, Request
from suite.selection import plans
from suite.topology import Topology

ROOT = Path(__file__).resolve().parent.parent
CASE = ROOT / "suite" / "cases" / "gpt3" / "nemo"

GUIDE = {
    "stages": "[training]",
    "training": "gpt3/7b_improved",
    "cluster": "bcm",
    "cluster_type": "bcm",
    "cluster.account": "",
    "cluster.partition": "",
    "launcher_scripts_path": "/opt/NeMo-Megatron-Launcher/launcher_scripts",
    "container_mounts": "[/cm/shared]",
    "env_vars.TRANSFORMERS_OFFLINE": "0",
    "training.run.time_limit": "0-02:00:00",
    "training.trainer.max_steps": "2000",
    "training.trainer.max_time": "00:01:30:00",
    "training.trainer.val_check_interval": "240",
    "training.model.data.data_impl": "mock",
}
"""What the guide edits by hand, whatever the number of nodes."""

OURS = {
    "training.trainer.precision": "bf16",
    "training.model.micro_batch_size": "1",
    "training.model.global_batch_size": "512",
    "training.model.tensor_model_parallel_size": "4",
    "training.model.pipeline_model_parallel_size": "1",
}
"""What stands in 7b_improved.yaml already, said again so that a plan shows it and its digest covers it."""

PLAYED = """
import os, pathlib, sys
words = dict(word.split("=", 1) for word in sys.argv[1:])
assert os.environ["NEMO_LAUNCHER_DEBUG"] == "1"
folder = pathlib.Path(words["training.run.results_dir"])
(folder / "conf.yaml").write_text("\\n".join(sys.argv[1:]))
(folder / "nemo-megatron-gpt_submission.sh").write_text(
    "#!/bin/bash\\nsrun bash -c \\"\\n  python3 -u /x/numa.py;\\n  CUDA=1 python3 -u TRAIN \\\\\\n"
    "  --config-path=FOLDER \\\\\\n  --config-name=conf.yaml \\"\\n".replace("FOLDER", str(folder))
    .replace("TRAIN", os.environ["PLAYED_TRAINING"])
)
"""
"""A launcher: it writes what it was told, and a script of the shape that NeMo's has."""


@cache
def launch() -> ModuleType:
    """The case's launch.py, which is in no package."""
    spec = importlib.util.spec_from_file_location("nemo_launch", CASE / "launch.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    """The shipped cases and vendors."""
    return load_catalog(ROOT / "suite")


def planned(catalog: Catalog, *sets: str, machine: str = "A100") -> tuple[Plan, ...]:
    """The plans of a machine: 1x8 and 2x8."""
    request = Request(vendor="nvidia", machine=machine, models=("gpt3",), frameworks=("nemo",), sets=sets)
    return tuple(plans(catalog, request))


def overrides(plan: Plan) -> Mapping[str, str]:
    """The launcher's overrides of a plan, by key."""
    assert plan.script is not None
    words = plan.script.arguments
    return launch().parsed([word.replace("{run_dir}", "/run") for word in words])[3]  # type: ignore[no-any-return]


@pytest.mark.parametrize("machine", ["A100", "H100", "H200"])
def test_the_guide_s_edits_and_nothing_else(catalog: Catalog, machine: str) -> None:
    found = planned(catalog, machine=machine)
    assert [str(plan.topology) for plan in found] == ["1x8", "2x8"]
    for plan, nodes in zip(found, "12"):
        shape = {"training.trainer.num_nodes": nodes, "training.trainer.devices": "8"}
        assert overrides(plan) == {**GUIDE, **OURS, **shape}
        assert plan.evidence == "log"
        assert plan.deadlines.total_s == 7200


def test_the_launcher_s_command_is_the_guide_s_with_its_edits_as_words(catalog: Catalog) -> None:
    found = overrides(planned(catalog, "account=lab", "partition=polar")[1])
    argv = launch().compose_argv(Path("/opt/launcher_scripts"), found, Path("/run/nemo/rank0"))
    assert argv[:5] == [
        *(sys.executable, "/opt/launcher_scripts/main.py"),
        *("stages=[training]", "training=gpt3/7b_improved", "cluster=bcm"),
    ]
    assert {"cluster.account=lab", "cluster.partition=polar", "training.trainer.num_nodes=2"} < set(argv)
    assert argv[-1] == "training.run.results_dir=/run/nemo/rank0"


def test_what_has_no_value_is_left_to_the_launcher(catalog: Catalog) -> None:
    argv = launch().compose_argv(Path("/opt"), overrides(planned(catalog)[0]), Path("/run"))
    assert not [word for word in argv if word.startswith(("cluster.account", "cluster.partition"))]


def test_the_ranks_are_torchrun_s_on_every_node(catalog: Catalog) -> None:
    plan = planned(catalog)[1]
    lines = describe(plan, Site())
    assert plan.topology == Topology(nnodes=2, nproc=8)
    assert [f"--node-rank={node}" in line for node, line in enumerate(lines)] == [True, True]
    assert all("--nproc-per-node=8" in line and "launch.py --launcher" in line for line in lines)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"training.trainer.max_time": "00:01:45:00"}, "less than 1800 s of training.run.time_limit=0-02:00:00"),
        ({"training.trainer.max_time": "90 minutes"}, "is no time"),
        ({"training.trainer.val_check_interval": "2001"}, "more than training.trainer.max_steps=2000"),
    ],
)
def test_what_cannot_go_together_is_refused(changed: dict[str, str], says: str) -> None:
    with pytest.raises(launch().Wrong, match=says):
        launch().check({**GUIDE, **changed}, 1800)


def test_the_guide_s_own_values_can() -> None:
    launch().check(GUIDE, 1800)
    launch().check({**GUIDE, "training.trainer.val_check_interval": "2000"}, 1800)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0-02:00:00", 7200), ("00:01:30:00", 5400), ("1-00:00:00", 86_400), ("05:23:30:00", 516_600), ("01:30:00", 5400)],
)
def test_times_of_slurm_and_of_lightning(text: str, seconds: int) -> None:
    assert launch().seconds_of(text, "key") == seconds


def run_played(tmp_path: Path, *more: str, main: str = PLAYED) -> subprocess.CompletedProcess[str]:
    """launch.py as rank 3 with a launcher and a training that are played."""
    launcher = tmp_path / "launcher_scripts"
    launcher.mkdir()
    (launcher / "main.py").write_text(main)
    training = tmp_path / "pretraining.py"
    training.write_text("import os, sys\nprint('TRAINS', *sys.argv[1:], os.environ.get('SLURM_NTASKS'))\n")
    words = [f"--set={key}={value}" for key, value in GUIDE.items()]
    argv = [sys.executable, CASE / "launch.py", "--launcher", launcher, "--results", tmp_path / "out", *words, *more]
    env = {**os.environ, "RANK": "3", "SLURM_NTASKS": "16", "PLAYED_TRAINING": str(training)}
    return subprocess.run(
        [*map(str, argv), "--margin_s", "1800"], env=env, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_rank_becomes_what_the_launcher_would_have_submitted(tmp_path: Path) -> None:
    done = run_played(tmp_path)
    folder = tmp_path / "out" / "rank3"
    assert done.returncode == 0, done.stderr
    said = f"TRAINS --config-path={folder} --config-name=conf.yaml exp_manager.explicit_log_dir={tmp_path}/out None"
    assert done.stdout.splitlines()[-1] == said
    assert "training.model.data.data_impl=mock" in (folder / "conf.yaml").read_text()


@pytest.mark.parametrize(
    ("main", "says"),
    [
        ("raise SystemExit(3)", "left with status 3"),
        ("", "0 submission scripts"),
        (PLAYED.replace("python3 -u TRAIN", "echo TRAIN"), "starts no training"),
    ],
)
def test_a_launcher_that_fails_is_told(tmp_path: Path, main: str, says: str) -> None:
    done = run_played(tmp_path, main=main)
    assert done.returncode == 4
    assert says in done.stderr
    assert "Traceback" not in done.stderr or main.startswith("raise")


def test_a_key_said_twice_is_refused(tmp_path: Path) -> None:
    done = run_played(tmp_path, "--set=stages=[conversion]")
    assert (done.returncode, "say each key once" in done.stderr) == (4, True)


def test_a_wrong_word_is_one_sentence(tmp_path: Path) -> None:
    done = run_played(tmp_path, "--no-such-word")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == "launch.py: unrecognized arguments: --no-such-word; see `launch.py --help`\n"
