"""Plain text to HDF5 shards: `python -m tools data prepare bert --data-dir DIR -- --text FILE … --vocab FILE`."""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parents[3]):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import instances  # noqa: E402
import numpy as np  # noqa: E402
from shards import write_shard  # noqa: E402

from suite.drivers.command_line import Parser  # noqa: E402
from suite.drivers.events import RunProblem  # noqa: E402


def main(argv: list[str]) -> int:
    """Write the training and the evaluation shards that the preset names. Returns 0, or 4 after one sentence."""
    options = _parser().parse_args(argv)
    try:
        prepare(options, case_params(options.preset))
    except RunProblem as problem:
        print(f"bert: {problem}", file=sys.stderr)
        return 4
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="data folder of the case")
    parser.add_argument("--preset", default="full", help="whose lengths and file names to use (default: full)")
    parser.add_argument("--text", type=Path, nargs="+", default=[], help="one sentence a line, empty between documents")
    parser.add_argument("--vocab", type=Path, help="WordPiece vocabulary, one word piece a line")
    parser.add_argument("--duplicates", type=int, default=5, help="times that each document is cut and masked anew")
    parser.add_argument("--masked", type=float, default=0.15, help="share of the tokens that are hidden")
    parser.add_argument("--seed", type=int, default=12345)
    parser.add_argument("--shards", type=int, default=1, help="number of training files")
    parser.add_argument(
        "--held-out", type=float, default=0.05, help="share of the documents, the last ones, to evaluate"
    )
    return parser


def case_params(preset: str) -> dict[str, object]:
    """The parameters of a preset."""
    case = tomllib.loads((HERE / "case.toml").read_text(encoding="utf-8"))
    if preset != "full" and preset not in case["preset"]:
        raise RunProblem(f"--preset {preset} is none of full, {', '.join(case['preset'])}: name one of these")
    return case["params"] | case["preset"].get(preset, {}).get("params", {})


def prepare(options: argparse.Namespace, params: dict[str, object]) -> None:
    """The documents' last share is written once, as the evaluation; the others `--duplicates` times, mixed."""
    folder, vocabulary = _check(options, params)
    documents = instances.read_documents(options.text, vocabulary.encode)
    reserved = min(max(2, round(len(documents) * options.held_out)), len(documents) - 2)
    if reserved < 2:
        raise RunProblem(f"{options.text[0]} has {len(documents)} documents: 4 are needed, two to train and two to ask")
    random = np.random.default_rng(options.seed)
    length = int(str(params["sequence_length"]))
    made = [pair for _ in range(options.duplicates) for pair in instances.pairs(documents[:-reserved], length, random)]
    asked = list(instances.pairs(documents[-reserved:], length, random))
    mixed = random.permutation(len(made))
    parts = [[made[i] for i in part] for part in np.array_split(mixed, options.shards)]
    for number, part in enumerate(parts):
        _write(
            options, params, vocabulary, part, folder / str(params["train_data"]) / f"training_{number}.hdf5", random
        )
    _write(options, params, vocabulary, asked, folder / str(params["eval_data"]) / "test_0.hdf5", random)


def _check(options: argparse.Namespace, params: dict[str, object]) -> tuple[Path, instances.Vocabulary]:
    """The data folder and the vocabulary, where all options make sense."""
    if options.data_dir is None or not options.data_dir.is_dir():
        raise RunProblem(f"--data-dir {options.data_dir} is no folder: name the data folder of bert")
    if str(params["train_data"]).startswith("case:"):
        raise RunProblem(f"--preset {options.preset} reads a file of this repository: there is nothing to prepare")
    if not options.text or options.vocab is None:
        raise RunProblem("--text and --vocab are missing: name the text files and the vocabulary after --")
    for name, low, high in (("duplicates", 1, 1000), ("shards", 1, 100_000), ("masked", 0, 1), ("held_out", 0, 1)):
        if not low <= getattr(options, name) <= high:
            raise RunProblem(f"--{name.replace('_', '-')} {getattr(options, name)} is not within {low} and {high}")
    vocabulary = instances.Vocabulary(options.vocab)
    if vocabulary.words.count > int(str(params["vocab_size"])):
        count, limit = vocabulary.words.count, params["vocab_size"]
        raise RunProblem(f"{options.vocab} has {count} word pieces, vocab_size of {options.preset} is {limit}")
    return options.data_dir, vocabulary


def _write(
    options: argparse.Namespace,
    params: dict[str, object],
    vocabulary: instances.Vocabulary,
    part: list[instances.Pair],
    path: Path,
    random: np.random.Generator,
) -> None:
    """One shard."""
    if not part:
        raise RunProblem(f"{path} would be empty: lower --shards {options.shards}, or give more text")
    length, limit = int(str(params["sequence_length"])), int(str(params["max_predictions"]))
    masked = instances.mask_pairs(part, vocabulary, length=length, share=options.masked, limit=limit, random=random)
    write_shard(path, masked, length, limit)
    print(f"{path}: {len(masked)} sequences")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
