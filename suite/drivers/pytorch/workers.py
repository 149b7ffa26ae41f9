"""`loader = "process"`: a rank's micro-batches built by processes, in the order in which one process would.

Each process is handed every n-th job and answers in order; a thread takes its answers in, ahead of the training. What
a batch holds depends on its job alone, so neither their number nor their speed changes what is trained.
"""

import contextlib
import itertools
import os
import pickle
import subprocess
import sys
from collections import deque
from pathlib import Path

from suite.drivers.events import RunProblem
from suite.drivers.pytorch import batch_worker, batches
from suite.drivers.pytorch.prefetch import Ahead
from suite.drivers.pytorch.tensors import from_arrays

LOADERS = ("thread", "process")
JOB_BYTES = 32768
"""The largest job: one must fit into a pipe while the process is busy, or both would wait for each other."""
END_S = 5
"""For a killed process to be gone."""
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def loader(params):
    """How batches are built. Raises RunProblem for a word that is none of LOADERS."""
    name = params.get("loader", "thread")
    if name not in LOADERS:
        raise RunProblem(f"loader = {name!r} is not one of {', '.join(LOADERS)}: change params.loader")
    return name if params["num_workers"] > 0 else "thread"


class Workers:
    """The endless stream of Micros that `num_workers` processes build. Made in the main thread; `close` ends them."""

    def __init__(self, task, epoch, skip):
        count = task.params["num_workers"]
        setup = {"path": [str(Path(path).resolve()) for path in sys.path], "builder": _pickled(task.batch_builder())}
        self._task = task
        self._workers, self._streams = [], []
        try:
            for number in range(count):
                self._workers.append(Worker(number, setup))
            for number, worker in enumerate(self._workers):
                mine = itertools.islice(batches.jobs(task, epoch, skip), number, None, count)
                self._streams.append(Ahead(worker.answers(mine), task.params["prefetch_factor"]))
        except BaseException:
            self.close()
            raise
        self._turns = itertools.cycle(self._streams)

    def __iter__(self):
        return self

    def __next__(self):
        place, arrays = next(next(self._turns))
        return batches.counted(self._task, from_arrays(arrays), *place)

    def close(self):
        """End the processes, and the threads that listen to them."""
        for worker in self._workers:
            worker.kill()
        for stream in self._streams:
            stream.close()
        for worker in self._workers:
            worker.close()


class Worker:
    """One process and its two pipes."""

    def __init__(self, number, setup):
        self.number = number
        jobs, self._jobs = _pipe("wb")
        self._answers, answers = _pipe("rb")
        argv = [sys.executable, batch_worker.__file__, str(jobs), str(answers), str(os.getpid())]
        environment = os.environ | dict.fromkeys(ONE_THREAD, "1")  # the cores are shared with the other processes
        try:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=(jobs, answers), env=environment)
        finally:
            os.close(jobs)
            os.close(answers)
        batch_worker.write_frame(self._jobs, setup)

    def answers(self, jobs):
        """(place, what was built) for each (place, job), in order. The process always has the next job already."""
        handed = deque()
        for place, job in jobs:
            self._hand(job)
            handed.append(place)
            if len(handed) > 1:
                yield handed.popleft(), self._take()
        while handed:
            yield handed.popleft(), self._take()

    def _hand(self, job):
        size = len(pickle.dumps(job, protocol=5))
        if size > JOB_BYTES:
            raise RunProblem(
                f"a job of batch_jobs has {size} bytes, at most {JOB_BYTES} go: say which samples, not what"
            )
        try:
            batch_worker.write_frame(self._jobs, job)
        except BrokenPipeError:
            raise self._ended() from None

    def _take(self):
        try:
            kind, *rest = batch_worker.read_frame(self._answers)
        except EOFError:
            raise self._ended() from None
        if kind == "batch":
            return rest[0]
        name, text = rest
        raise RunProblem(
            text if name == RunProblem.__name__ else f"{name} in the loader's process {self.number}: {text}"
        )

    def _ended(self):
        code = self._process.wait(timeout=END_S)
        how = f"was killed by signal {-code}" if code < 0 else f"left with {code}"
        remedy = "look for what ended it, such as too little memory for num_workers processes"
        return RunProblem(f"the loader's process {self.number} (pid {self._process.pid}) {how}: {remedy}")

    def kill(self):
        """End it now: it holds nothing that must be kept."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # not even a killed process leaves a dead disk at once
            self._process.wait(timeout=END_S)

    def close(self):
        """Close the pipes, once no thread uses them."""
        self._jobs.close()
        self._answers.close()


def _pipe(ours):
    """Both ends of a pipe, reading end first: ours as an unbuffered file, the other's as a number."""
    read, write = os.pipe()
    if ours == "rb":
        return os.fdopen(read, "rb", buffering=0), write
    return read, os.fdopen(write, "wb", buffering=0)


def _pickled(builder):
    if type(builder).__module__ == "__main__":
        name = type(builder).__name__
        raise RunProblem(
            f"batch_builder() gives a {name} of train.py, which no other process knows: move it to a module"
        )
    try:
        return pickle.dumps(builder, protocol=5)
    except (pickle.PicklingError, TypeError, AttributeError) as problem:
        raise RunProblem(
            f"batch_builder() gives what cannot be pickled ({problem}): keep paths and numbers in it"
        ) from problem
