"""The pages as a browser shows them: under a strict content policy, without a script, dark, on paper, by keyboard."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reports.html import write_pages, write_single_file
from reports.json_report import read_session
from tests.report_pages import JENKINS, JENKINS_WITH_SCRIPT, large_session, mixed_session, served

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this host (Debian: apt-get install chromium)")

PLAN = "/plans/glm-pytorch-cpu-host-mini-1x2.html"
FAULTY = "/plans/faster_rcnn-pytorch-cpu-host-mini-2x1.html"
DEADLINE_MS = 60_000

SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One Chromium for all tests of this file."""
    with playwright.sync_playwright() as started:
        # Its own sandbox needs rights that a container's root does not have; it opens nothing but our pages.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=options, timeout=DEADLINE_MS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session of every outcome, its pages, and beside it one of 500 plans with pages without plots."""
    folder = tmp_path_factory.mktemp("looked") / "mixed"
    report = mixed_session(folder)
    write_pages(report, folder, folder / "report")
    large = folder.parent / "large"
    write_pages(large_session(large, report.results, 500), large, large / "report", draw=False)
    return folder


@contextmanager
def opened(
    browser: Any, folder: Path, path: str, *, policy: str = JENKINS_WITH_SCRIPT, **context: Any
) -> Iterator[tuple[Any, list[str]]]:
    """The page at `path` and what the browser's console said of it, problems of loading included."""
    with served(folder, policy) as address:
        made = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context})
        page = made.new_page()
        page.set_default_timeout(DEADLINE_MS)
        said: list[str] = []
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"pageerror: {error}"))
        page.on("requestfailed", lambda request: said.append(f"failed: {request.url}"))
        page.goto(address + path, wait_until="load")
        try:
            yield page, said
        finally:
            made.close()


def contrast(page: Any, selector: str) -> float:
    """The ratio of text and background of the first element, by the formula of WCAG."""
    colours = page.locator(selector).first.evaluate(
        """element => {
            let back = element;
            while (getComputedStyle(back).backgroundColor === "rgba(0, 0, 0, 0)") back = back.parentElement;
            return [getComputedStyle(element).color, getComputedStyle(back).backgroundColor];
        }"""
    )
    bright, dark = sorted((_luminance(colour) for colour in colours), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def beside_the_script(said: Sequence[str]) -> list[str]:
    """What the console says, but for the refusal of our script: the one thing that the policy takes away."""
    return [line for line in said if "Blocked script execution" not in line]


def wider_than_the_screen(page: Any) -> bool:
    """The page itself, not a table in it, has to be moved sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


@pytest.mark.parametrize("path", ["/index.html", PLAN, FAULTY])
def test_under_the_policy_of_jenkins_a_page_is_styled_and_complete(browser: Any, session: Path, path: str) -> None:
    with opened(browser, session / "report", path, policy=JENKINS) as (page, said):
        assert beside_the_script(said) == []
        assert page.locator("body").evaluate("element => getComputedStyle(element).marginTop") == "0px"
        assert page.locator("button, input, select").count() == 0
        hidden = page.locator("main section").evaluate_all("all => all.filter(one => !one.checkVisibility()).length")
        assert hidden == 0 and page.locator("main section").count() >= 3
        for image in page.locator("img").all():
            image.scroll_into_view_if_needed()
            page.wait_for_function("image => image.complete && image.naturalWidth > 1000", arg=image.element_handle())


def test_a_plot_opens_by_itself_where_no_script_runs(browser: Any, session: Path) -> None:
    with opened(browser, session / "report", PLAN, policy=JENKINS, java_script_enabled=False) as (page, said):
        assert beside_the_script(said) == []
        page.locator("a.zoom").first.click()
        page.wait_for_url("**/images/*.png")


@pytest.mark.parametrize("path", ["/index.html", PLAN, FAULTY])
def test_with_its_script_a_page_has_nothing_to_complain_of(browser: Any, session: Path, path: str) -> None:
    with opened(browser, session / "report", path) as (page, said):
        page.wait_for_load_state("networkidle")
        assert page.title() != "stolen"
        assert said == []


def test_a_column_is_sorted_by_number_with_what_is_missing_last(browser: Any, session: Path) -> None:
    with opened(browser, session / "report", "/index.html") as (page, _):
        column = page.locator("table.all thead button", has_text="Throughput")
        column.focus()
        page.keyboard.press("Enter")
        cells = page.locator("table.all tbody tr td:nth-child(6)")
        assert [text.split()[0] for text in cells.all_inner_texts()] == ["80", "80", "80.01", "160", "266.7", *"–––"]
        page.keyboard.press("Enter")
        assert [text.split()[0] for text in cells.all_inner_texts()] == ["266.7", "160", "80.01", "80", "80", *"–––"]
        assert page.locator("th[aria-sort=descending]").all_inner_texts() == ["Throughput"]


def test_the_filter_leaves_what_matches_everywhere(browser: Any, session: Path) -> None:
    with opened(browser, session / "report", "/index.html") as (page, _):
        assert page.get_by_role("status").inner_text() == "8 of 8 plans"
        page.get_by_label("Plan contains").fill("GLM 1x")
        assert page.get_by_role("status").inner_text() == "4 of 8 plans"
        page.get_by_role("combobox", name="Outcome").select_option("not_started")
        assert page.get_by_role("status").inner_text() == "1 of 8 plans"
        assert page.locator("table.all tbody tr:visible").count() == 1
        assert page.locator("table.troubled tbody tr:visible").count() == 1
        assert page.locator("table.grid .cell:visible").count() == 1
        assert page.locator("table.grid tbody tr:visible").count() == 1


def test_a_plot_is_enlarged_and_left_by_keyboard(browser: Any, session: Path) -> None:
    with opened(browser, session / "report", PLAN) as (page, _):
        page.locator("a.zoom").first.focus()
        page.keyboard.press("Enter")
        dialog = page.locator("dialog[open]")
        assert dialog.locator("img").get_attribute("alt") == page.locator("a.zoom img").first.get_attribute("alt")
        assert dialog.bounding_box()["width"] > 1000
        page.keyboard.press("Escape")
        assert dialog.count() == 0
        assert page.url.endswith(PLAN)


def test_the_first_tab_leads_past_the_header_and_focus_is_seen(browser: Any, session: Path) -> None:
    with opened(browser, session / "report", PLAN) as (page, _):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        assert page.locator(".skip").bounding_box()["x"] >= 0
        reached = set()
        for _ in range(60):
            page.keyboard.press("Tab")
            name, outline = page.evaluate(
                "[document.activeElement.tagName, getComputedStyle(document.activeElement).outlineStyle]"
            )
            reached.add(name)
            assert name == "BODY" or outline == "solid"
        assert {"A", "DIV", "PRE", "BUTTON"} <= reached


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_light_and_dark(browser: Any, session: Path, scheme: str) -> None:
    with opened(browser, session / "report", "/index.html", color_scheme=scheme) as (page, _):
        for selector in ("body", ".about", "a[href^=plans]", "thead th", *(f".badge.{name}" for name in (
            "passed", "failed", "error", "inconclusive", "not_started"))):  # fmt: skip
            assert contrast(page, selector) >= 4.5, selector
        back = page.locator("body").evaluate("element => getComputedStyle(element).backgroundColor")
        assert (_luminance(back) < 0.1) == (scheme == "dark")


def test_plots_turn_dark_with_the_page_but_not_on_paper(browser: Any, session: Path) -> None:
    with opened(browser, session / "report", PLAN, color_scheme="dark") as (page, _):
        plot = page.locator("img.plot").first
        assert "invert" in plot.evaluate("element => getComputedStyle(element).filter")
        page.emulate_media(media="print", color_scheme="dark")
        assert plot.evaluate("element => getComputedStyle(element).filter") == "none"
        back = page.locator("body").evaluate("element => getComputedStyle(element).backgroundColor")
        assert _luminance(back) > 0.9


def test_on_paper_nothing_is_cut_off(browser: Any, session: Path) -> None:
    with opened(browser, session / "report", "/index.html", viewport={"width": 760, "height": 1000}) as (page, _):
        page.emulate_media(media="print")
        cut = page.locator(".scroll").evaluate_all(
            "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).length"
        )
        assert cut == 0
        assert page.locator(".filter").is_hidden()
        assert page.pdf(format="A4").startswith(b"%PDF")


@pytest.mark.parametrize("path", ["/index.html", PLAN])
def test_a_telephone_moves_tables_sideways_not_the_page(browser: Any, session: Path, path: str) -> None:
    with opened(browser, session / "report", path, viewport={"width": 390, "height": 800}) as (page, _):
        assert not wider_than_the_screen(page)


def test_five_hundred_plans_open_sort_and_filter(browser: Any, session: Path) -> None:
    with opened(browser, session.parent / "large" / "report", "/index.html") as (page, said):
        assert page.get_by_role("status").inner_text() == "500 of 500 plans"
        page.locator("table.all thead button", has_text="Speedup").click()
        assert page.locator("table.all tbody td:nth-child(7)").first.inner_text().startswith("4×")
        page.get_by_label("Plan contains").fill("case007 2x16")
        assert page.get_by_role("status").inner_text() == "1 of 500 plans"
        assert page.locator("table.grid tbody tr:visible").count() == 1
        assert said == [] and not wider_than_the_screen(page)


def test_a_single_file_works_from_the_disk(browser: Any, session: Path, tmp_path: Path) -> None:
    path = write_single_file(read_session(session), session, tmp_path / "mail.html").path
    page = browser.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(path.as_uri(), wait_until="load")
    page.get_by_label("Plan contains").fill("bert")
    assert page.get_by_role("status").inner_text() == "2 of 8 plans"
    widths = page.locator("figure img").evaluate_all("all => all.map(one => one.naturalWidth)")
    assert len(widths) > 20 and min(widths) > 1000
    assert said == [] and page.title() == "Trainmark: session 20260131T120000Z-4f2a"
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/index.html", PLAN, FAULTY])
def test_axe_finds_no_serious_fault(browser: Any, session: Path, path: str, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    with opened(browser, session / "report", path, color_scheme=scheme) as (page, _):
        found = axe.Axe().run(page).response
        assert faults(found["violations"]) == []
        assert len(found["passes"]) > 15


def faults(violations: Sequence[dict[str, Any]]) -> list[str]:
    """What axe calls serious or critical, each with the elements."""
    return [
        f"{fault['id']}: {[node['html'][:120] for node in fault['nodes'][:3]]}"
        for fault in violations
        if fault["impact"] in SERIOUS
    ]
