"""`python -m tools check`: `verified` rests on a result that is cited, and no source is a template's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lint_toys import edit, findings, make_checkout, put
from tests.test_tools_check import BASELINE

V, C = "suite/vendors/acme", "suite/cases/toy/pytorch"
TOML = f"{V}/vendor.toml"
UNPROVEN = f"{TOML}: verified = true, and no result of it is cited; say false, or cite one: a row of a README"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose vendor says that it was run on the chip."""
    root = make_checkout(tmp_path)
    edit(TOML, "verified = false", "verified = true")(root)
    return root


def told(root: Path, folder: str = V) -> list[str]:
    """The findings as lines."""
    return [str(finding) for finding in findings(root, folder)]


def add_row(root: Path, path: str, row: str) -> None:
    """A table with this row at the end of a page."""
    place = root / path
    place.write_text(f"{place.read_text()}\n| device | plan | result |\n|---|---|---|\n{row}\n")


def test_a_vendor_that_was_verified_by_nothing_is_told(checkout: Path) -> None:
    (line,) = told(checkout)
    assert line.startswith(UNPROVEN) and "baselines/acme/" in line and "{date, bundle_sha256, by}" in line


@pytest.mark.parametrize("path", [f"{C}/README.md", f"{V}/README.md"], ids=["the case's page", "the vendor's page"])
@pytest.mark.parametrize(
    ("row", "proves"),
    [
        ("| Acme A1 | mini 1x1 | 1,234 tokens/s |", True),
        ("| eight A1 | full 1x8 | accuracy 0.81 after 9,000 samples |", True),
        ("| acme | mini 1x1 | 7.3 s to the target |", True),
        ("| Acme A1 | mini 1x1 | not measured yet, 60 s are planned |", False),
        ("| `A1` | 64 of them | a device |", False),
        ("| Other B7 | mini 1x1 | 7.3 s to the target |", False),
        ("| B7 | as fast as an A1 | 7.3 s |", False),
        ("Acme A1 needs 7.3 s", False),
    ],
)
def test_a_row_with_its_device_and_a_figure_is_a_proof(checkout: Path, path: str, row: str, proves: bool) -> None:
    add_row(checkout, path, row)
    assert (not told(checkout)) is proves, told(checkout)


@pytest.mark.parametrize("state", ["approved", "proposed"])
def test_an_approved_baseline_is_a_proof(checkout: Path, state: str) -> None:
    put("baselines/acme/x.toml", BASELINE.replace('state = "approved"', f'state = "{state}"'))(checkout)
    assert (not told(checkout)) is (state == "approved")


@pytest.mark.parametrize(("digest", "proves"), [("0123456789abcdef" * 4, True), ("0" * 64, False)])
def test_a_bundle_is_named_by_a_digest_that_a_file_may_have(checkout: Path, digest: str, proves: bool) -> None:
    bundle = f'verified = {{ date = "2026-01-31", bundle_sha256 = "{digest}", by = "acme" }}'
    edit(TOML, "verified = true", bundle)(checkout)
    lines = told(checkout)
    assert (not lines) is proves
    assert proves or lines[0].endswith("is of no file; name the bundle that python -m reports bundle wrote")


def test_who_claims_nothing_has_nothing_to_prove(checkout: Path) -> None:
    edit(TOML, "verified = true", "verified = false")(checkout)
    assert told(checkout) == []


@pytest.mark.parametrize(
    "source",
    [
        "made up for a skeleton: guessing gives 0.5. Replace it by the published value, and say who published it",
        "a skeleton ends in seconds; replace it by what the published run took",
        "made-up number, 2026",
    ],
)
def test_a_source_of_a_template_cites_nothing(checkout: Path, source: str) -> None:
    edit(f"{C}/case.toml", "the paper, table 2: 0.8", source)(checkout)
    (line,) = told(checkout, C)
    assert line.startswith(f"{C}/case.toml: [target] source = ")
    assert line.endswith("cites nothing; say who set it, when, and why")


def test_a_threshold_with_such_a_source_is_told_too(checkout: Path) -> None:
    edit(TOML, "verified = true", "verified = false")(checkout)
    source = "made up for a skeleton, 2026: 50 samples/s"
    put(f"{V}/toy/pytorch/config_A1x1x1.toml", f'[threshold.throughput]\nvalue = 48.0\nsource = "{source}"\n')(checkout)
    (line,) = told(checkout)
    assert "[threshold.throughput] source = " in line and "cites nothing; say who measured it" in line
