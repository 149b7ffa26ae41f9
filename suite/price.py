"""What an hour of one device costs: `[price.<machine>]` of a site file, with its source and its day."""

from __future__ import annotations

from pydantic import Field

from suite.record import Record


class Price(Record):
    """`[price]`, one for each machine: what an hour of one device costs."""

    per_device_hour: float = Field(ge=0)
    currency: str
    date: str = ""
    source: str = ""
