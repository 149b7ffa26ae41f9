"""The command that repeats one plan of a session alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from suite.result import Result

CARRIED = (
    "--vendor-path", "--machine", "--framework", "--preset", "--mode", "--repeat", "--seed", "--set", "--site",
    "--launcher", "--container", "--data-dir", "--cases", "--results", "--baseline", "--wait-for-devices", "--resume",
    "--sabotage", "--fail-inconclusive",
)  # fmt: skip
"""Options of the session's own command that a repetition of one plan needs."""


SWITCHES = frozenset({"--fail-inconclusive"})
"""Those of them that take no value."""


def rerun_command(result: Result, command: str) -> str:
    """`pytest suite -k '[id]' …`, quoted for a shell; `command` is the session's own, of which CARRIED is kept."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    own = ["pytest", "suite", "-k", f"[{result.id}]", "--vendor", result.vendor]
    return shlex.join([*own, *_carried(words)])


def _carried(words: Sequence[str]) -> Iterator[str]:
    following = iter(words)
    for word in following:
        name, equals, _ = word.partition("=")
        if name not in CARRIED:
            continue
        yield word
        if not equals and name not in SWITCHES and (value := next(following, None)) is not None:
            yield value
