"""Plain text to rows of tokens: python -m tools data prepare gpt3 --data-dir DIR -- --text FILE ... --tokenizer FILE

Each file is one document. The last documents, or the end of the last one, are held out.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parents[3]):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import numpy as np  # noqa: E402
import words  # noqa: E402

from suite.drivers.events import RunProblem  # noqa: E402

HELD_OUT = 0.005
"""Share of the tokens, their end, that is only evaluated."""


def main(argv: list[str] | None = None) -> int:
    """Write train.npy, held_out.npy and byte_lengths.npy. Returns 0, or 4 after one sentence."""
    given = _parser().parse_args(argv)
    try:
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
    end = made.token_to_id(words.END)
    if end is None:
        raise RunProblem(f"the words have no {words.END}, which ends a document: name a tokenizer.json that has it")
    tokens = np.concatenate([np.append(words.encode(made, text), end) for text in texts])
    cut = len(tokens) - round(len(tokens) * share)
    small = np.uint16 if made.get_vocab_size() <= 1 << 16 else np.uint32
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "train.npy", tokens[:cut].astype(small))
    np.save(folder / "held_out.npy", tokens[cut:].astype(small))
    np.save(folder / "byte_lengths.npy", words.byte_lengths(made))
    print(f"{cut} tokens to train on, {len(tokens) - cut} held out, {made.get_vocab_size()} words, in {folder}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--text", type=Path, nargs="+", required=True, help="UTF-8, plain or packed by xz")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json, as GPT-2's; without it words are learnt here")
    parser.add_argument("--vocab-size", type=int, default=50257)
    parser.add_argument("--held-out", type=float, default=HELD_OUT)
    return parser


if __name__ == "__main__":
    sys.exit(main())
