"""Packs the digits of mini: `python -m tools data prepare mobilenetv2 --framework tensorflow2 -- --source FILE`."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parents[3]):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from suite.drivers.command_line import Parser  # noqa: E402

PIXELS = 64


def main(argv: list[str]) -> int:
    """Write digits.npz. Returns 0, or 4 after one sentence."""
    parser = Parser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=HERE / "data", help="where to write; default: the case's own")
    parser.add_argument("--source", type=Path, required=True, help="digits.csv.gz as the package scikit-learn holds it")
    options = parser.parse_args(argv)
    try:
        rows = read_rows(options.source)
    except (OSError, ValueError) as problem:
        print(f"mobilenetv2: --source {options.source} is no table of digits ({problem})", file=sys.stderr)
        return 4
    target = options.data_dir / "digits.npz"
    np.savez_compressed(target, images=rows[:, :PIXELS].reshape(-1, 8, 8), labels=rows[:, PIXELS])
    print(f"{target}: {len(rows)} digits")
    return 0


def read_rows(source: Path) -> np.ndarray:
    """[N, 65]: pixels of 0 to 16, then the digit. Raises OSError or ValueError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about an empty file, which is refused below
        rows = np.loadtxt(source, delimiter=",", dtype=np.uint8, ndmin=2)
    if rows.shape[1] != PIXELS + 1 or rows[:, :PIXELS].max() > 16 or rows[:, PIXELS].max() > 9:
        raise ValueError("each row holds 64 pixels of 0 to 16 and a digit")
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
