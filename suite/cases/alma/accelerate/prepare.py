"""Makes the base model and the phrases of the preset mini: `python prepare.py`, with torch and transformers at hand.

The base is a small Llama that has read English and German apart, and translated names; it has seen no date, no unit
and no span of time translated. Those are what the script fine-tunes on.
"""

from __future__ import annotations

import lzma
import math
import random
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[3]))

from suite.drivers.command_line import Parser  # noqa: E402

DATA = HERE / "data"
PACK = DATA / "cldr_en_de.tsv.xz"
SPECIAL = ["<pad>", "<bos>", "<eos>", "<en>", "<de>"]
TUNED = ("date", "unit", "rel")
"""Kinds of phrases that are left to fine-tuning."""

SEED, STEPS, BATCH, LR = 1, 200, 64, 3e-3
HELD_OUT = 300


def main(argv: list[str]) -> int:
    """All files, in an order that needs none of them."""
    parser = Parser(description=__doc__)
    parser.add_argument(
        "--overwrite", action="store_true", help="replace the files that are there, which takes minutes"
    )
    if not parser.parse_args(argv).overwrite and (DATA / "base").exists():
        print(f"alma/accelerate: {DATA / 'base'} is there; say --overwrite to make it anew", file=sys.stderr)
        return 4
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    rows = [line.split("\t") for line in lzma.decompress(PACK.read_bytes()).decode().splitlines()]
    test = [row for row in rows[:3000] if row[2] in TUNED][:HELD_OUT]
    held = {row[0] for row in test}
    train = [row for row in rows if row[0] not in held]
    write_phrases("train", [row for row in train if row[2] in TUNED])
    write_phrases("test", test)
    tokenizer = make_tokenizer(train)
    model = train_base(train, tokenizer)
    model.half().save_pretrained(DATA / "base", safe_serialization=True)
    tokenizer.save_pretrained(DATA / "base")
    return 0


def write_phrases(name: str, rows: list[list[str]]) -> None:
    """English and German, a pair a line."""
    (DATA / "en-de").mkdir(exist_ok=True)
    text = "".join(f"{english}\t{german}\n" for english, german, _ in rows)
    (DATA / "en-de" / f"{name}.tsv").write_text(text, encoding="utf-8")


def make_tokenizer(rows: list[list[str]]) -> PreTrainedTokenizerFast:
    """Byte-level pairs, every digit a token of its own."""
    inner = Tokenizer(models.BPE())
    bytes_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), bytes_level])
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator((text for row in rows for text in row[:2]), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        additional_special_tokens=["<en>", "<de>"],
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def sequences(rows: list[list[str]], tokenizer: PreTrainedTokenizerFast) -> list[tuple[list[int], int]]:
    """(ids, where the loss begins): half of all texts alone, and the translations of names, twice."""

    def ids(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)

    bos, eos, english, german = (tokenizer.convert_tokens_to_ids(word) for word in SPECIAL[1:])
    alone = [([bos, english, *ids(row[0]), eos], 1) for row in rows]
    alone += [([bos, german, *ids(row[1]), eos], 1) for row in rows]
    names = []
    for row in rows:
        if row[2] not in TUNED:
            source = [bos, english, *ids(row[0]), german]
            names.append(([*source, *ids(row[1]), eos], len(source)))
    return [item for item in alone[::2] + names * 2 if len(item[0]) <= 56]


def train_base(rows: list[list[str]], tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Ordinary training of all weights."""
    config = LlamaConfig(
        vocab_size=400,
        hidden_size=128,
        intermediate_size=320,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.04,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    model, data, generator = LlamaForCausalLM(config), sequences(rows, tokenizer), random.Random(SEED)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(STEPS):
        warm = min(1.0, (step + 1) / (0.1 * STEPS))
        rate = 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / STEPS))
        for group in optimizer.param_groups:
            group["lr"] = LR * warm * rate
        batch = generator.choices(data, k=BATCH)
        longest = max(len(ids) for ids, _ in batch)
        inputs = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in batch])
        labels = torch.tensor([[-100] * begin + ids[begin:] + [-100] * (longest - len(ids)) for ids, begin in batch])
        loss = model(input_ids=inputs, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % 50 == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
    return model


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
