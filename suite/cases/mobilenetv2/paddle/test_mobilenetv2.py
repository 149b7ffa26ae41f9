def test_mobilenetv2(plan, train, judge):
    """MobileNetV2 names what is on a picture at the target accuracy, within its time and speedup."""
    judge(train(plan))
