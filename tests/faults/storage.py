"""Disks, folders and files that fail or are not there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.faults.fault import Act, Fault
from tests.faults.scene import Scene

LARGE_ENOUGH = "size=640m"
MOUNT_S = 20.0


def _mount(scene: Scene, options: str) -> Path:
    """A small disk of its own for the results."""
    disk = scene.checkout.root / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True, timeout=MOUNT_S, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    unmount = ["umount", "-l", str(disk)]
    scene.stack.callback(subprocess.run, unmount, capture_output=True, timeout=MOUNT_S, check=False)
    scene.checkout.results = disk / "out"
    return disk


def small_disk(scene: Scene) -> None:
    """Too small for any run."""
    _mount(scene, "size=64m")
    scene.tell("a disk of 64 MiB for the results")


def filling_disk(scene: Scene) -> None:
    """Large enough to begin with."""
    _mount(scene, LARGE_ENOUGH)


def read_only_disk(scene: Scene) -> None:
    """Nothing can be written at all."""
    _mount(scene, "size=640m,ro")
    scene.tell("a read-only disk for the results")


def unmount_results(scene: Scene) -> None:
    """As when a network file system goes away; who has a file open there goes on writing into nowhere."""
    scene.trains()
    scene.tell("unmount the disk of the results")
    command = ["umount", "-l", str(scene.checkout.results.parent)]
    subprocess.run(command, capture_output=True, timeout=MOUNT_S, check=True)


def remove_results(scene: Scene) -> None:
    """Somebody tidies up."""
    scene.trains()
    scene.tell("remove the session's folder")
    shutil.rmtree(scene.checkout.results, ignore_errors=True)


def remove(name: str) -> Act:
    """A file of the checkout is not there."""

    def arrange(scene: Scene) -> None:
        (scene.checkout.root / name).unlink()
        scene.tell(f"remove {name}")

    return arrange


def replace(name: str, old: str, new: str) -> Act:
    """A file of the checkout says something else."""

    def arrange(scene: Scene) -> None:
        path = scene.checkout.root / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
        scene.tell(f"{name}: {new}")

    return arrange


CASE = "suite/cases/toy/pytorch"
VENDOR = "suite/vendors/basalt/vendor.toml"

FAULTS = (
    Fault(
        name="disk_too_small",
        what="less room for results than any run needs",
        before=small_disk,
        expect="error: provision",
        exit=1,
        says="no room for results",
    ),
    Fault(
        name="disk_full",
        what="the disk of the results is full in the middle of a run",
        script="fill_disk@20",
        before=filling_disk,
        expect="error: provision",
        exit=1,
        says="No space left on device",
    ),
    Fault(
        name="results_read_only",
        what="the disk of the results is read-only",
        before=read_only_disk,
        expect="exit 4",
        exit=4,
        says="cannot use",
    ),
    Fault(
        name="results_unmounted",
        what="the disk of the results is unmounted during a run",
        before=filling_disk,
        act=unmount_results,
        arguments=("--set", "step_s=0.05"),
        expect="error: provision",
        exit=1,
        says="out/toy-",
    ),
    Fault(
        name="results_removed",
        what="the session's folder is removed during a run",
        act=remove_results,
        arguments=("--set", "step_s=0.05"),
        expect="error: provision",
        exit=1,
        says="out/toy-",
    ),
    Fault(
        name="data_missing",
        what="the training data is not there",
        arguments=("--set", "train_data=train.h5", "--data-dir", "{root}"),
        expect="error: config",
        exit=1,
        says="python -m tools data status toy",
    ),
    Fault(
        name="train_py_missing",
        what="the case has no train.py",
        before=remove(f"{CASE}/train.py"),
        expect="error: config",
        exit=1,
        says="train.py",
    ),
    Fault(
        name="case_toml_missing",
        what="the case has no case.toml",
        before=remove(f"{CASE}/case.toml"),
        expect="exit 4",
        exit=4,
    ),
    Fault(
        name="vendor_toml_broken",
        what="a vendor.toml that is no TOML",
        before=replace(VENDOR, 'title = "', "title = "),
        expect="exit 4",
        exit=4,
        says="vendor.toml",
    ),
    Fault(
        name="interpreter_missing",
        what="the interpreter of the framework is not installed",
        before=replace(VENDOR, 'python = "', 'python = "/nowhere'),
        expect="error: environment",
        exit=1,
        says="the Python of pytorch, does not exist or cannot be run; make it:",
    ),
)
