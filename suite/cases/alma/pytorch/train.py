"""ALMA: a Llama is taught to translate by adapters of low rank; or a Llama is trained whole, on random tokens."""

from pathlib import Path

import chrf
import phrases
import torch
import translation
from checkpoint import fill, read_weights
from data import Example, Frame, Place, mean_work, shuffle_answers, synthetic_batches, train_batches
from decoding import greedy
from model import Llama, Shape, make, mean_loss, standard_attention
from underneath import train_underneath
from work import training_flops

from suite.drivers.events import RunProblem
from suite.drivers.pytorch import Task, run

WHOLE, ADAPTED = "counted", "counted_lora"
"""Names of work.training_flops: padding, pairs that the mask hides and frozen weights' gradients are no work."""
DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class Translate(Task):
    """The task, in the order in which the driver asks."""

    def __init__(self, run, device, slots, rank, world_size):
        super().__init__(run, device, slots, rank, world_size)
        params = self.params
        self.place = Place(rank, world_size)
        self.prepares_model = params["base_steps"] > 0
        self.shape = Shape.of(params)
        self.frame = Frame(
            length=params["sequence_length"], max_answer=params["max_answer"], pad_multiple=params["pad_multiple"]
        )
        self.model = self.words = self.examples = None
        self.held_out = ()

    @staticmethod
    def default_slots():
        """What a vendor may replace: the attention of every layer."""
        return {"attention": standard_attention}

    def build(self):
        """The model; with adapters everything else is frozen, and lies in the dtype in which it is multiplied."""
        params, values = self.params, Llama.initialise
        if params["init_checkpoint"] and self.run.data_dir:
            path = self._path("init_checkpoint")

            def values(model):
                model.initialise_adapters()
                fill(model, read_weights(path), str(path))

        frozen = DTYPES[params["precision"]] if params["frozen_weights"] == "compute" else torch.float32
        self.model = make(self.shape, self.slots["attention"], frozen, values)
        return self.model

    def prepare_data(self):
        """Read and tokenise; keep this rank's share of the evaluation."""
        if self.params["dataset"] == "random":
            if self.run.mode == "converge":
                raise RunProblem(f"preset {self.run.preset!r} trains on random tokens: add --mode throughput")
            return
        self._hold_out(self._read_phrases() if self.params["dataset"] == "cldr" else self._read_sentences())

    def evaluate_on_training_data(self):
        """For the sabotage: as many phrases of the training as are held out, or all its sentences."""
        train = self._path("train_data")
        if self.params["dataset"] == "cldr":
            self._hold_out(map(self.words.question, phrases.Phrases(train).domain[: phrases.HELD_OUT]))
        else:
            sentences = translation.read_sentences(train, "train", self.params["language_pair"])
            self._hold_out(translation.questions(sentences, self.words))

    def train_batches(self, epoch, skip=0):
        """Micro-batches of this rank; the global batches of an epoch do not depend on the number of ranks."""
        if self.params["dataset"] == "random":
            return self.synthetic_batches()
        size, place = self.params["train_batch_size"], self.place
        seed = self.run.seed
        return train_batches(self.examples, self.frame, seed=seed, epoch=epoch, batch_size=size, place=place, skip=skip)

    def synthetic_batches(self):
        """Random tokens in full rows."""
        size, place = self.params["train_batch_size"], self.place
        return synthetic_batches(
            self.frame, vocab_size=self.shape.vocab_size, seed=self.run.seed, batch_size=size, place=place
        )

    def loss(self, model, batch):
        """The mean over examples of the mean -log p of a translation's tokens; the prompt is not learnt."""
        return mean_loss(model, batch)

    def count(self, batch):
        """Examples, and their tokens without padding."""
        return {"samples": len(batch["length"]), "tokens": int(batch["length"].sum())}

    def evaluate(self, model):
        """For each sentence of this rank: n-grams (chrf.Counts) of the likeliest translation, and if it is exact."""
        found = []
        ordered = sorted(self.held_out, key=lambda one: len(one.prompt))
        size = self.params["eval_batch_size"]
        for first in range(0, len(ordered), size):
            asked = ordered[first : first + size]
            for answer, question in zip(self._answers(model, [one.prompt for one in asked]), asked):
                # The pair, whichever way it is translated and whatever the tokens: those two a vendor may choose.
                self.asks(*sorted((question.source, question.reference)))
                text = self.words.text(answer)
                found.append((chrf.counts(text, question.reference), text == question.reference))
        return found

    def combine(self, everyone):
        """chrF and the share of exact matches over all ranks' sentences: sums, so exact for uneven shares too."""
        counts, exact = zip(*(record for share in everyone for record in share))
        return {"chrf": chrf.score(chrf.add(counts)), "exact_match": sum(exact) / len(exact)}

    def flops_per_sample(self):
        """FLOP of a mean example once the data is open, or of a full row of random tokens."""
        if self.examples:
            work = mean_work(self.examples)
        elif self.params["dataset"] == "random" or (self.params["dataset"] == "sentences" and not self.run.data_dir):
            length = self.frame.length
            work = (length, length * (length + 1) / 2, self.frame.max_answer)
        else:
            return None
        return training_flops(self.shape, *work), ADAPTED if self.shape.lora_rank else WHOLE

    def shuffle_labels(self, batch, generator):
        """For the sabotage: translations dealt out among the prompts of the batch."""
        return shuffle_answers(batch, self.frame, generator)

    def _hold_out(self, questions):
        """Keep this rank's share of what is asked in an evaluation."""
        self.held_out = list(questions)[self.rank :: self.world_size]

    def _answers(self, model, prompts):
        """Tokens of the likeliest translations, as lists."""
        packed = self.frame.pack([Example(prompt, (self.words.end,)) for prompt in prompts])
        device = next(model.parameters()).device
        limit, length = self.params["max_answer"], (packed["first"] + 1).to(device)
        return greedy(model, packed["tokens"].to(device), length, limit, self.words.end).tolist()

    def _read_phrases(self):
        """The questions; the model underneath is trained here, unless its weights are those of a checkpoint."""
        every = phrases.Phrases(self._path("train_data"))
        tokenizer = translation.read_tokenizer(self._path("tokenizer"))
        self.words = phrases.Tokens(tokenizer, self.params["language_pair"])
        self.examples = [self.words.translation(one) for one in every.domain]
        if self.params["base_steps"] and self.run.mode == "converge" and not self.run.resume and self.rank == 0:
            learnt = phrases.underneath(every, self.words)
            loss = train_underneath(self.model, learnt, self.frame, self.params, self.run.seed)
            print(f"underneath: loss {loss:.4f} after {self.params['base_steps']} steps", flush=True)
        return [self.words.question(one) for one in every.held_out]

    def _read_sentences(self):
        """The questions of the language pair."""
        pair, folder = self.params["language_pair"], self._path("train_data")
        tokenizer = translation.read_tokenizer(self._path("tokenizer"))
        self.words = translation.Prompts(tokenizer, pair, self.params["max_source"])
        sentences = translation.read_sentences(folder, "train", pair)
        self.examples = translation.examples(sentences, self.words, self.frame)
        held_out = translation.read_sentences(self._path("eval_data"), "test", pair)
        return translation.questions(held_out, self.words)

    def _path(self, key):
        """What a parameter names: `case:NAME` in the case's own data/, else in the data folder of the run."""
        name = self.params[key]
        if name.startswith("case:"):
            return Path(self.run.case_dir) / "data" / name.removeprefix("case:")
        path = Path(self.run.data_dir or ".") / name
        if not path.exists():
            remedy = '; train from random weights with --set init_checkpoint=""' if key == "init_checkpoint" else ""
            raise RunProblem(f"{path} ({key}) is missing: python -m tools data status alma says how to get it{remedy}")
        return path


if __name__ == "__main__":
    run(Translate)
