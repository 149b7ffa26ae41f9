"""A vendor's config_*.py of FlagPerf -> config_*.toml of the suite, checked against what the case lets a vendor set."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from suite.errors import UsageProblem
from suite.record import Scalar
from tools import toml_text
from tools.python_values import Constant, read_assignments

RENAMED: Mapping[str, str] = {
    "warmup": "warmup_ratio",
    "lr_decay_ratio": "lr_min_ratio",
    "lr_decay_iters": "schedule_steps",
    "max_samples_termination": "max_samples",
    "clip_grad": "clip_grad_norm",
    "checkpoint_activations": "activation_checkpointing",
    "eval_interval_samples": "eval_every_samples",
}
"""FlagPerf's name -> the driver's."""

ELSEWHERE: Mapping[str, str] = {
    "vendor": "--vendor says it",
    "data_dir": "the site, --data-dir or the --cases file says it",
    "dist_backend": "[device] backend in vendor.toml says it",
    "device": "[device] type in vendor.toml says it",
    "n_device": "the topology says it",
    "local_rank": "the launcher says it",
    "use_env": "the launcher says it",
    "seed": "derived from --seed, so that repeats differ",
    "do_train": "a run always trains",
    "training_event": "vendor code fills slots of the case in extern/",
    "ddp_type": "the driver has one way to average gradients",
    "amp": "precision says it; set it by hand to fp16 or bf16",
}
"""Names without a counterpart among the parameters."""


@dataclass(kw_only=True, slots=True)
class Conversion:
    """What one configuration becomes."""

    name: str
    """File name of the result, `config_A100x1x8.toml`."""
    case: str
    """`glm/pytorch`."""
    vendor: str
    """Empty: the path did not tell."""
    params: dict[str, Scalar] = field(default_factory=dict)
    same: list[str] = field(default_factory=list)
    """Keys that hold the case's own value, hence left out."""
    notes: list[str] = field(default_factory=list)


def convert_config(path: Path, suite_dir: Path, model: str = "", framework: str = "") -> Conversion:
    """Read FlagPerf's vendor configuration `path`, never running it."""
    if not re.fullmatch(r"config_.+\.py", path.name) or path.name == "config_common.py":
        raise UsageProblem(
            f"{path}: not named config_<machine>x<nnodes>x<nproc>.py, so there is no plan it could belong to"
        )
    vendor, found_model, found_framework = _place(path)
    model, framework = model or found_model, framework or found_framework
    if not model or not framework:
        raise UsageProblem(
            f"{path}: the path does not name the case as <vendor>/<model>-<framework>/config/; "
            "say --model and --framework"
        )
    source = read_assignments(path)
    result = Conversion(name=path.with_suffix(".toml").name, case=f"{model}/{framework}", vendor=vendor)
    result.notes += [f"skipped: {path.name}:{s.line}: {s.name}: {s.why}; set it by hand" for s in source.skipped]
    case = _case(suite_dir, result)
    for name, value in source.values.items():
        _take(name, value, case, result)
    return result


def _place(path: Path) -> tuple[str, str, str]:
    """(vendor, model, framework) from `<vendor>/<model>-<framework>/config/FILE`, empty for another shape."""
    parents = path.resolve().parent
    if parents.name != "config":
        return "", "", ""
    model, _, framework = parents.parent.name.rpartition("-")
    return parents.parent.parent.name, model, framework


@dataclass(frozen=True, kw_only=True, slots=True)
class _Case:
    """What the case's file says about parameters."""

    params: Mapping[str, object]
    mutable: frozenset[str]


def _case(suite_dir: Path, result: Conversion) -> _Case | None:
    """The parameters of the case, or None where the suite has no such case (said in the notes)."""
    path = suite_dir / "cases" / result.case / "case.toml"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        result.notes.append(f"the suite has no case {result.case}: names are translated, but nothing is checked")
        return None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise UsageProblem(f"{path}: cannot be read as TOML: {problem}") from None
    return _Case(params=data.get("params", {}), mutable=frozenset(data.get("mutable", ())))


def _take(name: str, value: Constant, case: _Case | None, result: Conversion) -> None:
    """One assignment: a parameter, equal to the case's, or a note."""
    if name == "fp16":
        name, value = "precision", "fp16" if value is True else "fp32"
    if name in ELSEWHERE:
        result.notes.append(f"{name} = {value!r} left out: {ELSEWHERE[name]}")
        return
    if name.startswith("target_"):
        result.notes.append(f"{name} = {value!r} left out: a target belongs to the case; no vendor moves it")
        return
    key = RENAMED.get(name, name)
    if value is None or isinstance(value, list | dict):
        result.notes.append(f"{name} = {value!r} left out: not a value a parameter can hold")
        return
    if case is None:
        result.params[key] = value
        return
    if key not in case.params:
        result.notes.append(f"{name} = {value!r} left out: unknown to {result.case}")
        return
    _take_known(name, key, value, case, result)


def _take_known(name: str, key: str, value: Scalar, case: _Case, result: Conversion) -> None:
    """A parameter that the case has: typed like its value, and mutable."""
    own = case.params[key]
    if type(own) is float and type(value) is int:
        value = float(value)
    elif type(own) is int and type(value) is float and value.is_integer():
        value = int(value)
    if type(own) is not type(value):
        result.notes.append(
            f"{name} = {value!r} left out: {key} of {result.case} is a {type(own).__name__}, as in {own!r}"
        )
    elif value == own:
        result.same.append(key)
    elif key not in case.mutable:
        result.notes.append(f"{name} = {value!r} left out: {key} of {result.case} is not mutable, it stays {own!r}")
    else:
        result.params[key] = value


def config_text(conversion: Conversion) -> str:
    """The TOML file."""
    lines = [toml_text.comment(f"{conversion.case}: only what differs from the case.")]
    lines += [toml_text.entry(key, value) for key, value in conversion.params.items()]
    return "\n".join(lines) + "\n"
