"""`python -m tools new config`: the file for one machine and topology, with everything that may stand in it."""

from __future__ import annotations

from pathlib import Path

from suite.catalog import CaseFolder, load_catalog
from suite.config_name import config_name
from suite.layers import fold_case
from suite.topology import Topology
from tools.scaffold import write_new
from tools.toml_text import entry

BATCH = "train_batch_size"


def new_config(root: Path, vendor: str, model: str, framework: str, machine: str, topology: str) -> int:
    """Write suite/vendors/V/M/F/config_<machine>x<topology>.toml, then say what to run. Raises UsageProblem."""
    catalog = load_catalog(root / "suite")
    folder, case = catalog.vendor(vendor), catalog.case(model, framework)
    shape = Topology.parse(topology)
    name = config_name(folder.machine(machine).name, shape)
    path = folder.path / model / framework / name
    write_new({path: config_text(case, machine, shape)}, root)
    print(f'see what is planned: pytest suite -k "{model} and {topology}" --vendor {vendor} --machine {machine} --plan')
    print("a threshold comes once there is a run to cite: docs/vendors.md, step 7")
    return 0


def config_text(case: CaseFolder, machine: str, topology: Topology) -> str:
    """The file: every key that may be set, with the case's own value, as comments; mini keeps its global batch."""
    lines = [f"# {case} on {machine}, {topology}. Only what differs from the case; take the `#` off a line to set it."]
    params = fold_case(str(case), case.spec, "full", "converge", case.origin).params
    lines += [f"# {entry(key, params[key])}" for key in case.spec.mutable]
    lines += [
        "",
        "# [threshold.throughput]",
        "# value = 0.0",
        '# source = "who measured it, when, with what, the figure"',
    ]
    return "\n".join([*lines, *_mini(case, topology), ""])


def _mini(case: CaseFolder, topology: Topology) -> list[str]:
    """The batch of each rank under `[preset.mini]`, where the whole one can be shared out evenly."""
    if "mini" not in case.spec.presets or BATCH not in case.spec.mutable or topology.world_size == 1:
        return []
    batch = fold_case(str(case), case.spec, "mini", "converge", case.origin).params[BATCH]
    if not isinstance(batch, int) or batch % topology.world_size:
        return []
    each = batch // topology.world_size
    why = f"# of each of {topology.world_size} ranks: the global batch stays {batch}"
    return ["", "[preset.mini]", f"{BATCH} = {each}   {why}"]
