"""Checkpoints: NumPy archives, written so that a reader never sees half of one, and resumed exactly or not at all."""

import json
import os
from pathlib import Path

import numpy

from suite.drivers.events import RunProblem
from suite.drivers.progress import Progress

FORMAT = "tensorflow2/1"
LATEST = "latest.pt"
"""The name is that of the contract (run folder, resume, requality), whatever the framework writes into it."""
PREVIOUS = "previous.pt"
FACTS = "__facts__"
SAME = ("id", "mode", "preset", "seed", "topology", "params", "sabotage")
"""Keys of run.json that must be equal for a resume."""


def save(run, trainer, progress, control):
    """Write checkpoints/latest.pt and keep the one before; (path relative to the run, bytes) on rank 0, else None.

    Every rank gives its cursor and its running statistics count as rank 0's; none goes on before the file is there.
    """
    ranks = control.gather(progress.state())
    written = None
    if control.rank == 0:
        facts = {"format": FORMAT, "plan": {key: run[key] for key in SAME}, "ranks": ranks}
        text = numpy.frombuffer(json.dumps(facts).encode(), dtype=numpy.uint8)
        folder = Path(run.run_dir) / "checkpoints"
        written = (f"checkpoints/{LATEST}", _write({**trainer.arrays(), FACTS: text}, folder))
    control.barrier()
    return written


def _write(arrays, folder):
    folder.mkdir(parents=True, exist_ok=True)
    partial, latest = folder / f".{LATEST}.partial", folder / LATEST
    with partial.open("wb") as file:
        numpy.savez(file, **arrays)
        file.flush()
        os.fsync(file.fileno())
    if latest.exists():
        latest.replace(folder / PREVIOUS)
    partial.replace(latest)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # the rename itself must outlive a power cut
    finally:
        os.close(descriptor)
    return latest.stat().st_size


def load(path, run, trainer, control):
    """The Progress to go on from; variables are restored."""
    arrays, facts = _read(path)
    _refuse_others(path, facts["plan"], run)
    if len(facts["ranks"]) != control.world_size:
        raise RunProblem(f"checkpoint {path} is of {len(facts['ranks'])} ranks, not {control.world_size}: use as many")
    trainer.restore(arrays, path)
    progress = Progress(**facts["ranks"][control.rank])
    progress.segment += 1
    return progress


def load_model(path, run, trainer):
    """Restore the model alone, of the plan that `run` names; (step, samples) at which it was saved."""
    arrays, facts = _read(Path(run.run_dir, path))
    try:
        first, saved = facts["ranks"][0], facts["plan"]
        step, samples = first["step"], first["samples"]
    except (KeyError, IndexError, TypeError) as problem:
        raise RunProblem(f"checkpoint {path} lacks {problem}: evaluate one that this driver has written") from problem
    for key in ("id", "preset"):
        if saved.get(key) != run[key]:
            raise RunProblem(f"checkpoint {path} has {key} = {saved.get(key)!r}, not {run[key]!r}: name its own")
    trainer.restore(arrays, path, weights_only=True)
    return step, samples


def _read(path):
    """(arrays, facts) of a file that this driver wrote. Nothing that it says is run."""
    try:
        with numpy.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        facts = json.loads(arrays.pop(FACTS).tobytes())
        found = facts["format"]
    except Exception as problem:  # by what is broken: OSError, ValueError, KeyError, BadZipFile
        told = f"{type(problem).__name__}: {problem}"
        raise RunProblem(f"checkpoint {path} cannot be read ({told}): resume from checkpoints/{PREVIOUS}") from problem
    if found != FORMAT:
        raise RunProblem(f"checkpoint {path} has format {found!r}: this driver resumes format {FORMAT!r}")
    return arrays, facts


def _refuse_others(path, saved, run):
    for key in SAME:
        here = run[key]
        if saved.get(key) == here:
            continue
        if key == "params":
            key = next(name for name in sorted({*saved[key], *here}) if saved[key].get(name) != here.get(name))
            saved, here = saved["params"], here.get(key)
        raise RunProblem(f"checkpoint {path} has {key} = {saved.get(key)!r}, not {here!r}: resume with the same plan")
