"""What a case tells the driver: its model, its data, its loss and its evaluation. Everything else is the driver's."""

from suite.drivers.asked import Asking
from suite.drivers.events import RunProblem
from suite.drivers.pytorch.tensors import from_arrays


class Task(Asking):
    """Base class of a case's training. One instance in each rank; the driver calls the methods in the order below.

    `self.run` is the RunSpec (params, seed, mode, data_dir, case_dir, topology), `self.device` the Device,
    `self.rank` and `self.world_size` this process's place among those that have data of their own: ranks that compute
    one batch together (tensor_parallel) are one of them. A task never touches process groups, precision,
    clocks, checkpoints or events: the driver does, the same way for every case.
    """

    prepares_model = False
    """True: `prepare_data` changes weights of the model that `build` made, and rank 0's are then given to all ranks."""

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
        """The model, freshly initialised on the CPU under the run's seed: equal on every rank."""
        raise NotImplementedError

    def prepare_data(self):
        """Open the data. Called after run_start: the clock of time-to-train already runs."""

    def train_batches(self, epoch, skip=0):
        """Yield this rank's micro-batches (nested tensors on the CPU) of `train_batch_size` samples for `epoch`.

        The order depends on (seed, epoch) only and the shards of the ranks are disjoint. `skip` leaves out the first
        micro-batches without building them where that is cheap: a resumed run continues exactly. A task that tells
        jobs from building gives `batch_jobs` and `batch_builder` instead, and may then use `loader = "process"`.
        """
        build = self.batch_builder()
        return (from_arrays(build(job)) for job in self.batch_jobs(epoch, skip))

    def batch_jobs(self, epoch, skip=0):
        """Yield what says which micro-batch is next, as `train_batches` orders them: small plain values.

        All of a batch's chance is in its job, such as (epoch, place) for a generator of its own.
        """
        raise RunProblem(
            f"{type(self).__name__} has no batch_jobs, which loader = 'process' needs: set loader = 'thread'"
        )

    def batch_builder(self):
        """A callable, job -> micro-batch as nested NumPy arrays, that can be pickled. Asked after `prepare_data`.

        Its class stands in a module beside train.py that does not import torch: each process imports it again.
        """
        raise NotImplementedError

    def synthetic_batches(self):
        """Endless micro-batches of random (not constant) data of the published shape: throughput without data."""
        raise NotImplementedError

    def loss(self, model, batch):
        """The mean training loss of one micro-batch, a scalar with gradient, under the driver's autocast."""
        raise NotImplementedError

    def count(self, batch):
        """{"samples": int, "tokens": int} really trained by this micro-batch: padding is not a token."""
        raise NotImplementedError

    def shuffle_labels(self, batch, generator):
        """The same micro-batch with its labels permuted by `generator`, so that nothing can be learned from it.

        Called on the CPU, and only for a run that is broken on purpose (`--sabotage labels_shuffled`).
        """
        raise NotImplementedError

    def evaluate_on_training_data(self):
        """From now on, evaluate what was trained on (`--sabotage eval_on_train_data`). Called after `prepare_data`."""
        raise RunProblem(f"{type(self).__name__} has no evaluate_on_training_data: break the run in another way")

    def evaluate(self, model):
        """Metrics as {name: (numerator, denominator)} of this rank's disjoint shard of the evaluation set.

        The driver puts the model into eval mode without gradients, sums both over the ranks, and divides:
        exact also for uneven shards. A measure that is no ratio of sums gives a list of records instead, plain values
        and NumPy arrays, for `combine`.
        """
        raise NotImplementedError

    def combine(self, everyone):
        """{name: value} from the lists of records that all ranks' `evaluate` gave, in the order of the ranks."""
        raise NotImplementedError

    def units(self, model):
        """Modules, in the order of their use, that a divided model gathers and compiles each on its own.

        Only asked where the plan divides the model. Every rank must then call the model equally often, also in
        `evaluate`.
        """
        return []

    def tensor_plan(self, model):
        """{name of a module: style}: how tensor_parallel splits the model's matrix products.

        `columns` splits a linear layer's outputs, `rows` its inputs (and adds up), `columns_gathered` its outputs,
        which every rank then has whole, `vocabulary` the rows of an embedding. The model must take sizes from its
        tensors.
        """
        return {}

    def parameter_groups(self, model):
        """Groups for the optimizer; the default decays matrices only."""
        return None

    def flops_per_sample(self):
        """(model FLOP of one training sample, formula's name), or None where nobody has counted.

        Asked before the data is open, and again at the first epoch: what the data shows replaces an estimate.
        """
        return None
