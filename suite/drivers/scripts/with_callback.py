"""`python with_callback.py SCRIPT …`: the script in this process, its Trainer watched by a callback of ours.

Evidence `callback`: the script is run as its users run it; transformers is told of one more default callback before.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path[0] = ROOT  # as a script this folder would come first, and its module names would hide others

from suite.drivers.events import RunProblem  # noqa: E402
from suite.drivers.scripts.invocation import (  # noqa: E402
    EXIT_ENVIRONMENT,
    EXIT_EXCEPTION,
    EXIT_USAGE,
    Invocation,
    plain_header,
)


def main(words):
    """Run the script that `words` name; the exit status."""
    try:
        invocation = Invocation(words)
    except RunProblem as problem:
        print(problem, file=sys.stderr)
        return EXIT_USAGE
    try:
        invocation.prepare()
    except RunProblem as problem:
        return _refuse(invocation, "config", str(problem), EXIT_EXCEPTION)
    try:
        from suite.drivers.scripts.callback_run import CallbackRun
    except ImportError as absent:
        detail = f"torch, transformers or accelerate cannot be imported ({absent}): install them in this interpreter"
        return _refuse(invocation, "environment", detail, EXIT_ENVIRONMENT)
    return CallbackRun(invocation).train()


def _refuse(invocation, reason, detail, code):
    """A run that ends before anything of it begins."""
    plain_header(invocation)
    print(detail, file=sys.stderr)
    invocation.stop("aborted", reason, detail)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
