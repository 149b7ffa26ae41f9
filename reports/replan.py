"""Plans of a stranger's session made again from this checkout: what a run is held to is not the run's to say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reports.load import load
from suite.catalog import load_catalog
from suite.errors import UsageProblem
from suite.plan import Plan, Request
from suite.selection import plans

SUITE = Path(__file__).parents[1] / "suite"


def own_plans(folders: Sequence[Path], vendor_paths: Sequence[Path] = (), suite_dir: Path = SUITE) -> None:
    """Replace plan.json in each of `folders` by this checkout's own plan of the same id. Raises UsageProblem, OSError.

    The plan_digest must be equal: then the same code, parameters and data were run, and only thresholds, limits and
    the base come from here. For a base that was run, the same.
    """
    catalog = load_catalog(suite_dir, vendor_paths)
    for folder in folders:
        theirs = load(Plan, folder / "plan.json")
        if theirs.id != folder.name:
            raise UsageProblem(f"{folder.name}: its plan.json is of {theirs.id[:80]!r}; the bundle contradicts itself")
        request = Request(
            vendor=theirs.vendor,
            machine=theirs.machine,
            models=(theirs.model,),
            frameworks=(theirs.framework,),
            presets=(theirs.preset,),
            topologies=(str(theirs.topology),),
            mode=theirs.mode,
            repeat=theirs.repeat,
        )
        ours = next((plan for plan in plans(catalog, request) if plan.id == theirs.id), None)
        if ours is None:
            raise UsageProblem(
                f"{theirs.id}: not planned by this checkout; name the vendor's folder with --vendor-path"
            )
        if ours.plan_digest != theirs.plan_digest:
            raise UsageProblem(
                f"{theirs.id}: plan_digest {theirs.plan_digest[:12]} was run, this checkout would run"
                f" {ours.plan_digest[:12]}; judge it with the revision and the vendor's folder that it was run with"
            )
        # Seeds are part of what was run, and of no digest.
        ours.model_copy(update={"seeds": theirs.seeds}).write(folder / "plan.json")
        if ours.base is not None and (folder / "base" / "plan.json").is_file():
            ours.base.write(folder / "base" / "plan.json")
