"""Whether the ranks' exchanges give what the CPU says they must, by the back end and at the speed that was meant."""

import time

import torch
import torch.distributed as dist

from suite.conformance.chip.pytorch.finding import Unobservable

SIZES = (1, 1021, 1 << 16)
"""Elements of each rank: one, a prime, and more than one chunk."""
MIB = 1 << 20
EXCHANGED = 64 * MIB
ROUNDS = 5


class Exchange:
    """torch's collectives over all ranks, on the tensors' own device."""

    def all_reduce(self, mine, size):
        """The sum of all ranks' tensors."""
        total = mine.clone()
        dist.all_reduce(total)
        return total

    def all_gather(self, mine, size):
        """All ranks' tensors, one after another."""
        pieces = [torch.empty_like(mine) for _ in range(size)]
        dist.all_gather(pieces, mine)
        return torch.cat(pieces)

    def reduce_scatter(self, mine, size):
        """This rank's piece of the sum; `mine` has `size` pieces."""
        piece = torch.empty_like(mine[: len(mine) // size])
        dist.reduce_scatter_tensor(piece, mine)
        return piece

    def broadcast(self, mine, size):
        """The last rank's tensor."""
        given = mine.clone()
        dist.broadcast(given, src=size - 1)
        return given

    def all_to_all(self, mine, size):
        """The pieces that all ranks have for this one; `mine` has `size` pieces."""
        given = torch.empty_like(mine)
        dist.all_to_all_single(given, mine)
        return given


def pieces_of(tensors, rank):
    """Piece number `rank` of each tensor."""
    return [tensor.chunk(len(tensors))[rank] for tensor in tensors]


COLLECTIVES = {
    "all_reduce": lambda tensors, rank: torch.stack(tensors).sum(dim=0),
    "all_gather": lambda tensors, rank: torch.cat(tensors),
    "reduce_scatter": lambda tensors, rank: torch.stack(pieces_of(tensors, rank)).sum(dim=0),
    "broadcast": lambda tensors, rank: tensors[-1],
    "all_to_all": lambda tensors, rank: torch.cat(pieces_of(tensors, rank)),
}
"""Each with what it must give on `rank`, computed on the CPU in fp64 from the tensors of all ranks."""


def tensor_of(rank, elements):
    """What a rank brings: whole numbers from 1, other ones on every rank, whose sums are exact in fp32."""
    return torch.randint(1, 1000, (elements,), generator=torch.Generator().manual_seed(1000 + rank)).float()


def wrong(name, exchange, device, group):
    """(share of this rank's elements that are not the CPU's, remark)."""
    bad = total = 0
    for size in SIZES:
        every = [tensor_of(rank, size * group.world_size) for rank in range(group.world_size)]
        expected = COLLECTIVES[name]([tensor.double() for tensor in every], group.rank)
        mine = every[group.rank].to(device.torch_device)
        got = _exchanged(name, exchange, mine, group.world_size)
        bad += int((got.cpu().double() != expected).sum()) if got.shape == expected.shape else expected.numel()
        total += expected.numel()
    return bad / total, f"{bad} of {total} elements are wrong" if bad else ""


def _exchanged(name, exchange, mine, size):
    try:
        return getattr(exchange, name)(mine, size)
    except (RuntimeError, NotImplementedError) as problem:
        if name == "all_to_all":
            raise Unobservable(f"not offered: {problem}".splitlines()[0]) from problem
        raise


def backend_wrong(device):
    """(0 where the process group serves this device type by the back end that the vendor declares, remark)."""
    planned = device.backend
    if ":" in planned:
        planned = dict(part.split(":", 1) for part in planned.split(","))[device.type]
    own = dist.distributed_c10d._get_default_group()._get_backend(device.torch_device)
    return float(own.name().lower() != planned.lower()), f"{own.name().lower()}, declared {planned}"


def exchange_ratio(device, group):
    """(bus rate of an all-reduce over the rate of a copy to the host and back, remark)."""
    if device.is_host:
        raise Unobservable("the device is the host: there is no slower way to compare with")
    here = torch.ones(EXCHANGED // 4, device=device.torch_device)
    page = device.pin(torch.empty(EXCHANGED // 4))
    exchanged = _timed(lambda: dist.all_reduce(here), device)
    group.barrier()
    copied = _timed(lambda: (page.copy_(here), here.copy_(page)), device)
    bus = 2 * (group.world_size - 1) / group.world_size * EXCHANGED / exchanged
    told = f"all-reduce {bus / 1e9:.1f} GB/s on the bus, by the host {EXCHANGED / copied / 1e9:.1f} GB/s"
    return bus * copied / EXCHANGED, told


def _timed(act, device):
    """Seconds of one `act`, after two that find their way."""
    for _ in range(2):
        act()
    device.synchronize()
    begin = time.perf_counter()
    for _ in range(ROUNDS):
        act()
    device.synchronize()
    return (time.perf_counter() - begin) / ROUNDS
