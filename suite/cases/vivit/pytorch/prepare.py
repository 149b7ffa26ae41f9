"""Packs the digits of mini, or unpacks the frames of videos so that a run needs no decoder.

`python -m tools data prepare vivit --data-dir DIR` decodes every video of DIR/UCF101_subset and keeps its frames.
`python -m tools data prepare vivit -- --digits digits.csv.gz` writes digits.npz.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parents[3]):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from decoders import VIDEOS, check_decoder, read  # noqa: E402

from suite.drivers.command_line import Parser  # noqa: E402
from suite.drivers.events import RunProblem  # noqa: E402

PIXELS = 64


def main(argv: list[str]) -> int:
    """Write what is asked for. Returns 0, or 4 after one sentence."""
    parser = Parser(description=__doc__)
    parser.add_argument(
        "--data-dir", type=Path, help="the data folder; of --digits: where to write, the case's own data"
    )
    parser.add_argument("--digits", type=Path, help="digits.csv.gz as the package scikit-learn holds it")
    options = parser.parse_args(argv)
    try:
        if options.digits:
            pack_digits(options.digits, (options.data_dir or HERE / "data") / "digits.npz")
        elif options.data_dir:
            unpack_videos(options.data_dir / "UCF101_subset")
        else:
            raise RunProblem("--data-dir is missing: name the folder that holds UCF101_subset")
    except (RunProblem, OSError, ValueError) as problem:
        print(f"vivit: {problem}", file=sys.stderr)
        return 4
    return 0


def unpack_videos(folder: Path) -> None:
    """An array of frames in place of each video file below train/, val/ and test/. Raises RunProblem."""
    parts = [folder / part for part in ("train", "val", "test")]
    videos = sorted(path for part in parts for path in part.glob("*/*") if path.suffix.lower() in VIDEOS)
    if not videos:
        raise RunProblem(f"{folder} holds no <part>/<class>/<video>.avi: unpack UCF101_subset.tar.gz there")
    check_decoder([str(path.relative_to(folder)) for path in videos], folder)
    for path in videos:
        frames, fps = read(path)
        # Written beside, then moved: one that is there is whole, and a second call goes on where the first one ended.
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            np.savez_compressed(file, frames=frames, fps=fps)
        partial.replace(path.with_suffix(".npz"))
        path.unlink()
    print(f"{folder}: {len(videos)} videos unpacked")


def pack_digits(source: Path, target: Path) -> None:
    """The table of digits as arrays. Raises ValueError where it is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about an empty file, which is refused below
        rows = np.loadtxt(source, delimiter=",", dtype=np.uint8, ndmin=2)
    if rows.shape[1] != PIXELS + 1 or rows[:, :PIXELS].max() > 16 or rows[:, PIXELS].max() > 9:
        raise ValueError(f"--digits {source} is no table of digits: each row holds 64 pixels of 0 to 16 and a digit")
    np.savez_compressed(target, images=rows[:, :PIXELS].reshape(-1, 8, 8), labels=rows[:, PIXELS])
    print(f"{target}: {len(rows)} digits")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
