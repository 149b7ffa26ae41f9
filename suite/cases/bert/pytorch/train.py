"""BERT is pre-trained: which words stood at the masked places, and does the second segment follow the first?"""

from pathlib import Path

import parts
import shards
import torch
from characters import Characters, read_text
from checkpoint import load_pretrained
from data import Frame, Place, evaluation_share, micro_batches, shuffle_labels, synthetic_batches
from model import ABSENT, PAD, Bert, Shape

from suite.drivers.events import RunProblem
from suite.drivers.pytorch import Task, run

FORMULA = "counted"
"""Shape.training_flops: real tokens, pairs within a sequence, the vocabulary and the last layer where asked for."""


class PretrainBert(Task):
    """The task, in the order in which the driver asks."""

    def __init__(self, run, device, slots, rank, world_size):
        super().__init__(run, device, slots, rank, world_size)
        params = self.params
        self.place = Place(rank, world_size)
        self.shape = Shape.of(params)
        self.frame = self._frame(params["pack_multiple"])
        self.source = None
        self.held_out = None
        self._check()

    @staticmethod
    def default_slots():
        """What a vendor may replace: before the layers, of every layer, and the loss."""
        return {
            "embedding": parts.standard_embedding,
            "attention": parts.standard_attention,
            "self_attention": parts.standard_self_attention,
            "residual_norm": parts.standard_residual_norm,
            "feed_in": parts.standard_feed_in,
            "loss": parts.standard_loss,
        }

    def build(self):
        """The model, with pre-trained weights where the parameters name them and there is a data folder."""
        model = Bert(self.shape, parts.Parts(**{name: self.slots[name] for name in parts.Parts._fields}))
        if self.params["init_checkpoint"] and self.run.data_dir:
            load_pretrained(model, self._path("init_checkpoint"))
        return model

    def prepare_data(self):
        """Find the shards, or read the text; keep this rank's share of the evaluation."""
        source = self._path("train_data")
        if self.params["dataset"] == "characters":
            self.source = Characters(read_text(source), self.frame.length, self.shape.vocab_size)
            held_out = self.source.held_out()
        else:
            self.source = shards.Shards(shards.find_shards(source, "train_data", leave_out="test"))
            target = self._path("eval_data")
            held_out = shards.read_all(shards.find_shards(target, "eval_data", leave_out="training"))
        self.held_out = evaluation_share(held_out, self.place)

    def evaluate_on_training_data(self):
        """For the sabotage: the first of the training text, or of the training shards."""
        if self.params["dataset"] == "characters":
            held_out = self.source.held_out(self.source.train)
        else:
            held_out = shards.read_all(shards.find_shards(self._path("train_data"), "train_data", leave_out="test")[:1])
        self.held_out = evaluation_share(held_out, self.place)

    def train_batches(self, epoch, skip=0):
        """Micro-batches of this rank; the global batches of an epoch do not depend on the number of ranks."""
        size = self.params["train_batch_size"]
        chunks = self.source.epoch(self.run.seed, epoch, skip * size * self.world_size)
        return map(self.frame.lay, micro_batches(chunks, size, self.place))

    def synthetic_batches(self):
        """Random tokens in full rows."""
        return synthetic_batches(
            self.frame,
            vocab_size=self.shape.vocab_size,
            seed=self.run.seed,
            batch_size=self.params["train_batch_size"],
            place=self.place,
        )

    def loss(self, model, batch):
        """The masked words' mean -log p of each sequence, and that of the next-sentence answer; means over sequences.

        The mean is taken within a sequence first: one global batch has one gradient however many ranks share it.
        """
        judged = self._judge(model, batch)
        asked = (batch["masked_ids"] != PAD).sum(1).clamp(min=1)
        return (judged.masked_loss.sum(1) / asked).mean() + judged.next_loss.mean()

    def count(self, batch):
        """Sequences, and their tokens without padding."""
        return {"samples": len(batch["length"]), "tokens": int(batch["length"].sum())}

    def evaluate(self, model):
        """Exact shares of masked words, and of pairs, that are named rightly; the host waits once, at the end."""
        size, device = self.params["eval_batch_size"], next(model.parameters()).device
        totals = torch.zeros(4, dtype=torch.int64, device=device)
        frame = self._frame(0)
        for first in range(0, len(self.held_out), size):
            rows = self.held_out.rows(first, min(first + size, len(self.held_out)))
            for row in rows.each():
                self.asks(row.tokens, row.places, row.ids, row.next_class)
            batch = frame.lay(rows, size)
            batch = {name: value.to(device) for name, value in batch.items()}
            judged = self._judge(model, batch)
            asked = ((batch["masked_ids"] != PAD).sum(), (batch["next_sentence"] != ABSENT).sum())
            totals += torch.stack((judged.masked_right.sum(), asked[0], judged.next_right.sum(), asked[1]))
        right, words, next_right, pairs = totals.tolist()
        return {"mlm_accuracy": (right, words), "next_sentence_accuracy": (next_right, pairs)}

    def flops_per_sample(self):
        """FLOP of a mean sequence of the data, or of a full row; None for data that does not say."""
        work = self._mean_work()
        return work and (self.shape.training_flops(*work, shared=self.params["pack_multiple"] > 0), FORMULA)

    def shuffle_labels(self, batch, generator):
        """For the sabotage: masked words and answers dealt out at random."""
        return shuffle_labels(batch, generator)

    @staticmethod
    def _judge(model, batch):
        return model(**{name: value for name, value in batch.items() if name != "length"})

    def _mean_work(self):
        """(tokens, pairs, masked places) of a sequence. Asked before the clock starts, so it reads no training data."""
        if self.params["dataset"] == "characters" or not self.run.data_dir:
            return self.frame.length, self.frame.length**2, self.frame.predictions
        return shards.read_work(shards.find_shards(self._path("train_data"), "train_data", leave_out="test")[0])

    def _frame(self, pack_multiple):
        params = self.params
        return Frame(
            length=params["sequence_length"], predictions=params["max_predictions"], pack_multiple=pack_multiple
        )

    def _check(self):
        """The global batch is part of the case: micro-batch x devices x accumulation makes it exactly."""
        wanted, micro = self.params["global_batch_size"], self.params["train_batch_size"]
        steps, together = self.params["gradient_accumulation_steps"], micro * self.world_size
        if wanted and together * steps != wanted:
            whole = f"set gradient_accumulation_steps = {wanted // together}" if wanted % together == 0 else ""
            remedy = whole or "no whole gradient_accumulation_steps does; change train_batch_size or the topology"
            raise RunProblem(
                f"train_batch_size {micro} x {self.world_size} devices x gradient_accumulation_steps {steps} is"
                f" {together * steps}, global_batch_size is {wanted}: {remedy}"
            )

    def _path(self, key):
        """What a parameter names: `case:NAME` in the case's own data/, else in the data folder of the run."""
        name = self.params[key]
        if name.startswith("case:"):
            return Path(self.run.case_dir) / "data" / name.removeprefix("case:")
        path = Path(self.run.data_dir or ".") / name
        if not path.exists():
            remedy = '; train from random weights with --set init_checkpoint=""' if key == "init_checkpoint" else ""
            raise RunProblem(f"{path} ({key}) is missing: python -m tools data status bert says how to get it{remedy}")
        return path


if __name__ == "__main__":
    run(PretrainBert)
