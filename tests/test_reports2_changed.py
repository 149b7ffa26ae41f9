"""--changed-since: which plans a change can affect, and no vendor but its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.changed import changed_paths, plans_affected
from suite.changed import affected
from suite.errors import UsageProblem
from suite.plan import Plan
from suite.topology import Topology
from tests.run_folders import tiny_plan
from tests.user_toy import Checkout


def plan(model: str = "toy", vendor: str = "acme", machine: str = "A1", topology: str = "1x8", **over: object) -> Plan:
    """A plan whose base is 1x1 on the same machine."""
    facts = {"model": model, "vendor": vendor, "machine": machine, **over}
    base = tiny_plan(topology=Topology.parse("1x1"), **facts)
    return tiny_plan(topology=Topology.parse(topology), **facts).model_copy(update={"base": base})


PLANS = {
    "toy": plan(),
    "toy, small": plan(topology="1x2"),
    "toy, other chip": plan(machine="Z9"),
    "blob": plan(model="blob"),
    "toy, paddle": plan(framework="paddle"),
    "toy, cpu": plan(vendor="cpu", machine="host"),
}
ALL = set(PLANS)
ACME = ALL - {"toy, cpu"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("suite/cases/toy/pytorch/train.py", ALL - {"blob", "toy, paddle"}),
        ("suite/cases/toy/pytorch/data/words.txt", ALL - {"blob", "toy, paddle"}),
        ("suite/cases/toy/pytorch/README.md", set()),
        ("suite/cases/toy/shared.py", ALL - {"blob"}),
        ("suite/drivers/paddle/loop.py", {"toy, paddle"}),
        ("suite/drivers/events.py", ALL),
        ("suite/vendors/acme/vendor.toml", ACME),
        ("suite/vendors/acme/machines/Z9.toml", {"toy, other chip"}),
        ("suite/vendors/acme/runtime/paddle/hooks.py", {"toy, paddle"}),
        ("suite/vendors/acme/images/pytorch/Dockerfile", ACME - {"toy, paddle"}),
        ("suite/vendors/acme/toy/pytorch/config_default.toml", ACME - {"blob", "toy, paddle"}),
        ("suite/vendors/acme/toy/pytorch/extern/attention.py", ACME - {"blob", "toy, paddle"}),
        ("suite/vendors/acme/toy/pytorch/config_A1x1x8.toml", {"toy"}),
        ("suite/vendors/acme/toy/pytorch/config_A1x1x1.toml", {"toy", "toy, small"}),
        ("suite/vendors/acme/toy/pytorch/config_oops.toml", ACME - {"blob", "toy, paddle"}),
        ("suite/vendors/other/vendor.toml", set()),
        ("baselines/acme/toy.toml", ACME),
        ("baselines/README.md", set()),
        ("fixtures/training.py", ALL),
        ("suite/measure.py", ALL),
        ("pyproject.toml", ALL),
        ("something/new", ALL),
        ("docs/ci/Jenkinsfile", set()),
        ("mkdocs.yml", set()),
        ("tests/test_toy.py", set()),
    ],
)
def test_what_a_path_can_affect(path: str, expected: set[str]) -> None:
    what = affected([path])
    assert {name for name, one in PLANS.items() if what.selects(one)} == expected


@given(st.lists(st.text(alphabet="abx1./_-", max_size=12), max_size=6))
def test_a_vendors_change_never_selects_another_vendor(parts: list[str]) -> None:
    what = affected(["suite/vendors/acme/" + "/".join(parts)])
    assert not what.selects(PLANS["toy, cpu"])


def git(folder: Path, *arguments: str) -> None:
    """git with an author of its own."""
    author = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *author, *arguments], cwd=folder, check=True, capture_output=True, timeout=60)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A checkout with a branch that has left `main`."""
    folder = tmp_path / "a clone"
    for name in ("suite/cases/toy/pytorch/train.py", "suite/vendors/acme/vendor.toml", "docs/a.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("1\n")
    git(folder, "init")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "one")
    git(folder, "checkout", "-b", "work")
    return folder


def test_committed_uncommitted_moved_and_new_files_are_told(repository: Path) -> None:
    git(repository, "mv", "docs/a.md", "docs/ü b.md")
    git(repository, "commit", "-m", "two")
    (repository / "suite/vendors/acme/vendor.toml").write_text("2\n")
    (repository / "suite/new.py").write_text("")
    assert set(changed_paths(repository, "main")) == {
        "docs/a.md", "docs/ü b.md", "suite/vendors/acme/vendor.toml", "suite/new.py",
    }  # fmt: skip
    assert plans_affected([PLANS["toy, cpu"]], "main", checkout=repository) == (PLANS["toy, cpu"],), "suite/new.py"
    (repository / "suite/new.py").unlink()
    assert plans_affected(list(PLANS.values()), "main", checkout=repository) == tuple(
        one for name, one in PLANS.items() if name in ACME
    )


def test_what_main_has_since_gained_is_no_change_of_the_branch(repository: Path) -> None:
    git(repository, "checkout", "main")
    (repository / "suite/cases/toy/pytorch/train.py").write_text("2\n")
    git(repository, "commit", "-am", "elsewhere")
    git(repository, "checkout", "work")
    assert list(changed_paths(repository, "main")) == []


def test_a_vendors_folder_in_a_checkout_of_its_own_counts(repository: Path, tmp_path: Path) -> None:
    vendor = repository / "suite" / "vendors" / "acme"
    (vendor / "vendor.toml").write_text("3\n")
    (repository / "suite/cases/toy/pytorch/train.py").write_text("of the pull request, and not laid over\n")
    base = tmp_path / "base"
    git(tmp_path, "clone", "--branch", "main", str(repository), str(base))
    chosen = plans_affected(list(PLANS.values()), "main", [vendor], checkout=base)
    assert {name for name, one in PLANS.items() if one in chosen} == ACME


@pytest.mark.parametrize("revision", ["no-such-branch", "--output=x"])
def test_an_unknown_revision_is_one_sentence(repository: Path, revision: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        list(changed_paths(repository, revision))
    assert revision in str(caught.value) and "\n" not in str(caught.value)
    assert not (repository / "x").exists()


def test_pytest_selects_by_it(checkout: Checkout) -> None:
    (checkout.root / ".gitignore").write_text("results/\n__pycache__/\nannounced*\n")
    git(checkout.root, "init")
    git(checkout.root, "add", ".")
    git(checkout.root, "commit", "-m", "one")
    nothing = checkout.pytest(
        "suite", "--vendor", "acme", "--machine", "A1", "--changed-since", "HEAD", "-k", "1x1", "--plan"
    )
    assert nothing.code == 5 and "none that is affected by what changed since HEAD" in nothing.out
    checkout.write("suite/cases/blob/pytorch/train.py", "pass\n")
    arguments = (
        "suite",
        "--vendor",
        "acme",
        "--machine",
        "A1",
        "--changed-since",
        "HEAD",
        "-k",
        "1x1",
        "--collect-only",
        "-q",
    )
    done = checkout.pytest(*arguments)
    assert "blob-pytorch-acme-A1-1x1" in done.out and "toy-pytorch" not in done.out, done.out
    wrong = checkout.pytest("suite", "--vendor", "cpu", "--changed-since", "nowhere")
    assert wrong.code == 4 and "--changed-since nowhere" in wrong.err and "Traceback" not in wrong.out
