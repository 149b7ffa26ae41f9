"""How the output of a vendor's tool is read: `[probe]` and `[monitor]` of vendor.toml with the method `command`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from suite.record import Record
from suite.spec_types import Pattern, Positive, Text

Format = Literal["json", "csv", "keyvalue", "table", "regex"]

Unit = Literal[
    "",
    "B", "bytes", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB",
    "uW", "mW", "W", "kW",
    "uJ", "mJ", "J", "kJ", "Wh", "kWh",
    "%", "percent", "fraction",
    "mC", "C", "degC", "°C",
    "Hz", "kHz", "MHz", "GHz",
    "count",
]  # fmt: skip
"""Units that a bare number may be in; a unit in the tool's own text outdoes it."""

FieldName = Literal[
    "uuid", "pci", "serial", "index", "name", "driver_version",
    "utilisation", "memory_bytes", "memory_total_bytes", "power_w", "power_limit_w", "energy_j", "temperature_c",
    "sm_clock_mhz", "memory_clock_mhz", "ecc_errors", "throttle", "pids",
]  # fmt: skip
"""What can be known of a device. The first four tell which device it is."""

IDENTITIES = frozenset({"uuid", "pci", "serial", "index"})

_ONLY = {
    "rows": ("json",),
    "delimiter": ("csv", "keyvalue", "table"),
    "header": ("csv", "table"),
    "skip": ("csv", "keyvalue", "table"),
    "lines": ("table",),
    "row_start": ("keyvalue", "table"),
    "pattern": ("regex",),
}
"""Key -> the formats in which it has a meaning."""


class FieldSpec(Record):
    """Where a field stands, and in which unit."""

    column: Text
    """Name of the column, key or group; of json a dotted path; `$key` and `$row` as docs/monitor.md says."""
    unit: Unit = ""
    scale: Positive = 1.0
    """Factor of the number, before its unit."""
    pattern: Pattern | None = None
    """Part of the cell that counts: the first group, or the whole match; of a list, each match."""


def _column(value: object) -> object:
    return {"column": value} if isinstance(value, str) else value


Column = Annotated[FieldSpec, BeforeValidator(_column)]


class ToolKeys(Record):
    """One command and how its output is read; with `{index}`, `{uuid}`, `{pci}` or `{serial}`, run for each device."""

    command: tuple[Text, ...] = ()
    format: Format | Literal[""] = ""
    fields: Mapping[FieldName, Column] = {}
    rows: str = ""
    """json: path to the devices, `*` for every member."""
    delimiter: str = ""
    header: tuple[str, ...] = ()
    """Names of the columns where the output has none."""
    skip: Annotated[int, Field(ge=0)] = 0
    """Lines before the first that counts."""
    lines: Annotated[int, Field(ge=1, le=8)] = 1
    """Lines of one row."""
    row_start: Pattern | None = None
    """The line with which a device begins."""
    pattern: Pattern | None = None
    """One match a device, with a named group a column."""
    sentinels: tuple[str, ...] = ()
    """Further texts that mean «not known»."""
    empty: Pattern | None = None
    """Text by which the tool says that it has no row; without one, an output without rows is a broken one."""

    @model_validator(mode="after")
    def _keys_fit_the_format(self) -> Self:
        for key in self.model_fields_set & _ONLY.keys():
            if self.format not in _ONLY[key]:
                raise ValueError(f"{key} has no meaning for format {self.format!r}, only for {', '.join(_ONLY[key])}")
        if self.format == "regex" and self.pattern is None:
            raise ValueError("pattern is missing: format 'regex' needs one")
        if self.format == "csv" and len(self.delimiter) > 1:
            raise ValueError(f"delimiter {self.delimiter!r}: format 'csv' takes one character")
        return self

    @property
    def per_device(self) -> bool:
        """Whether the command names a device, and is run for each."""
        return any("{" + name + "}" in word for word in self.command for name in IDENTITIES)


class Source(ToolKeys):
    """One of several tools; rows that share an identity are one device."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if not self.command or not self.format or not self.fields:
            raise ValueError("a source needs command, format and fields")
        if not self.per_device and not IDENTITIES & set(self.fields):
            raise ValueError(
                "fields name no uuid, pci, serial or index, by one of which a row is matched to its device;"
                " add one, or put {index} into the command"
            )
        return self


class Tool(ToolKeys):
    """The keys of one tool, and further tools as `[[source]]`."""

    source: tuple[Source, ...] = ()
    timeout_s: Positive = 10.0
    """A tool that has not answered by then is killed."""
    where: Literal["host", "sandbox"] = "host"
    """Where the tools run: on the host as the user, or in the sandbox of the run."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """All tools, this one first. Raises ValueError where it is not whole."""
        own = {name: getattr(self, name) for name in ToolKeys.model_fields if name in self.model_fields_set}
        return ((Source(**own),) if own else ()) + self.source

    def check_sources(self, *, before_devices: bool) -> None:
        """Raise ValueError unless there is at least one whole tool, and none names a device before they are known."""
        if not (self.command or self.source):
            raise ValueError("command, format and fields are needed by method 'command'")
        if self.command and not self.format:
            raise ValueError(f"format is missing: it says how the output of {self.command[0]!r} is read")
        try:
            sources = self.sources
        except ValueError as problem:
            raise ValueError(_sentence(problem)) from None
        if before_devices and any(source.per_device for source in sources):
            raise ValueError("no command can name a device before the devices are known; take {…} out")


def _sentence(problem: ValueError) -> str:
    """The words of a validation error, without pydantic's frame."""
    errors = getattr(problem, "errors", None)
    return str(errors()[0]["msg"]).removeprefix("Value error, ") if callable(errors) else str(problem)
