"""`[script]` in case.toml: what a plan makes of it, and the sentences for what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.changed import affected
from suite.plan import Plan, Script
from tests.planning_toys import CASE, make_suite, plan_one, refusal, write

SCRIPT = """
[script]
launcher = "accelerate"
path = "/opt/theirs/train.py"
adapters = ["hf_trainer"]
[script.options]
"--zero_stage" = "{hidden}"
[script.arguments]
"--lr" = "{lr}"
"--batch" = "{train_batch_size}"
"--fused" = "{fused}"
"--do_train" = true
"--no_cuda" = false
"--beta" = "{betas}"
"--empty" = "{nothing}"
"--name" = "{name}-{nnodes}x{nproc}"
"--seed" = "{seed}"
"--out" = "{run_dir}/out"
"--json" = '{"a": 1}'
"--set" = ["steps={steps}", "world={world}"]
[script.environment]
DATA = "{data_dir}/{name}"
[script.links]
data = "{data_dir}/x"
"""
PARAMS = 'precision = "fp32"\nnothing = ""\n'
PRESETS = """
[preset.mini.script]
path = "script.py"
adapters = ["tqdm"]
[preset.mini.script.arguments]
"--steps" = "{steps}"
"--cpu" = "{on_cpu}"
[preset.mini_log]
like = "mini"
evidence = "log"
[preset.mini_log.script.arguments]
"--cpu" = false
[preset.mini_log.params]
steps = 7
"""


def case_text(script: str = SCRIPT, presets: str = PRESETS) -> str:
    """The toy case with a script."""
    head, params, rest = CASE.partition("[params]\n")
    head = head.replace('samples_unit = "image"', 'samples_unit = "image"\nevidence = "callback"')
    return head + params + PARAMS + rest.replace("[preset.mini]", script + "[preset.mini]", 1) + presets


def suite_of(folder: Path, text: str = "") -> Path:
    """The toy catalog with such a case."""
    suite = make_suite(folder)
    write(suite, {"cases/toy/pytorch/case.toml": text or case_text(), "drivers/scripts/VERSION": "3\n"})
    return suite


def script_of(plan: Plan) -> Script:
    """Its script."""
    assert plan.script is not None
    return plan.script


def test_words_come_from_templates(tmp_path: Path) -> None:
    script = script_of(plan_one(suite_of(tmp_path), "1x8", presets=("full",)))
    assert (script.launcher, script.path, script.adapters) == ("accelerate", "/opt/theirs/train.py", ("hf_trainer",))
    assert script.options == ("--zero_stage", "64")
    assert script.arguments == (
        *("--lr", "1.0", "--batch", "16", "--do_train", "--beta", "0.9", "--beta", "0.99", "--name", "toy-1x8"),
        *("--seed", "{seed}", "--out", "{run_dir}/out", "--json", '{"a": 1}'),
        *("--set", "steps=100", "--set", "world=8"),
    )
    assert script.environment == {"DATA": "{data_dir}/toy"}
    assert script.links == {"data": "{data_dir}/x"}


def test_a_vendor_s_value_and_an_override_reach_the_script(tmp_path: Path) -> None:
    script = script_of(plan_one(suite_of(tmp_path), "1x8", presets=("full",), sets=("fused=true", "lr=0.25")))
    assert "--fused" in script.arguments
    assert script.arguments[:2] == ("--lr", "0.25")


def test_a_scope_with_a_path_begins_a_script_of_its_own(tmp_path: Path) -> None:
    plan = plan_one(suite_of(tmp_path), "1x1", "cpu", presets=("mini",))
    script = script_of(plan)
    assert (script.path, script.launcher, script.adapters) == ("script.py", "accelerate", ("tqdm",))
    assert script.arguments == ("--steps", "100", "--cpu")
    assert (script.options, script.environment) == ((), {})
    assert plan.evidence == "callback"


def test_a_preset_in_the_likeness_of_another_changes_what_it_says(tmp_path: Path) -> None:
    suite = suite_of(tmp_path)
    write(suite, {"vendors/cpu/toy/pytorch/config_default.toml": "[preset.mini]\nlr = 0.125\n"})
    plan = plan_one(suite, "1x1", "cpu", presets=("mini_log",))
    assert script_of(plan).arguments == ("--steps", "7")
    assert (plan.evidence, plan.quality.target, plan.params["hidden"], plan.params["lr"]) == ("log", 0.7, 8, 0.125)


def test_a_log_is_held_to_no_speedup(tmp_path: Path) -> None:
    suite = suite_of(tmp_path)
    seen, read = (plan_one(suite, "1x2", "cpu", presets=(preset,)) for preset in ("mini", "mini_log"))
    assert seen.base is not None
    assert read.base is None
    assert "a log shows no throughput_train" in read.base_note
    assert "speedup" not in {check.name for check in read.checks}


def test_ranks_of_a_log_need_not_be_in_step(tmp_path: Path) -> None:
    required = {}
    for preset in ("mini", "mini_log"):
        plan = plan_one(suite_of(tmp_path / preset), "1x2", "cpu", presets=(preset,))
        required[preset] = next(check.required for check in plan.checks if check.name == "ranks_in_sync")
    assert required == {"mini": True, "mini_log": False}


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('"{lr}"', '"{lrr}"', "[script.arguments] --lr = '{lrr}': no parameter 'lrr' (did you mean 'lr'?)"),
        ('"--lr"', '"lr"', "case.toml: script.arguments"),
        ('launcher = "accelerate"', 'launcher = "mpirun"', "script.launcher = 'mpirun'"),
        ('launcher = "accelerate"', "", "[script] has no launcher; name it"),
        ('["hf_trainer"]', '["hf_trainr"]', "adapters: no adapter 'hf_trainr' (did you mean 'hf_trainer'?)"),
        ('path = "/opt/theirs/train.py"', "", "[script] has no path; name it"),
        ('precision = "fp32"\n', "", "needs a parameter precision"),
        ('like = "mini"', 'like = "mino"', "preset.mini_log.like = 'mino': name a preset without `like` (mini)"),
        ('data = "{data_dir}/x"', '"../data" = "x"', "script.links"),
        (
            "{data_dir}/{name}",
            "{data_dir}/{nome}",
            "[script.environment] DATA = '{data_dir}/{nome}': no parameter 'nome'",
        ),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    text = case_text()
    assert old in text
    assert sentence in refusal(suite_of(tmp_path, text.replace(old, new, 1)), presets=("full",))


def test_a_log_needs_somebody_who_reads_it(tmp_path: Path) -> None:
    text = case_text().replace('["tqdm"]', "[]")
    sentence = "[script] adapters is empty, and evidence is log; name who reads the output"
    assert sentence in refusal(suite_of(tmp_path, text), presets=("mini_log",))


def test_a_script_stands_at_the_root_or_nowhere(tmp_path: Path) -> None:
    assert "the root has none" in refusal(suite_of(tmp_path, case_text(script="")), presets=("full",))


def test_the_wrappers_and_the_clocks_they_share_are_part_of_the_digest(tmp_path: Path) -> None:
    suite = suite_of(tmp_path)
    write(suite, {"drivers/scripts/with_log.py": "A = 1\n"})
    first = plan_one(suite, "1x1", presets=("full",))
    assert first.measurement_version == "case:3 driver/scripts:3 driver/pytorch:2"
    write(suite, {"drivers/scripts/with_log.py": "A = 2\n"})
    second = plan_one(suite, "1x1", presets=("full",))
    write(suite, {"drivers/pytorch/loop.py": "def run():\n    return 2\n"})
    third = plan_one(suite, "1x1", presets=("full",))
    assert len({first.case_digest, second.case_digest, third.case_digest}) == 3


def test_a_change_to_a_driver_reaches_the_scripts_that_it_watches(tmp_path: Path) -> None:
    plan = plan_one(suite_of(tmp_path), "1x1", presets=("full",))
    ours = plan.model_copy(update={"script": None, "framework": "pytorch"})
    theirs = plan.model_copy(update={"framework": "accelerate"})
    assert [affected(["suite/drivers/scripts/with_log.py"]).selects(each) for each in (ours, theirs)] == [False, True]
    assert [affected(["suite/drivers/pytorch/timing.py"]).selects(each) for each in (ours, theirs)] == [True, True]
    assert [affected(["suite/drivers/paddle/loop.py"]).selects(each) for each in (ours, theirs)] == [False, False]
