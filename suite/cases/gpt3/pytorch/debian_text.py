"""English prose from the HTML in Debian's documentation packages: the text of the preset 124m_text.

The packages, their versions and digests stand in data/debian.toml; the same packages make the same text to the byte.
"""

from __future__ import annotations

import fnmatch
import hashlib
import io
import re
import subprocess
import tarfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

from suite.drivers.events import RunProblem

LIST = Path(__file__).resolve().parent / "data" / "debian.toml"
FETCH_S = 1800
TEXT_BYTES = 60_000_000
"""As much text as is kept, at most."""
HELD_OUT_OF = 32
"""Of so many documents one is only evaluated, by its digest."""
COPY = 40
"""A paragraph of so many characters that was there before is left out."""
SHORT = 500
"""A document of fewer characters is left out."""
ENGLISH = frozenset(
    (
        "the", "of", "and", "to", "a", "in", "is", "that", "for", "it", "as", "with", "be", "are", "this", "by", "on",
        "or", "an", "not", "from", "can", "if", "which", "at", "you",
    )
)  # fmt: skip
PROSE = 0.2
"""Share of these words below which a document is another language, or a list."""

BREAKS = frozenset(
    (
        "p", "div", "li", "ul", "ol", "dl", "dt", "dd", "h1", "h2", "h3", "h4", "h5", "h6", "table", "tr", "td", "th",
        "pre", "blockquote", "br", "hr", "section", "article", "figcaption",
    )
)  # fmt: skip
SKIPPED = frozenset(
    (
        "script", "style", "head", "nav", "footer", "form", "select", "button", "svg", "noscript",
    )
)  # fmt: skip
RUN = re.compile(r"([^\w\s])\1{7,}")


@dataclass(frozen=True, kw_only=True)
class Package:
    """One entry of data/debian.toml."""

    name: str
    version: str
    sha256: str
    licence: str
    files: tuple[str, ...]
    """Globs of paths in the package; a `*` takes slashes too."""
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Text:
    """Documents in an order that depends on their content alone."""

    train: list[str]
    held_out: list[str]
    licences: dict[str, str]
    """Each package's own copyright file."""


def packages(path: Path = LIST) -> list[Package]:
    """The packages that the text is made of."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["package"]
    lists = ("files", "without")
    return [Package(**{key: tuple(value) if key in lists else value for key, value in e.items()}) for e in entries]


def fetch(folder: Path, wanted: Iterable[Package]) -> dict[str, Path]:
    """The .deb file of each package in `folder`, downloaded by apt-get where it is missing, its digest compared."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = list(wanted)
    missing = [f"{package.name}={package.version}" for package in wanted if not _lying(folder, package)]
    if missing:
        _download(folder, missing)
    found = {package.name: _lying(folder, package) for package in wanted}
    for package in wanted:
        path = found[package.name]
        if path is None:
            raise RunProblem(f"{folder}: apt-get brought no {package.name}={package.version}: put its .deb there")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest != package.sha256:
            raise RunProblem(
                f"{path}: sha256 is {digest}, data/debian.toml knows {package.sha256}: take version {package.version}"
            )
    return {name: path for name, path in found.items() if path}


def _lying(folder: Path, package: Package) -> Path | None:
    """The package's file, named as apt names it."""
    version = package.version.replace(":", "%3a")
    return next(iter(sorted(folder.glob(f"{package.name}_{version}_*.deb"))), None)


def _download(folder: Path, names: list[str]) -> None:
    argv = ["apt-get", "download", "--quiet", *names]
    try:
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=FETCH_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise RunProblem(f"apt-get download cannot be had ({problem}): put {', '.join(names)} in {folder}") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise RunProblem(
            f"apt-get download left with {done.returncode} ({last}): apt-get update, or put it in {folder}"
        )


def make(files: Mapping[str, Path], wanted: Iterable[Package], limit: int = TEXT_BYTES) -> Text:
    """The text of the packages, split, at most `limit` bytes of it."""
    documents: dict[str, str] = {}
    licences: dict[str, str] = {}
    seen: set[bytes] = set()
    for package in wanted:
        pages, licences[package.name] = _open(files[package.name], package)
        for text in _cleaned(pages, seen):
            documents[hashlib.sha256(text.encode()).hexdigest()] = text
    return _split(documents, licences, limit)


def _split(documents: Mapping[str, str], licences: dict[str, str], limit: int) -> Text:
    """In the order of their digests until `limit`; of HELD_OUT_OF digests one is held out."""
    text, size = Text([], [], licences), 0
    for digest in sorted(documents):
        size += len(documents[digest].encode())
        if size > limit:
            break
        # The end of the digest: its beginning decides what is kept at all.
        part = text.held_out if int(digest[-8:], 16) % HELD_OUT_OF == 0 else text.train
        part.append(documents[digest])
    return text


def _open(path: Path, package: Package) -> tuple[list[list[str]], str]:
    """Paragraphs of each wanted page, in the order of the paths, and the copyright file."""
    pages: dict[str, list[str]] = {}
    licence = ""
    with tarfile.open(fileobj=io.BytesIO(_data_member(path.read_bytes(), path)), mode="r:*") as archive:
        for member in archive:
            name = member.name.removeprefix("./")
            if not member.isfile():
                continue
            file = archive.extractfile(member)
            assert file is not None  # a regular file has content
            if name.endswith("/copyright"):
                licence = file.read().decode(errors="replace")
            elif _taken(name, package):
                pages[name] = paragraphs(file.read().decode(errors="replace"))
    return [pages[name] for name in sorted(pages)], licence


def _taken(name: str, package: Package) -> bool:
    wanted = any(fnmatch.fnmatchcase(name, pattern) for pattern in package.files)
    return wanted and not any(fnmatch.fnmatchcase(name, pattern) for pattern in package.without)


def _data_member(content: bytes, path: Path) -> bytes:
    """The data.tar of a .deb, which is an ar archive: 60 bytes of header, the content, padded to even."""
    place = 8
    while content.startswith(b"!<arch>\n") and place + 60 <= len(content):
        header = content[place : place + 60]
        size = int(header[48:58])
        if header.startswith(b"data.tar"):
            return content[place + 60 : place + 60 + size]
        place += 60 + size + size % 2
    raise RunProblem(f"{path} is no Debian package: download it again")


class _Page(HTMLParser):
    """Collects the paragraphs of one page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[str] = []
        self._parts: list[str] = []
        self._hidden = self._kept = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._hidden += tag in SKIPPED
        if tag in BREAKS:
            self.close_block()
        self._kept += tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        self._hidden = max(0, self._hidden - (tag in SKIPPED))
        if tag in BREAKS:
            self.close_block()
        self._kept = max(0, self._kept - (tag == "pre"))

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self._parts.append(data)

    def close_block(self) -> None:
        """End the paragraph: blanks are one blank, but in listings."""
        text = "".join(self._parts)
        self._parts.clear()
        lines = [re.sub(r"\s{17,}", " " * 16, line.rstrip()) for line in text.splitlines()]
        whole = "\n".join(line for line in lines if line) if self._kept else " ".join(text.split())
        if whole.strip():
            self.blocks.append(RUN.sub(lambda found: found.group(1) * 8, whole))


def paragraphs(page: str) -> list[str]:
    """The text of an HTML page by paragraphs, without what surrounds it."""
    parser = _Page()
    parser.feed(page)
    parser.close()
    parser.close_block()
    return parser.blocks


def _cleaned(pages: list[list[str]], seen: set[bytes]) -> Iterator[str]:
    """Pages without what many of them share, and without what was `seen`; only English prose of some length."""
    shared = Counter(block for page in pages for block in set(page))
    often = max(5, len(pages) // 10)
    for page in pages:
        kept = []
        for block in page:
            key = hashlib.sha256(block.encode()).digest()
            if shared[block] >= often or key in seen:
                continue
            if len(block) >= COPY:
                seen.add(key)
            kept.append(block)
        text = "\n".join(kept)
        if len(text) >= SHORT and is_prose(text):
            yield text


def is_prose(text: str) -> bool:
    """Whether the common words of English are as frequent as in sentences."""
    found = re.findall(r"[^\W\d_]+", text.lower())
    return bool(found) and sum(word in ENGLISH for word in found) >= PROSE * len(found)
