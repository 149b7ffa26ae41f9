"""Number formats: set them, read them back, and prove them by a product that only full precision gets right."""

import contextlib
import warnings

import numpy as np
import paddle

from suite.drivers.events import RunProblem
from suite.drivers.paddle.problem import EnvironmentProblem

AUTOCAST = {"fp32": None, "tf32": None, "bf16": "bfloat16"}
SIZE = 512
"""Side of the proof's matrices: large enough for the matrix units."""


class Precision:
    """The run's precision, applied to the process when made."""

    def __init__(self, name, device):
        if name not in AUTOCAST:
            raise RunProblem(
                f"precision = {name!r} is not one of {', '.join(AUTOCAST)}, which this driver has: change"
                " params.precision"
            )
        if name == "bf16" and not device.can(name):
            raise EnvironmentProblem(f"the device has no {name}: set params.precision to another")
        self.name, self.device, self.dtype = name, device, AUTOCAST[name]
        device.set_tf32(name != "fp32")

    def autocast(self):
        """Context of every forward pass."""
        if self.dtype is None:
            return contextlib.nullcontext()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # where it is not to be had, `facts` says so by a product
            return paddle.amp.auto_cast(dtype=self.dtype, level="O1")

    def facts(self):
        """The header's `precision`: what is in force, not what was asked for."""
        ones = paddle.ones([8, 8])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with self.autocast():
                dtype = (ones @ ones).dtype
        halved = dtype == paddle.bfloat16
        compute = "bf16" if halved else float_product()
        return {
            "compute": compute,
            "autocast": str(dtype).replace("paddle.", "") if halved else None,
            "tf32": self.device.reads_tf32(),
            "matmul": None if halved else compute,
        }


def float_product():
    """`fp32` where a product keeps 12 bits behind the point; TF32 keeps 10."""
    exact = np.float32(1 + 2.0**-12)
    left = paddle.to_tensor(np.eye(SIZE, dtype=np.float32) * exact)
    product = (left @ paddle.to_tensor(np.eye(SIZE, dtype=np.float32))).numpy()
    return "fp32" if bool((product.diagonal() == exact).all()) else "tf32"
