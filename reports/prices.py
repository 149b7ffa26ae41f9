"""What an hour of a device costs, as site files say: only a price with its source and its day is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from suite.errors import UsageProblem
from suite.price import Price
from suite.record import Record
from suite.toml_file import parse_table, read_toml

SECONDS = 3600


class _Prices(Record):
    price: Mapping[str, Price] = {}


def read_prices(sites: Sequence[Path]) -> Mapping[str, Price]:
    """`[price.<machine>]` of the site files, a later one winning. Raises UsageProblem for a price nobody can check."""
    found: dict[str, Price] = {}
    for path in sites:
        prices = parse_table({"price": read_toml(path, str(path)).get("price", {})}, _Prices, str(path)).price
        if not prices:
            raise UsageProblem(f"{path}: has no [price.<machine>] table; write one, or leave out --site {path}")
        for machine, price in prices.items():
            for key in ("source", "date"):
                if not getattr(price, key).strip():
                    raise UsageProblem(
                        f"{path}: price.{machine} has no {key}; a price is compared with both or not at all"
                    )
        found |= prices
    return found


def told(machine: str, price: Price) -> str:
    """The price in words."""
    return f"{machine}: {price.per_device_hour:.6g} {price.currency} a device and hour ({price.source}, {price.date})"


def cost(seconds: float, devices: int, price: Price) -> float:
    """Of `devices` for that long."""
    return price.per_device_hour * devices * seconds / SECONDS
