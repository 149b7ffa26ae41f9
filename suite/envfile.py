"""environment_variables.sh: `export NAME=value` lines, parsed and never run."""

from __future__ import annotations

import re
from pathlib import Path

from suite.errors import UsageProblem

_EXPORT = re.compile(r"export[ \t]+([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.ASCII | re.DOTALL)
_BARE = re.compile(r"[^\s'\"\\$`;&|<>()#*?\[\]{}~!]*(?:#[^\s'\"\\$`;&|<>()*?\[\]{}~!]*)*")
_SINGLE = re.compile(r"'([^']*)'")
_DOUBLE = re.compile(r'"((?:[^"\\$`]|\\["\\$`])*)"')
_END = re.compile(r"[ \t]*$|[ \t]+#")

_LAUNCHERS_OWN = frozenset(
    {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"}
)


def read_environment(path: Path, label: str) -> dict[str, str]:
    """The variables in order. Raises UsageProblem naming file and line for anything that a shell would have to run."""
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        number = error.object.count(b"\n", 0, error.start) + 1
        raise UsageProblem(f"{label}:{number}: not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise UsageProblem(f"{label}: cannot be read: {error.strerror or error}") from None
    environment: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            name, value = _assignment(stripped, f"{label}:{number}")
            environment[name] = value
    return environment


def _assignment(line: str, where: str) -> tuple[str, str]:
    match = _EXPORT.fullmatch(line)
    if not match:
        raise UsageProblem(f"{where}: {line[:60]!r} is not `export NAME=value`; this file is parsed, never run")
    name, rest = match.groups()
    if name in _LAUNCHERS_OWN or name.startswith("TRAINMARK_"):
        raise UsageProblem(f"{where}: {name} is set by the launcher; remove the line")
    value, end = _value(rest)
    if not _END.match(rest, end) or "\x00" in value:
        raise UsageProblem(
            f"{where}: {rest[:60]!r} would need a shell; write a plain or quoted value without $, backticks, commands"
        )
    return name, value


def _value(rest: str) -> tuple[str, int]:
    """The value made of adjoining bare and quoted pieces, and where it ends."""
    pieces, at = [], 0
    while at < len(rest):
        if match := _SINGLE.match(rest, at):
            pieces.append(match[1])
        elif match := _DOUBLE.match(rest, at):
            pieces.append(re.sub(r'\\(["\\$`])', r"\1", match[1]))
        elif (match := _BARE.match(rest, at)) and match[0] and not (at == 0 and match[0].startswith("#")):
            pieces.append(match[0])
        else:
            break
        at = match.end()
    return "".join(pieces), at
