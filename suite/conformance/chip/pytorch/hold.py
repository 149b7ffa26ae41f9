"""`python -m …hold LOCAL_RANK MIB`: hold so much memory of the device, say `held`, and wait to be ended."""

import sys

import torch

from suite.conformance.chip.pytorch.memory import HELD, MIB
from suite.drivers.events import RunSpec
from suite.drivers.pytorch.device import Device
from suite.drivers.pytorch.slots import Runtime


def main(local_rank, mib):
    """Hold `mib` until standard input ends: the process that started us is then gone."""
    run = RunSpec.load()
    device = Device.open(run.device, local_rank)
    Runtime(run.runtime_dir).setup(device, run)
    held = torch.ones(mib * MIB, dtype=torch.uint8, device=device.torch_device)
    held.add_(1)
    device.synchronize()
    sys.stdout.buffer.write(HELD)
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
