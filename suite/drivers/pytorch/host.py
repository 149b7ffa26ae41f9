"""Facts of the host are the same in every framework."""

from suite.drivers.host import memory_bytes, numa_node, peak_bytes, processor

__all__ = ["memory_bytes", "numa_node", "peak_bytes", "processor"]
