"""Byte-pair words: text becomes tokens, and every token knows how many bytes of text it stands for."""

from __future__ import annotations

import lzma
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from suite.drivers.events import RunProblem

END = "<|endoftext|>"
"""Stands between two documents, for no byte of either."""


def train(text: str | Iterable[str], size: int) -> Tokenizer:
    """Byte-pair encoding with `size` words, learnt from a text or several; every byte is a word: nothing is unknown."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        [text] if isinstance(text, str) else text,
        trainers.BpeTrainer(
            vocab_size=size, special_tokens=[END], initial_alphabet=sorted(alphabet), show_progress=False
        ),
    )
    return made


def load(path: Path, vocab_size: int) -> Tokenizer:
    """The words in a file of the library `tokenizers`; RunProblem where it is none, or has too many."""
    try:
        made = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises its own, and plain ones
        raise RunProblem(f"{path} cannot be read as byte-pair words ({error}): name a tokenizer.json") from error
    if made.get_vocab_size() > vocab_size:
        raise RunProblem(f"{path} has {made.get_vocab_size()} words, vocab_size is {vocab_size}: raise it")
    return made


def encode(made: Tokenizer, text: str) -> np.ndarray:
    """The tokens of a text, as few bytes each as the number of words allows."""
    small = np.uint16 if made.get_vocab_size() <= 1 << 16 else np.uint32
    return np.array(made.encode(text).ids, dtype=small)


def byte_lengths(made: Tokenizer) -> np.ndarray:
    """Bytes of text that each word stands for: one a letter of the byte-level alphabet, none for END."""
    lengths = np.zeros(made.get_vocab_size(), dtype=np.uint8)
    for word, number in made.get_vocab().items():
        lengths[number] = 0 if word == END else len(word)
    return lengths


def read_text(path: Path) -> str:
    """A text, packed by xz or plain; RunProblem where it is neither."""
    try:
        with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as file:
            return file.read()
    except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise RunProblem(f"{path} cannot be read as text ({error}): take it from where data.toml says") from error
