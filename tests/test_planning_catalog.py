"""Cases and vendors on disk: what is found, what is read, and what is said about a file that is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from suite.catalog import load_catalog
from suite.errors import UsageProblem
from suite.schema import SCHEMAS, main
from suite.toml_file import read_toml
from tests.planning_toys import ACME, CASE, DATA, make_suite, plan_all, refusal, write


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return make_suite(tmp_path)


def test_cases_and_vendors_are_sorted_by_name(suite: Path) -> None:
    write(suite, {"cases/toy/jax/case.toml": "", "cases/bert/pytorch/case.toml": "", "cases/empty/README.md": ""})
    catalog = load_catalog(suite)
    assert [str(case) for case in catalog.cases] == ["bert/pytorch", "toy/jax", "toy/pytorch"]
    assert list(catalog.vendors) == ["acme", "cpu"]
    assert catalog.case("toy", "pytorch").spec.presets == ("full", "mini")


def test_machines_are_found_by_the_most_specific_glob(suite: Path) -> None:
    write(suite, {"vendors/acme/machines/A1-PCIE.toml": 'match = ["Acme A1*PCIE*"]'})
    vendor = load_catalog(suite).vendor("acme")
    found = {name: vendor.match_machine(name) for name in ("Acme A1-PCIE-40GB", "Acme A1-40GB", "Other")}
    assert {name: machine and machine.name for name, machine in found.items()} == {
        "Acme A1-PCIE-40GB": "A1-PCIE",
        "Acme A1-40GB": "A1",
        "Other": None,
    }
    assert vendor.machine("A1").memory_gib == 40


def test_a_device_that_fits_two_machines_alike_is_a_question(suite: Path) -> None:
    write(suite, {"vendors/acme/machines/A9.toml": 'match = ["Acme A1*"]'})
    with pytest.raises(UsageProblem, match="matches A1 and A9 alike"):
        load_catalog(suite).vendor("acme").match_machine("Acme A1-40GB")


def test_a_broken_vendor_stops_nobody_else(suite: Path) -> None:
    write(
        suite,
        {
            "vendors/acme/vendor.toml": "= broken",
            "vendors/zeta/vendor.toml": "\udcff".encode("utf-8", "replace").decode(),
        },
    )
    assert plan_all(suite, "cpu")
    assert refusal(suite).startswith("suite/vendors/acme/vendor.toml:1: not valid TOML")


def test_a_folder_outside_replaces_the_vendor_of_its_name(suite: Path, tmp_path: Path) -> None:
    write(tmp_path, {"nda/acme/vendor.toml": ACME.replace('"Acme"', '"Acme, secret"'), "nda/beta/vendor.toml": ACME})
    catalog = load_catalog(suite, [tmp_path / "nda/acme", tmp_path / "nda/beta"])
    assert catalog.vendor("acme").spec.title == "Acme, secret"
    assert catalog.vendor("acme").path == (tmp_path / "nda/acme").resolve()
    assert list(catalog.vendors) == ["acme", "beta", "cpu"]
    with pytest.raises(UsageProblem, match=r"--vendor-path .*/nda: no vendor\.toml in it"):
        load_catalog(suite, [tmp_path / "nda"])


def test_an_unknown_vendor_names_those_there_are(suite: Path) -> None:
    with pytest.raises(UsageProblem) as caught:
        load_catalog(suite).vendor("amd")
    assert str(caught.value) == "--vendor amd: no such folder under suite/vendors (have: acme, cpu)"


def test_a_vendor_without_its_file_says_so(suite: Path) -> None:
    write(suite, {"vendors/beta/README.md": ""})
    with pytest.raises(UsageProblem, match=r"--vendor beta: suite/vendors/beta has no vendor\.toml"):
        load_catalog(suite).vendor("beta")


CASE_FAULTS = [
    ("mutable = [", "mutabel = [", "unknown key 'mutabel' (did you mean 'mutable'?)"),
    ('better = "higher"', 'better = "up"', "quality.better = 'up': must be 'higher' or 'lower'"),
    ("measurement_version = 3", 'measurement_version = "3"', "measurement_version = '3': must be a valid integer"),
    ('title = "Toy"', "", "title is missing"),
    ("time_to_train_s = 7200", "time_to_train_s = 700000", "limit.time_to_train_s = 700000"),
    ('source = "counted"', "", "check #1.source is missing"),
    ('op = "=="', 'op = "="', "check #1.op = '='"),
    ('name = "size"', 'name = "speedup"', "the name 'speedup' has a meaning of its own"),
    (
        "[preset.mini]\n",
        "[preset.mini]\nestimat_s = 3\n",
        "unknown key 'preset.mini.estimat_s' (did you mean 'estimate_s'?)",
    ),
    ("[preset.mini]\n", "[preset.throughput]\n[preset.mini]\n", "is not the name of a mode"),
    ("[mode.throughput]", "[mode.fast]", "'converge' or 'throughput'"),
    ("lr = 0.5", "lr = {a = 1}", "params.lr: must be a boolean, a number, text"),
    ("lr = 0.5", "lr = nan", "params.lr = nan: must be finite"),
    ("lr = 0.5", "lr = 2020-01-01", "2020-01-01 is a date"),
    ('"steps"]', '"stepz"]', "mutable names 'stepz', which is no parameter (did you mean 'steps'?)"),
    (
        "hidden = 8",
        "hiden = 8",
        "'hiden' is no parameter of toy/pytorch; name it in the root [params] (did you mean 'hidden'?)",
    ),
    ("hidden = 8", "hidden = 8.5", "hidden = 8.5: hidden of toy/pytorch is an integer, as in 64"),
    ("hidden = 8", "hidden = true", "hidden = true: hidden of toy/pytorch is an integer, as in 64"),
    (
        "hidden ** 2",
        "hiden ** 2",
        "[[check]] size: value = 'hiden ** 2 * world': unknown name 'hiden' (did you mean 'hidden'?)",
    ),
    ('[target]\nvalue = 0.8\nsource = "the paper"', "", "preset 'full' has no [target]"),
    ("[params]", "[params", "case.toml:13: not valid TOML"),
]


@pytest.mark.parametrize(("old", "new", "sentence"), CASE_FAULTS, ids=[new or old for old, new, _ in CASE_FAULTS])
def test_a_wrong_case_names_file_key_and_remedy(suite: Path, old: str, new: str, sentence: str) -> None:
    assert old in CASE
    write(suite, {"cases/toy/pytorch/case.toml": CASE.replace(old, new, 1)})
    said = refusal(suite, presets=("*",))
    assert said.split("suite/")[-1].startswith("cases/toy/pytorch/case.toml:") and sentence in said


VENDOR_FAULTS = [
    ("vendor.toml", ACME.replace('"1x8"', '"1*8"'), "topologies #2 = '1*8': must be <nodes>x<devices>"),
    ("vendor.toml", ACME.replace("backend", "backendd"), "unknown key 'device.backendd' (did you mean 'backend'?)"),
    ("vendor.toml", ACME.replace('"out_of_memory"', '"oom"'), "category 'oom' is none of"),
    ("vendor.toml", ACME.replace('"out of acme', '"(out of acme'), "is not a regular expression"),
    ("vendor.toml", ACME.replace('"0x1abc"', '"1abc"'), "detect.pci #1 = '1abc'"),
    ("vendor.toml", ACME + '[monitor]\nmethod = "command"\n', "are needed by method 'command'"),
    ("machines/A1.toml", "[peak_tflops]\nbf61 = 3\n", "bf61"),
    ("machines/A1.toml", "[peak_tflops]\nbf16 = 3\n", "peak_source is missing"),
    ("machines/A1.toml", 'name = "A1"', "unknown key 'name'"),
    ("toy/pytorch/config_A1x1x1.toml", "lrr = 3", "unknown key 'lrr' in toy/pytorch (did you mean 'lr'?)"),
    ("toy/pytorch/config_A1x1x1.toml", "hidden = 3", "'hidden' is not mutable in toy/pytorch (mutable: betas, fused"),
    ("toy/pytorch/config_A1x1x1.toml", "lr = true", "lr = true: lr of toy/pytorch is a float, as in 0.5"),
    ("toy/pytorch/config_A1x1x1.toml", "betas = 'no'", 'betas = "no": betas of toy/pytorch is a list of float'),
    (
        "toy/pytorch/config_A1x1x1.toml",
        "[treshold.mfu]\nvalue = 1",
        "unknown table 'treshold' (did you mean 'threshold'?)",
    ),
    ("toy/pytorch/config_A1x1x1.toml", "[threshold.mfu]\nvalue = 0.4", "threshold.mfu.source is missing"),
    ("toy/pytorch/config_A1x1x1.toml", "[threshold.speed]\nvalue = 0.4", "threshold.speed"),
    (
        "toy/pytorch/config_A1x1x1.toml",
        '[threshold.mfu]\nvalue = 0.4\nsource = "x"\nmetric = "throughput_core"',
        "only throughput",
    ),
    ("toy/pytorch/config_A1x1x1.toml", '[threshold.speedup]\nvalue = 2\nsource = "x"', "which has no base"),
    (
        "toy/pytorch/config_A1x1x1.toml",
        "[preset.mimi]\nlr = 3",
        "[preset.mimi] is no preset of toy/pytorch (have: full, mini)",
    ),
    ("toy/pytorch/config_A1x1x8.toml", 'base = "1x4"', 'base = "1x4": no configuration of toy/pytorch for A1'),
    ("toy/pytorch/config_A1.toml", "", "no configuration's name"),
    ("toy/pytorch/config_A2x1x1.toml", "", "no machines/A2.toml for the machine it names (have: A1, MI300X)"),
    ("toy/pytorch/environment_variables.sh", "export A=$(id)\n", ":1: '$(id)' would need a shell"),
]


@pytest.mark.parametrize(("name", "text", "sentence"), VENDOR_FAULTS)
def test_a_wrong_vendor_file_names_file_key_and_remedy(suite: Path, name: str, text: str, sentence: str) -> None:
    write(suite / "vendors/acme", {name: text})
    said = refusal(suite)
    assert f"vendors/acme/{name}" in said and sentence in said


def test_a_wrong_data_file_names_its_entry(suite: Path) -> None:
    write(suite, {"cases/toy/pytorch/data.toml": DATA.replace('"train.h5"', '"../train.h5"')})
    assert "cases/toy/pytorch/data.toml: file #1.path = '../train.h5': must be a path below" in refusal(suite)


def test_bytes_that_are_not_utf8_are_named_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(b'a = 1\nb = "\xff"\n')
    with pytest.raises(UsageProblem, match=r"x\.toml:2: byte 0xff is not UTF-8"):
        read_toml(path, "x.toml")
    with pytest.raises(UsageProblem, match=r"y\.toml: cannot be read"):
        read_toml(tmp_path, "y.toml")


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 5000 + "]" * 5000,
        "x" + ".a" * 5000 + " = 1",
        "x" + ".a" * 40 + " = 1",
        "x = " + "[" * 40 + "]" * 40,
    ],
    ids=["lists", "keys", "some keys", "some lists"],
)
def test_tables_within_tables_without_end_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(UsageProblem, match=r"^x\.toml: nested too deeply; write it flat$"):
        read_toml(tmp_path / "x.toml", "x.toml")


def test_tables_within_a_few_tables_are_read(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("x" + ".a" * 20 + " = [[1]]")
    found = read_toml(tmp_path / "x.toml", "x.toml")["x"]
    for _ in range(20):
        assert isinstance(found, dict)
        found = found["a"]
    assert found == [[1]]


def test_the_schemas_accept_what_the_suite_accepts(tmp_path: Path, suite: Path) -> None:
    assert main([str(tmp_path / "schemas")]) == 0
    schemas = {name: json.loads((tmp_path / f"schemas/{name}.schema.json").read_text()) for name in SCHEMAS}
    files = {
        "case": suite / "cases/toy/pytorch/case.toml",
        "data": suite / "cases/toy/pytorch/data.toml",
        "vendor": suite / "vendors/acme/vendor.toml",
        "machine": suite / "vendors/acme/machines/A1.toml",
        "config": suite / "vendors/acme/toy/pytorch/config_A1x1x8.toml",
    }
    for name, path in files.items():
        jsonschema.Draft202012Validator(schemas[name]).validate(read_toml(path, name))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schemas["vendor"]).validate({**read_toml(files["vendor"], "vendor"), "typo": 1})


def test_a_schema_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main([str(tmp_path / "file")]) == 4
    assert main([]) == 4
    assert "cannot be written" in capsys.readouterr().err
