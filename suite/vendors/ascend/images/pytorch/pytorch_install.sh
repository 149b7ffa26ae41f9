#!/usr/bin/env bash
# PyTorch and the plug-in of the same release, which go with this CANN, and what the cases read their data with.
set -euo pipefail
python3 -m pip install --no-cache-dir --root-user-action=ignore \
    "torch==2.5.1" "numpy>=1.26,<2" "tokenizers>=0.21" "h5py>=3.11" "setuptools>=77" wheel \
    attrs cloudpickle decorator psutil pyyaml scipy tornado absl-py
# Without its dependencies: on x86 it asks for a build of torch that only PyTorch's own index has.
python3 -m pip install --no-cache-dir --root-user-action=ignore --no-deps "torch-npu==2.5.1"

# CANN compiles operators with Python modules of its own. A path file finds them whatever PYTHONPATH says at a run.
site=$(python3 -c "import sysconfig; print(sysconfig.get_paths()['purelib'])")
printf '%s\n' "$ASCEND_TOOLKIT_HOME/python/site-packages" "$ASCEND_TOOLKIT_HOME/opp/built-in/op_impl/ai_core/tbe" \
    >"$site/cann.pth"

# The driver comes with the host; CANN has a stand-in of its library for machines without a chip.
LD_LIBRARY_PATH="$LD_LIBRARY_PATH:$ASCEND_TOOLKIT_HOME/$(uname -m)-linux/devlib" \
    python3 -c "import h5py, numpy, tokenizers, torch, torch_npu; print('torch', torch.__version__, 'npu', torch_npu.__version__)"
