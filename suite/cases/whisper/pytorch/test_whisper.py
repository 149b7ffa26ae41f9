def test_whisper(plan, train, judge):
    """Whisper, adapted by LoRA, writes what is said with few enough errors, within its time and speedup."""
    judge(train(plan))
