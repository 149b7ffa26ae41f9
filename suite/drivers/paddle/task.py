"""What a case tells the driver: its model, its data, its loss and its evaluation. Everything else is the driver's."""

from suite.drivers.asked import Asking
from suite.drivers.events import RunProblem


class Task(Asking):
    """Base class of a case's training. One instance in each rank; the driver calls the methods in the order below.

    `self.run` is the RunSpec (params, seed, mode, data_dir, case_dir, topology), `self.device` the Device,
    `self.rank` and `self.world_size` this process's place. A task never touches process groups, precision, clocks,
    checkpoints or events: the driver does, the same way for every case.
    """

    def __init__(self, run, device, slots, rank, world_size):
        self.run = run
        self.params = run.params
        self.device = device
        self.slots = slots
        self.rank = rank
        self.world_size = world_size

    @staticmethod
    def default_slots():
        """Name -> the standard callable, for every part that a vendor's extern/ may replace."""
        return {}

    def build(self):
        """The model, a paddle.nn.Layer, freshly initialised under the run's seed: equal on every rank."""
        raise NotImplementedError

    def prepare_data(self):
        """Open the data. Called after run_start: the clock of time-to-train already runs."""

    def train_batches(self, epoch, skip=0):
        """Yield this rank's micro-batches, nested NumPy arrays, of `train_batch_size` samples for `epoch`.

        The order depends on (seed, epoch) only and the shards of the ranks are disjoint. `skip` leaves out the first
        micro-batches without building them where that is cheap: a resumed run continues exactly.
        """
        raise NotImplementedError

    def synthetic_batches(self):
        """Endless micro-batches of random (not constant) arrays of the published shape: throughput without data."""
        raise NotImplementedError

    def loss(self, model, batch):
        """The mean training loss of one micro-batch of tensors, under the driver's autocast."""
        raise NotImplementedError

    def count(self, batch):
        """{"samples": int, "tokens": int} really trained by this micro-batch of arrays: padding is not a token."""
        raise NotImplementedError

    def shuffle_labels(self, batch, generator):
        """The same micro-batch with its labels permuted by the NumPy `generator`: nothing can be learned from it.

        Only for a run that is broken on purpose (`--sabotage labels_shuffled`).
        """
        raise NotImplementedError

    def evaluate_on_training_data(self):
        """From now on, evaluate what was trained on (`--sabotage eval_on_train_data`). Called after `prepare_data`."""
        raise RunProblem(f"{type(self).__name__} has no evaluate_on_training_data: break the run in another way")

    def evaluate(self, model):
        """Metrics as {name: (numerator, denominator)} of this rank's disjoint shard of the evaluation set.

        The driver puts the model into eval mode without gradients, sums both over the ranks, and divides:
        exact also for uneven shards. Arrays become tensors by `self.device.to`.
        """
        raise NotImplementedError

    def parameter_groups(self, model):
        """Groups for the optimizer, [{"params", "weight_decay"}]; the default decays matrices only."""
        return None

    def flops_per_sample(self):
        """(model FLOP of one training sample, formula's name), or None where nobody has counted."""
        return None
