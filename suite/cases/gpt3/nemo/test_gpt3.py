def test_gpt3(plan, train, judge):
    """NeMo trains the GPT-3 style model for the guide's steps, and says how long one takes."""
    judge(train(plan))
