"""`python -m tools new …`: skeletons of a case, a vendor, a configuration, a framework, and a dummy."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tools.new_case import new_case
from tools.new_config import new_config
from tools.new_dummy import new_dummy
from tools.new_framework import new_framework
from tools.new_vendor import new_vendor

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_arguments(commands: Commands) -> None:
    """The arguments of `new`."""
    top = commands.add_parser("new", help="skeletons that run at once, and say what to write")
    kinds = top.add_subparsers(dest="kind", required=True, metavar="KIND")
    _case(kinds)
    _vendor(kinds)
    _config(kinds)
    framework = kinds.add_parser("framework", help="a driver under suite/drivers, and an image")
    framework.add_argument("name", metavar="NAME")
    framework.set_defaults(run=lambda arguments, root: new_framework(root, arguments.name))
    _dummy(kinds)


def _case(kinds: Commands) -> None:
    case = kinds.add_parser("case", help="a case under suite/cases, and its place in a vendor's folder")
    case.add_argument("model", metavar="MODEL")
    case.add_argument("--framework", default="pytorch", metavar="F", help="default: pytorch")
    case.add_argument("--vendor", default="cpu", metavar="NAME", help="who trains it first (default: cpu)")
    case.set_defaults(
        run=lambda arguments, root: new_case(root, arguments.model, arguments.framework, arguments.vendor)
    )


def _vendor(kinds: Commands) -> None:
    vendor = kinds.add_parser("vendor", help="a vendor's folder under suite/vendors")
    vendor.add_argument("name", metavar="NAME")
    vendor.add_argument(
        "--like", default="", metavar="OTHER", help="take what is no figure from another vendor's folder"
    )
    vendor.add_argument("--machine", default="A1", metavar="NAME", help="its accelerator model (default: A1)")
    vendor.add_argument("--into", type=Path, metavar="DIR", help="where to write DIR/NAME (default: suite/vendors)")
    vendor.set_defaults(
        run=lambda arguments, root: new_vendor(root, arguments.name, arguments.like, arguments.machine, arguments.into)
    )


def _config(kinds: Commands) -> None:
    config = kinds.add_parser("config", help="a vendor's configuration of a case for one machine and topology")
    for name in ("vendor", "model", "machine", "topology"):
        config.add_argument(name, metavar=name.upper() if name != "topology" else "NxM")
    config.add_argument("--framework", default="pytorch", metavar="F", help="default: pytorch")
    config.set_defaults(
        run=lambda arguments, root: new_config(
            root, arguments.vendor, arguments.model, arguments.framework, arguments.machine, arguments.topology
        )
    )


def _dummy(kinds: Commands) -> None:
    dummy = kinds.add_parser("dummy", help="a case that trains nothing and prints what a rank finds around it")
    dummy.add_argument("-v", "--vendor", required=True, metavar="VENDOR")
    dummy.add_argument("-f", "--framework", required=True, metavar="FRAMEWORK")
    dummy.add_argument("-c", "--config", required=True, metavar="CONFIG", help="as in config_A100x1x8")
    dummy.add_argument("-d", "--data-dir", required=True, type=Path, metavar="DATA_DIR")
    dummy.set_defaults(
        run=lambda arguments, root: new_dummy(
            root, arguments.vendor, arguments.framework, arguments.config, arguments.data_dir
        )
    )
