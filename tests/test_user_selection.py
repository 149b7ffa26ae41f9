"""What is selected and shown before anything runs: filters, ids, --plan, and what stays out of other people's way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.user_toy import Checkout, make_checkout

CPU_IDS = ["toy-pytorch-cpu-host-mini-1x1", "toy-pytorch-cpu-host-mini-1x2", "toy-pytorch-cpu-host-mini-2x1"]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """One checkout for all that only look."""
    return make_checkout(tmp_path_factory.mktemp("selection") / "a clone")


def ids(text: str) -> list[str]:
    """The ids of collected tests, in their order."""
    return re.findall(r"::test_\w+\[([^\]]+)\]", text)


def test_everything_that_fits_is_planned(clone: Checkout) -> None:
    """Without a filter: what the devices hold, which is no 1x8 on a host of a few cores."""
    assert ids(clone.pytest("suite", "--collect-only", "-q").out)[:1] == CPU_IDS[:1]
    collected = ids(clone.pytest("suite", "--vendor", "acme", "--collect-only", "-q").out)
    assert "toy-pytorch-acme-A1-1x1" in collected
    assert "toy-pytorch-acme-A1-1x16" not in collected


@pytest.mark.parametrize("arguments", [("-k", "toy and 1x16"), ("--topology", "1x16"), ("-m", "case(topology='1x16')")])
def test_a_filter_plans_what_does_not_fit(clone: Checkout, arguments: tuple[str, str]) -> None:
    """Asked for by name, a plan is selected although it cannot be had here."""
    collected = ids(clone.pytest("suite", "--vendor", "acme", "--collect-only", "-q", *arguments).out)
    assert "toy-pytorch-acme-A1-1x16" in collected
    assert all(one.endswith("1x16") for one in collected)


def test_a_node_id_is_a_filter(clone: Checkout) -> None:
    """Named by its full id, a plan is found whatever the devices."""
    node = "suite/cases/toy/pytorch/test_toy.py::test_toy[toy-pytorch-acme-A1-1x16]"
    done = clone.pytest(node, "--vendor", "acme", "--collect-only", "-q")
    assert ids(done.out) == ["toy-pytorch-acme-A1-1x16"]


def test_topology_is_exact_where_k_is_not(clone: Checkout) -> None:
    """-k 1x1 takes 1x16 along and says so; --topology 1x1 does not."""
    loose = clone.pytest("suite", "-k", "toy and 1x1", "--vendor", "acme", "--plan")
    assert "warning: -k 1x1 is part of 1x1, 1x16, and all of them are selected" in loose.out
    assert "for 1x1 alone say --topology 1x1" in loose.out
    exact = clone.pytest("suite", "--topology", "1x1", "--model", "toy", "--vendor", "acme", "--plan")
    assert "warning: -k" not in exact.out
    closed = clone.pytest("suite", "-k", "[toy- and -1x1]", "--vendor", "acme", "--plan")
    assert "warning: -k" not in closed.out


def test_warning_is_shown_with_workers_too(tmp_path: Path) -> None:
    """The controller collects nothing itself, and still warns."""
    checkout = make_checkout(tmp_path / "clone")
    done = checkout.pytest("suite", "-k", "toy and 1x1", "--vendor", "acme", "-n", "1")
    assert done.code == 0, done.out
    assert "warning: -k 1x1 is part of 1x1, 1x16" in done.out
    assert "toy-pytorch-acme-A1-1x16: passed" in done.out


@pytest.mark.parametrize("workers", ["0", "2"])
def test_nothing_matched_says_what_there_is(clone: Checkout, workers: str) -> None:
    """Exit 5, and the plans to choose from."""
    done = clone.pytest("suite", "-k", "tyo", "--vendor", "cpu", "-n", workers, "--results", "elsewhere")
    assert done.code == 5, done.out
    assert "-k 'tyo' matches no plan: 'tyo' stands in no name here (did you mean 'toy'?)" in done.out
    assert "vendor cpu, machine host has:" in done.out
    assert not (clone.root / "elsewhere").exists()
    assert all(one in done.out for one in CPU_IDS)


def test_workers_run_the_same_ids(tmp_path: Path) -> None:
    """-n 2 and -n 0 differ in nothing that is announced about plans, their checks and outcomes."""
    checkout = make_checkout(tmp_path / "a clone")
    seen = []
    for workers in ("0", "2"):
        session = checkout.root / f"out{workers}"
        done = checkout.pytest("suite", "--vendor", "cpu", "-n", workers, "--session", str(session))
        assert done.code == 0, done.out
        plans = [record for record in checkout.records(session) if record["kind"] == "plan"]
        seen.append((sorted((str(one["id"]), str(one["plan"])) for one in plans), checkout.outcomes(session)))
    assert seen[0] == seen[1]
    assert sorted(seen[0][1]) == CPU_IDS


def test_case_without_a_plan_is_left_out(clone: Checkout) -> None:
    """The vendor cpu has nothing for the case blob: no skip, no error, not there."""
    done = clone.pytest("suite", "--vendor", "cpu", "--collect-only", "-q")
    assert "blob" not in done.out
    assert clone.pytest("suite/cases/blob", "--vendor", "cpu", "--collect-only", "-q").code == 5


def test_a_subfolder_and_another_folder_select_the_same(clone: Checkout, tmp_path: Path) -> None:
    """From inside the case folder, and from anywhere by path."""
    case = clone.root / "suite" / "cases" / "toy"
    inside = clone.pytest("--vendor", "cpu", "--collect-only", "-q", cwd=case)
    outside = clone.pytest(str(clone.root / "suite"), "--vendor", "cpu", "--collect-only", "-q", cwd=tmp_path)
    assert ids(inside.out) == ids(outside.out) == CPU_IDS


def test_vendor_outside_the_checkout(clone: Checkout, tmp_path: Path) -> None:
    """--vendor-path alone names the vendor that runs."""
    folder = tmp_path / "secret"
    for name in ("vendor.toml", "machines/host.toml", "toy/pytorch/config_default.toml"):
        source = clone.root / "suite" / "vendors" / "cpu" / name
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(source.read_text())
    done = clone.pytest("suite", "--vendor-path", str(folder), "-k", "1x1", "--collect-only", "-q")
    assert ids(done.out) == ["toy-pytorch-secret-host-mini-1x1"]


def test_plan_prints_everything_and_starts_nothing(clone: Checkout) -> None:
    """Origins, checks with their sources, base, seeds, commands, cost, repeats; exit 0, no folder."""
    done = clone.pytest("suite", "-k", "1x2", "--vendor", "cpu", "--set", "lr=0.25", "--plan", "--detect", "5%")
    assert done.code == 0, done.out
    for expected in (
        r"lr = 0.25 +# --set",
        r"max_samples = 100 +# cases/toy/pytorch/case.toml",
        r"quality: accuracy >= 0.7 fraction +# cases/toy/pytorch/case.toml; five seeds",
        r"base toy-pytorch-cpu-host-mini-throughput-1x1",
        r"seeds \d+",
        r"torch.distributed.run --nnodes=1 --nproc-per-node=2",
        r"in all 1 plan: 3 runs \(2 of them base runs\), about 0.04 device-hours.* on an idle host",
        r"--repeat 31 on each \(spread between runs 7.00%, assumed for time-to-train",
    ):
        assert re.search(expected, done.out), (expected, done.out)
    assert "mini-1x1\n" not in done.out
    assert not (clone.root / "results").exists()


def test_plan_needs_no_workers(clone: Checkout) -> None:
    """-n beside --plan changes nothing."""
    done = clone.pytest("suite", "-k", "1x1", "--vendor", "cpu", "--plan", "-n", "2")
    assert done.code == 0
    assert done.out.count("  digests case ") == 1


def test_plan_shows_no_escapes_of_a_stranger(tmp_path: Path) -> None:
    """A vendor's text cannot move the cursor."""
    checkout = make_checkout(tmp_path / "clone")
    checkout.write("suite/vendors/cpu/toy/pytorch/environment_variables.sh", "export RED='\x1b[31m'\n")
    done = checkout.pytest("suite", "-k", "1x1", "--vendor", "cpu", "--plan")
    assert "\x1b[31m" not in done.out


def test_will_run_lines(tmp_path: Path) -> None:
    """Before money is spent, each plan is named with its cost; not under -q."""
    checkout = make_checkout(tmp_path / "clone")
    done = checkout.pytest("suite", "--vendor", "cpu", "-k", "1x1")
    assert "will run toy-pytorch-cpu-host-mini-1x1 (about 36 s on an idle host)" in done.out
    quiet = checkout.pytest("suite", "--vendor", "cpu", "-k", "1x1", "-q")
    assert "will run" not in quiet.out


@pytest.mark.parametrize(
    "arguments",
    [("tests",), ("--help",), ("tests", "-n", "1"), ("suite/vendors", "--vendor", "nobody"), ("--markers",)],
    ids=" ".join,
)
def test_others_are_left_alone(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Without cases: no folder, no probe, no vendor demanded, no exit 5 for what has nothing to pass."""
    checkout = make_checkout(tmp_path / "clone", {"conftest.py": 'pytest_plugins = ("fixtures.plugin", "spy")\n'})
    checkout.write("tests/test_nothing.py", "def test_nothing():\n    assert True\n")
    checkout.write("suite/vendors/README.md", "")
    checkout.write(
        "spy.py",
        "import sys\ndef pytest_unconfigure(config):\n"
        "    assert not {'fixtures.hardware', 'psutil', 'pynvml', 'suite.catalog'} & set(sys.modules)\n",
    )
    done = checkout.start_pytest(*arguments)
    assert done.code == (5 if "suite/vendors" in arguments else 0), done.out
    assert "Traceback (most recent" not in done.out
    assert "trainmark:" not in done.out
    assert not (checkout.root / "results").exists()


def test_collect_only_makes_no_folder(clone: Checkout) -> None:
    """Looking leaves nothing behind."""
    done = clone.pytest("suite", "--vendor", "cpu", "--collect-only")
    assert done.code == 0
    assert not (clone.root / "results").exists()
    assert "will run" not in done.out


DIGESTS = """import pytest

def pytest_collection_finish(session):
    for item in session.items:
        plan = item.callspec.params["plan"]
        print(f"\\nHAS {plan.id} {plan.case_digest[:8]}.{plan.plan_digest[:8]}.")
"""


@pytest.mark.parametrize("arguments", [("--plan",), ("--collect-only", "--plan"), ("--max-device-hours", "1")])
def test_digests_are_made_for_whoever_shows_or_compares_them(clone: Checkout, arguments: tuple[str, ...]) -> None:
    """A list of names has none; whatever prints a plan, or counts runs that are shared, has them."""
    clone.write("digests.py", DIGESTS)
    words = ("suite", "--vendor", "cpu", "-k", "1x1", "-q", "-p", "digests")
    dry = () if "--plan" in arguments else ("--collect-only",)
    assert re.findall(r"HAS \S+ \w{8}\.\w{8}\.", clone.pytest(*words, *dry, *arguments).out)
    assert re.findall(r"HAS \S+ \.\.", clone.pytest(*words, "--collect-only").out)


def test_a_vendors_own_test_is_collected(tmp_path: Path) -> None:
    """Folders of settings alone are passed over; those with code are not."""
    checkout = make_checkout(tmp_path / "own")
    checkout.write("suite/vendors/acme/toy/pytorch/extern/test_slot.py", "def test_slot():\n    pass\n")
    done = checkout.pytest("suite", "--vendor", "cpu", "--collect-only", "-q")
    assert "vendors/acme/toy/pytorch/extern/test_slot.py::test_slot" in done.out


def test_collection_and_plugin_stay_light(clone: Checkout) -> None:
    """No torch at collection; importing the plugin imports nothing heavy."""
    clone.write("heavy.py", "import sys\ndef pytest_unconfigure(config):\n    print('HEAVY', 'torch' in sys.modules)\n")
    done = clone.start_pytest("suite", "--vendor", "cpu", "--collect-only", "-q", "-p", "heavy")
    assert "HEAVY False" in done.out
