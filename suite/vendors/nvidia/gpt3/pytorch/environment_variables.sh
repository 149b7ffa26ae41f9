# Read line by line, never run. Device numbers then mean the same to the framework and to NVML.
export CUDA_DEVICE_ORDER=PCI_BUS_ID
# One pass for both sums of a norm, over rows and over columns, is slow where there are many rows: benchmarks in the README of the case.
export TORCHINDUCTOR_MIX_ORDER_REDUCTION=0
# Memory in segments that grow: billions of parameters leave no room for gaps.
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
