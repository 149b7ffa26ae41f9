"""Whether number formats are what they are called: each operation against the same one in fp64, on the CPU."""

import torch

from suite.conformance.chip.pytorch.finding import Unobservable
from suite.drivers.pytorch.device import EnvironmentProblem
from suite.drivers.pytorch.precision import Precision

DTYPES = ("fp32", "tf32", "fp16", "bf16")
SIZE = 512

OPERATIONS = {
    "product": lambda a, b, image, kernel: a @ b,
    "convolution": lambda a, b, image, kernel: torch.nn.functional.conv2d(image, kernel, padding=1),
    "softmax": lambda a, b, image, kernel: torch.softmax(a, dim=-1),
    "sum": lambda a, b, image, kernel: (a * a).sum(dim=0),
    "layer norm": lambda a, b, image, kernel: torch.nn.functional.layer_norm(a, a.shape[-1:]),
    "exponential": lambda a, b, image, kernel: torch.exp(-a.abs()),
}


def operands():
    """The same on every rank and chip: drawn on the host."""
    draw = torch.Generator().manual_seed(20)
    shapes = ((SIZE, SIZE), (SIZE, SIZE), (4, 32, 16, 16), (32, 32, 3, 3))
    return [torch.randn(shape, generator=draw) for shape in shapes]


def relative_error(got, reference):
    """|got - reference| / |reference|, by norm, on the CPU in fp64; 1 for anything that is not finite."""
    got = got.detach().cpu().double()
    if got.shape != reference.shape or not bool(torch.isfinite(got).all()):
        return 1.0
    return min(1.0, float((got - reference).norm() / reference.norm()))


def worst_error(device, name):
    """(the largest relative error of any operation in the format `name`, remark). Leaves the device in fp32."""
    try:
        precision = Precision(name, device)
        if name == "tf32" and device.reads_tf32() is None:
            raise Unobservable(f"torch has no switch for TF32 on {device.type}")
        host = operands()
        placed = [operand.to(device.torch_device) for operand in host]
        errors = {}
        for operation, compute in OPERATIONS.items():
            reference = compute(*(operand.double() for operand in host))
            with precision.autocast():
                errors[operation] = relative_error(compute(*placed), reference)
    except (EnvironmentProblem, NotImplementedError, RuntimeError) as problem:
        if name == "fp32":
            raise
        raise Unobservable(f"not had here: {problem}".splitlines()[0]) from problem
    finally:
        Precision("fp32", device)
    worst = max(errors, key=errors.get)
    return errors[worst], f"largest in {worst}: {errors[worst]:.2g}"
