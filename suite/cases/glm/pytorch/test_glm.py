def test_glm(plan, train, judge):
    """GLM answers cloze questions at the target accuracy, within its time and speedup."""
    judge(train(plan))
