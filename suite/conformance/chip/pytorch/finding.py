"""Findings: a number for each check, or why this chip has none."""

import math
import traceback

from suite.conformance.checks import BY_NAME


class Unobservable(Exception):
    """This chip, or this host, cannot show what is asked: one sentence."""


class Findings:
    """Writes what is measured as `finding` events. `writer` is the rank's EventWriter."""

    def __init__(self, writer):
        self._writer = writer

    def measure(self, check, measured):
        """Call `measured` -> (value, remark) and tell it; what raises had nothing right."""
        try:
            value, remark = measured()
        except Unobservable as problem:
            value, remark = None, str(problem)
        except Exception as problem:  # a vendor's library may raise anything at all; the other checks go on
            traceback.print_exc()
            value, remark = BY_NAME[check].worst, f"{type(problem).__name__}: {problem}".splitlines()[0]
        if value is not None and not math.isfinite(value):
            value, remark = BY_NAME[check].worst, f"{value} was measured: {remark}"
        self.tell(check, value, remark)

    def tell(self, check, value, remark="", **more):
        """Write one finding."""
        self._writer.write("finding", check=check, value=value, remark=remark, **more)
