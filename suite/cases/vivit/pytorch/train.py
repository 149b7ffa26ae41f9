"""ViViT says what happens in a clip: which of ten actions (UCF101's subset), or which way a digit moves (mini)."""

from pathlib import Path

import torch
from checkpoint import load_pretrained
from data import Place, filled, jobs
from digits import Digits
from model import Shape, ViViT, standard_attention
from torch.nn import functional as F
from videos import Ucf101

from suite.drivers.events import RunProblem
from suite.drivers.pytorch import Task, run

FORMULA = "products"
"""Shape.training_flops: every product that is computed, forward and backward; two FLOP a multiply-accumulate."""

RING = 8
"""Random batches of a synthetic run: enough that none is still in a cache when its turn comes again."""


class Classify(Task):
    """The task, in the order in which the driver asks."""

    def __init__(self, run, device, slots, rank, world_size):
        super().__init__(run, device, slots, rank, world_size)
        self.place = Place(rank, world_size)
        self.shape = Shape.of(self.params)
        self.clips = None

    @staticmethod
    def default_slots():
        """What a vendor may replace: the attention of every layer."""
        return {"attention": standard_attention}

    def build(self):
        """The model; its encoder from pre-trained weights where the parameters name them and there is a data folder."""
        model = ViViT(self.shape, self.slots["attention"])
        if self.params["init_checkpoint"] and self.run.data_dir:
            load_pretrained(model, self._path("init_checkpoint"))
        return model

    def prepare_data(self):
        """Read the digits, or find the videos."""
        frames, size, train = self.shape.num_frames, self.shape.image_size, self._path("train_data")
        if self.params["dataset"] == "digits":
            self.clips = Digits(train, frames=frames, size=size, place=self.place)
            return
        self.clips = Ucf101(
            train,
            self._path("eval_data"),
            classes=self.shape.num_classes,
            frames=frames,
            size=size,
            fps=self.params["sampling_fps"],
            seed=self.run.seed,
            place=self.place,
            threads=self.params["num_workers"],
        )
        self._check_count()

    def evaluate_on_training_data(self):
        """For the sabotage: clips of the training."""
        self.clips.hold_out_training()

    def batch_jobs(self, epoch, skip=0):
        """Which clips are next; the global batches of an epoch do not depend on the number of ranks."""
        size = self.params["train_batch_size"]
        return jobs(self.clips.count, size, self.place, seed=self.run.seed, epoch=epoch, skip=skip)

    def batch_builder(self):
        """What decodes and augments them, in processes of its own where the parameters say so."""
        return self.clips.builder

    def synthetic_batches(self):
        """Random bytes and labels: RING batches, made and pinned once, in turn; each is copied to the device."""
        generator = torch.Generator().manual_seed(self.run.seed * 1_000_003 + self.rank)
        batch, size = self.params["train_batch_size"], self.shape.image_size
        shape = (batch, self.shape.num_frames, size, size, self.shape.channels)

        def random_batch():
            clips = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
            labels = torch.randint(0, self.shape.num_classes, (batch,), generator=generator)
            return self.device.pin({"clips": clips, "labels": labels})

        ring = [random_batch() for _ in range(RING)]
        while True:
            yield from ring

    def loss(self, model, batch):
        """Cross-entropy, a mean over clips."""
        return F.cross_entropy(model(batch["clips"]).float(), batch["labels"])

    def count(self, batch):
        """Clips; their tokens are all alike, and not counted."""
        return {"samples": len(batch["labels"]), "tokens": 0}

    def evaluate(self, model):
        """Exact top-1 of this rank's share: sums, each clip once, and the host waits once, at the end."""
        size, shown = self.params["eval_batch_size"], 0
        correct = torch.zeros((), dtype=torch.int64, device=self.device.torch_device)
        for batch in self.clips.eval_batches(size, self.asks):
            shown += len(batch["labels"])
            moved = self.device.to({name: torch.from_numpy(array) for name, array in filled(batch, size).items()})
            scores = model(moved["clips"])
            # A clip with a score that is no number is not answered; what fills the batch has no label to meet.
            answered = scores.isfinite().all(1)
            correct += (answered & (scores.argmax(1) == moved["labels"])).sum()
        return {"top1": (int(correct), shown)}

    def flops_per_sample(self):
        """FLOP to train on one clip."""
        return self.shape.training_flops(), FORMULA

    def shuffle_labels(self, batch, generator):
        """For the sabotage: labels dealt out among the clips of the batch."""
        order = torch.randperm(len(batch["labels"]), generator=generator)
        return {**batch, "labels": batch["labels"][order]}

    def _check_count(self):
        """The steps of an epoch follow from the number of videos, and the case's checks from both."""
        wanted = self.params["train_clips"]
        if wanted and self.clips.count != wanted:
            raise RunProblem(
                f"train_data holds {self.clips.count} videos, train_clips is {wanted}: fetch the whole subset, or set"
                f" train_clips = {self.clips.count}"
            )

    def _path(self, key):
        """What a parameter names: `case:NAME` in the case's own data/, else below the data folder of the run."""
        name = self.params[key]
        if name.startswith("case:"):
            return Path(self.run.case_dir) / "data" / name.removeprefix("case:")
        path = Path(self.run.data_dir or ".") / name
        if key == "init_checkpoint" and not path.exists():
            raise RunProblem(
                f"{path} ({key}) is missing: python -m tools data status vivit says how to get it; train from random"
                ' weights with --set init_checkpoint=""'
            )
        return path


if __name__ == "__main__":
    run(Classify)
