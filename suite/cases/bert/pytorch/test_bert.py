def test_bert(plan, train, judge):
    """BERT names masked words at the target accuracy, within its time and speedup."""
    judge(train(plan))
