"""The images of the script cases: found where images are looked for, with the guide's pins. None is built here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fixtures.container_image import find_recipe

ROOT = Path(__file__).resolve().parent.parent
CASES = ROOT / "suite" / "cases"
VENDOR = "nvidia"

VIDEO_AND_SPEECH = {
    "lightning": "2.2.1",
    "transformers": "4.39.3",
    "evaluate": "0.4.1",
    "accelerate": "0.29.2",
    "jiwer": "3.0.3",
    "bitsandbytes": "0.43.1",
    "peft": "0.10.0",
    "librosa": "0.10.1",
    "datasets": "2.18.0",
    "opendatasets": "0.1.22",
    "gradio": "4.26.0",
}
PYTORCHVIDEO = "1fadaef40dd393ca09680f55582399f4679fc9b7"


def recipe(model: str) -> tuple[str, str]:
    """(Dockerfile, install script) of a case's own image."""
    images = CASES / model / "accelerate" / "images" / VENDOR
    found = find_recipe({f"trainmark-{VENDOR}-{model}": images}, "accelerate")
    assert found.install is not None
    return (found.folder / "Dockerfile").read_text(), found.install.read_text()


def pins(text: str) -> dict[str, str]:
    """Every `name==version`."""
    return dict(re.findall(r"([A-Za-z0-9_-]+)==([0-9][0-9.]*)", text))


@pytest.mark.parametrize("model", ["alma", "vivit", "whisper"])
def test_the_base_is_the_guide_s(model: str) -> None:
    dockerfile, install = recipe(model)
    assert "ARG BASE=nvcr.io/nvidia/pytorch:24.01-py3" in dockerfile
    assert "Not built by this project" in dockerfile
    assert "set -euo pipefail" in install


@pytest.mark.parametrize("model", ["vivit", "whisper"])
def test_video_and_speech_have_the_guide_s_pins(model: str) -> None:
    _, install = recipe(model)
    assert pins(install) == VIDEO_AND_SPEECH
    assert f"git checkout {PYTORCHVIDEO}" in install


def test_alma_has_the_guide_s_commit_and_transformers() -> None:
    _, install = recipe("alma")
    assert pins(install) == {"transformers": "4.30.0"}
    assert "git checkout 83ee22f" in install
    order = [install.index(word) for word in ("git clone", "git checkout", "install_alma.sh", "transformers==4.30.0")]
    assert order == sorted(order)
