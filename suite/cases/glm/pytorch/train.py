"""GLM fills blanks: the right candidate shall be the likeliest (ReCoRD), or what is missing likely (CLDR phrases)."""

from pathlib import Path

import cloze
import numpy as np
import record
import torch
from checkpoint import load_pretrained
from data import Frame, Place, shuffle_answers, synthetic_batches, train_batches
from model import GLM, Shape, standard_attention
from tokenizers import Tokenizer
from torch.nn import functional as F

from suite.drivers.events import RunProblem
from suite.drivers.pytorch import Task, run

FORMULA = "counted"
"""Shape.training_flops; pairs that the mask hides, padding and places without an answer are no work."""
IMPOSSIBLE = -1e4
"""Score of a candidate that only fills the shape."""


class FillBlanks(Task):
    """The task, in the order in which the driver asks."""

    def __init__(self, run, device, slots, rank, world_size):
        super().__init__(run, device, slots, rank, world_size)
        params = self.params
        self.place = Place(rank, world_size)
        self.shape = Shape.of(params)
        self.frame = self._frame(params["train_choices"])
        self.questions = None
        self.held_out = ()

    @staticmethod
    def default_slots():
        """What a vendor may replace: the attention of every layer."""
        return {"attention": standard_attention}

    def build(self):
        """The model, with pre-trained weights where the parameters name them and there is a data folder."""
        model = GLM(self.shape, self.slots["attention"])
        name = self.params["init_checkpoint"]
        if name and self.run.data_dir:
            load_pretrained(model, self._file("init_checkpoint"))
        return model

    def prepare_data(self):
        """Read, tokenise once, and keep this rank's share of the evaluation."""
        source, target = self._file("train_data"), self._file("eval_data")
        if self.params["dataset"] == "cldr":
            train, reserved = cloze.read_phrases(source)
            words = cloze.Words(Tokenizer.from_file(str(source.parent / "tokenizer.json")))
            self.questions = cloze.ClozeTraining(train, words)
            self._keep(cloze.held_out(train, reserved, words))
        else:
            limits = (self.frame.length, self.frame.max_answer)
            self.questions = record.RecordTraining(record.read(source, *limits), self.frame.choices)
            self._keep(record.held_out_questions(record.read(target, *limits)))

    def evaluate_on_training_data(self):
        """For the sabotage: questions of what is trained on."""
        source = self._file("train_data")
        if self.params["dataset"] == "cldr":
            train, _ = cloze.read_phrases(source)
            words = cloze.Words(Tokenizer.from_file(str(source.parent / "tokenizer.json")))
            self._keep(cloze.held_out(train, train[: cloze.RESERVED], words))
        else:
            self._keep(record.held_out_questions(record.read(source, self.frame.length, self.frame.max_answer)))

    def train_batches(self, epoch, skip=0):
        """Micro-batches of this rank; the global batches of an epoch do not depend on the number of ranks."""
        size = self.params["train_batch_size"]
        return train_batches(
            self.questions, self.frame, seed=self.run.seed, epoch=epoch, batch_size=size, place=self.place, skip=skip
        )

    def synthetic_batches(self):
        """Random tokens in rows without padding."""
        return synthetic_batches(
            self.frame,
            vocab_size=self.shape.vocab_size,
            seed=self.run.seed,
            batch_size=self.params["train_batch_size"],
            place=self.place,
        )

    def loss(self, model, batch):
        """With one candidate, the negative log-likelihood of an answer; with several, the cross-entropy of the choice.

        Both are means over questions, so that one global batch has one gradient however many ranks share it.
        """
        flat = {name: value.flatten(0, 1) for name, value in batch.items() if name != "choices"}
        likelihood = model(flat["tokens"], flat["separator"], flat["blank"], flat["answer"])
        real = self._within(flat["answer_length"], likelihood.shape[1])
        scores = (likelihood * real).sum(1).view(batch["separator"].shape)
        if self.frame.choices == 1:
            return -scores.mean()
        scores = scores.masked_fill(~self._within(batch["choices"], self.frame.choices), IMPOSSIBLE)
        return F.cross_entropy(scores, torch.zeros_like(batch["choices"]))

    def count(self, batch):
        """Questions, and the tokens of their real candidates without padding."""
        real = self._within(batch["choices"], self.frame.choices)
        tokens = (batch["separator"] + batch["answer_length"]) * real
        return {"samples": len(batch["choices"]), "tokens": int(tokens.sum())}

    def evaluate(self, model):
        """Exact accuracy over all held-out questions: the likeliest candidate counts if it is a right one."""
        rows = [row for question in self.held_out for row in question.candidates]
        scores = self._scores(model, rows)
        correct, first = 0, 0
        for question in self.held_out:
            asked = question.candidates[0]
            offered = [np.asarray(one.answer) for one in question.candidates]
            self.asks(np.asarray(asked.context), int(asked.blank), offered, *map(int, sorted(question.right)))
            mine = scores[first : first + len(question.candidates)]
            first += len(question.candidates)
            correct += bool(np.isfinite(mine).all()) and int(mine.argmax()) in question.right
        return {"accuracy": (correct, len(self.held_out))}

    def flops_per_sample(self):
        """FLOP of a mean question of the data, or of full rows of random tokens; None for data that does not say."""
        work = self._mean_work()
        return work and (self.shape.training_flops(*work), FORMULA)

    def shuffle_labels(self, batch, generator):
        """For the sabotage: answers dealt out among the contexts of the batch."""
        return shuffle_answers(batch, generator)

    def _keep(self, held_out):
        """This rank's share of the questions."""
        self.held_out = [held_out[i] for i in range(self.rank, len(held_out), self.world_size)]

    def _scores(self, model, rows):
        """log p of each row's answer, as a numpy array. Packs have one size; the host waits once, at the end."""
        size = self.params["eval_batch_size"] * self.params["eval_choices"]
        frame, parts, device = self._frame(1), [], next(model.parameters()).device
        for first in range(0, len(rows), size):
            pack = rows[first : first + size]
            pack = [*pack, *pack[:1] * (size - len(pack))] if not frame.pad_multiple else pack
            batch = frame.pack([(row,) for row in pack])
            flat = {name: value[:, 0].to(device) for name, value in batch.items() if name != "choices"}
            likelihood = model(flat["tokens"], flat["separator"], flat["blank"], flat["answer"])
            parts.append((likelihood * self._within(flat["answer_length"], likelihood.shape[1])).sum(1))
        return torch.cat(parts)[: len(rows)].double().cpu().numpy() if parts else np.zeros(0)

    def _mean_work(self):
        """(tokens, pairs, predicted) of a question. Asked before the clock starts, so it reads no training data."""
        if self.params["dataset"] == "cldr":
            return cloze.MEAN_WORK
        if self.run.data_dir:
            return record.mean_work(self._file("train_data"))
        span = np.arange(1, self.frame.max_answer + 1)
        pairs = (self.frame.length - span) * self.frame.length + span * (span + 1) / 2
        return tuple(self.frame.choices * mean for mean in (self.frame.length, pairs.mean(), span.mean()))

    def _frame(self, choices):
        params = self.params
        return Frame(
            choices=choices,
            length=params["sequence_length"],
            max_answer=params["max_answer"],
            pad_multiple=params["pad_multiple"],
        )

    def _file(self, key):
        """The file that a parameter names: `case:NAME` in the case's own data/, else in the data folder of the run."""
        name = self.params[key]
        if name.startswith("case:"):
            return Path(self.run.case_dir) / "data" / name.removeprefix("case:")
        path = Path(self.run.data_dir or ".") / name
        if not path.is_file():
            remedy = '; train from random weights with --set init_checkpoint=""' if key == "init_checkpoint" else ""
            raise RunProblem(f"{path} ({key}) is missing: python -m tools data status glm says how to get it{remedy}")
        return path

    @staticmethod
    def _within(length, count):
        """[..., count]: true for the first `length` places."""
        return torch.arange(count, device=length.device) < length[..., None]


if __name__ == "__main__":
    run(FillBlanks)
