"""`[script]` of a case whose training is somebody else's program: as TOML tells it, and as a plan holds it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import Field

from suite.drivers.scripts.adapters import ADAPTERS, nemo_rules
from suite.errors import UsageProblem, did_you_mean
from suite.plan import Script, ScriptLauncher
from suite.record import Record, Value
from suite.spec_types import Name, Param, Text
from suite.topology import Topology

LATER = frozenset({"seed", "run_dir", "data_dir", "case_dir"})
"""Names that only a run knows: the wrapper fills them in."""

RULES: Mapping[str, Callable[[Sequence[str]], str]] = {"nemo": nemo_rules.problem}
"""Adapter -> the sentence for arguments that the program it reads would refuse, once a run has paid for it."""

Flag = Annotated[str, Field(pattern=r"^--?[A-Za-z][A-Za-z0-9_.-]*$")]
_NAME = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


class ScriptSpec(Record):
    """One scope's `[script]`. A scope that names a path begins a script of its own; another changes what is there."""

    launcher: ScriptLauncher | None = None
    path: Text | None = None
    """Relative to the case's folder, or absolute where the script lives in the image."""
    adapters: tuple[Name, ...] | None = None
    """Who reads its output, with evidence `log`: names of suite.drivers.scripts.adapters."""
    options: Mapping[Flag, Param] = {}
    """Flags of the launcher beyond those that follow from topology and precision."""
    arguments: Mapping[Flag, Param] = {}
    """Flags of the script. `{name}` is a parameter, a number of the topology, or what a run knows."""
    environment: Mapping[Name, str] = {}
    links: Mapping[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")], str] = {}
    """Files and folders that it expects in its working folder, which is the run's: name -> where they are."""

    def over(self, wider: ScriptSpec | None) -> ScriptSpec:
        """What a scope inside that of `wider` says, folded into it."""
        if wider is None:
            return self
        told = {key: getattr(self, key) for key in ("path", "launcher", "adapters") if getattr(self, key) is not None}
        if self.path is not None:
            return self.model_copy(update={"launcher": self.launcher or wider.launcher})
        for key in ("options", "arguments", "environment", "links"):
            told[key] = {**getattr(wider, key), **getattr(self, key)}
        return wider.model_copy(update=told)


def planned_script(spec: ScriptSpec, names: Mapping[str, Value], origin: str) -> Script:
    """The script with everything filled in that planning knows. Raises UsageProblem naming the flag."""
    if spec.launcher is None or spec.path is None:
        missing = "launcher" if spec.launcher is None else "path"
        raise UsageProblem(f"{origin}: [script] has no {missing}; name it")
    arguments = tuple(_words(spec.arguments, names, f"{origin}: [script.arguments]"))
    for reader in spec.adapters or ():
        if reader in RULES and (problem := RULES[reader](arguments)):
            raise UsageProblem(f"{origin}: [script.arguments]: {problem}")
    return Script(
        launcher=spec.launcher,
        path=spec.path,
        adapters=spec.adapters or (),
        options=tuple(_words(spec.options, names, f"{origin}: [script.options]")),
        arguments=arguments,
        environment=_texts(spec.environment, names, f"{origin}: [script.environment]"),
        links=_texts(spec.links, names, f"{origin}: [script.links]"),
    )


def check_readers(spec: ScriptSpec, evidence: str, origin: str) -> None:
    """Raises UsageProblem where evidence `log` has nobody who reads it, or where an adapter has no such name."""
    if evidence == "log" and not spec.adapters:
        raise UsageProblem(f"{origin}: [script] adapters is empty, and evidence is log; name who reads the output")
    for name in spec.adapters or ():
        if name not in ADAPTERS:
            raise UsageProblem(f"{origin}: [script] adapters: no adapter {name!r}{did_you_mean(name, ADAPTERS)}")


def template_names(params: Mapping[str, Value], topology: Topology, *, on_cpu: bool) -> dict[str, Value]:
    """What `{name}` may stand for at planning."""
    shape = {"nnodes": topology.nnodes, "nproc": topology.nproc, "world": topology.world_size}
    return {**params, **shape, "on_cpu": on_cpu}


def _texts(table: Mapping[str, str], names: Mapping[str, Value], where: str) -> dict[str, str]:
    return {key: _text(_filled(value, names, f"{where} {key}")) for key, value in table.items()}


def _words(table: Mapping[str, Value], names: Mapping[str, Value], where: str) -> Iterator[str]:
    """true is a bare flag, false and empty text none; a list repeats its flag."""
    for flag, template in table.items():
        for item in template if isinstance(template, tuple) else (template,):
            value = _filled(item, names, f"{where} {flag}")
            for each in value if isinstance(value, tuple) else (value,):
                if each is True:
                    yield flag
                elif each is not False and each != "":
                    yield from (flag, _text(each))


def _filled(template: Value, names: Mapping[str, Value], where: str) -> Value:
    """A template that is one name alone keeps the type of what it stands for."""
    if not isinstance(template, str):
        return template
    for name in _NAME.findall(template):
        if name not in names and name not in LATER:
            raise UsageProblem(f"{where} = {template!r}: no parameter {name!r}{did_you_mean(name, {*names, *LATER})}")
    whole = _NAME.fullmatch(template)
    if whole and whole[1] in names:
        return names[whole[1]]
    return _NAME.sub(lambda found: _text(names[found[1]]) if found[1] in names else found[0], template)


def _text(value: Value) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
