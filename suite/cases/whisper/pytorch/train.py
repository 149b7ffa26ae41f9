"""Whisper learns to write what is said: its weights stay as they are, small adapters beside them are trained."""

from pathlib import Path

import digits
import numpy as np
import tables
import torch
from attention import standard_attention
from checkpoint import load_pretrained
from data import Collator, Place, evaluation_share, shares, shuffle_labels, synthetic_batches
from generation import until_end, write
from int8 import quantise
from mel import LogMel
from model import IGNORED, make
from shape import Shape
from transcripts import Transcripts
from wer import word_errors

from suite.drivers.events import RunProblem
from suite.drivers.pytorch import Task, run
from suite.drivers.pytorch.compiling import compile_options

FORMULA = "counted"
"""Shape.training_flops: what the gradient of the adapters needs; all frames, real labels, pairs that see each other."""
KEPT_IN = {"fp16": torch.float16, "bf16": torch.bfloat16}
"""What frozen weights are kept in, where it is not float32: the dtype of the products that use them."""


class AdaptWhisper(Task):
    """The task, in the order in which the driver asks."""

    def __init__(self, run, device, slots, rank, world_size):
        super().__init__(run, device, slots, rank, world_size)
        params = self.params
        self.place = Place(rank, world_size)
        self.shape, self.mel = Shape.of(params), LogMel.of(params)
        self.collate = Collator(self.shape.start_token, params["label_multiple"], self.shape.max_labels)
        self.source = None
        self.mine = ()
        self._check()

    @staticmethod
    def default_slots():
        """What a vendor may replace: the attention of every layer."""
        return {"attention": standard_attention}

    def build(self):
        """The model with new adapters, and pre-trained weights where the parameters name them and they can be had."""
        model = make(self.shape, KEPT_IN.get(self.params["precision"], torch.float32), self.slots["attention"])
        name = self.params["init_checkpoint"]
        if name and (self.run.data_dir or name.startswith("case:")):
            load_pretrained(model, self._path("init_checkpoint"))
        if self.params["base_weights"] == "int8":
            quantise(model)
        if self.params["compile_layers"] and self.device.can("compile"):
            model.compile_layers(**compile_options(self.params))
        return model

    def prepare_data(self):
        """Open the recordings; know this rank's share of those that are asked for."""
        params = self.params
        if params["dataset"] == "digits":
            self.source = digits.Digits(self._path("train_data"), self.mel, params["epoch_samples"])
        else:
            transcripts = Transcripts(self._path("tokenizer"), params["language"], params["task"])
            train, held_out = (
                tables.Rows(tables.find_files(self._folder(), params[key], key, limit), self.mel, transcripts)
                for key, limit in (("train_data", params["train_files"]), ("eval_data", 0))
            )
            self.source = tables.Recordings(train, held_out, transcripts, params["epoch_samples"])
        self.mine = evaluation_share(len(self.source.held_out), self.place)

    def evaluate_on_training_data(self):
        """For the sabotage: utterances or recordings of the training."""
        self.source.hold_out_training(self.run.seed)
        self.mine = evaluation_share(len(self.source.held_out), self.place)

    def train_batches(self, epoch, skip=0):
        """Micro-batches of this rank; the global batches of an epoch do not depend on the number of ranks."""
        order = np.random.default_rng((self.run.seed, epoch)).permutation(self.source.size)
        for indices in shares(order, self.params["train_batch_size"], self.place, skip):
            yield self.collate(*self.source.take(self.run.seed, epoch, indices))

    def synthetic_batches(self):
        """Random spectrograms and random labels that fill their places."""
        shape = (self.params["train_batch_size"], self.mel.mel_bins, self.mel.audio_frames)
        return synthetic_batches(
            shape, self.params["synthetic_labels"], self.shape.vocab_size, self.run.seed, self.place
        )

    def loss(self, model, batch):
        """-log p of a label, a mean within each sample and then over samples.

        The mean is taken within a sample first: one global batch has one gradient however many ranks share it.
        """
        return model(batch["features"], batch["labels"]).mean()

    def count(self, batch):
        """Samples, and the labels that are really written."""
        return {"samples": len(batch["labels"]), "tokens": int((batch["labels"] != IGNORED).sum())}

    def evaluate(self, model):
        """Words that were written wrongly, of all that were said; greedy writing, by the uncompiled model."""
        model = getattr(model, "_orig_mod", model)
        size, device = self.params["eval_batch_size"], model.written_places.device
        errors = words = 0
        for first in range(0, len(self.mine), size):
            which = self.mine[first : first + size]
            features, said = self.source.held_out.take(which)
            for index, reference in zip(which, said):
                self.asks(int(index), reference)
            written = write(model, features.to(device), list(self.source.prompt), self.params["max_written"]).tolist()
            for reference, tokens in zip(said, written):
                errors += word_errors(reference, self.source.words(until_end(tokens, self.shape.end_token)))
                words += len(reference)
        return {"wer": (errors, words)}

    def flops_per_sample(self):
        """FLOP of a mean sample; None for files that are not open yet."""
        work = self._mean_work()
        return work and (self.shape.training_flops(*work), FORMULA)

    def shuffle_labels(self, batch, generator):
        """For the sabotage: transcripts dealt out at random."""
        return shuffle_labels(batch, generator)

    def _mean_work(self):
        """(labels, pairs of them that look at each other) of a sample."""
        if self.params["dataset"] == "digits":
            return digits.mean_work()
        if self.run.data_dir:
            return self.source and self.source.mean_work()
        labels = self.params["synthetic_labels"]
        return labels, labels * (labels + 1) / 2

    def _check(self):
        """Sizes and names that fit each other."""
        params = self.params
        for key, known in (("dataset", ("tables", "digits")), ("base_weights", ("compute", "int8"))):
            if params[key] not in known:
                raise RunProblem(f"{key} = {params[key]!r} is none of {', '.join(known)}: change params.{key}")
        if params["lora_rank"] < 1:
            raise RunProblem(f"lora_rank = {params['lora_rank']} leaves nothing to train: set 1 or more")
        if params["dataset"] == "digits" and params["epoch_samples"] < 1:
            raise RunProblem(f"epoch_samples = {params['epoch_samples']}: spoken digits have no end, set 1 or more")

    def _folder(self):
        return Path(self.run.data_dir or ".")

    def _path(self, key):
        """What a parameter names: `case:NAME` in the case's own data/, else in the data folder of the run."""
        name = self.params[key]
        if name.startswith("case:"):
            return Path(self.run.case_dir) / "data" / name.removeprefix("case:")
        path = self._folder() / name
        if not path.is_file():
            remedy = '; train from random weights with --set init_checkpoint=""' if key == "init_checkpoint" else ""
            raise RunProblem(
                f"{path} ({key}) is missing: python -m tools data status whisper says how to get it{remedy}"
            )
        return path


if __name__ == "__main__":
    run(AdaptWhisper)
