"""The number format of a script, which sets its own: as its launcher was told, and as it turns out to be."""

import os

import torch

from suite.drivers.pytorch.precision import float_product

NAMES = {torch.float16: "fp16", torch.bfloat16: "bf16"}


def told(device):
    """The header's `precision`, from what the launcher put into the environment."""
    mixed = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
    return _facts(mixed if mixed in NAMES.values() else None, device)


def effective(header, model, device):
    """The same from inside: autocast as Accelerate has it, else the dtype of most of the model's numbers."""
    from accelerate.state import AcceleratorState

    mixed = AcceleratorState().mixed_precision if AcceleratorState._shared_state else "no"
    if mixed in NAMES.values():
        return {**header, "compute": mixed}
    counts = {}
    for parameter in model.parameters():
        if parameter.is_floating_point():
            counts[parameter.dtype] = counts.get(parameter.dtype, 0) + parameter.numel()
    dtype = max(counts, key=counts.get, default=torch.float32)
    return {**header, "compute": NAMES.get(dtype) or float_product(device)}


def _facts(mixed, device):
    return {
        "compute": mixed or float_product(device),
        "autocast": {"fp16": "float16", "bf16": "bfloat16"}.get(mixed),
        "tf32": device.reads_tf32(),
        "matmul": torch.get_float32_matmul_precision(),
    }
