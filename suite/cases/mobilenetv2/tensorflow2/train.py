"""MobileNetV2 tells what is on a picture: one of a thousand classes of photographs (ImageNet), or a digit (mini)."""

from pathlib import Path

import numpy as np
import tensorflow as tf
from data import Place, random_ring
from digits import Digits
from imagenet import ImageNet
from model import MobileNetV2, Shape

from suite.drivers.tensorflow2 import Task, run

FORMULA = "convolution"
"""Three times one image's forward pass, two FLOP for each multiply-accumulate; norms and activations not counted."""


class Classify(Task):
    """The task, in the order in which the driver asks."""

    def __init__(self, run, dtype, slots, rank, world_size):
        super().__init__(run, dtype, slots, rank, world_size)
        self.place = Place(rank, world_size)
        self.shape = Shape.of(self.params)
        self.images = None
        self._scores = None

    def build(self):
        """The network, freshly initialised."""
        return MobileNetV2(self.shape, self.dtype, self.run.seed)

    def decays(self, variable):
        """The recipe decays every parameter, those of the norms too."""
        return True

    def prepare_data(self):
        """Read the digits, or find the photographs."""
        common = {"image_size": self.shape.image_size, "seed": self.run.seed, "place": self.place}
        train, held_out = self._path("train_data"), self._path("eval_data")
        if self.params["dataset"] == "digits":
            self.images = Digits(train, **common)
        else:
            ahead, classes = self.params["num_workers"], self.shape.num_classes
            self.images = ImageNet(train, held_out, classes=classes, ahead=ahead, **common)

    def evaluate_on_training_data(self):
        """For the sabotage: the photographs of the training, or the digits of it."""
        if self.params["dataset"] == "digits":
            self.images.hold_out_training()
        else:
            common = {"image_size": self.shape.image_size, "seed": self.run.seed, "place": self.place}
            ahead, classes = self.params["num_workers"], self.shape.num_classes
            source = self._path("train_data")
            self.images = ImageNet(source, source, classes=classes, ahead=ahead, **common)

    def train_batches(self, epoch, skip=0):
        """Batches of this rank in bytes; the global batches of an epoch do not depend on the number of ranks."""
        return self.images.train_batches(epoch, self.params["train_batch_size"], skip)

    def synthetic_batches(self):
        """Random bytes and labels."""
        size, batch = self.shape.image_size, self.params["train_batch_size"]
        shape = (batch, size, size, len(self.shape.pixel_mean))
        return random_ring(shape, self.shape.num_classes, seed=self.run.seed, place=self.place)

    def loss(self, model, batch, chance):
        """Cross-entropy with smoothed labels, a mean over images."""
        smoothing, classes = self.params["label_smoothing"], self.shape.num_classes
        scores = tf.cast(model(batch["images"], training=True, chance=chance), tf.float32)
        labels = (1 - smoothing) * tf.one_hot(batch["labels"], classes) + smoothing / classes
        return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, scores))

    def count(self, batch):
        """Images; there are no tokens."""
        return {"samples": len(batch["labels"]), "tokens": 0}

    def evaluate(self, model):
        """Exact top-1 of this rank's share: sums, each image once."""
        size, shown, correct = self.params["eval_batch_size"], 0, 0
        score = self._scorer(model)
        for batch in self.images.eval_batches(size, self.asks):
            images, labels = batch["images"], batch["labels"]
            missing = size - len(labels)  # one shape only, so that nothing is traced again
            filled = np.concatenate([images, np.zeros((missing, *images.shape[1:]), np.uint8)]) if missing else images
            scores = score(tf.constant(filled)).numpy()[: len(labels)]
            # An image with a score that is no number is not answered.
            correct += int(((scores.argmax(1) == labels) & np.isfinite(scores).all(1)).sum())
            shown += len(labels)
        return {"top1": (correct, shown)}

    def _scorer(self, model):
        """The network in evaluation mode, traced once: an image is not judged by its neighbours."""
        if self._scores is None:
            self._scores = tf.function(lambda images: tf.cast(model(images, training=False), tf.float32))
        return self._scores

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
