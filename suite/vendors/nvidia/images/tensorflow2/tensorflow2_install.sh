#!/usr/bin/env bash
# The base brings everything; that it can be used at all is seen here, not in the first run.
set -euo pipefail
python3 -c "import tensorflow; print('tensorflow', tensorflow.__version__)"
