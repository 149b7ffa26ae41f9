"""machines/*.toml: figures that can be, each with where it comes from and how sure it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from suite.catalog import VendorFolder
from suite.errors import UsageProblem
from suite.toml_file import read_table, shown
from suite.vendor_spec import Dtype, MachineSpec
from tools.finding import Finding, told

SPARSE = 1.6
"""A step in width doubles a dense peak; twice as much again is a figure with structured sparsity."""
EQUAL = 1.02
LARGEST_TFLOPS = 50_000.0
SMALLEST_TFLOPS = 0.1
LARGEST_GIB = 2048.0


def check_machines(vendor: VendorFolder, root: Path) -> Iterator[Finding]:
    """Every accelerator model of the vendor."""
    paths = sorted((vendor.path / "machines").glob("*.toml"))
    if not paths:
        label = shown(vendor.path / "machines", root)
        yield Finding(label, "no accelerator model", "write machines/<name>.toml: docs/vendors.md")
    owners: dict[str, Path] = {}
    for path in paths:
        label = shown(path, root)
        try:
            machine = read_table(path, MachineSpec, label)
        except UsageProblem as problem:
            yield told(problem, label)
            continue
        if not machine.match:
            yield Finding(label, "match is empty", "write a glob for the name that the device gives itself")
        for glob in machine.match:
            if glob in owners:
                yield Finding(label, f"match {glob!r} is {owners[glob].name}'s too", "sharpen one of them")
            owners[glob] = path
        if "*" in machine.match and len(paths) > 1:
            yield Finding(label, "match '*' takes every device", "write the device's own name")
        yield from _check_figures(machine, label)


def _check_figures(machine: MachineSpec, label: str) -> Iterator[Finding]:
    if machine.memory_gib is not None and machine.memory_gib > LARGEST_GIB:
        yield Finding(label, f"memory_gib = {machine.memory_gib:g} is no device's memory", "write GiB of one device")
    if machine.peak_tflops and "confidence" not in machine.peak_source.lower():
        remedy = "end it in: confidence high, medium or low"
        yield Finding(label, "peak_source does not say how sure the figures are", remedy)
    for dtype, peak in machine.peak_tflops.items():
        if not SMALLEST_TFLOPS <= peak <= LARGEST_TFLOPS:
            yield Finding(
                label, f"peak_tflops.{dtype} = {peak:g} is no peak of one device", "write TFLOPS of one device"
            )
    yield from _check_ratios(machine.peak_tflops, machine.peak_source, label)


def _check_ratios(peaks: Mapping[Dtype, float], source: str, label: str) -> Iterator[Finding]:
    """Narrower types are as fast or about twice as fast; more is a figure with sparsity, unless the source says not."""
    remedy = "write the dense peak, data sheets print it doubled, or say in peak_source why this type is faster"
    ratios: tuple[tuple[Dtype, Dtype, float], ...] = (
        ("bf16", "fp16", EQUAL),
        ("fp8", "fp16", 2 * EQUAL),
        ("fp8", "bf16", 2 * EQUAL),
        ("tf32", "fp16", EQUAL),
        ("tf32", "bf16", EQUAL),
        ("fp32", "tf32", EQUAL),
        ("fp32", "fp16", EQUAL),
        ("fp32", "bf16", EQUAL),
    )
    for narrow, wide, most in ratios:
        if narrow in peaks and wide in peaks and narrow not in source.lower() and peaks[narrow] > most * peaks[wide]:
            told_as = f"peak_tflops.{narrow} = {peaks[narrow]:g} beside {wide} = {peaks[wide]:g} is not possible"
            yield Finding(label, told_as, remedy)
    if (
        "fp16" in peaks
        and "fp8" in peaks
        and "fp8" not in source.lower()
        and EQUAL < peaks["fp8"] / peaks["fp16"] < SPARSE
    ):
        told_as = f"peak_tflops.fp8 = {peaks['fp8']:g} is neither fp16's {peaks['fp16']:g} nor twice that"
        yield Finding(label, told_as, remedy)
