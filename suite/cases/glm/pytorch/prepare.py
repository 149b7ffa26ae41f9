"""Makes the data files of this case: `python -m tools data prepare glm --data-dir DIR`, or `python prepare.py` here."""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parents[3]):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import checkpoint  # noqa: E402
import cloze  # noqa: E402
import phrases  # noqa: E402
import superglue  # noqa: E402
import torch  # noqa: E402

from suite.drivers.command_line import Parser  # noqa: E402
from suite.drivers.events import RunProblem  # noqa: E402

VOCABULARY = "bert-large-uncased-vocab.txt"
SOURCES = {"train_data": "ReCoRD/train.jsonl", "eval_data": "ReCoRD/val.jsonl"}


def main(argv: list[str]) -> int:
    """Make what `--what` says, by default what the preset's data.toml lists. Returns 0, or 4 after one sentence."""
    parser = Parser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="data folder of the case; needed for record and checkpoint")
    parser.add_argument("--preset", choices=("full", "mini"), default="full")
    parser.add_argument("--what", choices=sorted(JOBS), help="default: record for full, tokenizer for mini")
    parser.add_argument(
        "--source", type=Path, help="the published checkpoint; it is unpickled: have it from someone you trust"
    )
    options = parser.parse_args(argv)
    try:
        JOBS[options.what or {"full": "record", "mini": "tokenizer"}[options.preset]](options)
    except RunProblem as problem:
        print(f"glm: {problem}", file=sys.stderr)
        return 4
    return 0


def case_params() -> dict[str, object]:
    """The parameters of the preset full."""
    return tomllib.loads((HERE / "case.toml").read_text(encoding="utf-8"))["params"]


def prepare_record(options: argparse.Namespace) -> None:
    """ReCoRD's jsonl files in the data folder -> the two HDF5 files that the case reads."""
    folder, params = _data_dir(options), case_params()
    sizes = {name: int(params[name]) for name in ("vocab_size", "max_answer")}
    length = int(params["sequence_length"])
    encoder = superglue.Encoder(folder / VOCABULARY, length=length, **sizes)
    for key, source in SOURCES.items():
        training = key == "train_data"
        if not (folder / source).is_file():
            raise RunProblem(f"{folder / source} is missing: unpack SuperGLUE's ReCoRD.zip in {folder} (data.toml)")
        choices = int(params["train_choices"]) if training else None
        questions = superglue.read_questions(folder / source, training_choices=choices)
        target = folder / str(params[key])
        count = superglue.write(target, questions, encoder, length=length, training=training)
        print(f"{target}: {count} questions")


def prepare_checkpoint(options: argparse.Namespace) -> None:
    """The published checkpoint -> its weights alone, which a run loads without unpickling anything else."""
    target = _data_dir(options) / str(case_params()["init_checkpoint"])
    if options.source is None or not options.source.is_file():
        raise RunProblem(f"--source {options.source} is no file: name the published checkpoint")
    weights = dict(checkpoint.read_weights(options.source, trust=True))
    target.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"module": weights}, target)
    print(f"{target}: {len(weights)} tensors")


def prepare_phrases(options: argparse.Namespace) -> None:
    """The packed phrases of the preset mini, again from the CLDR in babel 2.19."""
    target = _own_dir(options) / "cldr_en_de.tsv.xz"
    print(f"{target}: {phrases.write(target)} phrases")


def prepare_tokenizer(options: argparse.Namespace) -> None:
    """The tokenizer of the preset mini, again from the training part of the packed phrases."""
    mini = tomllib.loads((HERE / "case.toml").read_text(encoding="utf-8"))["preset"]["mini"]["params"]
    train, _ = cloze.read_phrases(HERE / "data" / "cldr_en_de.tsv.xz")
    target = _own_dir(options) / "tokenizer.json"
    cloze.train_tokenizer(train, mini["vocab_size"]).save(str(target), pretty=False)
    print(f"{target}: {mini['vocab_size']} tokens")


def _data_dir(options: argparse.Namespace) -> Path:
    if options.data_dir is None or not options.data_dir.is_dir():
        raise RunProblem(f"--data-dir {options.data_dir} is no folder: name the data folder of glm")
    return options.data_dir


def _own_dir(options: argparse.Namespace) -> Path:
    """Where the files of the preset mini go: into the repository, unless a folder is named."""
    return HERE / "data" if options.data_dir is None else _data_dir(options)


JOBS = {
    "record": prepare_record,
    "checkpoint": prepare_checkpoint,
    "phrases": prepare_phrases,
    "tokenizer": prepare_tokenizer,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
