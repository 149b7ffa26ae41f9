"""Makes or checks the data of this case: `python -m tools data prepare faster_rcnn`, or `python prepare.py` here."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parents[3]):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import coco  # noqa: E402

from suite.drivers.command_line import Parser  # noqa: E402
from suite.drivers.events import RunProblem  # noqa: E402

NAMED = 3
"""Missing images that are named; of more, the count tells."""


def main(argv: list[str]) -> int:
    """Pack the digits of the preset mini, or check COCO for the preset full. Returns 0, or 4 after one sentence."""
    parser = Parser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="data folder of the case; needed for full")
    parser.add_argument("--preset", choices=("full", "mini"), default="full")
    options = parser.parse_args(argv)
    try:
        {"full": check_coco, "mini": pack_digits}[options.preset](options.data_dir)
    except RunProblem as problem:
        print(f"faster_rcnn: {problem}", file=sys.stderr)
        return 4
    return 0


def pack_digits(folder: Path | None) -> None:
    """The digits of scikit-learn's load_digits -> digits.npz, in the repository or in `folder`."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as problem:
        raise RunProblem(f"scikit-learn cannot be imported ({problem}): pip install scikit-learn") from problem
    digits = load_digits()
    target = (HERE / "data" if folder is None else _existing(folder)) / "digits.npz"
    np.savez_compressed(target, images=digits.images.astype(np.uint8), labels=digits.target.astype(np.uint8))
    print(f"{target}: {len(digits.target)} digits")


def check_coco(folder: Path | None) -> None:
    """That both instances files can be read, and that every image which they name is there."""
    params = tomllib.loads((HERE / "case.toml").read_text(encoding="utf-8"))["params"]
    for key in ("train_data", "eval_data"):
        path = _existing(folder) / params[key]
        entries = coco.read(path, params["num_classes"], training=key == "train_data")
        missing = [str(entry.path) for entry in entries if not entry.path.is_file()]
        if missing:
            some = ", ".join(missing[:NAMED])
            count = f"{len(missing)} of the {len(entries)} images of {path} are missing"
            raise RunProblem(f"{count}, as {some}: unpack COCO's images there")
        print(f"{path}: {len(entries)} images")


def _existing(folder: Path | None) -> Path:
    if folder is None or not folder.is_dir():
        raise RunProblem(f"--data-dir {folder} is no folder: name the data folder of faster_rcnn")
    return folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
