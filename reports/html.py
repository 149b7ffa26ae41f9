"""The report as web pages: a folder that needs no script, or a single file for mail. No verdict depends on it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup

from reports import plots
from reports.atomic import refuse_device, replace_file
from reports.html_overview import SEVERITY, overview
from reports.html_page import PlanPage, plan_page
from reports.html_text import TEMPLATES, environment, page_name
from reports.json_report import SessionReport
from suite.errors import UsageProblem
from suite.result import Result

FOLDER = "report"
STYLE, SCRIPT = "style.css", "report.js"
PAGES, IMAGES = "plans", "images"

SINGLE_FILE_BYTES = 2_000_000
"""A single file stays under this: mail servers refuse more."""

NO_MATPLOTLIB = "Without plots: matplotlib is not installed. Make the report again after pip install -e '.[report]'."


@dataclass(frozen=True, slots=True)
class Written:
    """What was written, and what a person should know of it."""

    path: Path
    remarks: tuple[str, ...] = ()


def write_pages(report: SessionReport, session: Path, folder: Path, *, draw: bool = True) -> Written:
    """index.html, a page for each plan, style, script and images in `folder`. Raises UsageProblem and OSError.

    Pages are written before the index that links to them, each atomically; what else lies in `folder` stays.
    """
    for place in (folder, folder / PAGES, folder / IMAGES):
        if place.is_symlink():
            raise UsageProblem(f"{place}: a link, so the report would be written elsewhere; remove it")
        place.mkdir(parents=True, exist_ok=True)
    for name in (STYLE, SCRIPT):
        replace_file(folder / name, (TEMPLATES / name).read_bytes())
    templates = environment()
    remarks = _remarks(draw)
    names = [page_name(result.id) for result in report.results]
    for index, result in enumerate(report.results):
        page = plan_page(report, result, session, draw=draw and not remarks)
        sources = _write_images(page, folder)
        text = templates.get_template("plan.html").render(
            report=report,
            page=page,
            sources=sources,
            remarks=remarks,
            root="../",
            before=_neighbour(report.results, names, index - 1),
            after=_neighbour(report.results, names, index + 1),
        )
        replace_file(folder / PAGES / f"{page.anchor}.html", text.encode("utf-8"))
    shown = overview(report.results, lambda id: f"{PAGES}/{page_name(id)}.html")
    text = templates.get_template("index.html").render(report=report, overview=shown, remarks=remarks, root="")
    replace_file(folder / "index.html", text.encode("utf-8"))
    return Written(folder / "index.html", remarks)


def write_single_file(report: SessionReport, session: Path, path: Path, *, draw: bool = True) -> Written:
    """The whole report in one file below SINGLE_FILE_BYTES. Raises UsageProblem where not even the overview fits.

    Plans that did not pass come first to the room there is: with their plots, else without, else not at all, and said.
    """
    templates = environment()
    remarks = list(_remarks(draw))
    everything = {result.id: f"#{page_name(result.id)}" for result in report.results}
    room = SINGLE_FILE_BYTES - len(_single(templates, report, everything, [], remarks).encode("utf-8")) - 2000
    if room < 0:
        raise UsageProblem(
            f"{path}: the overview of {len(report.results)} plans alone is larger than {SINGLE_FILE_BYTES:,} bytes; "
            "make the folder instead, without --single-file"
        )
    sections, bare = _sections(templates, report, session, room, draw=draw and not remarks)
    if bare:
        remarks.append(f"{bare} plans stand here without plots, to keep the file small.")
    if left_out := len(report.results) - len(sections):
        remarks.append(f"{left_out} plans stand here in the overview only, to keep the file small.")
    known = {id: href for id, href in everything.items() if id in sections}
    order = [sections[result.id] for result in report.results if result.id in sections]
    path.parent.mkdir(parents=True, exist_ok=True)
    refuse_device(path)
    replace_file(path, _single(templates, report, known, order, remarks).encode("utf-8"))
    return Written(path, tuple(remarks))


def _sections(
    templates: Environment, report: SessionReport, session: Path, room: int, *, draw: bool
) -> tuple[dict[str, Markup], int]:
    """(the parts of the plans that fit into `room` bytes, how many of them had to leave their plots out)."""
    sections: dict[str, Markup] = {}
    bare = 0
    drawn = draw
    for result in sorted(report.results, key=lambda result: SEVERITY.index(result.outcome.status)):
        text = _section(templates, report, result, session, draw=drawn)
        if drawn and len(text.encode("utf-8")) > room:
            # Where these plots do not fit, others hardly will; drawing them to see would take minutes.
            drawn = False
            text = _section(templates, report, result, session, draw=False)
        size = len(text.encode("utf-8"))
        if size <= room:
            room -= size
            bare += draw and not drawn
            # Rendered by our own template, which has escaped whatever it was given.
            sections[result.id] = Markup(text)
    return sections, bare


def _section(templates: Environment, report: SessionReport, result: Result, session: Path, *, draw: bool) -> str:
    """One plan's part of a single file, its plots inside."""
    page = plan_page(report, result, session, draw=draw)
    sources = {plot.name: _data_address(plot.png) for plot in page.plots}
    return templates.get_template("section.html").render(report=report, page=page, sources=sources)


def _single(
    templates: Environment,
    report: SessionReport,
    addresses: Mapping[str, str],
    sections: Sequence[Markup],
    remarks: Sequence[str],
) -> str:
    return templates.get_template("single.html").render(
        report=report,
        overview=overview(report.results, addresses.get),
        sections=sections,
        remarks=remarks,
        root="",
        # Both are files of ours; escaping would break them.
        style=Markup((TEMPLATES / STYLE).read_text(encoding="utf-8")),
        script=Markup((TEMPLATES / SCRIPT).read_text(encoding="utf-8")),
    )


def _remarks(draw: bool) -> tuple[str, ...]:
    return (NO_MATPLOTLIB,) if draw and not plots.available() else ()


def _write_images(page: PlanPage, folder: Path) -> dict[str, str]:
    """Write the page's plots; returns where the page finds each, by its name."""
    sources = {}
    for plot in page.plots:
        name = f"{page.anchor}-{plot.name}.png"
        replace_file(folder / IMAGES / name, plot.png)
        sources[plot.name] = f"../{IMAGES}/{name}"
    return sources


def _neighbour(results: Sequence[Result], names: Sequence[str], index: int) -> tuple[str, str] | None:
    """(address, id) of the plan at `index`; None past either end."""
    return (f"{names[index]}.html", results[index].id) if 0 <= index < len(results) else None


def _data_address(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
