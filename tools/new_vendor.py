"""`python -m tools new vendor`: a folder that runs at once, on the processor or like another vendor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from suite.catalog import VendorFolder, load_catalog
from suite.config_name import DEFAULT_CONFIG, config_name, parse_config_name
from suite.errors import UsageProblem
from suite.toml_file import shown
from tools.scaffold import check_name, filled, write_new

FIGURES = re.compile(r"\[+.*\b(?:threshold|check)\b")
"""Tables that hold what another chip reached."""

ANYWHERE = (
    "A skeleton that runs on the processor of any host, so that everything around a chip can be seen to work before the"
    "\nchip does."
)
ELSEWHERE = (
    "A skeleton in the likeness of {other}: it runs where {other}'s folder does, until its own lines are written."
)
SMALLEST = "glm"
"""The case to begin with, where the vendor trains it."""

LIKE = "cpu"
"""Whose folder is the smallest that works."""

COPIED = ("environment_variables.sh", "requirements.txt")


def new_vendor(root: Path, name: str, like: str, machine: str, into: Path | None) -> int:
    """Write the folder, then say what to run. Raises UsageProblem."""
    check_name("NAME", name)
    check_name("--machine", machine)
    catalog = load_catalog(root / "suite")
    place = (into or root / "suite" / "vendors") / name
    if name in catalog.vendors or place.exists():
        taken = shown(catalog.vendors[name].path if name in catalog.vendors else place, root)
        raise UsageProblem(f"{taken}: exists already, and is left alone; choose another name")
    other = catalog.vendor(like or LIKE)
    copied = dict(_copied(other, machine))
    models = sorted({below.parts[0] for below in copied if below.name == DEFAULT_CONFIG})
    model = SMALLEST if SMALLEST in models or not models else models[0]
    what = ANYWHERE if other.spec.device.type == "cpu" else ELSEWHERE.format(other=other.name)
    words = {"name": name, "machine": machine, "folder": shown(place, root), "model": model, "what": what}
    files = {
        place / "README.md": filled("vendor/README.md", **words),
        place / "vendor.toml": vendor_text(other, name) if like else filled("vendor/vendor.toml", **words),
        place / "machines" / f"{machine}.toml": filled("vendor/machine.toml", **words),
    }
    files |= {place / below: text for below, text in copied.items()}
    write_new(files, root)
    option = f" --vendor-path {place}" if into else ""
    print(f'run it: pytest suite -k "{model} and 1x1" --vendor {name}{option} --preset mini')
    print(f"then write what {shown(place / 'README.md', root)} lists, in its order")
    print(f"look it over: python -m tools check {shown(place, root)}")
    return 0


def vendor_text(other: VendorFolder, name: str) -> str:
    """vendor.toml of another vendor, under a name of its own: not verified, and detected by nothing yet."""
    text = (other.path / "vendor.toml").read_text(encoding="utf-8")
    text = re.sub(r"^title = .*$", f'title = "{name}"', text, count=1, flags=re.MULTILINE)
    text = re.sub(r"^verified = .*$", "verified = false", text, count=1, flags=re.MULTILINE)
    note = f"# Made in the likeness of {other.name}: every line that names its devices, tools or texts wants yours.\n"
    return note + without_tables(text, re.compile(r"\[detect\]"))


def without_tables(text: str, header: re.Pattern[str]) -> str:
    """The TOML without the tables whose headers match."""
    kept, keep = [], True
    for line in text.splitlines(keepends=True):
        if line.startswith("["):
            keep = not header.match(line)
        if keep:
            kept.append(line)
    return "".join(kept)


def _copied(other: VendorFolder, machine: str) -> Iterator[tuple[Path, str]]:
    """(path below the folder, text) of what is no figure: images, configurations, environment. No code, no machines."""
    for path in sorted((other.path / "images").glob("*/*")):
        yield path.relative_to(other.path), path.read_text(encoding="utf-8")
    for folder in sorted({path.parent for path in other.path.glob("*/*/config_*.toml")}):
        below = folder.relative_to(other.path)
        default = folder / DEFAULT_CONFIG
        text = default.read_text(encoding="utf-8") if default.is_file() else filled("case_pytorch/config_default.toml")
        yield below / DEFAULT_CONFIG, without_tables(text, FIGURES)
        yield from _topologies(other, folder, below, machine)
        for name in COPIED:
            if (folder / name).is_file():
                yield below / name, (folder / name).read_text(encoding="utf-8")


def _topologies(other: VendorFolder, folder: Path, below: Path, machine: str) -> Iterator[tuple[Path, str]]:
    """The files of the other's only machine, for ours; of several, none is more like it than another."""
    if len(other.machines) != 1:
        return
    for path in sorted(folder.glob("config_*.toml")):
        if path.name != DEFAULT_CONFIG:
            _, topology = parse_config_name(path.name)
            yield below / config_name(machine, topology), without_tables(path.read_text(encoding="utf-8"), FIGURES)
