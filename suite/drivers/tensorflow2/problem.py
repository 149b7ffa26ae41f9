"""What ends a run before it began."""


class EnvironmentProblem(Exception):
    """What is here is not what the plan asked for: one sentence; the run ends as `environment`."""
