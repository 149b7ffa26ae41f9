def test_alma(plan, train, judge):
    """ALMA translates at the target quality, within its time and speedup."""
    judge(train(plan))
