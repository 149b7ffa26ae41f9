"""Facts of the host, for the device type `cpu`."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
from pathlib import Path


def processor() -> str:
    """The processor's own name."""
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def memory_bytes() -> int:
    """Memory of the host."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def peak_bytes() -> int:
    """The most memory that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def numa_node(pci: str | None, root: str = "/") -> int | None:
    """The NUMA node of a PCI address as sysfs tells it; None: no address, no node, or not told."""
    try:
        node = int(Path(root, "sys/bus/pci/devices", pci or "none", "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None
