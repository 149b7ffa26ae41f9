"""Whether `verified = true` of a vendor rests on a result that a reader can look up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from suite.baseline_file import approved
from suite.catalog import Catalog, VendorFolder
from suite.vendor_spec import VendorSpec
from tools.check_files import text_of
from tools.finding import Finding

FIGURE = re.compile(r"\d ?(?:(?:ms|s|seconds|min|minutes|h|hours|[A-Za-z]+/s|GiB)\b|%)|\b[A-Za-z]+ \d+\.\d+\b")
"""A number with a unit, or a measure with its value."""

NO_RESULT = re.compile(r"\bnot (?:yet )?(?:measured|run|tried)\b|\bnothing yet\b|\bnone yet\b", re.IGNORECASE)

ANY_HOST = "host"
"""A machine's name that stands for whichever one is there."""


def check_proof(vendor: VendorFolder, spec: VendorSpec, catalog: Catalog, label: str) -> Iterator[Finding]:
    """What `verified` claims, against what is cited for it."""
    if spec.verified is False:
        return
    if spec.verified is not True:
        if len(set(spec.verified.bundle_sha256)) == 1:
            sha256 = f"verified.bundle_sha256 = '{spec.verified.bundle_sha256[:8]}…'"
            yield Finding(label, f"{sha256} is of no file", "name the bundle that python -m reports bundle wrote")
        return
    if not any(approved(catalog.baselines_dir / vendor.name)) and not any(_results(vendor, catalog)):
        yield Finding(
            label,
            "verified = true, and no result of it is cited",
            f"say false, or cite one: a row of a README with device, plan and figure, an approved file in"
            f" baselines/{vendor.name}/, or verified = {{date, bundle_sha256, by}}",
        )


def _results(vendor: VendorFolder, catalog: Catalog) -> Iterator[str]:
    """Rows of tables in which a README tells what one of the vendor's devices reached."""
    machines = {path.stem for path in (vendor.path / "machines").glob("*.toml")} - {ANY_HOST}
    named = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, (vendor.name, *machines)))})(?![\w-])", re.IGNORECASE)
    for path in (vendor.path / "README.md", *_case_pages(catalog)):
        for line in text_of(path).splitlines():
            device, *cells = line.strip().strip("|").split("|")
            if cells and line.lstrip().startswith("|") and named.search(device) and _tells(cells):
                yield line


def _case_pages(catalog: Catalog) -> Iterator[Path]:
    yield from (case.path / "README.md" for case in catalog.cases)


def _tells(cells: list[str]) -> bool:
    text = " | ".join(cells)
    return bool(FIGURE.search(text)) and not NO_RESULT.search(text)
