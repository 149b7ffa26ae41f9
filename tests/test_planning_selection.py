"""Selection: which plans a request means, their ids, and what is said about a filter that misses."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.catalog import load_catalog
from suite.plan import CaseRow, Plan
from suite.selection import plan_id
from suite.topology import Topology
from tests.planning_toys import CASE, make_suite, plan_all, refusal, write


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return make_suite(tmp_path)


def ids(plans: tuple[Plan, ...]) -> list[str]:
    return [plan.id for plan in plans]


def test_a_plan_exists_where_a_configuration_does(suite: Path) -> None:
    assert ids(plan_all(suite)) == ["toy-pytorch-acme-A1-1x1", "toy-pytorch-acme-A1-1x8", "toy-pytorch-acme-A1-2x8"]
    write(suite, {"vendors/acme/toy/pytorch/config_default.toml": ""})
    assert ids(plan_all(suite, machine="MI300X")) == ["toy-pytorch-acme-MI300X-1x1", "toy-pytorch-acme-MI300X-1x8"]


def test_ids_name_the_preset_and_the_mode_only_where_they_are_not_the_usual(suite: Path) -> None:
    assert ids(plan_all(suite, "cpu", topologies=("1x1",))) == ["toy-pytorch-cpu-host-mini-1x1"]
    assert ids(plan_all(suite, "cpu", topologies=("1x1",), presets=("*",), mode="throughput")) == [
        "toy-pytorch-cpu-host-throughput-1x1",
        "toy-pytorch-cpu-host-mini-throughput-1x1",
    ]


def test_topologies_sort_as_numbers(suite: Path) -> None:
    write(suite, {f"vendors/acme/toy/pytorch/config_A1x{t}.toml": "" for t in ("1x16", "1x2", "16x8", "10x1")})
    order = [str(plan.topology) for plan in plan_all(suite)]
    assert order == ["1x1", "1x2", "1x8", "1x16", "2x8", "10x1", "16x8"]


def test_two_folders_that_make_one_id_are_both_named(suite: Path) -> None:
    for model, framework in (("a-b", "c"), ("a", "b-c")):
        write(
            suite,
            {f"cases/{model}/{framework}/case.toml": CASE, f"vendors/cpu/{model}/{framework}/config_default.toml": ""},
        )
    said = refusal(suite, "cpu")
    assert "two plans would have the id a-b-c-cpu-host-mini-1x1: cases/a/b-c" in said and "cases/a-b/c" in said


@given(
    st.sampled_from(["full", "mini"]),
    st.sampled_from(["converge", "throughput"]),
    st.integers(1, 99),
    st.integers(1, 99),
)
def test_an_id_is_ascii_and_ends_in_the_topology(preset: str, mode: str, nnodes: int, nproc: int) -> None:
    name = plan_id(
        model="glm", framework="pytorch", vendor="acme", machine="A1", preset=preset,
        mode=mode, topology=Topology(nnodes=nnodes, nproc=nproc),  # type: ignore[arg-type]
    )  # fmt: skip
    assert name.isascii() and " " not in name and name.startswith("glm-pytorch-acme-A1-")
    assert name.endswith(f"-{nnodes}x{nproc}")


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"models": ("toi",)}, "--model toi: matches nothing (did you mean 'toy'?)"),
        ({"models": ("toy", "x*")}, "--model x*: matches nothing"),
        ({"frameworks": ("jax",)}, "--framework jax: matches nothing (have: pytorch)"),
        ({"presets": ("mimi",)}, "--preset mimi: matches nothing (did you mean 'mini'?)"),
        ({"topologies": ("1x4",)}, "--topology 1x4: matches nothing"),
        ({"topologies": ("1*8",)}, "topology '1*8' is not <nodes>x<devices>"),
        ({"machine": "A2"}, "--machine A2: no such file under suite/vendors/acme/machines (have: A1, MI300X)"),
        ({"machine": "MI300X", "models": ("toy",)}, "nothing is planned for --model toy on acme MI300X"),
        ({"sets": ("lrr=3",)}, "--set lrr=3: no planned case has a parameter 'lrr' (did you mean 'lr'?)"),
        ({"sets": ("lr",)}, "--set lr: not KEY=VALUE"),
        ({"sets": ("lr=x",)}, "--set lr=x: lr of toy/pytorch is a float, as in lr=0.5"),
        ({"sets": ("train_batch_size=true",)}, "train_batch_size of toy/pytorch is an integer"),
        ({"repeat": 0}, "--repeat 0: at least 1 run"),
    ],
)
def test_a_filter_that_matches_nothing_is_a_sentence(suite: Path, request_: dict[str, object], sentence: str) -> None:
    assert sentence in refusal(suite, **request_)


def test_without_filters_nothing_to_plan_is_no_mistake(suite: Path) -> None:
    assert plan_all(suite, machine="MI300X") == ()


def test_a_case_without_the_vendors_usual_preset_is_left_out(suite: Path) -> None:
    text = CASE.replace("preset.mini", "preset.other")
    write(suite, {"cases/big/pytorch/case.toml": text, "vendors/cpu/big/pytorch/config_default.toml": ""})
    assert {plan.model for plan in plan_all(suite, "cpu")} == {"toy"}


@pytest.mark.parametrize(
    ("vendor", "devices", "nodes", "expected"),
    [
        ("acme", 1, 1, ["1x1"]),
        ("acme", 8, 1, ["1x1", "1x8"]),
        ("acme", 8, 2, ["1x1", "1x8", "2x8"]),
        ("acme", 0, 1, []),
        ("acme", None, 1, ["1x1", "1x8"]),
        ("cpu", 1, 2, ["1x1"]),
        ("cpu", 2, 2, ["1x1", "1x2", "2x1"]),
        ("cpu", 2, 1, ["1x1", "1x2"]),
    ],
)
def test_what_the_devices_cannot_hold_is_left_out(
    suite: Path, vendor: str, devices: int | None, nodes: int, expected: list[str]
) -> None:
    found = plan_all(suite, vendor, fits_only=True, devices=devices, nodes=nodes)
    assert [str(plan.topology) for plan in found] == expected


def row(topology: str, repeat: int = 1, model: str = "toy", machine: str = "A1") -> CaseRow:
    return CaseRow(
        model=model,
        framework="pytorch",
        machine=machine,
        topology=Topology.parse(topology),
        repeat=repeat,
        data_dir="/d",
    )


def test_a_table_of_cases_selects_exactly_its_rows(suite: Path) -> None:
    found = plan_all(suite, machine="MI300X", cases=(row("2x8", 3), row("1x1")))
    assert [(plan.id, plan.repeat, plan.data_dir) for plan in found] == [
        ("toy-pytorch-acme-A1-1x1", 1, "/d"),
        ("toy-pytorch-acme-A1-2x8", 3, "/d"),
    ]
    assert len(found[1].seeds) == 3


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (row("1x1", model="toi"), "case toi/pytorch: no such folder under suite/cases (did you mean 'toy/pytorch'?)"),
        (row("1x1", machine="A9"), "--machine A9: no such file"),
        (row("4x8"), "acme has no configuration of toy/pytorch for A1 4x8"),
    ],
)
def test_an_unknown_row_is_named(suite: Path, wrong: CaseRow, sentence: str) -> None:
    said = refusal(suite, cases=(row("1x1"), wrong))
    assert said.startswith(f'--cases row "{wrong.model}:pytorch:{wrong.machine}:') and sentence in said


def test_a_hundred_cases_are_listed_without_reading_them(suite: Path) -> None:
    write(suite, {f"cases/c{n}/pytorch/case.toml": "= broken" for n in range(100)})
    assert len(load_catalog(suite).cases) == 101
    assert ids(plan_all(suite, "cpu", models=("toy",), topologies=("1x1",))) == ["toy-pytorch-cpu-host-mini-1x1"]
