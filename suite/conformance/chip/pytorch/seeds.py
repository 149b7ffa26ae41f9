"""Whether seeds reproduce what is drawn on the device, by the driver's own way of seeding."""

import torch

from suite.drivers.pytorch.seed import seed_everything

DRAWS = 4096


def draws(device):
    """Numbers of every kind that a training draws on its device, on the host."""
    place = device.torch_device
    ones = torch.ones(DRAWS, device=place)
    return {
        "normal": torch.randn(DRAWS, device=place).cpu(),
        "uniform": torch.rand(DRAWS, device=place).cpu(),
        "dropout": torch.nn.functional.dropout(ones, 0.5).cpu(),
        "host": torch.randn(DRAWS),
    }


def draws_not_reproduced(device):
    """(kinds of draws that one seed does not repeat, or that two seeds share; remark)."""
    seen = []
    for seed in (41, 41, 42):
        seed_everything(seed, device)
        seen.append(draws(device))
    first, again, other = seen
    changed = [kind for kind in first if not torch.equal(first[kind], again[kind])]
    same = [kind for kind in first if torch.equal(first[kind], other[kind])]
    told = [f"one seed, two series: {', '.join(changed)}"] if changed else []
    told += [f"two seeds, one series: {', '.join(same)}"] if same else []
    return float(len(changed) + len(same)), "; ".join(told)
