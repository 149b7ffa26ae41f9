# Read line by line, never run. A device is a card, as in xpu-smi; FLAT would make a device of each tile.
export ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE
