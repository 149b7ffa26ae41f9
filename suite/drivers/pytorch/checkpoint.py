"""Checkpoints: written so that a reader never sees half of one, and resumed exactly or not at all."""

import os
from pathlib import Path

import torch

from suite.drivers.events import RunProblem
from suite.drivers.pytorch import seed, whole
from suite.drivers.pytorch.progress import Progress

FORMAT = 1
LATEST = "latest.pt"
PREVIOUS = "previous.pt"
SAME = ("id", "mode", "preset", "seed", "topology", "params", "sabotage")
"""Keys of run.json that must be equal for a resume."""


def save(run, model, stepper, progress, group, device):
    """Write checkpoints/latest.pt and keep the one before; (path relative to the run, bytes) on rank 0, else None.

    Every rank takes part: each gives its random state, its cursor and its pieces of a divided model, and none goes on
    before the file is there.
    """
    weights, steps = whole.gather(model, stepper)
    ranks = group.gather({"rng": seed.get_state(device), "progress": progress.state()})
    written = None
    if group.rank == 0:
        content = {
            "format": FORMAT,
            "plan": {key: _plain(run[key]) for key in SAME},
            "model": weights,
            "stepper": steps,
            "ranks": ranks,
        }
        folder = Path(run.run_dir) / "checkpoints"
        written = (f"checkpoints/{LATEST}", _write(content, folder))
    group.barrier()
    return written


def _write(content, folder):
    folder.mkdir(parents=True, exist_ok=True)
    partial, latest = folder / f".{LATEST}.partial", folder / LATEST
    with partial.open("wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    _keep(latest, folder / PREVIOUS)
    partial.replace(latest)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # the rename itself must outlive a power cut
    finally:
        os.close(descriptor)
    return size


def _keep(latest, previous):
    """`latest` under a second name, without a moment in which neither exists."""
    if not latest.exists():
        return
    link = previous.with_name(f".{PREVIOUS}.partial")
    link.unlink(missing_ok=True)
    try:
        os.link(latest, link)
    except OSError:  # a file system without links
        latest.replace(previous)
    else:
        link.replace(previous)


def load(path, run, model, stepper, group, device):
    """The Progress to go on from; model, optimizer, scaler and this rank's random state are restored."""
    # Mapped where the model is divided: all ranks of a host then share the one file's pages.
    content = _read(path, mapped=whole.is_divided(model))
    _refuse_others(path, content["plan"], run)
    if len(content["ranks"]) != group.world_size:
        raise RunProblem(f"checkpoint {path} is of {len(content['ranks'])} ranks, not {group.world_size}: use as many")
    whole.restore(model, stepper, content["model"], content["stepper"])
    own = content["ranks"][group.rank]
    seed.set_state(own["rng"], device)
    progress = Progress(**own["progress"])
    progress.segment += 1
    return progress


def load_model(path, run, model):
    """Restore the model alone, of the plan that `run` names; (step, samples) at which it was saved.

    The file may be a stranger's: it is read without running anything that it says, and everything is looked at.
    """
    content = _read(Path(run.run_dir, path))
    try:
        saved, state, first = content["plan"], content["model"], content["ranks"][0]["progress"]
        step, samples = first["step"], first["samples"]
    except (KeyError, IndexError, TypeError) as problem:
        raise RunProblem(f"checkpoint {path} lacks {problem}: evaluate one that this driver has written") from problem
    for key in ("id", "preset"):
        if saved.get(key) != run[key]:
            raise RunProblem(f"checkpoint {path} has {key} = {saved.get(key)!r}, not {run[key]!r}: name its own")
    if not all(isinstance(count, int) and count >= 0 for count in (step, samples)):
        raise RunProblem(f"checkpoint {path} says step {step!r}, samples {samples!r}: both are whole numbers")
    model.load_state_dict(state)
    return step, samples


def _read(path, mapped=False):
    """The content of a file that this driver wrote, as plain values and tensors."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as problem:  # torch names no common type for a broken file
        raise RunProblem(
            f"checkpoint {path} cannot be read ({problem}): resume from checkpoints/{PREVIOUS}"
        ) from problem
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else None
        raise RunProblem(f"checkpoint {path} has format {found!r}: this driver resumes format {FORMAT}")
    return content


def _refuse_others(path, saved, run):
    for key in SAME:
        here = _plain(run[key])
        if saved.get(key) == here:
            continue
        if key == "params":
            key = next(name for name in sorted({*saved[key], *here}) if saved[key].get(name) != here.get(name))
            saved, here = saved["params"], here.get(key)
        raise RunProblem(f"checkpoint {path} has {key} = {saved.get(key)!r}, not {here!r}: resume with the same plan")


def _plain(value):
    """Builtin types only, so that a checkpoint loads without this project."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
