def test_mobilenetv2(plan, train, judge):
    """MobileNetV2 in TensorFlow names what is on a picture at the target accuracy, within its time and speedup."""
    judge(train(plan))
