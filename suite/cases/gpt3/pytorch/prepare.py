"""Plain text to rows of tokens: python -m tools data prepare gpt3 --data-dir DIR -- --text FILE ... --tokenizer FILE

Each file is one document. The last documents, or the end of the last one, are held out. With `--debian FOLDER` the text
is that of the preset 124m_text: the documentation packages of data/debian.toml, which apt-get downloads to FOLDER.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parents[3]):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import debian_text  # noqa: E402
import numpy as np  # noqa: E402
import words  # noqa: E402

from suite.drivers.command_line import Parser  # noqa: E402
from suite.drivers.events import RunProblem  # noqa: E402

HELD_OUT = 0.005
"""Share of the tokens, their end, that is only evaluated."""
DEBIAN = "debian"
"""Folder of the preset 124m_text in the data folder."""
WHOLE = 64 * 1024
"""Its held-out tokens are a multiple of this, so that no batch of an evaluation is smaller than the others."""


def main(argv: list[str] | None = None) -> int:
    """Write train.npy, held_out.npy and byte_lengths.npy. Returns 0, or 4 after one sentence."""
    given = _parser().parse_args(argv)
    try:
        if given.debian:
            _debian(given.data_dir / DEBIAN, given.debian, given.vocab_size)
            return 0
        texts = [words.read_text(path) for path in given.text]
        if given.tokenizer:
            made = words.load(given.tokenizer, given.vocab_size)
        else:
            made = words.train("\n".join(texts), given.vocab_size)
        _write(given.data_dir, made, texts, given.held_out)
    except RunProblem as problem:
        print(f"gpt3: {problem}", file=sys.stderr)
        return 4
    return 0


def _write(folder: Path, made: words.Tokenizer, texts: list[str], share: float) -> None:
    tokens = _tokens(made, texts)
    cut = len(tokens) - round(len(tokens) * share)
    _save(folder, made, tokens[:cut], tokens[cut:])


def _debian(folder: Path, downloads: Path, vocab_size: int) -> None:
    """The preset 124m_text: words learnt from what is trained on alone, and whole batches held out."""
    wanted = debian_text.packages()
    text = debian_text.make(debian_text.fetch(downloads, wanted), wanted)
    made = words.train(text.train, vocab_size)
    held_out = _tokens(made, text.held_out)
    if len(held_out) <= WHOLE:
        raise RunProblem(f"{downloads} held out {len(held_out)} tokens, more than {WHOLE} are needed: add packages")
    _save(folder, made, _tokens(made, text.train), held_out[: (len(held_out) - 1) // WHOLE * WHOLE + 1])
    made.save(str(folder / "tokenizer.json"), pretty=False)
    parts = [f"{name}\n\n{text.licences[name]}" for name in sorted(text.licences)]
    (folder / "licences.txt").write_text("\n\n".join(parts), encoding="utf-8")


def _tokens(made: words.Tokenizer, texts: list[str]) -> np.ndarray:
    """All documents in a row, each with its end."""
    end = made.token_to_id(words.END)
    if end is None:
        raise RunProblem(f"the words have no {words.END}, which ends a document: name a tokenizer.json that has it")
    return np.concatenate([np.append(words.encode(made, text), end) for text in texts])


def _save(folder: Path, made: words.Tokenizer, train: np.ndarray, held_out: np.ndarray) -> None:
    small = np.uint16 if made.get_vocab_size() <= 1 << 16 else np.uint32
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "train.npy", train.astype(small))
    np.save(folder / "held_out.npy", held_out.astype(small))
    np.save(folder / "byte_lengths.npy", words.byte_lengths(made))
    print(f"{len(train)} tokens to train on, {len(held_out)} held out, {made.get_vocab_size()} words, in {folder}")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", type=Path, nargs="+", help="UTF-8, plain or packed by xz")
    source.add_argument("--debian", type=Path, metavar="FOLDER", help="where the .deb files lie, or will")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json, as GPT-2's; without it words are learnt here")
    parser.add_argument("--vocab-size", type=int, default=50257)
    parser.add_argument("--held-out", type=float, default=HELD_OUT)
    return parser


if __name__ == "__main__":
    sys.exit(main())
