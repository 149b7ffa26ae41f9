"""Plans: what each one runs, and what it is held to."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.choice import derive_seed
from suite.digest import code_digest
from suite.layers import add_sets, add_vendor_file, fold_case
from suite.plan import Check, Plan
from suite.spec import CaseSpec
from suite.vendor_spec import VendorCaseConfig
from tests.planning_toys import CASE, make_suite, plan_all, plan_one, refusal, write

CONFIG = "vendors/acme/toy/pytorch/config_A1x1x8.toml"
SPEEDUP = '[threshold.speedup]\nvalue = 6.4\nsource = "measured"\ntolerance = 0.05\n'


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return make_suite(tmp_path)


def check(plan: Plan, name: str) -> Check:
    (found,) = [check for check in plan.checks if check.name == name]
    return found


def test_every_value_knows_its_origin(suite: Path) -> None:
    write(suite, {"vendors/acme/toy/pytorch/config_default.toml": "lr = 0.25\nfused = true\n"})
    plan = plan_one(suite, "1x8", machine="A1", sets=("steps=7",))
    assert plan.params["lr"] == 1.0 and isinstance(plan.params["lr"], float)
    assert {key: plan.origins[key] for key in ("hidden", "fused", "lr", "steps")} == {
        "hidden": "cases/toy/pytorch/case.toml",
        "fused": "vendors/acme/toy/pytorch/config_default.toml",
        "lr": "vendors/acme/toy/pytorch/config_A1x1x8.toml",
        "steps": "--set",
    }
    assert set(plan.origins) == set(plan.params)


def test_a_vendors_root_holds_for_the_full_preset_only(suite: Path) -> None:
    write(
        suite,
        {
            CONFIG: 'lr = 2\nunset = ["A"]\n[mode.throughput]\nlr = 3\n'
            "[preset.mini]\nlr = 4\n[preset.mini.mode.throughput]\nlr = 5\n"
        },
    )
    found = {
        (preset, mode): plan_one(suite, "1x8", presets=(preset,), mode=mode)
        for preset in ("full", "mini")
        for mode in ("converge", "throughput")
    }
    assert {key: plan.params["lr"] for key, plan in found.items()} == {
        ("full", "converge"): 2.0, ("full", "throughput"): 3.0, ("mini", "converge"): 4.0, ("mini", "throughput"): 5.0,
    }  # fmt: skip
    assert found["full", "converge"].unset == ("A",) and found["mini", "converge"].unset == ()


LAYERS = st.lists(
    st.dictionaries(st.sampled_from(["root", "mode", "preset", "both"]), st.integers(1, 9), max_size=4), max_size=3
)


@given(LAYERS, st.none() | st.integers(1, 9))
def test_the_last_layer_that_sets_a_value_wins(files: list[dict[str, int]], option: int | None) -> None:
    spec = CaseSpec.model_validate(
        {
            "title": "t",
            "measurement_version": 1,
            "mutable": ("x",),
            "quality": {"metric": "q", "better": "higher"},
            "params": {"x": 0.0},
            "preset": {"p": {}},
        }
    )
    layers = fold_case("t/t", spec, "p", "throughput", "case")
    expected = (0.0, "case")
    for number, values in enumerate(files):
        scopes = {key: {"x": value} for key, value in values.items()}
        preset = {**scopes.get("preset", {}), "mode": {"throughput": scopes.get("both", {})}}
        config = {**scopes.get("root", {}), "mode": {"throughput": scopes.get("mode", {})}, "preset": {"p": preset}}
        add_vendor_file(layers, VendorCaseConfig.model_validate(config), "p", "throughput", str(number))
        for scope in ("preset", "both"):
            expected = (float(values[scope]), str(number)) if scope in values else expected
    if option is not None:
        add_sets(layers, {"x": str(option)})
        expected = (float(option), "--set")
    assert (layers.params["x"], layers.origins["x"]) == expected
    assert type(layers.params["x"]) is float and layers.open_reasons == []


def test_an_option_that_changes_an_immutable_value_opens_the_division(suite: Path) -> None:
    assert plan_one(suite, "1x8", sets=("lr=3", "hidden=64")).division == "closed"
    plan = plan_one(suite, "1x8", sets=("hidden=32",))
    assert (plan.division, plan.division_reasons) == (
        "open",
        ("--set hidden=32: hidden is not mutable in toy/pytorch",),
    )
    assert plan.base is not None and plan.base.params["hidden"] == 32 and plan.base.division == "open"


def test_sabotage_opens_the_division_of_the_plan_and_spares_its_base(suite: Path) -> None:
    plan = plan_one(suite, "1x8", sabotage="no_allreduce")
    assert plan.sabotage == "no_allreduce" and plan.division_reasons == ("--sabotage no_allreduce: broken on purpose",)
    assert plan.base is not None and plan.base.sabotage is None
    assert plan.plan_digest != plan_one(suite, "1x8").plan_digest


EXTERN = "vendors/acme/toy/pytorch/extern/__init__.py"


def test_vendor_code_is_closed_only_with_a_declared_slot_and_a_proof(suite: Path) -> None:
    write(suite, {EXTERN: 'def fill(slots):\n    slots["attention"] = print\n'})
    plan = plan_one(suite, "1x1")
    assert [(step.slot, step.path, step.proven) for step in plan.slots] == [
        ("attention", "vendors/acme/toy/pytorch/extern", False)
    ]
    assert plan.division == "open" and "attention has no proof" in plan.division_reasons[0]
    digest = code_digest([(suite / EXTERN).parent])
    proof = f'[[proof]]\nwhere = "toy/pytorch"\nslot = "attention"\ndigest = "{digest}"\nsource = "test"\n'
    write(suite.parent, {"baselines/acme/slots.toml": proof})
    assert plan_one(suite, "1x1").division == "closed" and plan_one(suite, "1x1").slots[0].proven
    write(suite, {EXTERN: 'def fill(slots):\n    slots["attention"] = repr\n'})
    assert plan_one(suite, "1x1").division == "open"
    assert plan_one(suite, "1x1").plan_digest != plan.plan_digest


@pytest.mark.parametrize(
    ("code", "slots"),
    [
        ("def fill(s):\n    s.update(optimizer=1, attention=2)\n", ["attention", "optimizer"]),
        ('def fill(s):\n    s.update({"loader": 1})\n', ["loader"]),
        ("def fill(s):\n    for name in NAMES:\n        s[name] = 1\n", ["extern"]),
        ("X = 1\n", ["extern"]),
    ],
)
def test_slots_are_read_from_the_text_of_the_code(suite: Path, code: str, slots: list[str]) -> None:
    write(suite, {EXTERN: code})
    plan = plan_one(suite, "1x1")
    assert [step.slot for step in plan.slots] == slots and plan.division == "open"


def test_code_that_does_not_parse_is_named_with_its_line(suite: Path) -> None:
    write(suite, {EXTERN: "x = 1\ndef fill(:\n"})
    assert f"suite/{EXTERN}:2: not valid Python" in refusal(suite)


def test_runtime_code_is_a_step_that_needs_a_proof_too(suite: Path) -> None:
    write(suite, {"vendors/acme/runtime/pytorch/runtime.py": "def setup():\n    pass\n"})
    plan = plan_one(suite, "1x1")
    assert [step.slot for step in plan.slots] == ["runtime"] and plan.division == "open"


def test_the_runtimes_variables_come_before_the_cases(suite: Path) -> None:
    write(
        suite / "vendors/acme",
        {
            "runtime/pytorch/environment_variables.sh": "export A=1\nexport B=1\n",
            "toy/pytorch/environment_variables.sh": "export B=2\nexport C=3\n",
        },
    )
    assert plan_one(suite, "1x1").environment == {"A": "1", "B": "2", "C": "3"}


def test_checks_are_fixed_at_planning(suite: Path) -> None:
    write(
        suite,
        {
            CONFIG: SPEEDUP
            + '[threshold.memory]\nvalue = 30\nsource = "m"\n'
            + '[threshold.throughput]\nvalue = 9\nsource = "t"\nmetric = "throughput_core"\n'
        },
    )
    plan = plan_one(suite, "1x8")
    assert [(c.name, c.metric, c.op, c.threshold, c.required) for c in plan.checks] == [
        ("quality", "accuracy", ">=", 0.8, True),
        ("time_to_train", "time_to_train_s", "<=", 7200, True),
        ("throughput", "throughput_core", ">=", 9, True),
        ("speedup", "speedup", ">=", 6.4, True),
        ("memory", "memory_peak_gib", "<=", 30, True),
        ("ranks_in_sync", "ranks_in_sync", "==", 1, True),
        ("ledger", "unaccounted_over", "<=", 0, True),
        ("size", "parameters", "==", 64**2 * 8, True),
    ]
    assert check(plan, "speedup").tolerance == 0.05
    assert check(plan, "speedup").origin == CONFIG and check(plan, "quality").source == "the paper"


def test_throughput_mode_does_not_judge_quality(suite: Path) -> None:
    plan = plan_one(suite, "1x1", mode="throughput")
    assert [(c.name, c.threshold, c.required) for c in plan.checks] == [
        ("throughput", None, False),
        ("ledger", 0, True),
        ("size", 64**2, True),
    ]
    assert plan.limit_s is None and plan.params["steps"] == 20


def test_ranks_in_sync_is_not_required_of_a_log(suite: Path) -> None:
    write(suite, {"cases/toy/pytorch/case.toml": 'evidence = "log"\n' + CASE})
    assert check(plan_one(suite, "1x8"), "ranks_in_sync").required is False


def test_a_declared_time_replaces_the_cases_limit_and_ends_the_run(suite: Path) -> None:
    assert plan_one(suite, "1x8").limit_s == 7200
    write(suite, {CONFIG: '[threshold.time_to_train]\nvalue = 100\nsource = "m"\ntolerance = 0.1\n'})
    plan = plan_one(suite, "1x8")
    assert plan.limit_s == pytest.approx(110) and check(plan, "time_to_train").threshold == 100
    assert check(plan_one(suite, "1x8", presets=("mini",)), "time_to_train").threshold == 600


def test_a_threshold_of_all_topologies_does_not_ask_a_speedup_of_the_base(suite: Path) -> None:
    write(suite, {"vendors/acme/toy/pytorch/config_default.toml": SPEEDUP})
    single, eight = plan_all(suite)[:2]
    assert [c.name for c in single.checks if c.name == "speedup"] == [] and check(eight, "speedup").threshold == 6.4


def test_the_base_is_a_single_device_with_the_same_batch(suite: Path) -> None:
    plan = plan_one(suite, "2x8")
    base = plan.base
    assert base is not None and base.base is None and base.id == "toy-pytorch-acme-A1-throughput-1x1"
    assert base.params["train_batch_size"] == plan.params["train_batch_size"] == 4
    assert base.origins["train_batch_size"].endswith("config_A1x2x8.toml")
    assert plan.base_note == "train_batch_size 4 as in 2x8; 1x1 itself has 16"
    assert plan_one(suite, "1x1").base is None
    assert check(plan, "speedup").threshold is None and not check(plan, "speedup").required


def test_the_base_keeps_the_parameters_of_the_childs_mode(suite: Path) -> None:
    base = plan_one(suite, "1x8").base
    assert base is not None and base.mode == "throughput"
    assert base.params["steps"] == 100 and base.estimate_s == 60


def test_a_base_for_a_cost_trains_in_full(suite: Path) -> None:
    write(suite, {"cases/toy/pytorch/case.toml": 'speedup_metric = "epoch_time_s"\n' + CASE})
    base = plan_one(suite, "1x8").base
    assert base is not None and base.mode == "converge" and check(base, "quality").threshold == 0.8


def test_a_configuration_may_name_its_base(suite: Path) -> None:
    write(suite, {"vendors/acme/toy/pytorch/config_A1x2x8.toml": 'base = "1x8"\n'})
    plan = plan_one(suite, "2x8")
    assert plan.base is not None and str(plan.base.topology) == "1x8"
    assert plan.base_note.startswith("measured against 1x8, as vendors/acme/toy/pytorch/config_A1x2x8.toml says")


def test_without_a_single_device_the_smallest_is_the_base(suite: Path) -> None:
    (suite / "vendors/acme/toy/pytorch/config_A1x1x1.toml").unlink()
    eight, sixteen = plan_all(suite)
    assert eight.base is None and sixteen.base is not None and str(sixteen.base.topology) == "1x8"
    assert "no 1x1 is configured for A1: measured against the smallest, 1x8" in sixteen.base_note


def test_seeds_depend_on_session_case_and_repeat_alone(suite: Path) -> None:
    one, eight = plan_all(suite, repeat=3, seed=7)[:2]
    assert one.seeds == eight.seeds and len(set(one.seeds)) == 3
    assert one.seeds[:2] == plan_one(suite, "1x1", repeat=2, seed=7).seeds
    assert one.seeds != plan_one(suite, "1x1", repeat=3, seed=8).seeds
    assert derive_seed(0, "glm/pytorch", 1) == 208664114
    assert eight.base is not None and len(eight.base.seeds) == 4


@given(st.integers(-(2**70), 2**70), st.integers(1, 50))
def test_a_seed_has_31_bits(seed: int, n: int) -> None:
    assert 0 <= derive_seed(seed, "a/b", n) < 2**31


def test_deadlines_follow_the_limit_and_the_case(suite: Path) -> None:
    assert plan_one(suite, "1x8").deadlines.total_s == 7200 * 1.25 + 900
    assert plan_one(suite, "1x8", mode="throughput").deadlines.total_s == 60 * 5 + 900
    write(suite, {"cases/toy/pytorch/case.toml": CASE + "[preset.mini.deadlines]\ntotal_s = 50\nlaunch_s = 5\n"})
    mini = plan_one(suite, "1x8", presets=("mini",)).deadlines
    assert (mini.total_s, mini.launch_s, mini.teardown_s) == (50, 5, 60)


def test_what_travels_with_the_case_needs_no_data_folder(suite: Path) -> None:
    assert plan_one(suite, "1x1").train_data == "train.h5"
    assert plan_one(suite, "1x1", presets=("mini",)).train_data == ""


def test_a_plan_survives_its_file(suite: Path, tmp_path: Path) -> None:
    plan = plan_one(suite, "1x8")
    plan.write(tmp_path / "plan.json")
    assert Plan.read(tmp_path / "plan.json") == plan
