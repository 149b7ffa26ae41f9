def test_whisper(plan, train, judge):
    """Whisper learns to hear a new voice by scripts as their users write them, within their time and speedup."""
    judge(train(plan))
