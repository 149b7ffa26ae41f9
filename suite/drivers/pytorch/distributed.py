"""The ranks together: the device's process group, and a control group on the host for what must be trusted."""

import contextlib
import datetime
import os

import torch
import torch.distributed as dist

from suite.drivers.pytorch.device import EnvironmentProblem

COLLECTIVE_S = 900
"""For all ranks to meet, and for one collective of the device."""
CONTROL_S = 1800
"""For one exchange on the control group: others wait here while rank 0 writes a checkpoint."""

FAREWELL_S = 10


class Group:
    """All ranks of the run. Alone, every exchange is the identity."""

    def __init__(self, place, device):
        self.rank = place.rank
        self.world_size = place.world_size
        self._device = device
        self._control = None
        if self.world_size > 1:
            self._join(place)

    def _join(self, place):
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
        os.environ.update(zip(names, map(str, (place.rank, place.world_size, place.local_rank))))  # mpirun sets none
        for name in ("MASTER_ADDR", "MASTER_PORT"):
            if not os.environ.get(name):
                raise EnvironmentProblem(f"{name} is not set, so {place.world_size} ranks cannot meet: export it")
        dist.init_process_group(self._device.backend, timeout=datetime.timedelta(seconds=COLLECTIVE_S))
        self._control = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=CONTROL_S))

    def wrap(self, model, averaged=True):
        """`model` with its gradients averaged over the ranks; bare where there is one rank, or where not `averaged`."""
        if self.world_size == 1 or not averaged:
            return model
        # Buffers stay each rank's own, without an exchange in every step; `share_buffers` precedes an evaluation.
        return torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, broadcast_buffers=False)

    def share_buffers(self, model):
        """Give every rank rank 0's buffers: running statistics, which equal gradients do not keep equal."""
        kept = set(model.state_dict()) - {name for name, _ in model.named_parameters()}
        buffers = [buffer for name, buffer in model.named_buffers() if name in kept]
        if self.world_size == 1 or not buffers:
            return
        values = [[buffer.detach().cpu() for buffer in buffers] if self.rank == 0 else None]
        dist.broadcast_object_list(values, src=0, group=self._control)
        with torch.no_grad():
            for buffer, value in zip(buffers, values[0]):
                buffer.copy_(value)

    def share_parameters(self, model):
        """Give every rank rank 0's parameters: what it prepared alone, and what equal gradients then keep equal."""
        if self.world_size == 1:
            return
        values = [[parameter.detach().cpu() for parameter in model.parameters()] if self.rank == 0 else None]
        dist.broadcast_object_list(values, src=0, group=self._control)
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), values[0]):
                parameter.copy_(value)

    @staticmethod
    def accumulate(model):
        """Context of a micro-batch whose gradients stay local."""
        return model.no_sync() if hasattr(model, "no_sync") else contextlib.nullcontext()

    def sum(self, numbers):
        """Whole numbers summed over the ranks, on the control group: equal on every rank."""
        if self.world_size == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.int64)
        dist.all_reduce(total, group=self._control)
        return total.tolist()

    def gather(self, value):
        """`value` of every rank in order, on every rank, over the control group."""
        if self.world_size == 1:
            return [value]
        values = [None] * self.world_size
        dist.all_gather_object(values, value, group=self._control)
        return values

    def barrier(self):
        """Wait for all ranks."""
        self.sum([0])

    def farewell(self):
        """Give the other ranks a few seconds to say their last word too, before the launcher sees one leave."""
        if self._control is not None:
            with contextlib.suppress(RuntimeError):
                dist.monitored_barrier(self._control, timeout=datetime.timedelta(seconds=FAREWELL_S))

    def close(self):
        """Leave the group."""
        if self._control is not None:
            self._control = None
            dist.destroy_process_group()


def transport(world_size, backend):
    """What carries the gradients, as far as the environment tells: `none` alone, else a name or `unknown`."""
    if world_size == 1:
        return "none"
    told = os.environ.get("TRAINMARK_TRANSPORT", "")
    return told or ("tcp" if backend == "gloo" else "unknown")
