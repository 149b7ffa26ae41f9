def test_gpt3(plan, train, judge):
    """GPT-3 names the next token within the target bits a byte, within its time and speedup."""
    judge(train(plan))
