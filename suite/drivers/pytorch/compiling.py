"""Compiling: whether the model is compiled, and whether its passes are captured as graphs of the device."""

from suite.drivers.events import RunProblem


def compile_options(params):
    """What `torch.compile` is to be told beside its defaults. Raises RunProblem.

    A graph replays its kernels by one launch, into memory of its own: gradients of an earlier micro-batch that a step
    still adds to would be overwritten.
    """
    if not params.get("compile_graphs", False):
        return {}
    if not (params["compile"] or params.get("compile_layers", False)):
        raise RunProblem("compile_graphs replays what is compiled, and nothing is: set compile = true or leave it out")
    if params["gradient_accumulation_steps"] != 1:
        raise RunProblem(
            "compile_graphs keeps no gradients from one micro-batch to the next, and gradient_accumulation_steps is"
            f" {params['gradient_accumulation_steps']}: set it to 1, or compile_graphs = false"
        )
    return {"mode": "reduce-overhead"}
