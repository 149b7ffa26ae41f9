"""A sound run: every place where one that is broken on purpose differs, once, before the loop begins."""


class Sound:
    """Nothing is broken."""

    averages = True
    """Whether the ranks exchange gradients."""
    needs_data = False
    """Whether random batches, which nobody compares, would not show it."""

    def spec(self, spec):
        """run.json as this rank takes it."""
        return spec

    def place(self, place):
        """Where this rank stands."""
        return place

    def watch(self, writer, spec, place):
        """Change the event writer."""

    def data_rank(self, rank):
        """Whose data this rank trains on."""
        return rank

    def task(self, task):
        """Change the task, before its data is open."""

    def parts(self, parts, precision, place):
        """Change what was assembled, behind the header."""

    def micros(self, micros, task):
        """The training's micro-batches."""
        return micros

    def loop(self, loop):
        """Change the loop, before it starts."""
