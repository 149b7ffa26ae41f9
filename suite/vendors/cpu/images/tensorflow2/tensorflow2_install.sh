#!/usr/bin/env bash
# TensorFlow without an accelerator. Compiled at once: a start must not pay for it.
set -euo pipefail
python3 -m pip install --no-cache-dir --root-user-action=ignore "tensorflow-cpu==2.21.0" "numpy>=2.0"
python3 -c "import tensorflow; print('tensorflow', tensorflow.__version__)"
