"""The accuracy of a saved GLM mini, computed again without one line of the suite.

`python requality_glm.py CHECKPOINT DATA_DIR`. The model is written out from its definition on plain tensors, one
candidate at a time, in float64, with an explicit mask.
It prints one JSON line `{"correct", "questions", "accuracy"}`.
"""

from __future__ import annotations

import json
import lzma
import math
import sys
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

HEADS = 4
MASK, SOP, EOP, CLS, SEP = 1, 2, 3, 4, 5


def norm(x, weights, name):
    """Layer normalisation over the last axis."""
    centred = x - x.mean(-1, keepdim=True)
    scaled = centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-5)
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def linear(x, weights, name):
    """x W^T + b."""
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def gelu(x):
    """The tanh form of GELU."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def attend(x, weights, name, context):
    """Self-attention: all see part A, part B sees what precedes it."""
    length, width = x.shape
    q, k, v = linear(x, weights, f"{name}.query_key_value").view(length, 3, HEADS, width // HEADS).permute(1, 2, 0, 3)
    scores = q @ k.transpose(1, 2) / math.sqrt(width // HEADS)
    for row in range(length):
        for column in range(length):
            if column >= context and column > row:
                scores[:, row, column] = -math.inf
    mixed = torch.softmax(scores, -1) @ v
    return linear(mixed.transpose(0, 1).reshape(length, width), weights, f"{name}.attention_out")


def likelihood(weights, context, blank, answer):
    """log p of `answer` in the blank of `context`."""
    tokens = [*context, SOP, *answer[:-1]]
    places = [*range(len(context)), *[blank] * len(answer)]
    in_span = [*[0] * len(context), *range(1, len(answer) + 1)]
    x = (
        weights["words.weight"][tokens]
        + weights["positions.weight"][places]
        + weights["span_positions.weight"][in_span]
    )
    layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("layers."))
    for n in range(layers):
        name = f"layers.{n}"
        x = x + attend(norm(x, weights, f"{name}.attention_norm"), weights, name, len(context))
        hidden = gelu(linear(norm(x, weights, f"{name}.feed_norm"), weights, f"{name}.feed_in"))
        x = x + linear(hidden, weights, f"{name}.feed_out")
    scores = norm(x, weights, "norm")[len(context) :] @ weights["words.weight"].T
    return float(torch.log_softmax(scores, -1)[range(len(answer)), answer].sum())


def questions(data):
    """The fixed evaluation: (English, German words, place of the blank, offered words, index of the right one)."""
    with lzma.open(data / "cldr_en_de.tsv.xz", "rt", encoding="utf-8") as lines:
        phrases = [line.rstrip("\n").split("\t") for line in lines]
    usable = [p for p in phrases if p[2] in ("date", "unit", "rel", "list") and len(p[1].split()) > 1]
    reserved = usable[:600]
    seen = {text for phrase in reserved for text in phrase[:2]}
    bank: dict[tuple[str, int, int], set[str]] = {}
    for english, german, kind in usable[600:]:
        if english not in seen and german not in seen:
            for place, word in enumerate(german.split()):
                bank.setdefault((kind, place, len(german.split())), set()).add(word)
    random, found = np.random.default_rng(0), []
    for english, german, kind in reserved:
        words = german.split()
        place = int(random.integers(len(words)))
        wrong = sorted(bank.get((kind, place, len(words)), set()) - {words[place]})
        if len(wrong) >= 3:
            offered = [words[place], *(wrong[i] for i in random.permutation(len(wrong))[:3])]
            order = [int(i) for i in random.permutation(4)]
            found.append((english.split(), words, place, [offered[i] for i in order], order.index(0)))
    return found[:300]


def main(checkpoint, data):
    """Count the questions whose likeliest candidate is right."""
    torch.set_num_threads(1)
    saved = torch.load(checkpoint, map_location="cpu", weights_only=True)["model"]
    weights = {name: value.double() for name, value in saved.items()}
    tokenizer = Tokenizer.from_file(str(data / "tokenizer.json"))

    def ids(words):
        return [token for word in words for token in tokenizer.encode(f" {word}").ids]

    correct, asked = 0, questions(data)
    for english, german, place, offered, right in asked:
        before = [CLS, *ids(english), SEP, *ids(german[:place])]
        context = [*before, MASK, *ids(german[place + 1 :])]
        scores = [likelihood(weights, context, len(before), [*ids([word]), EOP]) for word in offered]
        correct += scores.index(max(scores)) == right
    print(json.dumps({"correct": correct, "questions": len(asked), "accuracy": correct / len(asked)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
