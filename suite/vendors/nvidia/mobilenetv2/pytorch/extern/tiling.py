"""How rows of channels are dealt out to programs."""

import math
from dataclasses import dataclass

COLS = 512
"""Columns of a tile, where the channels allow it."""
GROUP = 512
"""Sums that one program merges."""


@dataclass(frozen=True)
class Load:
    """What a kernel does best with, as measured on an H200."""

    rows: int
    """Rows of a tile."""
    warps: int
    """That share a program."""
    programs: int
    """In all, about: a multiple of the 132 multiprocessors."""


@dataclass(frozen=True)
class Tiling:
    """Rows [M, C] as `long_rows` of C x `fold` columns; a program takes `cols` of them and `chunk` long rows."""

    fold: int
    long_rows: int
    width: int
    cols: int
    chunk: int
    load: Load

    @classmethod
    def of(cls, count: int, channels: int, load: Load) -> "Tiling":
        """For `count` rows of `channels`: a long row is a power of two of them that divides `count`."""
        power = channels & -channels
        fold = math.gcd(count & -count, max(1, COLS // power))
        long_rows, width, cols = count // fold, channels * fold, min(power * fold, COLS)
        chunk = -(-long_rows // max(1, load.programs * cols // width))
        return cls(fold, long_rows, width, cols, -(-chunk // load.rows) * load.rows, load)

    @property
    def parts(self) -> int:
        """Chunks of long rows."""
        return -(-self.long_rows // self.chunk)

    @property
    def grid(self) -> tuple[int, int]:
        """(blocks of columns, chunks of long rows)."""
        return self.width // self.cols, self.parts

    @property
    def sums(self) -> int:
        """Sums of each channel that the programs leave: one a chunk, for each of the rows of a long one."""
        return self.parts * self.fold

    @property
    def groups(self) -> int:
        """Of GROUP such sums."""
        return -(-self.sums // GROUP)

    def words(self) -> dict[str, int]:
        """What every kernel over tiles is told of them."""
        return {"width": self.width, "COLS": self.cols, "ROWS": self.load.rows, "num_warps": self.load.warps}


def power(count: int) -> int:
    """The next power of two."""
    return 1 << (count - 1).bit_length()


def block(channels: int) -> int:
    """Channels that one merging program takes: a power of two that divides them; few, so that many programs work."""
    return min(channels & -channels, 8)
