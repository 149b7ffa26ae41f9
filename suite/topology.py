"""A topology `NxM`: nodes x devices on each node."""

from __future__ import annotations

import re
from functools import total_ordering
from typing import Any, Self

from pydantic import model_serializer, model_validator

from suite.errors import UsageProblem
from suite.record import Record


@total_ordering
class Topology(Record):
    """Nodes x devices a node; one process a device, unless the framework drives several."""

    nnodes: int
    """Hosts taking part, at least 1."""
    nproc: int
    """Devices, hence processes, on each host, at least 1."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """`2x8`. Raises UsageProblem for anything else."""
        match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
        if not match:
            raise UsageProblem(f"topology {text!r} is not <nodes>x<devices>, as in 1x8")
        return cls(nnodes=int(match[1]), nproc=int(match[2]))

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.nnodes * self.nproc

    def __str__(self) -> str:
        return f"{self.nnodes}x{self.nproc}"

    def __hash__(self) -> int:
        return hash((self.nnodes, self.nproc))

    def __lt__(self, other: Topology) -> bool:
        return (self.nnodes, self.nproc) < (other.nnodes, other.nproc)

    @model_validator(mode="before")
    @classmethod
    def _accept_text(cls, data: Any) -> Any:
        if isinstance(data, str):
            nnodes, _, nproc = data.partition("x")
            return {"nnodes": nnodes, "nproc": nproc}
        return data

    @model_serializer
    def _as_mapping(self) -> dict[str, int]:
        return {"nnodes": self.nnodes, "nproc": self.nproc}
