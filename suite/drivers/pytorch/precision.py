"""Number formats: set them, read them back, and prove them by a product that only full precision gets right."""

import torch

from suite.drivers.events import RunProblem
from suite.drivers.pytorch.device import EnvironmentProblem

AUTOCAST = {"fp32": None, "tf32": None, "fp16": torch.float16, "bf16": torch.bfloat16}
SIZE = 512
"""Side of the proof's matrices: large enough for the matrix units."""


class Precision:
    """The run's precision, applied to the process when made."""

    def __init__(self, name, device):
        if name not in AUTOCAST:
            raise RunProblem(f"precision = {name!r} is not one of {', '.join(AUTOCAST)}: change params.precision")
        if name in ("fp16", "bf16") and not device.can(name):
            raise EnvironmentProblem(
                f"the device has no {name}: set params.precision to another of {', '.join(AUTOCAST)}"
            )
        self.name = name
        self.device = device
        self.dtype = AUTOCAST[name]
        device.set_tf32(name != "fp32")
        self.scaler = device.scaler() if name == "fp16" else None

    def autocast(self):
        """Context of every forward pass."""
        return self.device.autocast(self.dtype)

    def facts(self):
        """The header's `precision`: what is in force, not what was asked for."""
        dtype = self._autocast_dtype()
        return {
            "compute": {torch.float16: "fp16", torch.bfloat16: "bf16"}.get(dtype) or float_product(self.device),
            "autocast": None if dtype == torch.float32 else str(dtype).replace("torch.", ""),
            "tf32": self.device.reads_tf32(),
            "matmul": torch.get_float32_matmul_precision(),
        }

    def _autocast_dtype(self):
        ones = torch.ones(8, 8, device=self.device.torch_device)
        with self.autocast():
            return (ones @ ones).dtype


def float_product(device):
    """`fp32` where a product keeps 12 bits behind the point; TF32 keeps 10."""
    exact = 1 + 2.0**-12
    place = device.torch_device
    product = (torch.eye(SIZE, device=place) * exact) @ torch.eye(SIZE, device=place)
    return "fp32" if bool((product.diagonal() == exact).all().cpu()) else "tf32"
