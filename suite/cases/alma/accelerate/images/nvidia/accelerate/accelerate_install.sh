#!/usr/bin/env bash
# ALMA at the guide's commit, with what its own script installs, then the guide's transformers over that.
set -euo pipefail
git clone https://github.com/fe1ixxu/ALMA.git /opt/ALMA
cd /opt/ALMA
git checkout 83ee22f
bash install_alma.sh
python3 -m pip install --no-cache-dir --root-user-action=ignore transformers==4.30.0
python3 -c "import accelerate, deepspeed, peft, transformers; assert transformers.__version__ == '4.30.0'"
