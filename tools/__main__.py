"""`python -m tools check | convert | data | new`: the entry that turns every mistake into one sentence and exit 4."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from suite.drivers import command_line
from suite.errors import UsageProblem
from tools import check, convert, data, new

ROOT = Path(__file__).resolve().parent.parent
"""The checkout."""


class Parser(command_line.Parser):
    """One whose errors leave by `main`. An abbreviation could swallow an option meant for a case's prepare.py."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        raise UsageProblem(f"{self.prog}: {message} (see {self.prog} --help)")


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = Parser(prog="python -m tools", description=__doc__)
    commands: argparse._SubParsersAction[argparse.ArgumentParser]
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    check.add_arguments(commands)
    convert.add_arguments(commands)
    data.add_arguments(commands)
    new.add_arguments(commands)
    return top


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """What stands before the first `--`, and what stands behind it."""
    end = argv.index("--") if "--" in argv else len(argv)
    return argv[:end], argv[end + 1 :]


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Exit status: 0 done, 1 done and something is wrong with what was looked at, 4 usage, 130 interrupted."""
    try:
        own, handed_on = _split(list(sys.argv[1:] if argv is None else argv))
        arguments, rest = parser().parse_known_args(own)
        rest += handed_on
        if rest and not getattr(arguments, "takes_rest", False):
            raise UsageProblem(f"unknown argument {rest[0]!r} (see python -m tools {arguments.command} --help)")
        arguments.rest = rest
        status: int = arguments.run(arguments, root)
        return status
    except UsageProblem as problem:
        print(f"trainmark: {problem}", file=sys.stderr)
        return 4
    except KeyboardInterrupt:
        print("trainmark: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 1
    except OSError as problem:
        what = problem.strerror or str(problem)
        print(f"trainmark: {problem.filename or 'output'}: {what}; see to it, and run this again", file=sys.stderr)
        return 4


if __name__ == "__main__":
    sys.exit(main())
