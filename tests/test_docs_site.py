"""The site of docs/: every page has its place, it builds without a remark, and every link leads somewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUILD_S = 120
TAGS = {
    *(
        "a",
        "abbr",
        "article",
        "b",
        "blockquote",
        "br",
        "button",
        "code",
        "div",
        "em",
        "h1",
        "h2",
        "h3",
        "h4",
        "hr",
        "i",
    ),
    *("img", "li", "nav", "ol", "p", "path", "pre", "span", "strong", "svg"),
    *("table", "tbody", "td", "th", "thead", "tr", "ul"),
}
"""What Markdown and the theme make inside an article; anything else was a `<name>` that nobody will see."""


def configuration() -> dict[str, Any]:
    """mkdocs.yml, parsed."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    data = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert isinstance(data, dict)
    return data


def pages_of(nav: object) -> Iterator[str]:
    """Every page that the navigation names, in order."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, list):
        for entry in nav:
            yield from pages_of(entry)
    elif isinstance(nav, dict):
        for entry in nav.values():
            yield from pages_of(entry)


def test_every_page_has_one_place_in_the_navigation() -> None:
    named = list(pages_of(configuration()["nav"]))
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert there - set(named) == set(), "give these a line under `nav` in mkdocs.yml"
    assert set(named) - there == set(), "mkdocs.yml names pages that do not exist"
    assert len(named) == len(set(named))


def test_no_page_links_out_of_docs() -> None:
    """On the site there is nothing outside: name such a file in a code span."""
    for page in (ROOT / "docs").rglob("*.md"):
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if not urlsplit(target).scheme:
                assert (page.parent / target.partition("#")[0]).resolve().is_relative_to(ROOT / "docs"), page.name


def test_the_site_itself_is_not_kept() -> None:
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    assert f"/{configuration()['site_dir']}/" in ignored and "/.cache/" in ignored


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """`zensical build --strict` of a copy of the pages in `folder`."""
    return subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=folder, capture_output=True, text=True, timeout=BUILD_S, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the site is made of, so that nothing is written into the checkout."""
    pytest.importorskip("zensical", reason="zensical is not installed: pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    shutil.copytree(ROOT / "docs", folder / "docs")
    return folder


@pytest.fixture(scope="module")
def built(source: Path) -> Path:
    """The site, built strictly."""
    done = build(source)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No issues found" in done.stdout + done.stderr
    return source / str(configuration()["site_dir"])


class Page(HTMLParser):
    """Anchors, links, what is loaded, and the tags of the article."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.tags: set[str] = set()
        self._in_article = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        self._in_article |= tag == "article"
        if "id" in known:
            self.anchors.add(known["id"])
        if self._in_article:
            self.tags.add(tag)
            self.links += [known["href"]] if tag == "a" and "href" in known else []
        if tag in ("script", "img", "iframe"):
            self.loaded += [known["src"]] if "src" in known else []
        if tag == "link" and known.get("rel") in ("stylesheet", "preload", "icon", "preconnect"):
            self.loaded.append(known.get("href", ""))

    def handle_endtag(self, tag: str) -> None:
        self._in_article &= tag != "article"


def test_every_page_is_built(built: Path) -> None:
    for name in pages_of(configuration()["nav"]):
        assert (built / name).with_suffix(".html").is_file(), name


def test_every_link_and_anchor_leads_somewhere(built: Path) -> None:
    pages = {path: Page(path) for path in sorted(built.glob("*.html")) if path.name != "404.html"}
    wrong = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in Page(target).anchors):
                wrong.append(f"{path.name}: {link}")
    assert wrong == []
    assert sum(len(page.links) for page in pages.values()) > 100


def test_pages_lose_no_word_to_html_and_load_nothing_from_elsewhere(built: Path) -> None:
    for path in sorted(built.glob("*.html")):
        page = Page(path)
        assert page.tags <= TAGS, f"{path.name}: write {sorted(page.tags - TAGS)} in a code span"
        assert [name for name in page.loaded if urlsplit(name).netloc] == []


def test_no_table_or_list_is_left_as_text(built: Path) -> None:
    """What a forge shows as a table, a list or code must be one here, too: a blank line before it is missing."""
    for path in sorted(built.glob("*.html")):
        text = path.read_text(encoding="utf-8").partition("<article")[2].partition("</article>")[0]
        paragraphs = re.findall(r"<p>(.*?)</p>", text, re.DOTALL)
        wrong = [each for each in paragraphs if re.search(r"^\s*(\||- |\d+\. |python -m |pytest suite )", each, re.M)]
        assert wrong == [], path.name


def test_a_broken_link_stops_the_build(source: Path, tmp_path: Path) -> None:
    shutil.copy(source / "mkdocs.yml", tmp_path)
    shutil.copytree(source / "docs", tmp_path / "docs")
    page = tmp_path / "docs" / "words.md"
    page.write_text(page.read_text(encoding="utf-8") + "\n[lost](nowhere.md)\n", encoding="utf-8")
    assert build(tmp_path).returncode != 0
