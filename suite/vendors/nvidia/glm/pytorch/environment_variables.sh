# Read line by line, never run. Device numbers then mean the same to the framework and to NVML.
export CUDA_DEVICE_ORDER=PCI_BUS_ID
# One pass for both sums of a norm, over rows and over columns, is slow where there are many rows: benchmarks in the README of the case.
export TORCHINDUCTOR_MIX_ORDER_REDUCTION=0
