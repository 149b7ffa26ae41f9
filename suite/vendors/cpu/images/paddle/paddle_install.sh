#!/usr/bin/env bash
# PaddlePaddle without an accelerator. Compiled at once: a start must not pay for it.
set -euo pipefail
python3 -m pip install --no-cache-dir --root-user-action=ignore "paddlepaddle==3.3.1" "numpy>=2.0" "setuptools>=77"
python3 -c "import paddle; print('paddle', paddle.__version__)"
