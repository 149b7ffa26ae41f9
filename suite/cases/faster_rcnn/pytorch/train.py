"""Faster R-CNN finds and names things in images (COCO), or handwritten digits in small scenes."""

from pathlib import Path

import average_precision
import kernels
import numpy as np
import operators
import torch
from checkpoint import load_backbone
from coco import Coco
from data import Found, Place, pack, shuffle_labels, synthetic_batches
from model import FasterRCNN, Shape
from scenes import Scenes
from work import training_flops

from suite.drivers.events import RunProblem
from suite.drivers.pytorch import Task, run

FORMULA = "counted"
"""work.py; what is frozen is counted forward only."""

NOTHING = Found(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64))


class Detect(Task):
    """The task, in the order in which the driver asks."""

    def __init__(self, run, device, slots, rank, world_size):
        super().__init__(run, device, slots, rank, world_size)
        self.shape = Shape.of(self.params)
        self.canvas = tuple(self.params["canvas"])
        self.place = Place(rank, world_size)
        self.data = None
        if len(self.canvas) != 2 or any(side % 32 for side in self.canvas):
            raise RunProblem(f"canvas = {list(self.canvas)} is not two multiples of 32: change params.canvas")

    @staticmethod
    def default_slots():
        """What a vendor may replace: non-maximum suppression, and RoIAlign over the pyramid."""
        return {"suppress": operators.suppress, "pool": operators.pool}

    def build(self):
        """The model; its backbone pre-trained where the parameters name weights and there is a data folder."""
        own = {name: self.slots[name] for name in self.default_slots()}
        model = FasterRCNN(self.shape, **kernels.choose(self.params["operators"], own))
        if self.params["init_checkpoint"] and self.run.data_dir:
            load_backbone(model.backbone, self._file("init_checkpoint"))
        return model.to(memory_format=torch.channels_last)

    def parameter_groups(self, model):
        """All that is trained decays, biases too, as in the published recipe."""
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return [{"params": trained, "weight_decay": self.params["weight_decay"]}]

    def prepare_data(self):
        """Draw the scenes, or read COCO's annotations."""
        common = {"seed": self.run.seed, "place": self.place}
        train = self._file("train_data")
        if self.params["dataset"] == "scenes":
            counts = {"train": self.params["train_scenes"], "held_out": self.params["eval_scenes"]}
            self.data = Scenes(train, **counts, **common)
        else:
            sizes = {"num_classes": self.shape.num_classes, "canvas": self.canvas}
            workers = self.params["num_workers"]
            if average_precision.COCO is None:
                self.device.fall_back("pycocotools", "it cannot be imported: the case's own count of mAP is used")
            self.data = Coco(train, self._file("eval_data"), **sizes, workers=workers, **common)

    def evaluate_on_training_data(self):
        """For the sabotage: scenes or images of the training."""
        self.data.hold_out_training()

    def train_batches(self, epoch, skip=0):
        """Micro-batches of this rank; the global batches of an epoch do not depend on the number of ranks."""
        together = self.params["train_batch_size"] * self.world_size
        for pictures in self.data.batches(epoch, together, skip):
            yield self._pack(pictures)

    def synthetic_batches(self):
        """Random colours over the whole canvas."""
        return synthetic_batches(
            self.canvas,
            self.params["max_boxes"],
            self.shape.num_classes,
            seed=self.run.seed,
            batch_size=self.params["train_batch_size"],
            place=self.place,
        )

    def loss(self, model, batch):
        """The four losses of an image added up; their mean over images, so that ranks share one gradient."""
        losses = model(batch["images"], batch["sizes"], batch["boxes"], batch["labels"], batch["keys"])
        return losses.sum(1).mean()

    def count(self, batch):
        """Images; there are no tokens."""
        return {"samples": len(batch["labels"]), "tokens": 0}

    def evaluate(self, model):
        """What was found in each image of this rank's share: [(index, Found)]. `combine` makes the metric of it."""
        device, size, records = next(model.parameters()).device, self.params["eval_batch_size"], []
        for indices, factors, pictures in self.data.eval_batches(size):
            for index in indices:
                self.asks(*self.data.question(index))
            filled = [*pictures, *pictures[:1] * (size - len(pictures))]
            batch = self._pack(filled)
            detections = model(batch["images"].to(device), batch["sizes"].to(device))
            boxes, scores, labels = (part.cpu().numpy() for part in detections)
            for row, (index, factor) in enumerate(zip(indices, factors)):
                real = scores[row] > 0
                records.append((index, Found(boxes[row][real] / factor, scores[row][real], labels[row][real])))
        return records

    def combine(self, everyone):
        """COCO's mean average precision over all ranks' records; at full size by its authors' own tools."""
        # An image that nobody was asked about has nothing found in it.
        found = [NOTHING] * len(self.data.truths)
        for index, one in (record for records in everyone for record in records):
            found[index] = one
        if self.params["dataset"] == "scenes":
            return average_precision.mean_average_precision(self.data.truths, found)
        return average_precision.by_pycocotools(self.data.truths, found)

    def flops_per_sample(self):
        """FLOP of an image on the whole canvas."""
        return training_flops(self.shape, self.canvas), FORMULA

    def shuffle_labels(self, batch, generator):
        """For the sabotage: classes dealt out among the boxes of the batch."""
        return shuffle_labels(batch, generator)

    def _pack(self, pictures):
        """On the canvas, on its side where an image is upright and does not fit otherwise."""
        heights, widths = zip(*(picture.pixels.shape[:2] for picture in pictures))
        fits = max(heights) <= self.canvas[0] and max(widths) <= self.canvas[1]
        return pack(pictures, self.canvas if fits else self.canvas[::-1], self.params["max_boxes"])

    def _file(self, key):
        """The file that a parameter names: `case:NAME` in the case's own data/, else in the data folder of the run."""
        name = self.params[key]
        if name.startswith("case:"):
            return Path(self.run.case_dir) / "data" / name.removeprefix("case:")
        path = Path(self.run.data_dir or ".") / name
        if not path.is_file():
            remedy = '; train from random weights with --set init_checkpoint=""' if key == "init_checkpoint" else ""
            raise RunProblem(f"{path} ({key}) is missing: python -m tools data status faster_rcnn says more{remedy}")
        return path


if __name__ == "__main__":
    run(Detect)
