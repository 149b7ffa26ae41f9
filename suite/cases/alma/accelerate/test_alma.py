def test_alma(plan, train, judge):
    """ALMA's own kind of script translates at the target quality, within its time and speedup."""
    judge(train(plan))
