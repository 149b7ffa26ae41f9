"""What is on disk: cases and vendors. Folders are listed at once, files are read when somebody asks for them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from suite.config_name import DEFAULT_CONFIG, parse_config_name
from suite.data_spec import DataSpec
from suite.errors import UsageProblem, did_you_mean
from suite.plan import Machine
from suite.spec import CaseSpec
from suite.toml_file import read_table, shown
from suite.topology import Topology
from suite.vendor_spec import Fault, MachineSpec, VendorCaseConfig, VendorSpec

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


class CaseFolder:
    """suite/cases/<model>/<framework>."""

    def __init__(self, path: Path, suite_dir: Path) -> None:
        self.path = path
        self.model = path.parent.name
        self.framework = path.name
        self.origin = shown(path / "case.toml", suite_dir)
        """The file as origins name it, relative to the suite."""
        self._root = suite_dir.parent

    def __str__(self) -> str:
        return f"{self.model}/{self.framework}"

    @cached_property
    def spec(self) -> CaseSpec:
        """case.toml, typed. Raises UsageProblem."""
        path = self.path / "case.toml"
        spec = read_table(path, CaseSpec, shown(path, self._root))
        for key in spec.mutable:
            if key not in spec.params:
                hint = did_you_mean(key, spec.params)
                raise UsageProblem(f"{shown(path, self._root)}: mutable names {key!r}, which is no parameter{hint}")
        return spec

    @cached_property
    def data(self) -> DataSpec:
        """data.toml, typed; a case without one needs no files."""
        path = self.path / "data.toml"
        return read_table(path, DataSpec, shown(path, self._root)) if path.is_file() else DataSpec()


class VendorCase:
    """suite/vendors/<vendor>/<model>/<framework>: what a vendor changes in one case."""

    def __init__(self, path: Path, suite_dir: Path) -> None:
        self.path = path
        self._suite = suite_dir
        self._label = shown(path, suite_dir.parent)
        self._read: dict[Path, tuple[Path, VendorCaseConfig]] = {}
        self._default = path / DEFAULT_CONFIG
        self.has_default = self._default.is_file()

    @cached_property
    def files(self) -> Mapping[tuple[str, Topology], Path]:
        """The file of each machine and topology. Raises UsageProblem for one that nobody would ever read."""
        found: dict[tuple[str, Topology], Path] = {}
        for path in sorted(self.path.glob("*.toml")):
            if path.name != DEFAULT_CONFIG:
                try:
                    found[parse_config_name(path.name)] = path
                except UsageProblem as problem:
                    raise UsageProblem(f"{self._label}/{problem}") from None
        return found

    def layers(self, machine: str, topology: Topology) -> tuple[tuple[Path, VendorCaseConfig], ...]:
        """The files that hold for this machine and topology, the last one winning. Raises UsageProblem."""
        own = self.files.get((machine, topology))
        paths = [self._default] if self.has_default else []
        return tuple(self._config(path) for path in (*paths, *([own] if own else [])))

    def _config(self, path: Path) -> tuple[Path, VendorCaseConfig]:
        if path not in self._read:
            self._read[path] = (path, read_table(path, VendorCaseConfig, f"{self._label}/{path.name}"))
        return self._read[path]


class VendorFolder:
    """suite/vendors/<vendor>, or a folder named by --vendor-path."""

    def __init__(self, path: Path, suite_dir: Path) -> None:
        self.path = path
        self.name = path.name
        self._suite = suite_dir
        self._cases: dict[tuple[str, str], VendorCase | None] = {}
        self._topologies: dict[tuple[str, str, str], tuple[Topology, ...]] = {}

    @cached_property
    def spec(self) -> VendorSpec:
        """vendor.toml, typed. Raises UsageProblem."""
        path = self.path / "vendor.toml"
        return read_table(path, VendorSpec, shown(path, self._suite.parent))

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Texts in logs that this vendor's runtime is known for."""
        return self.spec.faults

    @cached_property
    def machines(self) -> Mapping[str, Machine]:
        """Every accelerator model of machines/*.toml by name, sorted. Raises UsageProblem."""
        found = {}
        for path in sorted((self.path / "machines").glob("*.toml"), key=lambda path: path.stem):
            label = shown(path, self._suite.parent)
            if not _NAME.fullmatch(path.stem):
                raise UsageProblem(f"{label}: the file names the machine; use letters, digits, `_`, `.`, `+`, `-`")
            found[path.stem] = read_table(path, MachineSpec, label).named(path.stem)
        return found

    def machine(self, name: str) -> Machine:
        """One machine. Raises UsageProblem for an unknown one."""
        if name not in self.machines:
            folder = shown(self.path / "machines", self._suite.parent)
            raise UsageProblem(f"--machine {name}: no such file under {folder}{did_you_mean(name, self.machines)}")
        return self.machines[name]

    def match_machine(self, device_name: str) -> Machine | None:
        """The machine whose most specific (longest) glob fits the device's own name; None: not known here."""
        fits = [
            (len(glob), machine.name)
            for machine in self.machines.values()
            for glob in machine.match
            if fnmatchcase(device_name, glob)
        ]
        best = sorted({name for length, name in fits if length == max(fits)[0]})
        if len(best) > 1:
            folder = shown(self.path / "machines", self._suite.parent)
            raise UsageProblem(
                f"{folder}: {device_name!r} matches {' and '.join(best)} alike; sharpen a glob, or say --machine"
            )
        return self.machines[best[0]] if best else None

    def case(self, model: str, framework: str) -> VendorCase | None:
        """This vendor's folder of a case; None: it has none."""
        key = (model, framework)
        if key not in self._cases:
            path = self.path / model / framework
            self._cases[key] = VendorCase(path, self._suite) if path.is_dir() else None
        return self._cases[key]

    def topologies(self, model: str, framework: str, machine: str) -> tuple[Topology, ...]:
        """Where this case can be planned on `machine`, smallest first: listed and configured, or configured by name."""
        key = (model, framework, machine)
        if key not in self._topologies:
            self._topologies[key] = self._configured(model, framework, machine)
        return self._topologies[key]

    def _configured(self, model: str, framework: str, machine: str) -> tuple[Topology, ...]:
        folder = self.case(model, framework)
        if folder is None:
            return ()
        for name, path in ((name, path) for (name, _), path in folder.files.items() if name not in self.machines):
            hint = did_you_mean(name, self.machines)
            raise UsageProblem(
                f"{shown(path, self._suite.parent)}: no machines/{name}.toml for the machine it names{hint}"
            )
        configured = {topology for name, topology in folder.files if name == machine}
        return tuple(sorted(configured.union(self.spec.topologies if folder.has_default else ())))


class Catalog:
    """All cases and vendors of a checkout, by name."""

    def __init__(self, suite_dir: Path, vendor_paths: Sequence[Path] = ()) -> None:
        self.suite_dir = suite_dir
        self.cases: tuple[CaseFolder, ...] = tuple(
            sorted(
                (CaseFolder(path.parent, suite_dir) for path in (suite_dir / "cases").glob("*/*/case.toml")),
                key=lambda case: (case.model, case.framework),
            )
        )
        """Sorted by model and framework."""
        self.vendors: Mapping[str, VendorFolder] = _vendors(suite_dir, vendor_paths)
        """By name, sorted."""
        for case in self.cases:
            for part in (case.model, case.framework):
                if not _NAME.fullmatch(part):
                    raise UsageProblem(
                        f"case folder {part!r}: a name holds letters, digits, `_`, `.`, `+`, `-`; rename it"
                    )

    @property
    def baselines_dir(self) -> Path:
        """Approved results and proofs, beside the suite and outside every vendor's own folder."""
        return self.suite_dir.parent / "baselines"

    def case(self, model: str, framework: str) -> CaseFolder:
        """One case. Raises UsageProblem for an unknown one."""
        for case in self.cases:
            if (case.model, case.framework) == (model, framework):
                return case
        word = f"{model}/{framework}"
        raise UsageProblem(f"case {word}: no such folder under suite/cases{did_you_mean(word, map(str, self.cases))}")

    def vendor(self, name: str) -> VendorFolder:
        """One vendor. Raises UsageProblem for an unknown one."""
        if name not in self.vendors:
            if (self.suite_dir / "vendors" / name).is_dir() and _NAME.fullmatch(name):
                raise UsageProblem(f"--vendor {name}: suite/vendors/{name} has no vendor.toml; write one")
            raise UsageProblem(f"--vendor {name}: no such folder under suite/vendors{did_you_mean(name, self.vendors)}")
        return self.vendors[name]


def load_catalog(suite_dir: Path, vendor_paths: Sequence[Path] = ()) -> Catalog:
    """The catalog of `suite_dir`; a `vendor_paths` folder replaces the vendor of its name. Raises UsageProblem."""
    return Catalog(suite_dir.resolve(), vendor_paths)


def _vendors(suite_dir: Path, vendor_paths: Sequence[Path]) -> dict[str, VendorFolder]:
    folders = {path.parent.name: path.parent for path in (suite_dir / "vendors").glob("*/vendor.toml")}
    given: dict[str, Path] = {}
    for path in vendor_paths:
        folder = path.resolve()
        if not (folder / "vendor.toml").is_file():
            raise UsageProblem(f"--vendor-path {path}: no vendor.toml in it; name the folder that holds one")
        if not _NAME.fullmatch(folder.name):
            raise UsageProblem(
                f"--vendor-path {path}: the folder names the vendor; use letters, digits, `_`, `.`, `+`, `-`"
            )
        if given.setdefault(folder.name, folder) != folder:
            raise UsageProblem(f"--vendor-path {path}: {given[folder.name]} is a vendor {folder.name!r} too; give one")
    folders.update(given)
    return {name: VendorFolder(folders[name], suite_dir) for name in sorted(folders)}
