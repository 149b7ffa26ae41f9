"""The topology in each launcher's own flags, held to the words that its documentation and the guide use."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from fixtures.accelerate import accelerate_argv, accelerate_environment
from fixtures.allocation import Place
from fixtures.deepspeed import deepspeed_argv
from fixtures.environment import rank_environment
from fixtures.rank_launch import NodeLaunch
from fixtures.site import Site
from fixtures.topology import describe, node_argv
from fixtures.torchrun import torchrun_argv
from suite.catalog import load_catalog
from suite.plan import DeviceSpec, Plan, Request
from suite.selection import plans
from suite.topology import Topology
from suite.vendor_spec import Launch
from tests.script_toy import script_plan

ROOT = Path(__file__).resolve().parent.parent
CATALOG = load_catalog(ROOT / "suite")
PROGRAM = ("/s/rank.py", "/s/with_log.py", "/case/train.py", "--d", "64")


def node(topology: str, rank: int = 0, **over: object) -> NodeLaunch:
    """One node of a run."""
    fields = {
        "python": "python3", "topology": Topology.parse(topology), "node": rank, "master_addr": "n0",
        "master_port": 29501, "log_dir": "/run/logs/torchrun", "program": PROGRAM, "precision": "bf16",
    }  # fmt: skip
    return NodeLaunch.model_validate(fields | over)


def flags(words: Sequence[str]) -> dict[str, str]:
    """Flag -> value; a bare flag has none."""
    found: dict[str, str] = {}
    for at, word in enumerate(words):
        if word.startswith("-"):
            follows = words[at + 1] if at + 1 < len(words) else "-"
            found[word] = "" if follows.startswith("-") else follows
    return found


def before(argv: Sequence[str], program: str) -> list[str]:
    """The launcher's own words."""
    return list(argv[: argv.index(program)])


@pytest.mark.parametrize(
    ("topology", "rank", "on_cpu", "kind"),
    [
        ("1x1", 0, False, None),
        ("1x8", 0, False, "--multi_gpu"),
        ("2x8", 1, False, "--multi_gpu"),
        ("1x1", 0, True, "--cpu"),
        ("1x2", 0, True, "--multi_gpu"),  # what starts several ranks; --cpu starts one, whatever it is told
    ],
)
def test_accelerate_says_the_topology(topology: str, rank: int, on_cpu: bool, kind: str | None) -> None:
    launch = node(topology, rank, on_cpu=on_cpu, program=("/s/rank.py",))
    said = flags(before(accelerate_argv(launch), "/s/rank.py")[3:])
    shape = launch.topology
    expected = {
        "--main_process_ip": "n0",
        "--main_process_port": "29501",
        "--machine_rank": str(rank),
        "--num_machines": str(shape.nnodes),
        "--num_processes": str(shape.world_size),
        "--same_network": "",
        "--mixed_precision": "bf16",
        "--dynamo_backend": "no",
        "--config_file": str(ROOT / "suite/drivers/scripts/accelerate.yaml"),
    }
    if kind:
        expected[kind] = ""
    if shape.world_size > 1:
        expected["--log_dir"] = "/run/logs/torchrun"
    assert said == expected
    assert accelerate_environment(on_cpu, shape.world_size) == (
        {"ACCELERATE_USE_CPU": "true"} if on_cpu and shape.world_size > 1 else {}
    )


@pytest.mark.parametrize(("precision", "word"), [("fp32", "no"), ("tf32", "no"), ("fp16", "fp16"), ("bf16", "bf16")])
def test_accelerate_calls_a_precision_mixed_or_not(precision: str, word: str) -> None:
    assert flags(accelerate_argv(node("1x1", precision=precision)))["--mixed_precision"] == word


def test_accelerate_leaves_the_ranks_to_deepspeed_where_the_case_says_so() -> None:
    options = ("--use_deepspeed", "--zero_stage", "2", "--dynamo_backend", "inductor")
    argv = before(accelerate_argv(node("2x8", 1, options=options)), "/s/rank.py")
    assert "--multi_gpu" not in argv
    assert argv.count("--dynamo_backend") == 1
    assert {"--use_deepspeed": "", "--zero_stage": "2", "--dynamo_backend": "inductor"}.items() <= flags(argv).items()


def test_deepspeed_needs_neither_host_file_nor_ssh() -> None:
    argv = deepspeed_argv(node("2x4", 1))
    assert argv[:3] == ("python3", "-m", "deepspeed.launcher.launch")
    said = dict(word.removeprefix("--").partition("=")[::2] for word in before(argv, "/s/rank.py")[3:])
    world = json.loads(base64.urlsafe_b64decode(said.pop("world_info")))
    assert world == {"node0": [0, 1, 2, 3], "node1": [0, 1, 2, 3]}
    assert said == {"node_rank": "1", "master_addr": "n0", "master_port": "29501", "no_local_rank": ""}
    assert argv[-len(PROGRAM) :] == PROGRAM


def test_deepspeed_s_own_list_of_devices_is_put_right(tmp_path: Path) -> None:
    device = DeviceSpec(type="x", backend="y", visible_devices="X_DEVICES", visible_style="index")
    plan = script_plan(tmp_path, device=device)
    assert plan.script is not None
    deepspeed = plan.model_copy(update={"script": plan.script.model_copy(update={"launcher": "deepspeed"})})
    for each, told in ((plan, False), (deepspeed, True)):
        found = rank_environment(each, Site(), Place(node=0, host="", devices=()), tmp_path / "run.json")
        assert ("TRAINMARK_VISIBLE_DEVICES" in found) is told


def test_torchrun_is_told_where_its_own_words_end() -> None:
    argv = torchrun_argv(node("2x4", 1))
    assert argv[argv.index("/s/rank.py") - 1] == "--"
    assert argv[-len(PROGRAM) :] == PROGRAM
    plain = torchrun_argv(node("2x4", 1, program=("/s/rank.py", "/case/train.py")))
    assert "--" not in plain


def test_torchrun_really_leaves_a_script_its_own_abbreviations() -> None:
    torchrun = pytest.importorskip("torch.distributed.run")
    argv = torchrun_argv(node("1x2"))
    parsed = torchrun.parse_args(list(argv[3:]))
    assert (parsed.training_script, *parsed.training_script_args) == PROGRAM


# The guide's command lines: seeds of the cases, word by word. A shell variable stands for what the topology says.
ALMA_LAUNCH = """
--main_process_ip MASTER --main_process_port PORT --machine_rank NODE --num_processes WORLD --num_machines NNODES
--use_deepspeed --main_training_function main --mixed_precision fp16 --rdzv_backend static
--deepspeed_multinode_launcher standard --same_network --gradient_accumulation_steps 10 --gradient_clipping 1.0
--offload_optimizer_device none --offload_param_device cpu --zero3_init_flag false --zero_stage 2
"""
ALMA_SCRIPT = """
--model_name_or_path haoranxu/ALMA-7B-Pretrain --mmt_data_path ./human_written_data/ --use_peft --lora_rank 16
--do_train --do_eval --language_pairs zh-en --load_best_model_at_end --low_cpu_mem_usage --fp16 --learning_rate 2e-3
--weight_decay 0.01 --gradient_accumulation_steps 10 --lr_scheduler_type inverse_sqrt --warmup_ratio 0.01
--ignore_pad_token_for_loss --ignore_prompt_token_for_loss --per_device_train_batch_size 12
--per_device_eval_batch_size 4 --evaluation_strategy steps --eval_steps 512 --save_strategy steps --save_steps 512
--save_total_limit 1 --logging_strategy steps --logging_steps 1 --output_dir /workspace/output --num_train_epochs 8
--predict_with_generate --prediction_loss_only --max_new_tokens 256 --max_source_length 256 --seed 42
--overwrite_output_dir --num_beams 5 --ddp_timeout 999999 --report_to none --overwrite_cache
"""
PLAIN_LAUNCH = """
--main_process_ip MASTER --main_process_port PORT --machine_rank NODE --same_network --num_processes WORLD
--num_cpu_threads_per_process 4 --num_machines NNODES
"""

DIFFERENCES: Mapping[str, Mapping[str, str]] = {
    "alma": {
        "--config_file": "whoever runs it may have a configuration at home",
        "--dynamo_backend": "said, so that no configuration says it",
        "--mmt_data_path": "the image holds the repository; the working folder is the run's",
        "--output_dir": "below the run's folder",
        "--seed": "the plan's",
        "--ddp_timeout": "999999 s would hide a hang for eleven days",
        "--log_dir": "the launcher's own files lie in the run's folder",
    },
    "whisper": {
        "--config_file": "as alma",
        "--dynamo_backend": "as alma",
        "--mixed_precision": "the script's fp16 = True, said to the launcher too",
        "--log_dir": "as alma",
        "--multi_gpu": "on one node the guide leaves it to be guessed from the devices",
    },
}
DIFFERENCES = {**DIFFERENCES, "vivit": {**DIFFERENCES["whisper"], "--mixed_precision": "no: said as it is"}}
"""What is not the guide's, and why; the case's README has the same list."""


def same(ours: str, theirs: str) -> bool:
    """Equal words, or equal numbers."""
    try:
        return float(ours) == float(theirs)
    except ValueError:
        return ours == theirs


def differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> set[str]:
    """Flags that only one has, or whose values differ."""
    both = ours.keys() & theirs.keys()
    return set(ours.keys() ^ theirs.keys()) | {flag for flag in both if not same(ours[flag], theirs[flag])}


def full_plan(model: str, topology: str) -> Plan:
    """The guide's own preset on its own machine."""
    chosen = {"models": (model,), "frameworks": ("accelerate",), "topologies": (topology,)}
    (plan,) = plans(CATALOG, Request.model_validate({"vendor": "nvidia", "machine": "A100", **chosen}))
    return plan


@pytest.mark.parametrize("model", ["alma", "vivit", "whisper"])
@pytest.mark.parametrize(("topology", "rank"), [("1x1", 0), ("1x8", 0), ("2x8", 1)])
def test_the_guide_s_line_comes_out_flag_by_flag(model: str, topology: str, rank: int) -> None:
    plan = full_plan(model, topology)
    argv = node_argv(plan, Launch(), node=rank, master_addr="MASTER", master_port="PORT", run_dir=Path("/run"))
    wrapper = next(at for at, word in enumerate(argv) if word.endswith("rank.py"))
    launcher, script = flags(argv[3:wrapper]), flags(argv[wrapper + 3 :])
    text = ALMA_LAUNCH if model == "alma" else PLAIN_LAUNCH + ("--multi_gpu" if plan.topology.nnodes > 1 else "")
    shape = {"NODE": str(rank), "WORLD": str(plan.world_size), "NNODES": str(plan.topology.nnodes)}
    theirs = {flag: shape.get(value, value) for flag, value in flags(shlex.split(text)).items()}
    allowed = set(DIFFERENCES[model])
    assert differing(launcher, theirs) <= allowed
    assert differing(script, flags(shlex.split(ALMA_SCRIPT if model == "alma" else ""))) <= allowed
    assert argv[wrapper + 1].endswith("with_log.py")


@pytest.mark.parametrize("model", ["alma", "vivit", "whisper"])
def test_the_readme_lists_the_differences(model: str) -> None:
    readme = (ROOT / "suite/cases" / model / "accelerate/README.md").read_text(encoding="utf-8")
    assert [flag for flag in DIFFERENCES[model] if f"`{flag}" not in readme] == []


def test_the_plan_shows_the_line_of_every_node(tmp_path: Path) -> None:
    lines = describe(full_plan("alma", "2x8"), Site())
    assert len(lines) == 2
    for rank, line in enumerate(lines):
        words = shlex.split(line)
        assert words[words.index("--machine_rank") + 1] == str(rank)
        assert words[words.index("--num_processes") + 1] == "16"
        assert "/opt/ALMA/run_llmmt.py" in words
