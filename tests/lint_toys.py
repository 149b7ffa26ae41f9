"""A vendor and a case without a fault, and how tests put one in."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path

from tools.check import check_folder
from tools.finding import Finding

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "acme's lab, 2026-01-31, driver 1.2, ten runs: throughput_train 50 samples/s"

CASE = {
    "suite/cases/toy/pytorch/case.toml": """
        title = "A toy"
        measurement_version = 1
        mutable = ["lr", "train_batch_size"]
        [extern]
        slots = ["attention", "optimizer"]
        [quality]
        metric = "accuracy"
        better = "higher"
        [target]
        value = 0.8
        source = "the paper, table 2: 0.8"
        [params]
        lr = 0.1
        depth = 2
        train_batch_size = 8
        eval_every_samples = 80
        [preset.mini.target]
        value = 0.7
        source = "five seeds reached 0.75 to 0.8, broken runs 0.2"
    """,
    "suite/cases/toy/pytorch/README.md": """
        # toy/pytorch
        ## Data
        Two files, made by hand.
        ## Target
        The paper's.
        ## One measured result per machine
        None yet: it was not run.
    """,
    "suite/cases/toy/pytorch/data.toml": """
        [[file]]
        preset = "mini"
        path = "case:words.txt"
        bytes = 6
        source = "made for this test"
        licence = "CC0"
    """,
    "suite/cases/toy/pytorch/data/words.txt": "words\n",
    "suite/cases/toy/pytorch/train.py": """
        from suite.drivers.pytorch import Task, run

        SLOTS = {"attention": None}
    """,
    "suite/cases/toy/pytorch/test_toy.py": """
        def test_toy(plan, train, judge):
            judge(train(plan))
    """,
}

VENDOR = {
    "suite/vendors/acme/vendor.toml": """
        title = "Acme"
        verified = false
        topologies = ["1x1", "1x8"]
        [detect]
        dev = ["/dev/acme[0-9]*"]
        pci = ["0xacac"]
        [device]
        type = "cpu"
        backend = "gloo"
        [probe]
        method = "command"
        command = ["acme-smi", "--list"]
        format = "csv"
        [probe.fields]
        uuid = "uuid"
        name = "name"
        [container]
        options = ["--device=/dev/acme0", "--shm-size=1g"]
        [[faults]]
        pattern = "ACME_OUT_OF_MEMORY"
        category = "out_of_memory"
    """,
    "suite/vendors/acme/README.md": """
        # acme
        The machine A1. Nothing here was run on the chip.

            pytest suite -k "toy and 1x1" --vendor acme
    """,
    "suite/vendors/acme/machines/A1.toml": """
        match = ["Acme A1"]
        memory_gib = 64
        peak_source = "Acme's data sheet; dense; confidence high"
        [peak_tflops]
        fp32 = 20
        tf32 = 100
        fp16 = 200
        bf16 = 200
        fp8 = 400
    """,
    "suite/vendors/acme/toy/pytorch/config_A1x1x1.toml": "lr = 0.2\n",
    "suite/vendors/acme/toy/pytorch/config_A1x1x8.toml": f"""
        train_batch_size = 4
        [threshold.throughput]
        value = 48.0
        source = "{SOURCE}"
        tolerance = 0.05
    """,
    "suite/vendors/acme/toy/pytorch/environment_variables.sh": "export ACME_DEBUG=0\n",
    "suite/vendors/acme/toy/pytorch/requirements.txt": "acme-kernels>=1.2\n",
    "suite/vendors/acme/toy/pytorch/extern/__init__.py": """
        def fill(slots):
            slots["attention"] = print
    """,
    "suite/vendors/acme/runtime/pytorch/runtime.py": """
        def after_step(device):
            pass
    """,
    "suite/vendors/acme/images/pytorch/Dockerfile": "ARG BASE=registry.example/acme:1.2\nFROM ${BASE}\n",
    "suite/vendors/acme/images/pytorch/pytorch_install.sh": "#!/usr/bin/env bash\nset -euo pipefail\n",
    "suite/vendors/other/vendor.toml": """
        title = "Another"
        topologies = ["1x1"]
        [detect]
        dev = ["/dev/other[0-9]*"]
        pci = ["0x0ddd"]
        [device]
        type = "cpu"
        backend = "gloo"
    """,
    "suite/vendors/other/machines/B7.toml": 'match = ["Other B7"]\n',
}


def make_checkout(root: Path) -> Path:
    """A checkout of one case and two vendors, without a fault."""
    for name, text in {**CASE, **VENDOR}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    (root / "suite/drivers/pytorch").mkdir(parents=True)
    (root / "suite/drivers/pytorch/VERSION").write_text("1\n")
    return root


def findings(root: Path, folder: str) -> list[Finding]:
    """What is found in a folder of the checkout."""
    return check_folder(root / folder, root)


def put(path: str, text: str) -> Callable[[Path], None]:
    """A fault: the file has this text."""

    def change(root: Path) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)

    return change


def edit(path: str, old: str, new: str) -> Callable[[Path], None]:
    """A fault: a piece of a file is another one."""

    def change(root: Path) -> None:
        text = (root / path).read_text()
        assert old in text, f"{path} has no {old!r}"
        (root / path).write_text(text.replace(old, new, 1))

    return change


def gone(path: str) -> Callable[[Path], None]:
    """A fault: a file or folder is absent."""

    def change(root: Path) -> None:
        target = root / path
        shutil.rmtree(target) if target.is_dir() else target.unlink()

    return change
