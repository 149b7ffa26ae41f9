#!/usr/bin/env bash
# The base brings PyTorch; these are what the cases read their data with.
set -euo pipefail
python3 -m pip install --no-cache-dir --root-user-action=ignore "tokenizers>=0.21" "h5py>=3.11"
python3 -c "import h5py, numpy, tokenizers, torch; print('torch', torch.__version__)"
