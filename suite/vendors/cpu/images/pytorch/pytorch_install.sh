#!/usr/bin/env bash
# PyTorch without an accelerator, and what the cases read their data with. Compiled at once: a start must not pay for it.
set -euo pipefail
python3 -m pip install --no-cache-dir --root-user-action=ignore \
    "torch==2.13.0" "numpy>=2.0" "tokenizers>=0.21" "h5py>=3.11" "setuptools>=77" wheel
python3 -c "import h5py, numpy, tokenizers, torch; print('torch', torch.__version__)"
