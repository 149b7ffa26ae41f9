"""Checkpoints: written so that a reader never sees half of one, and resumed exactly or not at all.

An archive of NumPy arrays and one JSON text; reading one runs nothing that it says.
"""

import json
import os
import zipfile
from pathlib import Path

import numpy as np

from suite.drivers.events import RunProblem
from suite.drivers.paddle import seed
from suite.drivers.progress import Progress

FORMAT = "paddle/1"
LATEST = "latest.pt"
"""The name by which a run's last checkpoint is found, whatever wrote it."""
PREVIOUS = "previous.pt"
SAME = ("id", "mode", "preset", "seed", "topology", "params", "sabotage")
"""Keys of run.json that must be equal for a resume."""
MODEL, STEPPER, REST = "model/", "stepper/", "rest"


def save(run, model, stepper, progress, group, device):
    """Write checkpoints/latest.pt and keep the one before; (path relative to the run, bytes) on rank 0, else None.

    Every rank takes part: each gives its random state and its cursor, and none goes on before the file is there.
    """
    ranks = group.gather({"rng": seed.get_state(device), "progress": progress.state()})
    written = None
    if group.rank == 0:
        arrays = {MODEL + name: value.numpy() for name, value in model.state_dict().items()}
        arrays |= {STEPPER + name: value for name, value in stepper.state().items()}
        rest = {"format": FORMAT, "plan": {key: _plain(run[key]) for key in SAME}, "ranks": ranks}
        arrays[REST] = np.frombuffer(json.dumps(rest).encode(), np.uint8)
        written = (f"checkpoints/{LATEST}", _write(arrays, Path(run.run_dir) / "checkpoints"))
    group.barrier()
    return written


def _write(arrays, folder):
    folder.mkdir(parents=True, exist_ok=True)
    partial, latest = folder / f".{LATEST}.partial", folder / LATEST
    with partial.open("wb") as file:
        np.savez(file, **arrays)
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
    """The Progress to go on from; model, optimizer and this rank's random state are restored."""
    arrays, rest = _read(path)
    _refuse_others(path, rest["plan"], run)
    if len(rest["ranks"]) != group.world_size:
        raise RunProblem(f"checkpoint {path} is of {len(rest['ranks'])} ranks, not {group.world_size}: use as many")
    _restore(path, model, arrays)
    stepper.load(_part(arrays, STEPPER))
    own = rest["ranks"][group.rank]
    seed.set_state(own["rng"], device)
    progress = Progress(**own["progress"])
    progress.segment += 1
    return progress


def load_model(path, run, model):
    """Restore the model alone, of the plan that `run` names; (step, samples) at which it was saved."""
    arrays, rest = _read(Path(run.run_dir, path))
    try:
        saved, first = rest["plan"], rest["ranks"][0]["progress"]
        step, samples = first["step"], first["samples"]
    except (KeyError, IndexError, TypeError) as problem:
        raise RunProblem(f"checkpoint {path} lacks {problem}: evaluate one that this driver has written") from problem
    for key in ("id", "preset"):
        if saved.get(key) != run[key]:
            raise RunProblem(f"checkpoint {path} has {key} = {saved.get(key)!r}, not {run[key]!r}: name its own")
    if not all(isinstance(count, int) and count >= 0 for count in (step, samples)):
        raise RunProblem(f"checkpoint {path} says step {step!r}, samples {samples!r}: both are whole numbers")
    _restore(path, model, arrays)
    return step, samples


def _restore(path, model, arrays):
    """Every tensor of the model, each in its own shape: Paddle itself would only warn about one that is missing."""
    held, own = _part(arrays, MODEL), model.state_dict()
    for name in sorted({*held, *own}):
        shapes = [tuple(part[name].shape) if name in part else None for part in (held, own)]
        if shapes[0] != shapes[1]:
            raise RunProblem(
                f"checkpoint {path} has {name} as {shapes[0]}, the model has {shapes[1]}: use its own case"
            )
    model.set_state_dict(held)


def _part(arrays, prefix):
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


def _read(path):
    """(arrays, the rest) of a file that this driver wrote."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        rest = json.loads(arrays.pop(REST).tobytes())
    except (OSError, ValueError, KeyError, AttributeError, zipfile.BadZipFile, EOFError) as problem:
        raise RunProblem(
            f"checkpoint {path} cannot be read ({problem}): resume from checkpoints/{PREVIOUS}"
        ) from problem
    found = rest.get("format") if isinstance(rest, dict) else None
    if found != FORMAT:
        raise RunProblem(f"checkpoint {path} has format {found!r}: this driver resumes format {FORMAT!r}")
    return arrays, rest


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
    """Builtin types only, as JSON gives them back."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
