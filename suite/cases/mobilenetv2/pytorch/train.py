"""MobileNetV2 tells what is on a picture: one of a thousand classes of photographs (ImageNet), or a digit (mini)."""

from pathlib import Path

import torch
from data import Place, filled, random_ring
from digits import Digits
from imagenet import ImageNet
from model import MobileNetV2, Shape, standard_conv_norm
from torch.nn import functional as F

from suite.drivers.events import RunProblem
from suite.drivers.pytorch import Task, run

FORMULA = "convolution"
"""Three times one image's forward pass, two FLOP for each multiply-accumulate; norms and activations not counted."""


class Classify(Task):
    """The task, in the order in which the driver asks."""

    def __init__(self, run, device, slots, rank, world_size):
        super().__init__(run, device, slots, rank, world_size)
        self.place = Place(rank, world_size)
        self.shape = Shape.of(self.params)
        self.images = None

    @staticmethod
    def default_slots():
        """What a vendor may replace: each convolution with its normalisation and activation."""
        return {"conv_norm": standard_conv_norm}

    def build(self):
        """The network, freshly initialised."""
        return MobileNetV2(self.shape, self.slots["conv_norm"])

    def parameter_groups(self, model):
        """One group: the recipe decays every parameter, those of the norms too."""
        return [{"params": list(model.parameters()), "weight_decay": self.params["weight_decay"]}]

    def prepare_data(self):
        """Read the digits, or find the photographs."""
        common = {"image_size": self.shape.image_size, "seed": self.run.seed, "place": self.place}
        train, held_out = self._path("train_data"), self._path("eval_data")
        if self.params["dataset"] == "digits":
            self.images = Digits(train, **common)
        else:
            workers, classes = self.params["num_workers"], self.shape.num_classes
            self.images = ImageNet(train, held_out, classes=classes, workers=workers, **common)

    def evaluate_on_training_data(self):
        """For the sabotage: the photographs of the training, or the digits of it."""
        if self.params["dataset"] == "digits":
            self.images.hold_out_training()
        else:
            common = {"image_size": self.shape.image_size, "seed": self.run.seed, "place": self.place}
            workers, classes = self.params["num_workers"], self.shape.num_classes
            source = self._path("train_data")
            self.images = ImageNet(source, source, classes=classes, workers=workers, **common)

    def train_batches(self, epoch, skip=0):
        """Batches of this rank in bytes; the global batches of an epoch do not depend on the number of ranks."""
        return self.images.train_batches(epoch, self.params["train_batch_size"], skip)

    def synthetic_batches(self):
        """Random bytes and labels."""
        size, batch = self.shape.image_size, self.params["train_batch_size"]
        shape = (batch, size, size, len(self.shape.pixel_mean))
        return random_ring(shape, self.shape.num_classes, seed=self.run.seed, place=self.place, pin=self.device.pin)

    def loss(self, model, batch):
        """Cross-entropy, a mean over images."""
        smoothing = self.params["label_smoothing"]
        return F.cross_entropy(model(batch["images"]).float(), batch["labels"], label_smoothing=smoothing)

    def count(self, batch):
        """Images; there are no tokens."""
        return {"samples": len(batch["labels"]), "tokens": 0}

    def evaluate(self, model):
        """Exact top-1 of this rank's share: sums, each image once, and the host waits once, at the end."""
        if any(module.training for module in model.modules()):
            raise RunProblem("the model is evaluated in training mode: it would judge an image by its neighbours")
        size, shown = self.params["eval_batch_size"], 0
        correct = torch.zeros((), dtype=torch.int64, device=self.device.torch_device)
        for batch in self.images.eval_batches(size, self.asks):
            shown += len(batch["labels"])
            moved = self.device.to(filled(batch, size))
            scores = model(moved["images"])
            # An image with a score that is no number is not answered; what fills the batch has no label to meet.
            answered = scores.isfinite().all(1)
            correct += (answered & (scores.argmax(1) == moved["labels"])).sum()
        return {"top1": (int(correct), shown)}

    def flops_per_sample(self):
        """FLOP to train on one image."""
        return 3 * self.shape.forward_flops(), FORMULA

    def shuffle_labels(self, batch, generator):
        """For the sabotage: labels dealt out among the images of the batch."""
        order = torch.randperm(len(batch["labels"]), generator=generator)
        return {**batch, "labels": batch["labels"][order]}

    def _path(self, key):
        """What a parameter names: `case:NAME` in the case's own data/, else below the data folder of the run."""
        name = self.params[key]
        if name.startswith("case:"):
            return Path(self.run.case_dir) / "data" / name.removeprefix("case:")
        return Path(self.run.data_dir or ".") / name


if __name__ == "__main__":
    run(Classify)
