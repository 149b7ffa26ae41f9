"""A model's tensors: what training changes and the ranks share, and what each rank keeps count of for itself."""

RUNNING = ("_mean", "_variance")
"""How Paddle's normalisations name their running statistics, which it holds as parameters that do not train."""


def weights(model):
    """{name: parameter} without running statistics: of these the ranks hold the same."""
    running = _running(model)
    return {name: parameter for name, parameter in model.named_parameters() if name not in running}


def statistics(model):
    """[tensor]: running statistics and kept buffers, which each rank has of its own batches."""
    own = weights(model)
    return [value for name, value in model.state_dict().items() if name not in own]


def _running(model):
    names = set()
    for place, layer in model.named_sublayers(include_self=True):
        if all(hasattr(layer, name) for name in RUNNING):
            names |= {f"{place}.{name}" if place else name for name in RUNNING}
    return names
