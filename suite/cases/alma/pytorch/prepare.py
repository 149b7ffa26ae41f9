"""Makes the data files of this case: `python -m tools data prepare alma`, or `python prepare.py` here."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parents[3]):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import phrases  # noqa: E402

from suite.drivers.command_line import Parser  # noqa: E402
from suite.drivers.events import RunProblem  # noqa: E402


def main(argv: list[str]) -> int:
    """Make the tokenizer of the preset mini again. Returns 0, or 4 after one sentence."""
    parser = Parser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="where to write; the case's own data folder if not given")
    parser.add_argument("--preset", choices=("full", "mini"), default="full")
    options = parser.parse_args(argv)
    try:
        if options.preset == "full":
            raise RunProblem("the files of the preset full are fetched as they are (data.toml); only mini's are made")
        write_tokenizer(HERE / "data" if options.data_dir is None else options.data_dir)
    except RunProblem as problem:
        print(f"alma: {problem}", file=sys.stderr)
        return 4
    return 0


def write_tokenizer(folder: Path) -> None:
    """The tokenizer of the preset mini from the training part of its phrases, which are in the repository."""
    if not folder.is_dir():
        raise RunProblem(f"--data-dir {folder} is no folder: name one that exists")
    mini = tomllib.loads((HERE / "case.toml").read_text(encoding="utf-8"))["preset"]["mini"]["params"]
    every = phrases.Phrases(HERE / "data" / "cldr_en_de.tsv.xz")
    target = folder / "tokenizer.json"
    phrases.train_tokenizer(every.training, mini["vocab_size"]).save(str(target), pretty=False)
    print(f"{target}: {mini['vocab_size']} tokens")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
