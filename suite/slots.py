"""Vendor code in a run: which slots extern/ fills, what stands in runtime/, and whether its equivalence is proven."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Annotated

from pydantic import Field

from suite.catalog import CaseFolder, Catalog, VendorFolder
from suite.digest import Digests
from suite.errors import UsageProblem
from suite.plan import Step
from suite.record import Record
from suite.spec_types import Text
from suite.toml_file import read_table, shown

UNREADABLE = "extern"
"""The slot of code whose slots cannot be read from its text."""

RUNTIME = "runtime"
"""The slot of a vendor's runtime code."""


class Proof(Record):
    """A test of equivalence passed for this code; other code with the same name needs a proof of its own."""

    where: Text
    """`glm/pytorch` for the extern/ of a case, `runtime/pytorch` for the vendor-wide code."""
    slot: Text
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """`suite.digest.code_digest` of the folders."""
    source: Text
    """Who ran the test, when, with what."""


class Proofs(Record):
    """baselines/<vendor>/slots.toml."""

    proof: tuple[Proof, ...] = ()


class VendorCode:
    """The vendor's code for one case, found on disk."""

    def __init__(self, catalog: Catalog, vendor: VendorFolder, case: CaseFolder, digests: Digests) -> None:
        self._suite = catalog.suite_dir
        self._case = case
        self._proofs_path = catalog.baselines_dir / vendor.name / "slots.toml"
        own = vendor.path / case.model / case.framework
        self._extern = own / "extern" if (own / "extern").is_dir() else None
        runtime = vendor.path / "runtime" / case.framework
        self._runtime = runtime if any(runtime.glob("*.py")) else None
        csrc = (own / "csrc",) if (own / "csrc").is_dir() else ()
        self._extern_digest = digests.code((self._extern, *csrc)) if self._extern else ""
        self._runtime_digest = digests.code((self._runtime,)) if self._runtime else ""
        self.digest = [self._extern_digest, self._runtime_digest]
        """Of all of it, for the plan's digest."""

    def steps(self) -> tuple[Step, ...]:
        """Every replaced part, sorted by slot, the runtime code last. Raises UsageProblem."""
        proofs = self._proofs() if self._extern or self._runtime else Proofs()
        found = []
        if self._extern:
            path = shown(self._extern, self._suite)
            proven = _proven(proofs, str(self._case), self._extern_digest)
            for slot in _filled(self._extern, self._suite.parent) or (UNREADABLE,):
                found.append(Step(slot=slot, path=path, proven=slot in proven and slot in self._case.spec.extern.slots))
        if self._runtime:
            proven = _proven(proofs, f"runtime/{self._case.framework}", self._runtime_digest)
            found.append(Step(slot=RUNTIME, path=shown(self._runtime, self._suite), proven=RUNTIME in proven))
        return tuple(found)

    def open_reasons(self, steps: tuple[Step, ...]) -> list[str]:
        """Why this code opens the division; empty: it does not."""
        declared = self._case.spec.extern.slots
        reasons = []
        for step in steps:
            if step.slot == UNREADABLE:
                reasons.append(f"{step.path}: the slots that fill() fills cannot be read from its code")
            elif step.slot not in (*declared, RUNTIME):
                reasons.append(
                    f"{step.path}: {self._case} declares no slot {step.slot!r} (have: {', '.join(declared) or 'none'})"
                )
            elif not step.proven:
                proofs = shown(self._proofs_path, self._suite.parent)
                reasons.append(f"{step.path}: {step.slot} has no proof of equivalence for this code in {proofs}")
        return reasons

    def _proofs(self) -> Proofs:
        if not self._proofs_path.is_file():
            return Proofs()
        return read_table(self._proofs_path, Proofs, shown(self._proofs_path, self._suite.parent))


def _proven(proofs: Proofs, where: str, digest: str) -> frozenset[str]:
    return frozenset(proof.slot for proof in proofs.proof if proof.where == where and proof.digest == digest)


def _filled(folder: Path, root: Path) -> tuple[str, ...]:
    """Slots that `fill(slots)` assigns by `slots["x"] = …` or `slots.update(x=…)`. Raises UsageProblem."""
    found: set[str] = set()
    for path in sorted(path for path in folder.rglob("*.py") if path.is_file()):
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None) or 1
            raise UsageProblem(
                f"{shown(path, root)}:{line}: not valid Python; mend it, or remove it from extern/"
            ) from None
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == "fill" and node.args.args:
                found |= _assigned(node, node.args.args[0].arg)
    return tuple(sorted(found))


def _assigned(function: ast.FunctionDef, slots: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(function):
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(slot)), ctx=ast.Store()) if (
                name == slots
            ):
                found.add(slot)
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store()) if name == slots:
                found.add(UNREADABLE)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="update"), args=args, keywords=words) if (
                name == slots
            ):
                found |= {word.arg or UNREADABLE for word in words}
                for argument in args:
                    found |= _keys(argument)
    return found


def _keys(node: ast.expr) -> set[str]:
    if not isinstance(node, ast.Dict):
        return {UNREADABLE}
    return {
        key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else UNREADABLE for key in node.keys
    }
