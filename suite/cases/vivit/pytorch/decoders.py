"""The frames of one video, whichever way it is kept: a video file, a folder of pictures, or an array."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np

from suite.drivers.events import RunProblem

VIDEOS = (".avi", ".mp4", ".mkv", ".webm", ".mov")
PICTURES = (".jpg", ".jpeg", ".png")
ARRAYS = (".npz",)
USUAL_FPS = 30.0
"""Of pictures and arrays that do not say."""

Choose = Callable[[int, float], "tuple[int, int]"]
"""(frames of the video, frames a second) -> (the first one wanted, how many)."""


def everything(count: int, fps: float) -> tuple[int, int]:
    """All frames."""
    return 0, count


def read(path: Path, choose: Choose = everything) -> tuple[np.ndarray, float]:
    """(the chosen frames [T, H, W, 3] in bytes, frames a second of the video). Raises RunProblem."""
    reader = _read_pictures if path.is_dir() else _read_array if path.suffix in ARRAYS else _read_video
    try:
        frames, fps = reader(path, choose)
    except RunProblem:
        raise
    except Exception as problem:  # decoders name no common type for a broken file
        what = f"{type(problem).__name__}: {problem}"
        raise RunProblem(f"{path} cannot be read as a video ({what}): fetch it again") from problem
    if not len(frames):
        raise RunProblem(f"{path} holds no frames: fetch it again")
    return frames, fps


def check_decoder(names: list[str], folder: Path) -> None:
    """Refuse data that nothing here can decode, before any process tries. Raises RunProblem."""
    files = {Path(name).suffix.lower() for name in names}
    if files & set(VIDEOS) and not (_have("av") or _torchvision_reads()):
        raise RunProblem(
            f"{folder} holds video files, and neither PyAV nor a torchvision that decodes is installed: pip install av,"
            " or unpack the frames once with python -m tools data prepare vivit"
        )
    if any((folder / name).is_dir() for name in names) and not _have("PIL"):
        raise RunProblem(f"{folder} holds folders of pictures, and Pillow is not installed: pip install pillow")


def _have(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _torchvision_reads() -> bool:
    if not _have("torchvision"):
        return False
    from torchvision import io

    return hasattr(io, "read_video")  # newer ones leave it to others


def _read_video(path: Path, choose: Choose) -> tuple[np.ndarray, float]:
    return _read_by_av(path, choose) if _have("av") else _read_by_torchvision(path, choose)


def _read_by_av(path: Path, choose: Choose) -> tuple[np.ndarray, float]:
    """Decoded from its beginning: exact whatever the container says of its key frames, and these videos are short."""
    import av

    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        fps = float(stream.average_rate or Fraction(USUAL_FPS))
        decoded = container.decode(stream)
        if stream.frames:
            first, count = choose(stream.frames, fps)
            frames = list(_between(decoded, first, count))
            if frames:  # the container may promise more than it holds
                return np.stack(frames), fps
        return _some(_read_all(path), choose, fps)


def _between(decoded: Iterator, first: int, count: int) -> Iterator[np.ndarray]:
    for number, frame in enumerate(decoded):
        if number >= first + count:
            return
        if number >= first:
            yield frame.to_ndarray(format="rgb24")


def _read_all(path: Path) -> np.ndarray:
    import av

    with av.open(str(path)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    return np.stack(frames) if frames else np.zeros((0, 1, 1, 3), np.uint8)


def _read_by_torchvision(path: Path, choose: Choose) -> tuple[np.ndarray, float]:
    from torchvision import io

    frames, _, facts = io.read_video(str(path), pts_unit="sec", output_format="THWC")
    return _some(frames.numpy(), choose, float(facts.get("video_fps", USUAL_FPS)))


def _read_array(path: Path, choose: Choose) -> tuple[np.ndarray, float]:
    with np.load(path) as file:
        frames = file["frames"]
        fps = float(file["fps"]) if "fps" in file else USUAL_FPS
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[-1] != 3:
        raise RunProblem(f"{path}: frames is {frames.dtype} {frames.shape}, not bytes [T, H, W, 3]: write it again")
    return _some(frames, choose, fps)


def _read_pictures(path: Path, choose: Choose) -> tuple[np.ndarray, float]:
    from PIL import Image

    files = sorted(file for file in path.iterdir() if file.suffix.lower() in PICTURES)
    if not files:
        raise RunProblem(f"{path} holds no pictures ({', '.join(PICTURES)}): put the frames of the video there")
    first, count = choose(len(files), USUAL_FPS)
    return np.stack([np.asarray(Image.open(file).convert("RGB")) for file in files[first : first + count]]), USUAL_FPS


def _some(frames: np.ndarray, choose: Choose, fps: float) -> tuple[np.ndarray, float]:
    if not len(frames):
        return frames, fps
    first, count = choose(len(frames), fps)
    return frames[first : first + count], fps
