"""`python -m tools new dummy`: a case that trains nothing, by which image, launcher, devices and folders are tried."""

from __future__ import annotations

import shlex
from pathlib import Path

from suite.catalog import load_catalog
from suite.config_name import config_name, parse_config_name
from suite.errors import UsageProblem, did_you_mean
from suite.toml_file import shown
from tools.scaffold import check_name, filled, write_new

MODEL = "dummy"


def new_dummy(root: Path, vendor: str, framework: str, config: str, data_dir: Path) -> int:
    """Write the case and its configuration; print the key to run, and how to remove both. Raises UsageProblem."""
    _check_framework(root, vendor, framework)
    machine, topology = parse_config_name(f"{config.removesuffix('.toml')}.toml")
    folder = load_catalog(root / "suite").vendor(vendor)
    name = config_name(folder.machine(machine).name, topology)
    if not data_dir.is_dir():
        raise UsageProblem(f"--data-dir {data_dir}: no such folder; make it, an empty one will do")
    case, own = root / "suite" / "cases" / MODEL / framework, folder.path / MODEL / framework
    preset = folder.spec.default_preset
    extra = "" if preset in ("full", "mini") else f"\n[preset.{preset}]\nestimate_s = 10\n"
    choice = [f"{MODEL} and {topology}", "--vendor", vendor, "--framework", framework, "--machine", machine]
    place = shlex.quote(str(data_dir.resolve()))
    command = f"pytest suite -k {shlex.join(choice)} --data-dir {place}"
    places = [shlex.quote(shown(path, root)) for path in (case, own)]
    words = {"framework": framework, "presets": extra, "command": command, "folders": " ".join(places)}
    files = {case / file: filled(f"dummy/{file}", **words) for file in ("case.toml", "train.py", "README.md")}
    files[case / "test_dummy.py"] = filled("dummy/test.py")
    files[own / name] = filled("dummy/config.toml")
    write_new({path: text.rstrip("\n") + "\n" for path, text in files.items()}, root)
    key = f"{MODEL}:{framework}:{machine}:{topology.nnodes}:{topology.nproc}:1"
    print(f'case key, a row of --cases: "{key}" = "{data_dir.resolve()}"')
    print(f"run it: {command}")
    print("each rank prints its environment into logs/rank<R>.log of the run's folder")
    print(f"remove it: rm -r {' '.join(places)}   (the data folder is yours, and stays)")
    return 0


def _check_framework(root: Path, vendor: str, framework: str) -> None:
    """Raise UsageProblem for one that has neither a driver, nor a case, nor an image of the vendor."""
    check_name("--framework", framework)
    globs = ("suite/drivers/*/VERSION", "suite/cases/*/*/case.toml", f"suite/vendors/{vendor}/images/*/Dockerfile")
    have = {path.parent.name.partition("_")[0] for glob in globs for path in root.glob(glob)} - {"scripts"}
    if framework not in have:
        raise UsageProblem(
            f"--framework {framework}: nobody has it{did_you_mean(framework, have)}; add its image first"
        )
