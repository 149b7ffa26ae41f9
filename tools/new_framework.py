"""`python -m tools new framework`: a driver that tells the story of a run in plain Python, and an image for it."""

from __future__ import annotations

import keyword
from pathlib import Path

from suite.errors import UsageProblem
from tools.scaffold import check_name, filled, write_new

MODULES = ("__init__.py", "VERSION", "task.py", "entry.py", "header.py", "loop.py")


def new_framework(root: Path, name: str) -> int:
    """Write suite/drivers/NAME and an image recipe, then say what to do with them. Raises UsageProblem."""
    check_name("NAME", name, ("scripts", "events", "rank"))
    if not name.isidentifier() or keyword.iskeyword(name):
        raise UsageProblem(f"NAME {name!r}: a driver is a Python package; use letters, digits and `_`")
    driver = root / "suite" / "drivers" / name
    if driver.exists():
        raise UsageProblem(f"suite/drivers/{name}: exists already, and is left alone; choose another name")
    image = root / "suite" / "vendors" / "cpu" / "images" / name
    files = {driver / module: sorted_imports(filled(f"framework/{module}", name=name)) for module in MODULES}
    files[image / "Dockerfile"] = filled("framework/Dockerfile", name=name)
    files[image / f"{name}_install.sh"] = filled("framework/install.sh", name=name)
    write_new(files, root)
    print(f"give it something to train: python -m tools new case line --framework {name}")
    print('then: pytest suite -k "line and 1x1" --vendor cpu')
    print("the driver trains in plain Python, on one rank; docs/driver.md and docs/contracts.md say what it owes:")
    print(f"  task.py    what a case gives: a loss instead of `step`, as {name} differentiates it")
    print("  header.py  the precision in effect, read back; the device and its identity")
    print("  loop.py    process groups, gradients over all ranks, parameters compared at the end; checkpoints, slots")
    print("until several ranks are exchanged, such a plan ends as `error: environment`, which is what it is")
    return 0


def sorted_imports(text: str) -> str:
    """The text with our own imports in order, which depends on the framework's name."""
    lines = text.splitlines(keepends=True)
    places = [number for number, line in enumerate(lines) if line.startswith("from suite.")]
    for place, line in zip(places, sorted(lines[place] for place in places)):
        lines[place] = line
    return "".join(lines)
