"""baselines/<vendor>/capabilities.toml: what a chip was found to have; conformance writes it, the driver reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from suite.errors import UsageProblem, did_you_mean
from suite.toml_file import read_toml

FILE_NAME = "capabilities.toml"
SOURCE = "source"
"""The only key that is no capability: who found this, when, with what."""

CAPABILITIES: Mapping[str, str] = {
    "fp16": "autocast and loss scaler in fp16",
    "bf16": "autocast in bf16",
    "tf32": "products of ten bits behind the point, by a switch of torch's",
    "fp64": "products in double precision; no training needs them",
    "event_timing": "device events that time; without them every stamp synchronises",
    "streams": "a second queue for copies; without it batches are copied in line",
    "pinned_memory": "page-locked host memory; without it copies wait",
    "rng_state": "the device's generator can be kept; without it dropout differs after a resume",
    "fused_optimizer": "AdamW in one kernel; without it torch's loops",
    "compile": "torch.compile; without it the model as written",
    "attention_flash": "the flash kernel of scaled_dot_product_attention; without it another",
    "attention_efficient": "its memory-efficient kernel; without it another",
    "all_to_all": "the collective that expert parallelism needs",
}
"""Every name, and what a training does without it."""


def read_capabilities(path: Path, label: str) -> dict[str, bool]:
    """The file's capabilities; empty where there is no file. Raises UsageProblem naming file, key and value."""
    if not path.is_file():
        return {}
    found: dict[str, bool] = {}
    for name, value in read_toml(path, label).items():
        if name == SOURCE:
            continue
        if name not in CAPABILITIES:
            raise UsageProblem(f"{label}: unknown key {name!r}{did_you_mean(name, (*CAPABILITIES, SOURCE))}")
        if not isinstance(value, bool):
            raise UsageProblem(f"{label}: {name} = {value!r}: a capability is true or false")
        found[name] = value
    return found


def write_capabilities(path: Path, found: Mapping[str, bool], remarks: Mapping[str, str], source: str) -> None:
    """Write the file atomically, in the order of CAPABILITIES; each missing one with what was seen."""
    lines = [f"{SOURCE} = {json.dumps(source)}", ""]
    for name in CAPABILITIES:
        if name in found:
            remark = " ".join(remarks.get(name, "").split())[:160]
            lines.append(f"{name} = {str(found[name]).lower()}" + (f"  # {remark}" if remark else ""))
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
    partial.replace(path)
