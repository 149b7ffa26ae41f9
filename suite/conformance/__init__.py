"""The small tests that a new chip runs first: is it what the training driver takes it for, and what does it lack?"""
