#!/usr/bin/env bash
# The guide's pins, which it gives for ViViT and Whisper together; its tables were measured with these.
set -euo pipefail
python3 -m pip install --no-cache-dir --root-user-action=ignore \
    lightning==2.2.1 transformers==4.39.3 evaluate==0.4.1 accelerate==0.29.2 jiwer==3.0.3 bitsandbytes==0.43.1 \
    peft==0.10.0 librosa==0.10.1 datasets==2.18.0 opendatasets==0.1.22 gradio==4.26.0
git clone https://github.com/facebookresearch/pytorchvideo.git /opt/pytorchvideo
cd /opt/pytorchvideo
git checkout 1fadaef40dd393ca09680f55582399f4679fc9b7
python3 -m pip install --no-cache-dir --root-user-action=ignore -e .
python3 -c "import accelerate, peft, pytorchvideo, transformers; assert transformers.__version__ == '4.39.3'"
