"""A small catalog on disk for the tests of planning: one case, two vendors, every kind of layer."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.catalog import load_catalog
from suite.errors import UsageProblem
from suite.plan import Plan, Request
from suite.selection import plans

CASE = """
title = "Toy"
measurement_version = 3
samples_unit = "image"
estimate_s = 3600
mutable = ["train_batch_size", "lr", "fused", "betas", "steps"]
[extern]
slots = ["attention", "optimizer"]
[quality]
metric = "accuracy"
better = "higher"
unit = "fraction"
[params]
train_batch_size = 8
lr = 0.5
fused = false
betas = [0.9, 0.99]
steps = 100
name = "toy"
hidden = 64
train_data = "train.h5"
[target]
value = 0.8
source = "the paper"
[limit]
time_to_train_s = 7200
source = "the case"
[[check]]
name = "size"
metric = "parameters"
op = "=="
value = "hidden ** 2 * world"
source = "counted"
[mode.throughput]
estimate_s = 60
[mode.throughput.params]
steps = 20
[preset.mini]
estimate_s = 36
[preset.mini.params]
hidden = 8
train_data = "case:tiny.bin"
[preset.mini.target]
value = 0.7
source = "five seeds"
[preset.mini.limit]
time_to_train_s = 600
source = "patience"
"""

DATA = """
[[file]]
preset = "full"
path = "train.h5"
bytes = 1234
source = "where it is"
licence = "free"
[[file]]
preset = ["mini"]
path = "case:tiny.bin"
source = "made here"
licence = "free"
"""

CPU = """
title = "The host"
verified = true
default_preset = "mini"
topologies = ["1x1", "1x2", "2x1"]
exclusive = false
[device]
type = "cpu"
backend = "gloo"
shared = true
[launch]
local_nodes = 2
"""

ACME = """
title = "Acme"
topologies = ["1x1", "1x8"]
[detect]
dev = ["/dev/acme[0-9]*"]
pci = ["0x1abc"]
[device]
type = "acme"
backend = "cpu:gloo,acme:acmeccl"
[[faults]]
pattern = "out of acme memory"
category = "out_of_memory"
"""


def write(root: Path, files: dict[str, str]) -> None:
    """Files by their paths below `root`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def make_suite(root: Path) -> Path:
    """The folder `suite` of a fresh toy catalog."""
    suite = root / "suite"
    write(
        suite,
        {
            "drivers/events.py": "SCHEMA = 1\n",
            "drivers/pytorch/VERSION": "2\n",
            "drivers/pytorch/loop.py": "def run():\n    return 1\n",
            "cases/toy/pytorch/case.toml": CASE,
            "cases/toy/pytorch/data.toml": DATA,
            "cases/toy/pytorch/data/tiny.bin": "tiny",
            "cases/toy/pytorch/train.py": "# trains\nRATE = 1\n",
            "vendors/cpu/vendor.toml": CPU,
            "vendors/cpu/machines/host.toml": 'match = ["*"]\n',
            "vendors/cpu/toy/pytorch/config_default.toml": "",
            "vendors/acme/vendor.toml": ACME,
            "vendors/acme/machines/A1.toml": 'match = ["Acme A1*"]\nmemory_gib = 40\n',
            "vendors/acme/machines/MI300X.toml": 'match = ["Acme MI300*"]\n',
            "vendors/acme/toy/pytorch/config_A1x1x1.toml": "train_batch_size = 16\n",
            "vendors/acme/toy/pytorch/config_A1x1x8.toml": "train_batch_size = 16\nlr = 1\n",
            "vendors/acme/toy/pytorch/config_A1x2x8.toml": "train_batch_size = 4\n",
        },
    )
    return suite


def plan_all(suite: Path, vendor: str = "acme", **request: object) -> tuple[Plan, ...]:
    """The plans of a request, by a catalog read anew."""
    return plans(load_catalog(suite), Request.model_validate({"vendor": vendor, **request}))


def plan_one(suite: Path, topology: str, vendor: str = "acme", **request: object) -> Plan:
    """The only plan at a topology."""
    (plan,) = plan_all(suite, vendor, topologies=(topology,), **request)
    return plan


def refusal(suite: Path, vendor: str = "acme", **request: object) -> str:
    """The one sentence with which a request is refused."""
    with pytest.raises(UsageProblem) as caught:
        plan_all(suite, vendor, **request)
    assert "\n" not in str(caught.value)
    return str(caught.value)
