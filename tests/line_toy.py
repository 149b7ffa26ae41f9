"""A checkout whose one case really trains, in a second: four weights of a plane, by the PyTorch driver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.driver_toy import PARAMS, TRAIN
from tests.user_toy import CPU, TEST, Checkout, make_checkout

ID = "line-pytorch-cpu-host-mini-1x1"
TARGET = 0.01
"""The noise has a hundredth of it; an untrained plane is at a thousand times as much."""

CASE = """
title = "A plane"
measurement_version = 1
estimate_s = 5
samples_unit = "point"
mutable = ["lr", "train_batch_size", "max_samples", "threads"]
[quality]
metric = "mse"
better = "lower"
{quality}
[params]
{params}
[target]
value = {target}
source = "the noise of the data"
[limit]
time_to_train_s = 100
source = "patience"
[preset.mini]
{preset}
"""

CONFTEST = 'pytest_plugins = ("fixtures.plugin", "reports.plugin")\n'


def case_toml(
    *, quality: str = "", preset: str = "", more: str = "", params: Mapping[str, object] | None = None
) -> str:
    """case.toml with further lines."""
    lines = "\n".join(
        f"{name} = {json.dumps(value)}" for name, value in {**PARAMS, "lr": 0.2, **(params or {})}.items()
    )
    return CASE.format(params=lines, target=TARGET, quality=quality, preset=preset) + more


def line_checkout(root: Path, **case: object) -> Checkout:
    """The checkout; `case` as for `case_toml`."""
    files = {
        "conftest.py": CONFTEST,
        "suite/cases/line/pytorch/case.toml": case_toml(**case),  # type: ignore[arg-type]
        "suite/cases/line/pytorch/test_line.py": TEST.format(model="line"),
        "suite/cases/line/pytorch/train.py": TRAIN,
        "suite/vendors/cpu/vendor.toml": CPU,
        "suite/vendors/cpu/machines/host.toml": 'match = ["*"]\n',
        "suite/vendors/cpu/line/pytorch/config_default.toml": "",
    }
    return make_checkout(root, files)
