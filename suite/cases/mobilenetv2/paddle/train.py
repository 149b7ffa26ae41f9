"""MobileNetV2 tells what is on a picture: one of a thousand classes of photographs (ImageNet), or a digit (mini)."""

from pathlib import Path

import numpy as np
from data import Place, random_ring
from digits import Digits
from imagenet import ImageNet
from model import MobileNetV2, Shape
from paddle.nn import functional as F

from suite.drivers.events import RunProblem
from suite.drivers.paddle import Task, run

FORMULA = "convolution"
"""Three times one image's forward pass, two FLOP for each multiply-accumulate; norms and activations not counted."""


class Classify(Task):
    """The task, in the order in which the driver asks."""

    def __init__(self, run, device, slots, rank, world_size):
        super().__init__(run, device, slots, rank, world_size)
        self.place = Place(rank, world_size)
        self.shape = Shape.of(self.params)
        self.images = None

    def build(self):
        """The network, freshly initialised."""
        return MobileNetV2(self.shape)

    def parameter_groups(self, model):
        """One group: the recipe decays every parameter, those of the norms too."""
        trained = [parameter for parameter in model.parameters() if not parameter.stop_gradient]
        return [{"params": trained, "weight_decay": self.params["weight_decay"]}]

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
        return random_ring(shape, self.shape.num_classes, seed=self.run.seed, place=self.place)

    def loss(self, model, batch):
        """Cross-entropy, a mean over images."""
        scores = model(batch["images"]).astype("float32")
        return F.cross_entropy(scores, batch["labels"], label_smoothing=self.params["label_smoothing"])

    def count(self, batch):
        """Images; there are no tokens."""
        return {"samples": len(batch["labels"]), "tokens": 0}

    def evaluate(self, model):
        """Exact top-1 of this rank's share: sums, each image once."""
        if any(layer.training for layer in model.sublayers(include_self=True)):
            raise RunProblem("the model is evaluated in training mode: it would judge an image by its neighbours")
        correct = shown = 0
        for batch in self.images.eval_batches(self.params["eval_batch_size"], self.asks):
            scores = model(self.device.to(batch["images"])).astype("float32").numpy()
            # An image with a score that is no number is not answered.
            answered = np.isfinite(scores).all(1)
            correct += int((answered & (scores.argmax(1) == batch["labels"])).sum())
            shown += len(batch["labels"])
        return {"top1": (correct, shown)}

    def flops_per_sample(self):
        """FLOP to train on one image."""
        return 3 * self.shape.forward_flops(), FORMULA

    def shuffle_labels(self, batch, generator):
        """For the sabotage: labels dealt out among the images of the batch."""
        return {**batch, "labels": generator.permutation(batch["labels"])}

    def _path(self, key):
        """What a parameter names: `case:NAME` in the case's own data/, else below the data folder of the run."""
        name = self.params[key]
        if name.startswith("case:"):
            return Path(self.run.case_dir) / "data" / name.removeprefix("case:")
        return Path(self.run.data_dir or ".") / name


if __name__ == "__main__":
    run(Classify)
