# Read line by line, never run. Seconds for the ranks to meet in HCCL: as long as the driver waits for a collective.
export HCCL_CONNECT_TIMEOUT=900
