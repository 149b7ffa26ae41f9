"""`python -m tools new`: skeletons that resolve, pass the review, and never go over what is there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from suite.catalog import load_catalog
from suite.plan import Plan, Request
from suite.selection import plans
from tests.spine import Clone, clone
from tools.__main__ import main
from tools.new_vendor import FIGURES, without_tables

ROOT = Path(__file__).resolve().parent.parent
IGNORED = shutil.ignore_patterns("__pycache__", "*.npz", "*.xz", "*.safetensors")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The shipped suite with two cases, in a folder that a test may change."""
    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "suite/drivers", root / "suite/drivers", ignore=IGNORED)
    for place in ("vendors/cpu", "vendors/nvidia"):
        for part in ("images", "machines", "glm", "bert"):
            if (ROOT / "suite" / place / part).is_dir():
                shutil.copytree(ROOT / "suite" / place / part, root / "suite" / place / part)
        for part in ("vendor.toml", "README.md"):
            shutil.copy(ROOT / "suite" / place / part, root / "suite" / place / part)
    for name in ("glm", "bert"):
        shutil.copytree(ROOT / "suite/cases" / name, root / "suite/cases" / name, ignore=IGNORED)
    return root


def new(root: Path, *words: str | Path) -> int:
    """Run the command; its exit status."""
    return main(["new", *map(str, words)], root)


def state(root: Path) -> dict[str, bytes]:
    """Every file below `root`."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def added(root: Path, before: dict[str, bytes]) -> set[str]:
    """The files that are new; what was there is as it was."""
    now = state(root)
    assert {name: now.get(name) for name in before} == before
    return now.keys() - before.keys()


def planned(root: Path, vendor: str, model: str, **request: object) -> tuple[Plan, ...]:
    """The plans of a model there."""
    wanted = Request.model_validate({"vendor": vendor, "models": (model,), **request})
    return plans(load_catalog(root / "suite"), wanted)


def test_a_case_is_one_folder_and_its_place_in_a_vendors(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = state(checkout)
    assert new(checkout, "case", "ring-2") == 0
    names = added(checkout, before)
    own = {name for name in names if name.startswith("suite/cases/ring-2/pytorch/")}
    assert names - own == {"suite/vendors/cpu/ring-2/pytorch/config_default.toml"}
    out = capsys.readouterr().out
    assert all(f"wrote {name}\n" in out for name in names)
    assert 'run it: pytest suite -k "ring-2 and 1x1" --vendor cpu' in out
    found = planned(checkout, "cpu", "ring-2", presets=("*",))
    assert {(str(plan.topology), plan.preset) for plan in found} == {
        (topology, preset) for topology in ("1x1", "1x2", "2x1") for preset in ("full", "mini")
    }
    assert all(plan.division == "closed" for plan in found)
    assert main(["check", str(checkout / "suite/cases/ring-2")], checkout) == 1
    told = capsys.readouterr().out.splitlines()
    assert {line.partition(": ")[2].partition(" source = ")[0] for line in told[:-1]} == {
        *("[target]", "[limit]", "[preset.mini.target]"),
    }, "nothing but what a skeleton makes up"
    assert all(line.endswith(" cites nothing; say who set it, when, and why") for line in told[:-1])
    assert "def test_ring_2(plan, train, judge)" in (checkout / "suite/cases/ring-2/pytorch/test_ring_2.py").read_text()
    compile((checkout / "suite/cases/ring-2/pytorch/train.py").read_text(), "train.py", "exec")


def test_a_readme_of_a_skeleton_says_what_to_replace(checkout: Path) -> None:
    new(checkout, "case", "ring")
    new(checkout, "vendor", "acme")
    case = (checkout / "suite/cases/ring/pytorch/README.md").read_text()
    assert [name for name in ("train.py", "case.toml", "data.toml", "test_ring.py") if f"`{name}`" not in case] == []
    vendor = (checkout / "suite/vendors/acme/README.md").read_text()
    assert [
        name for name in ("vendor.toml", "machines/A1.toml", "images/<framework>/") if f"`{name}`" not in vendor
    ] == []
    for path in [*checkout.glob("suite/cases/ring/**/*"), *checkout.glob("suite/vendors/acme/*")]:
        assert not path.is_file() or "%" not in path.read_text().replace("% 2**31", "")


@pytest.mark.parametrize("like", ["", "cpu", "nvidia"])
def test_a_vendor_is_one_folder_that_plans_and_passes_the_review(
    checkout: Path, like: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = state(checkout)
    assert new(checkout, "vendor", "acme", *(["--like", like] if like else []), "--machine", "Q-1x2") == 0
    assert all(name.startswith("suite/vendors/acme/") for name in added(checkout, before))
    catalog = load_catalog(checkout / "suite")
    vendor = catalog.vendor("acme")
    assert vendor.spec.verified is False
    assert vendor.spec.detect.dev == ()
    assert vendor.spec.title == "acme"
    assert list(vendor.machines) == ["Q-1x2"]
    assert {str(plan.topology) for plan in planned(checkout, "acme", "glm", presets=("mini",))} == {
        str(topology) for topology in catalog.vendor(like or "cpu").spec.topologies
    }
    assert main(["check", str(checkout / "suite/vendors/acme")], checkout) == 0, capsys.readouterr().out


def test_a_vendor_takes_no_figure_of_another_chip(checkout: Path) -> None:
    new(checkout, "vendor", "acme", "--like", "nvidia")
    text = "".join(path.read_text() for path in (checkout / "suite/vendors/acme").rglob("*.toml"))
    assert "[threshold" not in text
    assert not [line for line in text.splitlines() if line.startswith("[peak_tflops]")]
    for plan in planned(checkout, "acme", "glm", presets=("*",)):
        assert all(check.name not in ("throughput", "speedup") or check.threshold is None for check in plan.checks)


def test_a_readme_says_where_its_vendor_runs(checkout: Path) -> None:
    new(checkout, "vendor", "acme")
    new(checkout, "vendor", "zinc", "--like", "nvidia")
    acme, zinc = ((checkout / f"suite/vendors/{name}/README.md").read_text() for name in ("acme", "zinc"))
    assert "runs on the processor of any host" in acme
    assert "in the likeness of nvidia: it runs where nvidia's folder does" in zinc
    assert '"glm and 1x1" --vendor zinc' in zinc


def test_a_vendor_can_lie_outside_the_checkout(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = state(checkout)
    assert new(checkout, "vendor", "acme", "--into", tmp_path / "secret") == 0
    assert added(checkout, before) == set()
    assert f"--vendor-path {tmp_path}/secret/acme" in capsys.readouterr().out
    catalog = load_catalog(checkout / "suite", (tmp_path / "secret/acme",))
    assert plans(catalog, Request(vendor="acme", models=("glm",)))


def test_tables_of_figures_are_left_out_whole() -> None:
    text = 'lr = 1\n[threshold.speedup]\nvalue = 2\n[[mode.converge.check]]\nname = "x"\n[preset.mini]\nlr = 3\n'
    assert without_tables(text, FIGURES) == "lr = 1\n[preset.mini]\nlr = 3\n"


def test_a_configuration_has_every_key_and_keeps_the_global_batch_of_mini(checkout: Path) -> None:
    before = state(checkout)
    assert new(checkout, "config", "nvidia", "glm", "A100", "1x4") == 0
    path = "suite/vendors/nvidia/glm/pytorch/config_A100x1x4.toml"
    assert added(checkout, before) == {path}
    text = (checkout / path).read_text()
    case = load_catalog(checkout / "suite").case("glm", "pytorch")
    assert [key for key in case.spec.mutable if f"# {key} = " not in text] == []
    (plan,) = planned(checkout, "nvidia", "glm", machine="A100", topologies=("1x4",), presets=("mini",))
    assert plan.params["train_batch_size"] == 32 / 4
    assert main(["check", str(checkout / "suite/vendors/nvidia/glm/pytorch")], checkout) == 0


def test_every_line_of_a_configuration_can_be_taken_into_use(checkout: Path) -> None:
    new(checkout, "config", "nvidia", "bert", "A100", "1x2")
    path = checkout / "suite/vendors/nvidia/bert/pytorch/config_A100x1x2.toml"
    lines = path.read_text().splitlines()
    kept = [line.removeprefix("# ") if " = " in line and "source" not in line else line for line in lines]
    path.write_text("\n".join(line for line in kept if not line.startswith("value")))
    assert planned(checkout, "nvidia", "bert", machine="A100", topologies=("1x2",))


def test_a_framework_is_a_driver_and_an_image_and_a_case_trains_with_it(checkout: Path) -> None:
    before = state(checkout)
    assert new(checkout, "framework", "snow") == 0
    names = added(checkout, before)
    assert {str(Path(name).parent) for name in names} == {"suite/drivers/snow", "suite/vendors/cpu/images/snow"}
    for name in names:
        if name.endswith(".py"):
            compile((checkout / name).read_text(), name, "exec")
    assert os.access(checkout / "suite/vendors/cpu/images/snow/snow_install.sh", os.X_OK)
    assert main(["check", str(checkout / "suite/vendors/cpu")], checkout) == 0
    assert new(checkout, "case", "line", "--framework", "snow") == 0
    assert main(["check", str(checkout / "suite/cases/line")], checkout) == 1, "its sources are a skeleton's"
    (plan,) = planned(checkout, "cpu", "line", topologies=("1x1",))
    assert plan.measurement_version == "case:1 driver/snow:1"


def test_a_dummy_prints_its_key_and_how_to_remove_it(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "some data"
    data.mkdir()
    before = state(checkout)
    assert new(checkout, "dummy", "-v", "nvidia", "-f", "pytorch", "-c", "config_A100x1x8", "-d", data) == 0
    out = capsys.readouterr().out
    assert f'"dummy:pytorch:A100:1:8:1" = "{data}"' in out
    assert "remove it: rm -r suite/cases/dummy/pytorch suite/vendors/nvidia/dummy/pytorch " in out
    assert f"--data-dir '{data}'" in out
    (plan,) = planned(checkout, "nvidia", "dummy", machine="A100")
    assert str(plan.topology) == "1x8"
    assert main(["check", str(checkout / "suite/cases/dummy")], checkout) == 0
    for folder in ("suite/cases/dummy/pytorch", "suite/vendors/nvidia/dummy/pytorch"):
        shutil.rmtree(checkout / folder)
    assert added(checkout, before) == set()
    assert data.is_dir()


WRONG = {
    "a case that is there": (("case", "glm"), "suite/cases/glm/pytorch: exists already"),
    "a case of a reserved word": (("case", "and"), "MODEL 'and': the word has a meaning of its own"),
    "a case that is no name": (("case", "../x"), "MODEL '../x': no name for a folder; use letters"),
    "a framework without a driver": (("case", "x", "--framework", "pytorsh"), "did you mean 'pytorch'"),
    "a case of an unknown vendor": (("case", "x", "--vendor", "cpv"), "--vendor cpv: no such folder"),
    "a vendor that is there": (("vendor", "cpu"), "suite/vendors/cpu: exists already"),
    "a vendor like none": (("vendor", "acme", "--like", "nvida"), "did you mean 'nvidia'"),
    "a vendor that is no name": (("vendor", "a b"), "NAME 'a b': no name for a folder"),
    "a configuration that is there": (
        ("config", "nvidia", "glm", "A100", "1x8"), "config_A100x1x8.toml: exists already"),
    "a configuration of an unknown machine": (("config", "nvidia", "glm", "A10", "1x8"), "--machine A10: no such file"),
    "a topology that is none": (("config", "nvidia", "glm", "A100", "8"), "topology '8' is not <nodes>x<devices>"),
    "a framework that is there": (("framework", "pytorch"), "suite/drivers/pytorch: exists already"),
    "a framework that is no package": (("framework", "my-own"), "a driver is a Python package"),
    "a dummy of no configuration": (
        ("dummy", "-v", "cpu", "-f", "pytorch", "-c", "host", "-d", "."), "host.toml: no configuration's name"),
    "a dummy without a data folder": (
        ("dummy", "-v", "cpu", "-f", "pytorch", "-c", "config_hostx1x1", "-d", "nowhere"), "nowhere: no such folder"),
    "a dummy of no framework": (
        ("dummy", "-v", "cpu", "-f", "pytorsh", "-c", "config_hostx1x1", "-d", "."), "did you mean 'pytorch'"),
    "a kind that is none": (("machine", "A1"), "invalid choice: 'machine'"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_one_sentence_and_changes_nothing(
    checkout: Path, mistake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words, sentence = WRONG[mistake]
    before = state(checkout)
    assert new(checkout, *words) == 4
    told = capsys.readouterr().err
    assert told.startswith("trainmark: ")
    assert told.count("\n") == 1
    assert sentence in told
    assert added(checkout, before) == set()


def test_a_folder_that_cannot_be_written_is_one_sentence(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "suite/vendors/cpu/ring").write_text("a file in the way\n")
    before = state(checkout)
    assert new(checkout, "case", "ring") == 4
    assert "cannot be written" in capsys.readouterr().err
    assert added(checkout, before) == set()


@pytest.mark.parametrize("name", ["apt", "snow"])
def test_what_is_made_is_in_the_style_of_the_house(checkout: Path, name: str, tmp_path: Path) -> None:
    new(checkout, "framework", name)
    new(checkout, "case", "line", "--framework", name)
    new(checkout, "case", "ring")
    new(checkout, "dummy", "-v", "cpu", "-f", "pytorch", "-c", "config_hostx1x1", "-d", tmp_path)
    made = [f"suite/drivers/{name}", *(f"suite/cases/{case}" for case in ("line", "ring", "dummy"))]
    for command in (["check"], ["format", "--check"]):
        argv = [sys.executable, "-m", "ruff", *command, "--no-cache", "--config", str(ROOT / "pyproject.toml"), *made]
        done = subprocess.run(argv, cwd=checkout, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.nightly
def test_a_driver_is_typed_throughout(checkout: Path) -> None:
    new(checkout, "framework", "snow")
    (checkout / "suite/__init__.py").touch()
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent"]
    command += ["--explicit-package-bases", "suite/drivers/snow"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout


def trial(folder: Path) -> Clone:
    """A clone of the whole suite with a case, a framework with one, a dummy and a vendor, all made by the command."""
    made = clone(folder)
    (folder / "data").mkdir()
    assert new(made.root, "vendor", "acme") == 0
    assert new(made.root, "case", "ring", "--vendor", "acme") == 0
    assert new(made.root, "framework", "snow") == 0
    assert new(made.root, "case", "line", "--framework", "snow") == 0
    assert new(made.root, "dummy", "-v", "cpu", "-f", "pytorch", "-c", "config_hostx1x2", "-d", folder / "data") == 0
    return made


@pytest.mark.slow
def test_what_is_made_trains_and_passes(tmp_path: Path) -> None:
    """The first day of somebody who adds things: each skeleton runs before anything of theirs is in it."""
    made = trial(tmp_path)
    words = ["--data-dir", str(tmp_path / "data"), "--session", "s"]
    code, out = made.run("-k", "line and 1x1 or dummy and 1x2", *words)
    assert code == 0, out
    assert "2 passed" in out
    for rank in range(2):
        (log,) = (made.root / "s").glob(f"dummy-*/r1/logs/rank{rank}.log")
        assert f"RANK={rank}\n" in log.read_text()
        assert f"data {tmp_path / 'data'}" in log.read_text()
    ours = ["--vendor", "acme", "-k", "ring and 1x1"]
    code, out = made.run(*ours, "--session", "t")
    assert code == 0, out
    assert "ring-pytorch-acme-A1-mini-1x1  passed" in out
    code, out = made.run(*ours, "--session", "u", "--set", "lr=0.0", "--set", "max_samples=4096")
    assert code == 1, out
