"""`pytest suite/conformance --vendor V`: the first thing that a new chip runs."""


def test_chip_conforms(plan, examine):
    """The chip is what the training driver takes it for; what it lacks becomes a list that the driver reads."""
    examine(plan)
