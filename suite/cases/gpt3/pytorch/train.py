"""GPT-3 is pre-trained: which token follows?"""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from data import Cutter, Place, read_plays, read_tokens, shuffle_labels, synthetic_batches
from model import Gpt, Shape, standard_attention
from recompute import KINDS

from suite.drivers.events import RunProblem
from suite.drivers.pytorch import Task, run

FORMULA = "palm"
"""Shape.training_flops: 6 N + 12 L d T a token, N the weights that multiply; what is recomputed does not count."""


class PretrainGpt(Task):
    """The task, in the order in which the driver asks."""

    def __init__(self, run, device, slots, rank, world_size):
        super().__init__(run, device, slots, rank, world_size)
        self.place = Place(rank, world_size)
        self.shape = Shape.of(self.params)
        self.cutter = Cutter(self.shape.sequence_length)
        self.corpus = None
        self._check()

    @staticmethod
    def default_slots():
        """What a vendor may replace: the attention of every block."""
        return {"attention": standard_attention}

    def build(self):
        """The model with random weights."""
        return Gpt(self.shape, self.slots["attention"])

    def units(self, model):
        """Blocks, then the head: what is gathered, and compiled, on its own where ranks share the model."""
        return [*model.blocks, model.head]

    def tensor_plan(self, model):
        """Heads and feed-forward units are shared; so is the vocabulary, unless one table serves both its ends."""
        plan = {} if self.shape.tied else {"words": "vocabulary", "head.scores": "columns_gathered"}
        gates = ("gate", "feed_in") if self.shape.feed == "swiglu" else ("feed_in",)
        for number in range(len(model.blocks)):
            columns, rows = ("query_key_value", *gates), ("attention_out", "feed_out")
            plan |= {f"blocks.{number}.{name}": "columns" for name in columns}
            plan |= {f"blocks.{number}.{name}": "rows" for name in rows}
        return plan

    def prepare_data(self):
        """Read or map the tokens."""
        train, held_out = self._path("train_data"), self._path("eval_data")
        if self.params["dataset"] == "plays":
            self.corpus = read_plays(train, train.with_name("tokenizer.json"), self.shape.vocab_size)
        else:
            self.corpus = read_tokens(train, held_out, self.shape.vocab_size)

    def evaluate_on_training_data(self):
        """For the sabotage: the beginning of the training text, as long as what is held out."""
        self.corpus = replace(self.corpus, held_out=self.corpus.train[: len(self.corpus.held_out)])

    def train_batches(self, epoch, skip=0):
        """Micro-batches of this rank; the global batches of an epoch do not depend on the number of ranks."""
        return self.cutter.batches(
            self.corpus.train,
            seed=self.run.seed,
            epoch=epoch,
            batch_size=self.params["train_batch_size"],
            place=self.place,
            skip=skip,
        )

    def synthetic_batches(self):
        """Random tokens."""
        return synthetic_batches(
            length=self.shape.sequence_length,
            vocab_size=self.shape.vocab_size,
            seed=self.run.seed,
            batch_size=self.params["train_batch_size"],
            place=self.place,
        )

    def loss(self, model, batch):
        """The mean -log p of what follows. All sequences are full, so the mean is that of any division of the batch."""
        return model(batch["tokens"], batch["following"]).mean() / self.shape.sequence_length

    def count(self, batch):
        """Sequences and tokens; there is no padding."""
        return {"samples": len(batch["tokens"]), "tokens": batch["tokens"].numel()}

    def evaluate(self, model):
        """Bits for each byte of the held-out text, and nats for each token; the host waits once, at the end.

        Every rank calls the model equally often: what is left of the last round is one sequence again, not counted.
        """
        size, held_out = self.params["eval_batch_size"], self.corpus.held_out
        device, count = next(model.parameters()).device, self._evaluated()
        total, tokens, text = torch.zeros((), dtype=torch.float64, device=device), 0, 0
        for first in range(0, count, size * self.world_size):
            which = first + self.rank * size + np.arange(size)
            real = which < count
            batch = self.cutter.cut(held_out, np.where(real, which, 0))
            loss = model(batch["tokens"].to(device), batch["following"].to(device))
            total += (loss.double() * torch.from_numpy(real).to(device)).sum()
            for row in batch["following"].numpy()[real]:
                self.asks(row)
            tokens += int(real.sum()) * self.shape.sequence_length
            text += int(self.corpus.byte_lengths[batch["following"].numpy()[real]].sum(dtype=np.int64))
        nats = float(total.cpu())
        return {"bits_per_byte": (nats / math.log(2), text), "token_loss": (nats, tokens)}

    def shuffle_labels(self, batch, generator):
        """For the sabotage: the following tokens dealt out at random."""
        return shuffle_labels(batch, generator)

    def flops_per_sample(self):
        """FLOP of one sequence."""
        return self.shape.training_flops(), FORMULA

    def _evaluated(self):
        """Held-out sequences that are asked."""
        return min(self.cutter.count(self.corpus.held_out), self.params["eval_sequences"])

    def _check(self):
        """What cannot be trained is refused before anything is built."""
        params, shape = self.params, self.shape
        for key, known in (
            ("positions", ("learned", "rotary")),
            ("feed", ("gelu", "swiglu")),
            ("activation_checkpointing", KINDS),
            ("dataset", ("tokens", "plays")),
        ):
            if params[key] not in known:
                raise RunProblem(f"{key} = {params[key]!r} is not one of {', '.join(known)}: change params.{key}")
        if shape.hidden_size % shape.num_heads or shape.num_heads % params["tensor_parallel"]:
            raise RunProblem(
                f"num_heads = {shape.num_heads} must divide hidden_size = {shape.hidden_size} and be divided by"
                f" tensor_parallel = {params['tensor_parallel']}: change params.tensor_parallel"
            )
        self._check_batch()

    def _check_batch(self):
        """The global batch is part of the case: micro-batch x data-parallel ranks x accumulation makes it exactly."""
        wanted, micro = self.params["global_batch_size"], self.params["train_batch_size"]
        steps, together = self.params["gradient_accumulation_steps"], micro * self.world_size
        if wanted and together * steps != wanted:
            whole = f"set gradient_accumulation_steps = {wanted // together}" if wanted % together == 0 else ""
            remedy = whole or "no whole gradient_accumulation_steps does; change train_batch_size or the topology"
            raise RunProblem(
                f"train_batch_size {micro} x {self.world_size} ranks with a batch x gradient_accumulation_steps {steps}"
                f" is {together * steps}, global_batch_size is {wanted}: {remedy}"
            )

    def _path(self, key):
        """What a parameter names: `case:NAME` in the case's own data/, else in the data folder of the run."""
        name = self.params[key]
        if name.startswith("case:"):
            return Path(self.run.case_dir) / "data" / name.removeprefix("case:")
        path = Path(self.run.data_dir or ".") / name
        if not path.exists():
            raise RunProblem(f"{path} ({key}) is missing: python -m tools data status gpt3 says how to get it")
        return path


if __name__ == "__main__":
    run(PretrainGpt)
