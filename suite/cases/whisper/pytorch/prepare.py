"""Trains the base of mini: `python -m tools data prepare whisper`. A few minutes on one core."""

from __future__ import annotations

import argparse
import math
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parents[3]):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import digits  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from data import Collator  # noqa: E402
from generation import until_end, write  # noqa: E402
from mel import LogMel  # noqa: E402
from model import Whisper, make  # noqa: E402
from shape import Shape  # noqa: E402
from wer import word_errors  # noqa: E402

from suite.drivers.command_line import Parser  # noqa: E402

BATCH = 32
RATE, DECAY, BETAS, CLIP = 3e-3, 0.01, (0.9, 0.98), 1.0
WARMUP = 0.1
GATE = 0.55
"""The largest word error rate, on voices never heard, of a base: a training that finds no alignment stays near 0.9."""


def main(argv: list[str]) -> int:
    """Write base.npz. Returns 0, or 4 after one sentence."""
    options = _parser().parse_args(argv)
    torch.set_num_threads(1)
    source = options.source
    if not source.is_file():
        print(f"whisper: --source {source} is no file: name spoken_digits.npz", file=sys.stderr)
        return 4
    target = options.data_dir / "base.npz"
    if target.exists() and not options.overwrite:
        print(f"whisper: {target} is there; say --overwrite to make it anew", file=sys.stderr)
        return 4
    for seed in range(options.seed, options.seed + options.tries):
        model, rates = train(mini_params(), digits.read_voices(source), seed, options.steps)
        print(f"seed {seed}: word error rate {rates[0]:.3f} on voices never heard, {rates[1]:.3f} on the real one")
        if rates[0] <= GATE:
            arrays = {name: value.half().numpy() for name, value in model.state_dict().items()}
            np.savez_compressed(target, **arrays)
            print(f"{target}: {sum(value.size for value in arrays.values())} parameters")
            return 0
    print(f"whisper: no seed reached {GATE}: raise --steps {options.steps} or --tries {options.tries}", file=sys.stderr)
    return 4


def _parser() -> argparse.ArgumentParser:
    parser = Parser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=HERE / "data", help="where to write; default: the case's own")
    parser.add_argument("--source", type=Path, default=HERE / "data/spoken_digits.npz", help="the recordings")
    parser.add_argument("--overwrite", action="store_true", help="replace the file that is there")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tries", type=int, default=3, help="seeds that are tried, one after the other")
    parser.add_argument("--steps", type=int, default=600)
    return parser


def mini_params() -> dict[str, object]:
    """The parameters of the preset, without adapters: all weights learn."""
    case = tomllib.loads((HERE / "case.toml").read_text(encoding="utf-8"))
    return case["params"] | case["preset"]["mini"]["params"] | {"lora_rank": 0}


def train(params: dict[str, object], voices: digits.Voices, seed: int, steps: int) -> tuple[Whisper, list[float]]:
    """A base that has heard all synthetic voices but two; its word error rates on those two and on the real one.

    Utterances grow from one digit to four over the first half: trained on long ones alone it finds no alignment.
    """
    torch.manual_seed(seed)
    shape, mel = Shape.of(params), LogMel.of(params)
    model = make(shape).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY, betas=BETAS)
    heard, unheard = voices.synthetic[: -digits.HELD_OUT_VOICES], voices.synthetic[-digits.HELD_OUT_VOICES :]
    lessons = [digits.Utterances(heard, mel, longest, 1) for longest in (1, 2, 3)]
    lessons.append(digits.Utterances(heard, mel))
    collate = Collator(shape.start_token, int(str(params["label_multiple"])), shape.max_labels)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * _factor(step, steps)
        lesson = lessons[min(3, step * 6 // steps)]
        batch = collate(*lesson.take(seed, 0, range(step * BATCH, (step + 1) * BATCH)))
        loss = model(batch["features"], batch["labels"]).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    model.half().float()  # as it will be stored
    return model, [error_rate(model.eval(), digits.HeldOut(group, mel)) for group in (unheard, voices.real)]


def error_rate(model: Whisper, held_out: digits.HeldOut) -> float:
    """Word errors per word over all held-out utterances."""
    errors = words = 0
    features, said = held_out.take(range(len(held_out)))
    for reference, tokens in zip(said, write(model, features, [digits.START], 7).tolist()):
        errors += word_errors(reference, digits.words_of(until_end(tokens, digits.END)))
        words += len(reference)
    return errors / words


def _factor(step: int, steps: int) -> float:
    """Warm-up over a tenth, then half a cosine down to 2 %."""
    warmup = WARMUP * steps
    if step < warmup:
        return (step + 1) / warmup
    return 0.02 + 0.98 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
