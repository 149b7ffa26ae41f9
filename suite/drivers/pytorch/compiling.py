"""Compiling: whether the model is compiled, and whether its passes are captured as graphs of the device."""

from suite.drivers.events import RunProblem


def compile_options(params):
    """What `torch.compile` is to be told beside its defaults. Raises RunProblem.

    A graph replays its kernels by one launch, into memory of its own: gradients of an earlier micro-batch that a step
    still adds to would be overwritten.
    """
    if not params.get("compile_graphs", False):
        return {}
    if params["gradient_accumulation_steps"] != 1:
        raise RunProblem(
            f"compile_graphs keeps no gradients from one micro-batch to the next, and gradient_accumulation_steps is"
            f" {params['gradient_accumulation_steps']}: set one of them to false or 1"
        )
    return {"mode": "reduce-overhead"}
