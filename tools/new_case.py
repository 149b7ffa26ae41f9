"""`python -m tools new case`: a case that trains at once, to be filled with a real model, data and target."""

from __future__ import annotations

from pathlib import Path

from suite.catalog import load_catalog
from suite.errors import UsageProblem, did_you_mean
from tools.scaffold import TEMPLATES, check_name, filled, python_name, write_new

WORDS_OF_K = ("and", "or", "not", "True", "False", "None")
"""What `-k` would not take for a name."""

PLAIN = "def step(self, model"
"""By this line the driver of `new framework` is known, whose cases train in plain Python."""


def new_case(root: Path, model: str, framework: str, vendor: str) -> int:
    """Write the case's folder and the vendor's for it, then say what to run. Raises UsageProblem."""
    check_name("MODEL", model, WORDS_OF_K)
    check_name("--framework", framework)
    folder = load_catalog(root / "suite").vendor(vendor).path / model / framework
    case = root / "suite" / "cases" / model / framework
    if case.exists():
        raise UsageProblem(f"suite/cases/{model}/{framework}: exists already, and is left alone; choose another name")
    template = _template(root, framework)
    words = {"model": model, "framework": framework, "name": python_name(model)}
    files = {case / name: filled(f"{template}/{name}", **words) for name in ("case.toml", "train.py")}
    for name in ("README.md", "data.toml", "requirements.txt"):
        files[case / name] = filled(f"case_pytorch/{name}", **words)
    files[case / f"test_{words['name']}.py"] = filled("case_pytorch/test.py", **words)
    files[folder / "config_default.toml"] = filled("case_pytorch/config_default.toml")
    write_new(files, root)
    print(f'run it: pytest suite -k "{model} and 1x1" --vendor {vendor} --preset mini')
    print(f"then replace what suite/cases/{model}/{framework}/README.md lists, in its order")
    print(f"look it over: python -m tools check suite/cases/{model}/{framework}")
    return 0


def _template(root: Path, framework: str) -> str:
    """The folder of templates for a framework. Raises UsageProblem where nobody could train with it."""
    drivers = root / "suite" / "drivers"
    have = sorted(path.parent.name for path in drivers.glob("*/VERSION") if path.parent.name != "scripts")
    if framework not in have:
        hint = did_you_mean(framework, have)
        raise UsageProblem(
            f"--framework {framework}: no driver under suite/drivers{hint}; make one: python -m tools new framework"
        )
    if (TEMPLATES / f"case_{framework}").is_dir():
        return f"case_{framework}"
    task = drivers / framework / "task.py"
    if task.is_file() and PLAIN in task.read_text(encoding="utf-8", errors="replace"):
        return "case_plain"
    near = sorted(
        path.parent.relative_to(root).as_posix() for path in root.glob(f"suite/cases/*/{framework}/case.toml")
    )
    copy = f"copy {near[0]}" if near else "start from docs/driver.md"
    raise UsageProblem(f"--framework {framework}: there is no skeleton for it; {copy}")
