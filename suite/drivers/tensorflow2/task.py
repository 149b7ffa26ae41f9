"""What a case tells the driver: its model, its data, its loss and its evaluation. Everything else is the driver's."""

from suite.drivers.asked import Asking
from suite.drivers.events import RunProblem


class Task(Asking):
    """Base class of a case's training. One instance in each rank; the driver calls the methods in the order below.

    `self.run` is the RunSpec (params, seed, mode, data_dir, case_dir, topology), `self.dtype` what activations and
    kernels are cast to, `self.rank` and `self.world_size` this process's place. A task never touches strategies,
    clusters, clocks, checkpoints or events: the driver does, the same way for every case.
    """

    def __init__(self, run, dtype, slots, rank, world_size):
        self.run = run
        self.params = run.params
        self.dtype = dtype
        self.slots = slots
        self.rank = rank
        self.world_size = world_size

    @staticmethod
    def default_slots():
        """Name -> the standard callable, for every part that a vendor's extern/ may replace."""
        return {}

    def build(self):
        """A tf.Module, freshly initialised from `self.run.seed`: equal on every rank.

        Each tf.Variable has a name of its own; those that are no parameters (running statistics) say trainable=False.
        """
        raise NotImplementedError

    def decays(self, variable):
        """Whether weight decay falls on this parameter; the default decays matrices only."""
        return len(variable.shape) > 1

    def prepare_data(self):
        """Open the data. Called after run_start: the clock of time-to-train already runs."""

    def train_batches(self, epoch, skip=0):
        """Yield this rank's micro-batches (nested arrays) of `train_batch_size` samples for `epoch`, counted from 1.

        The order depends on (seed, epoch) only and the shards of the ranks are disjoint. `skip` leaves out the first
        micro-batches: a resumed run continues exactly. A case that reads files ahead does so in here, by tf.data.
        """
        raise NotImplementedError

    def synthetic_batches(self):
        """Endless micro-batches of random (not constant) data of the published shape: throughput without data."""
        raise NotImplementedError

    def loss(self, model, batch, chance):
        """The mean training loss of one micro-batch, a scalar. Traced once: no Python state, no `.numpy()`.

        `chance` is a seed [2] of this rank and step, for tf.random.stateless_*: there is no other randomness.
        """
        raise NotImplementedError

    def count(self, batch):
        """{"samples": int, "tokens": int} really trained by this micro-batch: padding is not a token."""
        raise NotImplementedError

    def shuffle_labels(self, batch, generator):
        """The same micro-batch with its labels permuted by a NumPy generator (`--sabotage labels_shuffled`)."""
        raise NotImplementedError

    def evaluate_on_training_data(self):
        """From now on, evaluate what was trained on (`--sabotage eval_on_train_data`). Called after `prepare_data`."""
        raise RunProblem(f"{type(self).__name__} has no evaluate_on_training_data: break the run in another way")

    def evaluate(self, model):
        """Metrics as {name: (numerator, denominator)} of this rank's disjoint shard of the evaluation set.

        The driver sums both over the ranks and divides: exact also for uneven shards.
        """
        raise NotImplementedError

    def flops_per_sample(self):
        """(model FLOP of one training sample, formula's name), or None where nobody has counted."""
        return None
