"""The command lines of `python -m …` and of a case's prepare.py: wrong usage is one sentence, and exit status 4.

Here because the training side imports the drivers alone. Standard library only.
"""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

USAGE = 4


class Parser(argparse.ArgumentParser):
    """Leaves with 4 on wrong usage; argparse's own 2 means `interrupted` here. No option may be abbreviated."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        """One sentence instead of the usage."""
        seen = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in message)
        self.exit(USAGE, f"error: {seen}; see `{self.prog} --help`\n")
