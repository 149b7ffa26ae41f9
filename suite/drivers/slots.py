"""Parts of a task that a vendor may replace (extern/), and the few hooks of its vendor-wide runtime code."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from suite.drivers.events import RunProblem

HOOKS = ("setup", "after_backward", "after_step", "before_timing")
UNREAD = "extern"
"""What the plan lists where it could not read from the text of extern/ which slots it fills."""


class Slots(MutableMapping[str, Callable[..., Any]]):
    """Declared names and their callables. A name that the case does not declare cannot be filled."""

    def __init__(self, standard: Mapping[str, Callable[..., Any]]) -> None:
        self._standard = dict(standard)
        self._filled = dict(standard)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self._filled[name]

    def __setitem__(self, name: str, value: Callable[..., Any]) -> None:
        if name not in self._standard:
            raise RunProblem(f"extern/ fills {name!r}, which the case does not declare (have: {self._names()})")
        if not callable(value):
            raise RunProblem(
                f"extern/ fills {name!r} with {value!r}, which cannot be called: give a function or a class"
            )
        self._filled[name] = value

    def __delitem__(self, name: str) -> None:
        raise RunProblem(f"extern/ removes the slot {name!r}: replace it or leave it as it is")

    def __iter__(self) -> Iterator[str]:
        return iter(self._filled)

    def __len__(self) -> int:
        return len(self._filled)

    def _names(self) -> str:
        return ", ".join(sorted(self._standard)) or "none"

    def replaced(self) -> dict[str, str]:
        """{name: file} of what is no longer the standard."""
        changed = {name: value for name, value in self._filled.items() if value is not self._standard[name]}
        return {name: _source(value) for name, value in changed.items()}


def fill_slots(standard: Mapping[str, Callable[..., Any]], extern_dir: str | None, expected: Sequence[str]) -> Slots:
    """The slots after extern/ had its turn, which may fill only what the plan lists."""
    slots = Slots(standard)
    if extern_dir:
        module = _load(Path(extern_dir) / "__init__.py", "extern")
        if not callable(getattr(module, "fill", None)):
            raise RunProblem(f"{extern_dir}/__init__.py exports no fill(slots): define it")
        module.fill(slots)
    surplus = sorted(set(slots.replaced()) - set(expected))
    if surplus and UNREAD not in expected:
        raise RunProblem(f"extern/ fills {', '.join(surplus)}, which the plan does not list: plan the run again")
    return slots


class Runtime:
    """Hooks of suite/vendors/<vendor>/runtime/<framework>/runtime.py; each does nothing where it is not defined."""

    def __init__(self, runtime_dir: str | None = None) -> None:
        module: ModuleType | None = None
        self._file = ""
        if runtime_dir:
            path = Path(runtime_dir) / "runtime.py"
            if path.exists():  # the folder may hold an environment file alone
                module, self._file = _load(path, "runtime"), str(path)
        self._hooks = {name: getattr(module, name) for name in HOOKS if hasattr(module, name)}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in HOOKS:
            raise AttributeError(name)
        hook: Callable[..., Any] = self._hooks.get(name, _nothing)
        return hook

    def replaced(self) -> dict[str, str]:
        """{`runtime:<hook>`: file} of the hooks that are defined."""
        return {f"runtime:{name}": self._file for name in self._hooks}


def _nothing(*_: Any) -> None:
    return None


def _load(path: Path, name: str) -> ModuleType:
    """A module from a file; a package where it is an __init__.py, so that its siblings can be imported from it."""
    if not path.exists():
        raise RunProblem(f"{path} does not exist: a vendor's {name} code starts there")
    search = [str(path.parent)] if path.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=search)
    assert spec is not None and spec.loader is not None, path  # the file is there, and its name ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _source(value: Callable[..., Any]) -> str:
    try:
        return inspect.getsourcefile(inspect.unwrap(value)) or ""
    except TypeError:  # built in, or an instance
        return getattr(sys.modules.get(type(value).__module__), "__file__", "") or ""
