def test_vivit(plan, train, judge):
    """ViViT names what happens in a clip at the target accuracy, within its time and speedup."""
    judge(train(plan))
