# Read line by line, never run. Device numbers then mean the same to the framework and to NVML.
export CUDA_DEVICE_ORDER=PCI_BUS_ID
# The guide's.
export TORCH_NCCL_AVOID_RECORD_STREAMS=1
export NCCL_NVLS_ENABLE=0
export NCCL_ASYNC_ERROR_HANDLING=1
