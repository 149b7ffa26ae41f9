"""The state of a divided model as whole tensors under their own names: readable by any number of ranks."""

from suite.drivers.pytorch import pieces


def is_divided(model):
    """Whether a rank holds pieces of it only."""
    return any(map(pieces.is_piece, model.parameters()))


def gather(model, stepper):
    """(model state, stepper state), complete on rank 0. Of a divided model every rank must take part."""
    if not is_divided(model):
        return model.state_dict(), stepper.state()
    tools, options = _tools()
    weights = tools.get_model_state_dict(model, options=options)
    with stepper.updates.uncounted():
        return weights, {"optimizer": tools.get_optimizer_state_dict(model, stepper.optimizer, options=options)}


def restore(model, stepper, weights, steps):
    """Give every rank its pieces of what `gather` gave."""
    if not is_divided(model):
        model.load_state_dict(weights)
        stepper.load(steps)
        return
    tools, options = _tools()
    tools.set_model_state_dict(model, weights, options=options)
    with stepper.updates.uncounted():
        tools.set_optimizer_state_dict(model, stepper.optimizer, steps["optimizer"], options=options)


def _tools():
    import torch.distributed.checkpoint.state_dict as tools

    return tools, tools.StateDictOptions(full_state_dict=True, cpu_offload=True)
