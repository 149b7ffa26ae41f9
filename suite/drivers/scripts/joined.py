"""What a script has made and the events are about: the group of its ranks, the part of its model that is trained."""

import datetime

import torch.distributed as dist

from suite.drivers.pytorch.device import EnvironmentProblem
from suite.drivers.pytorch.distributed import CONTROL_S, Group


class JoinedGroup(Group):
    """All ranks of a run whose process group the script itself has made; ours is the control group beside it."""

    def _join(self, place):
        if not (dist.is_available() and dist.is_initialized()):
            raise EnvironmentProblem(
                f"{place.world_size} ranks were started and the script joined no process group: each would train alone"
            )
        self._control = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=CONTROL_S))


class Trainable:
    """The part of a model that the optimizer may change, for `checksum.compare`."""

    def __init__(self, model):
        self._model = model

    def named_parameters(self):
        """As torch's."""
        return [(name, value) for name, value in self._model.named_parameters() if value.requires_grad]
