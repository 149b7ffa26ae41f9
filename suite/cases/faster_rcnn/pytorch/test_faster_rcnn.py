def test_faster_rcnn(plan, train, judge):
    """Faster R-CNN finds and names what is in an image at the target precision, within its time and speedup."""
    judge(train(plan))
