def test_vivit(plan, train, judge):
    """The guide's own script classifies videos at the target accuracy, in the guide's number of steps."""
    judge(train(plan))
