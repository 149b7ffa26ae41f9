"""Downloads one file: bounded in time and size, checked before it takes its place."""

from __future__ import annotations

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import BinaryIO

from suite.errors import UsageProblem
from tools.data_digest import BLOCK

STALL_S = 60
"""Without a byte for so long, a connection is given up."""


class FetchFailed(Exception):
    """The file did not arrive as data.toml describes it; the message is the reason."""


def fetch(url: str, target: Path, *, bytes_expected: int, sha256: str, limit_s: float) -> int:
    """Fetch `url` to `target`, atomically; returns its bytes. 0 and "" mean: not known. Raises FetchFailed."""
    deadline = time.monotonic() + limit_s
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # A scheme that data.toml may hold is http, https or file: Item.url lets no other through.
        with urllib.request.urlopen(url, timeout=STALL_S) as source, partial.open("wb") as sink:
            count, digest = _copy(source, sink, bytes_expected, deadline)
            os.fsync(sink.fileno())
            announced = source.headers.get("Content-Length", "")
        if announced.isdigit() and count != int(announced):
            raise FetchFailed(f"the connection broke: {count:,} of {int(announced):,} bytes arrived")
        _check(count, digest, bytes_expected, sha256)
        partial.replace(target)
    except urllib.error.URLError as problem:
        raise FetchFailed(f"{url}: {problem.reason}") from None
    except http.client.HTTPException as problem:
        raise FetchFailed(f"{url}: not an answer of a web server: {problem!r}") from None
    except OSError as problem:
        raise UsageProblem(
            f"{target}: cannot be written: {problem.strerror or problem}; choose another --data-dir"
        ) from None
    finally:
        partial.unlink(missing_ok=True)
    return count


def _copy(source: BinaryIO, sink: BinaryIO, bytes_expected: int, deadline: float) -> tuple[int, str]:
    """Copy until the end; stop as soon as more arrives than is expected, or the deadline is past."""
    count, digest = 0, hashlib.sha256()
    while block := _read(source):
        count += len(block)
        if bytes_expected and count > bytes_expected:
            raise FetchFailed(f"more than the {bytes_expected:,} bytes that data.toml knows")
        if time.monotonic() > deadline:
            raise FetchFailed(f"not done in time ({count:,} bytes so far); say --timeout SECONDS")
        digest.update(block)
        sink.write(block)
    return count, digest.hexdigest()


def _read(source: BinaryIO) -> bytes:
    """The next block; what breaks here is the connection, not our disk."""
    try:
        return source.read(BLOCK)
    except TimeoutError:
        raise FetchFailed(f"no byte for {STALL_S} s") from None
    except (OSError, http.client.HTTPException) as problem:
        raise FetchFailed(f"the connection broke: {problem}") from None


def _check(count: int, digest: str, bytes_expected: int, sha256: str) -> None:
    """Compare with what data.toml knows."""
    if bytes_expected and count != bytes_expected:
        raise FetchFailed(f"{count:,} bytes arrived, data.toml knows {bytes_expected:,}")
    if sha256 and digest != sha256:
        raise FetchFailed(f"sha256 is {digest}, data.toml knows {sha256}")
