# FlagPerf's, for this case. Read line by line, never run.
export HSA_FORCE_FINE_GRAIN_PCIE=1
export GPU_FLUSH_ON_EXECUTION=1
