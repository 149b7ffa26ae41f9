"""How the ranks divide the work: who holds a replica, who a shard of it, and who computes one batch together."""

from dataclasses import dataclass

from suite.drivers.events import RunProblem

SHARDINGS = ("none", "fsdp", "hybrid")
SHARDED_OPTIMIZERS = ("adamw", "adam", "sgd")
"""These treat every number by itself; LAMB's norms are of whole tensors."""
AXES = ("replica", "shard", "tensor")
"""Of the mesh of ranks, slowest first."""


@dataclass(frozen=True)
class Layout:
    """rank = (replica * shards + shard) * tensor + place in its tensor-parallel group."""

    replicas: int
    """Copies of the whole model."""
    shards: int
    """Parts of one copy that exchange their parameters layer by layer."""
    tensor: int
    """Ranks that compute each layer of one batch together."""
    rank: int

    @classmethod
    def of(cls, params, nnodes, place):
        """The layout that the parameters ask for; RunProblem where the ranks cannot be divided so."""
        sharding, tensor = params.get("sharding", "none"), params.get("tensor_parallel", 1)
        if sharding not in SHARDINGS:
            raise RunProblem(f"sharding = {sharding!r} is not one of {', '.join(SHARDINGS)}: change params.sharding")
        node = place.world_size // nnodes
        if tensor < 1 or node % tensor:
            raise RunProblem(
                f"tensor_parallel = {tensor} does not divide the {node} devices of a node: change"
                " params.tensor_parallel"
            )
        data = place.world_size // tensor
        shards = {"none": 1, "fsdp": data, "hybrid": data // nnodes}[sharding]
        layout = cls(data // shards, shards, tensor, place.rank)
        if layout.divides:
            _refuse(params)
        return layout

    @property
    def divides(self):
        """Whether a rank holds less than the whole model."""
        return self.shards > 1 or self.tensor > 1

    @property
    def data_size(self):
        """Ranks with a batch of their own: a tensor-parallel group is one of them."""
        return self.replicas * self.shards

    @property
    def data_rank(self):
        """This rank's place among them."""
        return self.rank // self.tensor

    @property
    def counts(self):
        """Whether this rank counts its batch: the first of those that share it does."""
        return self.rank % self.tensor == 0


def _refuse(params):
    """RunProblem for what a divided model cannot have."""
    if params["precision"] == "fp16":
        raise RunProblem("precision = 'fp16' has a loss scaler, which a divided model does not: set precision = 'bf16'")
    if params["optimizer"] not in SHARDED_OPTIMIZERS:
        known = ", ".join(SHARDED_OPTIMIZERS)
        raise RunProblem(f"optimizer = {params['optimizer']!r} needs whole tensors: a divided model takes {known}")


class DataRanks:
    """The ranks as the data sees them: one for each tensor-parallel group. Every rank takes part in an exchange."""

    def __init__(self, group, layout):
        self.rank, self.world_size = layout.data_rank, layout.data_size
        self._group, self._step = group, layout.tensor

    def gather(self, value):
        """`value` of every data rank in order, on every rank."""
        return self._group.gather(value)[:: self._step]
