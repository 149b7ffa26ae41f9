"""A vendor's folder as a reviewer reads it: vendor.toml, machines, README, and a place for everything."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from suite.catalog import Catalog, VendorFolder
from suite.errors import UsageProblem, did_you_mean
from suite.toml_file import shown
from suite.topology import Topology
from suite.vendor_spec import VendorSpec
from tools.check_code import check_command, check_scripts
from tools.check_files import can_be_read, check_shape, check_vendor_files, text_of
from tools.check_machines import check_machines
from tools.check_proof import check_proof
from tools.check_vendor_case import check_vendor_case
from tools.finding import Finding, distinct, told

OWN_FOLDERS = frozenset({"machines", "images", "runtime"})
ORDINARY = ("step 100 loss 2.31", "accuracy 0.75", "epoch 2 done", "")
"""Lines of a healthy log."""

COMMON_FILES = ("/dev/null", "/dev/zero", "/dev/tty", "/dev/sda", "/dev/mem", "/etc/passwd", "/proc/version")
"""Files that every host has: a glob that fits one of them finds the vendor everywhere."""

HOST_DEVICES = ("/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/dev/sda", "/dev/nvme0n1", "/dev/fuse", "/dev/kvm")
GRANTS = {
    **dict.fromkeys(("--network", "--net"), "host_network"),
    **dict.fromkeys(("--ipc", "--pid", "--uts"), "host_namespaces"),
    **dict.fromkeys(("--volume", "-v"), "host_mounts"),
    **dict.fromkeys(("--cap-add", "--security-opt"), "capabilities"),
    "--runtime": "runtime",
}
"""Options of a container that reach into the host -> the word of `[policy] container` by which a site consents."""

SAYS_UNTRIED = re.compile(
    r"\b(?:not|nothing|none|nobody|never)\b[^.|]{0,60}\b(?:run|verified|measured|tried|tested)\b|unverified|untested",
    re.I,
)


def check_vendor(folder: Path, root: Path) -> list[Finding]:
    """Everything that a reviewer would say of the folder; nothing of it is executed."""
    findings = [*check_shape(folder, root), *check_vendor_files(folder, root)]
    label = shown(folder / "vendor.toml", root)
    if not can_be_read(folder):
        return distinct(findings)
    findings += check_scripts(folder, root)
    if not (folder / "vendor.toml").is_file():
        missing = Finding(label, "missing", "write it: python -m tools new vendor NAME makes one to fill in")
        return distinct([*findings, missing])
    try:
        catalog = Catalog(root / "suite", (folder,))
        vendor = catalog.vendors[folder.resolve().name]
    except UsageProblem as problem:
        return distinct([*findings, told(problem, label)])
    findings += check_readme(vendor, root)
    findings += check_machines(vendor, root)
    try:
        findings += check_spec(vendor, vendor.spec, catalog, label)
        findings += check_proof(vendor, vendor.spec, catalog, label)
    except UsageProblem as problem:
        return distinct([*findings, told(problem, label)])
    for case_folder in _case_folders(folder):
        findings += check_vendor_case(case_folder, vendor, catalog, root)
    return distinct(findings)


def _case_folders(folder: Path) -> Iterator[Path]:
    """<model>/<framework> of the vendor: whatever is not one of its own folders."""
    for model in sorted(folder.iterdir()):
        if model.is_dir() and not model.is_symlink() and model.name not in OWN_FOLDERS and model.name[0] not in "._":
            yield from (path for path in sorted(model.iterdir()) if path.is_dir() and path.name[0] not in "._")


def check_readme(vendor: VendorFolder, root: Path) -> Iterator[Finding]:
    """README.md says how to run it, which machines there are, and what nobody has tried."""
    path = vendor.path / "README.md"
    label = shown(path, root)
    text = text_of(path)
    if not text.strip():
        yield Finding(label, "missing or empty", "write what it is, how it is found, which machines, what was measured")
        return
    if not re.search(rf"pytest suite\b.*--vendor\s+{re.escape(vendor.name)}\b", text):
        yield Finding(label, "no command to run it", f"show one: pytest suite -k … --vendor {vendor.name}")
    for machine in sorted(path.stem for path in (vendor.path / "machines").glob("*.toml")):
        if not re.search(rf"(?<![\w-]){re.escape(machine)}(?![\w-])", text):
            yield Finding(label, f"does not name the machine {machine}", "say which device it is and what was measured")
    try:
        untried = vendor.spec.verified is False and not SAYS_UNTRIED.search(text)
    except UsageProblem:
        return
    if untried:
        yield Finding(
            label, "says nowhere what was not run, and verified = false", "say it in a sentence: not run on …"
        )


def check_spec(vendor: VendorFolder, spec: VendorSpec, catalog: Catalog, label: str) -> Iterator[Finding]:
    """vendor.toml beyond its types: what is planned, detected, started, and let through to the host."""
    if Topology(nnodes=1, nproc=1) not in spec.topologies:
        yield Finding(label, 'topologies lacks "1x1"', "add it: every speedup is measured against one device")
    if len(set(spec.topologies)) < len(spec.topologies):
        yield Finding(label, "topologies names one twice", "name each once")
    yield from _check_detect(vendor, spec, catalog, label)
    for key, words in _commands(spec):
        yield from check_command(words, key, label)
    for fault in spec.faults:
        if line := next((line for line in ORDINARY if re.search(fault.pattern, line)), None):
            yield Finding(label, f"the fault {fault.pattern!r} fits {line!r}, a healthy line", "sharpen the pattern")
        elif re.search(fault.pattern, ""):
            yield Finding(label, f"the fault {fault.pattern!r} fits every line", "sharpen the pattern")
    yield from _check_container(vendor, spec, label)
    yield from _check_images(vendor, spec, label)


def _check_detect(vendor: VendorFolder, spec: VendorSpec, catalog: Catalog, label: str) -> Iterator[Finding]:
    for glob in spec.detect.dev:
        if not glob.startswith("/dev/") or any(fnmatchcase(file, glob) for file in COMMON_FILES):
            yield Finding(label, f"detect.dev = {glob!r} fits files of any host", "name the chip's own device files")
    for other in catalog.vendors.values():
        try:
            theirs = other.spec.detect if other.name != vendor.name else None
        except UsageProblem:
            continue  # its own check says so
        for key in ("dev", "pci") if theirs else ():
            for trace in sorted(set(getattr(spec.detect, key)) & set(getattr(theirs, key))):
                yield Finding(label, f"detect.{key} = {trace!r} is {other.name}'s", "name what only this chip has")


def _commands(spec: VendorSpec) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What runs on the host; what runs in the sandbox may start what it likes."""
    for key, tool in (("probe", spec.probe), ("monitor", spec.monitor)):
        if tool.where == "host":
            yield f"{key}.command", tool.command
            yield from ((f"{key}.source.command", source.command) for source in tool.source)
    yield "launch.prefix", spec.launch.prefix


def _check_container(vendor: VendorFolder, spec: VendorSpec, label: str) -> Iterator[Finding]:
    text = "\n".join(text_of(vendor.path / name) for name in ("README.md", "vendor.toml"))
    words = _words(spec.container.options)
    if words is None:
        yield Finding(label, "container.options opens a quote and does not close it", "close it")
        return
    for flag, value in zip(words, (*words[1:], "")):
        name, equals, given = flag.partition("=")
        value = given if equals else value
        if name == "--privileged":
            yield Finding(label, "container.options asks for --privileged", "name the devices: --device=/dev/…")
        elif name == "--device" and any(fnmatchcase(file, value.partition(":")[0]) for file in HOST_DEVICES):
            yield Finding(
                label, f"container.options gives {value!r}, which is the host's", "name the chip's own devices"
            )
        elif name in GRANTS and not re.search(rf"(?:allow|policy|consent)[^\n]*(?<!-)\b{GRANTS[name]}\b", text):
            yield Finding(
                label,
                f"container.options has {name}, which reaches into the host, and nothing says so",
                f"take it out, or say beside it what it is for and that the site has to allow {GRANTS[name]}",
            )


def _words(options: tuple[str, ...]) -> tuple[str, ...] | None:
    try:
        return tuple(part for word in options for part in shlex.split(word))
    except ValueError:
        return None


def _check_images(vendor: VendorFolder, spec: VendorSpec, label: str) -> Iterator[Finding]:
    folder = vendor.path / "images"
    have = [path.name for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    for framework, image in spec.container.images.items():
        elsewhere = any(mark in image for mark in "/:@")
        if elsewhere and "@sha256:" not in image:
            yield Finding(label, f"container.images.{framework} = {image!r} has no digest", "write NAME@sha256:…")
        elif not elsewhere and image not in have:
            hint = did_you_mean(image, have)
            yield Finding(
                label, f"container.images.{framework} = {image!r}: no such folder{hint}", "add images/ for it"
            )
    for name in have:
        for file in ("Dockerfile", f"{name.partition('_')[0]}_install.sh"):
            if not (folder / name / file).is_file():
                where = label.replace("vendor.toml", f"images/{name}/{file}")
                yield Finding(where, "missing", "an image is a Dockerfile and its install script: docs/containers.md")
