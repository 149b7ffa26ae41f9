# Read line by line, never run. Device numbers then mean the same to the framework and to NVML.
export CUDA_DEVICE_ORDER=PCI_BUS_ID
