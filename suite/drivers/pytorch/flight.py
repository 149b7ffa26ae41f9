"""PyTorch's flight recorder: which collectives this rank entered, kept in memory and written down when asked for."""

import contextlib
import importlib
import os
from pathlib import Path

ENTRIES = 2000
"""Collectives that the recorder remembers."""

_DUMPS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
"""torch's functions, the general one first; which of them exists depends on version and build."""


def switch_on(run_dir, environ=os.environ):
    """Have torch record from the first process group on, and dump by itself where a collective times out."""
    folder = Path(run_dir, "flight")
    folder.mkdir(exist_ok=True)
    prefix = str(folder / "timeout_rank")  # torch adds the rank
    for name, value in (
        ("TORCH_FR_BUFFER_SIZE", str(ENTRIES)),
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", str(ENTRIES)),  # its name before 2.9
        ("TORCH_NCCL_DUMP_ON_TIMEOUT", "1"),
        ("TORCH_FR_DUMP_TEMP_FILE", prefix),
        ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", prefix),
    ):
        environ.setdefault(name, value)


def dump(run_dir, rank, module=None):
    """Write flight/rank<R>.json, whole or not at all; False where torch keeps no record. Never raises."""
    with contextlib.suppress(Exception):
        module = module or importlib.import_module("torch._C._distributed_c10d")
        take = next((getattr(module, name) for name in _DUMPS if hasattr(module, name)), None)
        if take is None:
            return False
        data = take()
        path = Path(run_dir, "flight", f"rank{rank}.json")
        partial = path.with_suffix(".partial")
        partial.write_bytes(data if isinstance(data, bytes) else str(data).encode("utf-8", "replace"))
        partial.replace(path)
        return True
    return False
