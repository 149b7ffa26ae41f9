"""Number formats: set them, read them back, and prove them by a product that only full precision gets right."""

import tensorflow as tf

from suite.drivers.events import RunProblem
from suite.drivers.tensorflow2.problem import EnvironmentProblem

DTYPES = {"fp32": tf.float32, "tf32": tf.float32, "bf16": tf.bfloat16}
EXACT = 1 + 2.0**-12
"""Keeps 12 bits behind the point; TF32 keeps 10."""
SIZE = 512
"""Side of the proof's matrices: large enough for the matrix units."""


class Precision:
    """The run's precision. `dtype` is what a model casts its activations and kernels to; parameters stay float32."""

    def __init__(self, name, capabilities):
        if name not in DTYPES:
            more = "; fp16 needs a loss scaler, which this driver has not" if name == "fp16" else ""
            raise RunProblem(f"precision = {name!r} is not one of {', '.join(DTYPES)}{more}: change params.precision")
        if not capabilities.get(name, True):
            raise EnvironmentProblem(
                f"the device has no {name}: set params.precision to another of {', '.join(DTYPES)}"
            )
        self.name, self.dtype = name, DTYPES[name]
        tf.config.experimental.enable_tensor_float_32_execution(name != "fp32")

    def facts(self, dtype=None):
        """The header's `precision`: what is in force, not what was asked for. `dtype`: what a task was given."""
        dtype = dtype or self.dtype
        eye = tf.eye(SIZE, dtype=dtype)
        product = tf.linalg.matmul(tf.cast(EXACT * tf.eye(SIZE), dtype), eye)
        if product.dtype == tf.bfloat16:
            compute = "bf16"
        else:
            compute = "fp32" if bool(tf.reduce_all(tf.linalg.diag_part(product) == EXACT)) else "tf32"
        allowed = tf.config.experimental.tensor_float_32_execution_enabled()
        return {
            "compute": compute,
            "autocast": None if dtype == tf.float32 else dtype.name,
            "tf32": allowed,
            "matmul": "high" if allowed else "highest",
        }
