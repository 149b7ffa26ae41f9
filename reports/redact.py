"""Takes out of a session who ran it, and where: hosts, users, serials and addresses become numbered words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

HOST_KEYS = frozenset({"host", "hosts", "hostname", "nodename", "master_addr", "node_list"})
DEVICE_KEYS = frozenset({"uuid", "serial", "pci", "identity"})
USER_KEYS = frozenset({"user", "username", "account", "login", "owner"})
EMPTIED_KEYS = frozenset({"log_tail"})
"""Free text of the training, which may say anything."""
PROCESS_KEYS = frozenset({"foreign", "killed", "leftover"})
"""Lists of processes: their names belong to others."""
KEPT_KEYS = frozenset({"versions", "framework", "driver_version", "packages"})
"""Versions are what a result is about; a version of four numbers is no address."""

LITERALS = frozenset({"uuid", "pci", "serial", "host", "", "unknown", "localhost"})
"""Values of such keys that say which kind of name is meant, and name nothing."""

_BYTE = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_ADDRESS = re.compile(rf"(?<![\w.])(?!127\.|0\.0\.0\.0)(?:{_BYTE}\.){{3}}{_BYTE}(?![\w.])")
_HARDWARE = re.compile(r"(?<![\w:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![\w:])")
_HOME = re.compile(r"/(?:home|Users)/[^/\s\"']+|/root(?=/|$|[\s\"'])")
_LOGIN = re.compile(r"(?<![\w.+-])[\w.+-]+@(?!sha256:)[\w.-]+")


class Redactor:
    """Replaces what `learn` has met, the same word for the same name throughout a session."""

    def __init__(self, protected: Iterable[str]) -> None:
        self._protected = frozenset(protected)
        """Words of the project (a vendor, a machine), which a host may happen to bear too."""
        self._words: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    def learn(self, value: object, key: str = "") -> None:
        """Collect the names in a JSON value."""
        if isinstance(value, Mapping):
            for name, item in value.items():
                self.learn(item, str(name))
        elif isinstance(value, list | tuple):
            for item in value:
                self.learn(item, key)
        elif isinstance(value, str) and (kind := _kind(key)) and value not in LITERALS:
            self._name(value, kind)
            if kind == "host" and "." in value:
                self._name(value.partition(".")[0], kind)

    def value(self, value: object, key: str = "") -> object:
        """A JSON value without names."""
        if key in EMPTIED_KEYS:
            return [] if isinstance(value, list | tuple) else ""
        if key in KEPT_KEYS:
            return value
        if isinstance(value, Mapping):
            named = "process" if key in PROCESS_KEYS and "name" in value else None
            cleaned = {self.text(str(name)): self.value(item, str(name)) for name, item in value.items()}
            return {**cleaned, "name": named} if named else cleaned
        if isinstance(value, list | tuple):
            return [self.value(item, key) for item in value]
        if not isinstance(value, str):
            return value
        if _kind(key) and value in self._words:
            return self._words[value]
        return self.text(value)

    def text(self, text: str) -> str:
        """Any text without names, addresses and home folders."""
        if self._pattern is None:
            names = sorted((name for name in self._words if name not in self._protected), key=len, reverse=True)
            # Bounded on both sides: a host called `vm` must not change `vmlinux`, or part of a plan's id.
            any_name = "|".join(map(re.escape, names)) or "(?!)"
            self._pattern = re.compile(rf"(?<![\w.-])(?:{any_name})(?![\w-]|\.\w)")
        text = self._pattern.sub(lambda match: self._words[match[0]], text)
        text = _HOME.sub(lambda match: f"/home/{self._name(match[0], 'user')}", text)
        for pattern, kind in ((_LOGIN, "user"), (_ADDRESS, "address"), (_HARDWARE, "address")):
            text = pattern.sub(lambda match, kind=kind: self._name(match[0], kind), text)  # type: ignore[misc]
        return text

    def file(self, path: Path) -> None:
        """The same for a JSON, JSON Lines or text file, in place. Raises OSError."""
        raw = path.read_text(encoding="utf-8", errors="replace")
        if path.suffix == ".jsonl":
            path.write_text("\n".join(self._line(line) for line in raw.split("\n")), encoding="utf-8")
        elif path.suffix == ".json":
            path.write_text(self._line(raw.strip()) + "\n", encoding="utf-8")
        else:
            path.write_text(self.text(raw), encoding="utf-8")

    def _line(self, line: str) -> str:
        try:
            return json.dumps(self.value(json.loads(line)), ensure_ascii=False, separators=(",", ":"))
        except (ValueError, RecursionError):
            return self.text(line)

    def _name(self, name: str, kind: str) -> str:
        if name not in self._words:
            count = sum(word.startswith(f"{kind}-") for word in self._words.values())
            self._words[name] = f"{kind}-{count + 1}"
            self._pattern = None
        return self._words[name]


def _kind(key: str) -> str:
    """What the values of `key` name; empty: nothing secret."""
    kinds = {"host": HOST_KEYS, "device": DEVICE_KEYS, "user": USER_KEYS}
    return next((kind for kind, keys in kinds.items() if key in keys), "")
