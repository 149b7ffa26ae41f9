"""What a rank reads and writes: run.json, its place among the ranks, its stream of events. Standard library only."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from typing import Any, Mapping, NamedTuple, Optional

RUN_VARIABLE = "TRAINMARK_RUN"
SCHEMA = 1


class RunProblem(Exception):
    """Bad input of a run: one sentence that names the key, the value and the remedy."""


class Section(dict):  # type: ignore[type-arg]
    """A JSON object whose keys are attributes too. A missing key is a RunProblem that names it."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        super().__init__({key: _section(value, f"{where}.{key}") for key, value in values.items()})
        self.__dict__["_where"] = where

    def __missing__(self, key: str) -> Any:
        where = self.__dict__.get("_where", "run.json")
        have = ", ".join(sorted(map(str, self))) or "none"
        raise RunProblem(f"{where} has no key {key!r}: add it to the case's case.toml (have: {have})")

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__"):
            raise AttributeError(key)
        return self[key]

    def __setattr__(self, key: str, value: Any) -> None:
        raise AttributeError(f"run.json is read-only: {key!r} cannot be set")


def _section(value: Any, where: str) -> Any:
    return Section(value, where) if isinstance(value, dict) else value


class RunSpec(Section):
    """run.json, read-only: `run.params.lr`, `run.topology.nproc`."""

    REQUIRED = (
        "schema", "run", "id", "n", "attempt", "mode", "preset", "params", "seed", "topology", "quality", "limit_s",
        "device", "expect", "machine", "data_dir", "case_dir", "extern_dir", "runtime_dir", "slots", "run_dir",
        "checkpoint", "resume", "heartbeat_s", "capabilities", "sabotage",
    )  # fmt: skip

    def __init__(self, values: Mapping[str, Any]) -> None:
        if values.get("schema") != SCHEMA:
            raise RunProblem(f"run.json has schema {values.get('schema')!r}: this driver reads schema {SCHEMA}")
        missing = [key for key in self.REQUIRED if key not in values]
        if missing:
            raise RunProblem(f"run.json lacks {', '.join(missing)}: write every key of docs/contracts.md, section 2")
        super().__init__(values, "run.json")

    @classmethod
    def load(cls, path: Optional[str] = None) -> RunSpec:
        """The file at `path`, or the one that the environment variable TRAINMARK_RUN names."""
        path = path or os.environ.get(RUN_VARIABLE, "")
        if not path:
            raise RunProblem(f"{RUN_VARIABLE} is not set: point it at the run.json of this run")
        try:
            with open(path, encoding="utf-8") as file:
                values = json.load(file)
        except (OSError, ValueError) as problem:
            raise RunProblem(f"{path} cannot be read as run.json: {problem}") from problem
        if not isinstance(values, dict):
            raise RunProblem(f"{path} holds no JSON object: write it as docs/contracts.md, section 2, says")
        return cls(values)


class Place(NamedTuple):
    """Where this process stands among all ranks."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int


# Launchers in the order of trust: torchrun, Open MPI, a PMI launcher, Slurm. Names of Place's fields, in order.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
     "OMPI_COMM_WORLD_NODE_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_NODE_RANK"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", "SLURM_NODEID"),
)  # fmt: skip


def find_place(environ: Optional[Mapping[str, str]] = None) -> Place:
    """This process's place, from the variables of torchrun, Open MPI, PMI or Slurm; alone where there are none."""
    environ = os.environ if environ is None else environ
    for names in _LAUNCHERS:
        if names[0] in environ and names[1] in environ:
            return _place(environ, names)
    return Place(0, 1, 0, 1, 0)


def _place(environ: Mapping[str, str], names: tuple[str, ...]) -> Place:
    rank, world = _number(environ, names[0], 0), _number(environ, names[1], 1)
    if not 0 <= rank < world:
        raise RunProblem(f"{names[0]}={rank} is not below {names[1]}={world}: start every rank by one launcher")
    local_world = _number(environ, names[3], world)
    local_rank = _number(environ, names[2], rank % local_world)
    # Open MPI's NODE_RANK counts processes on the node, not nodes: only a quotient is safe there.
    node = rank // local_world if names[4].startswith("OMPI") else _number(environ, names[4], rank // local_world)
    return Place(rank, world, local_rank, local_world, node)


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise RunProblem(f"{name}={text!r} is not a whole number: start the ranks by torchrun or mpirun") from None


class EventWriter:
    """Appends events to one file: each line by one write, strict JSON, `t` never going back, safe between threads.

    `run_stop` is the last line: what is written after it is dropped, and `write` says so by False.
    """

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._lock = threading.Lock()
        self._closed = False

    def write(self, event: str, **keys: Any) -> bool:
        """Append one event now."""
        with self._lock:
            if self._closed:
                return False
            line = encode({"event": event, "t": round(time.monotonic(), 6), **keys})
            while line:  # a signal or a full disk can cut a write short
                line = line[os.write(self._file, line) :]
            if event == "run_stop":
                self._close()
            return True

    def close(self) -> None:
        """Close the file; further events are dropped."""
        with self._lock:
            if not self._closed:
                self._close()

    def _close(self) -> None:
        self._closed = True
        os.close(self._file)


def encode(event: Mapping[str, Any]) -> bytes:
    """One line of strict JSON; a number that is not finite becomes the string `nan`, `inf` or `-inf`."""
    try:
        text = json.dumps(event, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(event), allow_nan=False, separators=(",", ":"))
    return text.encode("ascii") + b"\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
