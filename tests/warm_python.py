"""A Python that has already imported what takes long: each program of a test is a fork of it, not a start of its own.

What a program sees is its own: arguments, environment, folder, search path, output and exit status. Not its own is what
only a start reads: the seed of hashes and OMP_NUM_THREADS are the server's, and so is the environment in /proc.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
Finished = subprocess.CompletedProcess[str]
PR_SET_PDEATHSIG = 1
START_S = 300
"""For the imports, on a busy host."""
UNDER_THE_SUITE = ("pydantic.main", "pydantic.functional_validators", "filelock", "execnet", "psutil", "statistics")
_OF_A_START = ("PYTHONPATH", "RANK", "WORLD_SIZE", "LOCAL_RANK", "TRAINMARK_RUN", "PYTEST_ADDOPTS")


class WarmPython:
    """The server's other side. Made where it is first needed, and ended with the process that made it."""

    def __init__(self, *modules: str) -> None:
        env = {name: value for name, value in os.environ.items() if name not in _OF_A_START}
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, *modules],
            env=env | {"OMP_NUM_THREADS": "1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        atexit.register(self.close)
        assert self._answer(START_S) == "ready"

    def run(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, timeout_s: float) -> Finished:
        """As `python ARGV` would end there: `SCRIPT WORD…` or `-m MODULE WORD…`."""
        return self.run_all(argv, [env], cwd=cwd, timeout_s=timeout_s)[0]

    def run_all(
        self, argv: Sequence[str], environments: Sequence[Mapping[str, str]], *, cwd: Path, timeout_s: float
    ) -> list[Finished]:
        """The same program at once in several environments; where one fails the others are told to end.

        Raises TimeoutExpired after `timeout_s`: what is left is killed.
        """
        with tempfile.TemporaryDirectory(prefix="warm-") as folder:
            outputs = [
                [str(Path(folder) / f"{name}{number}") for name in ("out", "err")]
                for number in range(len(environments))
            ]
            jobs = [{"env": dict(env), "output": output} for env, output in zip(environments, outputs, strict=True)]
            try:
                self._ask({"argv": list(argv), "cwd": str(cwd), "jobs": jobs})
                codes = self._answer(timeout_s)
            except BaseException:  # or the next program would be given this one's answer
                self.close()
                raise
            told = [[Path(path).read_text(encoding="utf-8", errors="replace") for path in output] for output in outputs]
        return [subprocess.CompletedProcess(list(argv), code, *said) for code, said in zip(codes, told, strict=True)]

    def close(self) -> None:
        """End the server and what it still runs; who asks for one then is given another."""
        started.cache_clear()
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _ask(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()

    def _answer(self, timeout_s: float) -> Any:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], timeout_s)[0]:
            raise subprocess.TimeoutExpired(self._process.args, timeout_s)
        return json.loads(self._process.stdout.readline())


@cache
def started(*modules: str) -> WarmPython:
    """The one of this process that has imported `modules`."""
    return WarmPython(*modules)


def pytest_python() -> WarmPython:
    """One that has imported pytest and what the suite stands on, but no plugin: those pytest wants to import itself."""
    return started("pytest", *UNDER_THE_SUITE)


def train(script: Path, run_json: Path, ranks: int = 1, *, timeout_s: float = 900) -> list[Finished]:
    """How each rank of a training by PyTorch ended, with what it printed; `script` is a case's train.py."""
    environment = {name: value for name, value in os.environ.items() if name not in _OF_A_START}
    environment |= {"TRAINMARK_RUN": str(run_json), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    # An optimizer imports PyTorch's compiler too, even where nothing is compiled.
    python = started("torch", "torch._dynamo")
    from tests.meeting import meeting_ports  # the server, which is a script, has no path to it

    with meeting_ports() as (port,):
        told = [environment | place for place in _places(ranks, port)]
        return python.run_all([str(script)], told, cwd=run_json.parent, timeout_s=timeout_s)


def _places(ranks: int, port: int) -> list[dict[str, str]]:
    """What a launcher tells each of `ranks` ranks on this host; nothing where there is but one."""
    if ranks == 1:
        return [{}]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GROUP_RANK": "0"}
    shape = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    return [{**meeting, **shape, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]


# The server's side


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _serve(modules: list[str]) -> None:
    """Answer requests until there are no more. A fork returns from here as the program that it is to be."""
    requests, answers = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    with Path(os.devnull).open("r+b") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    _say(answers, "ready")
    while line := requests.readline():
        request = json.loads(line)
        forks = []
        for job in request["jobs"]:
            forks.append(os.fork())
            if forks[-1] == 0:
                requests.close()
                answers.close()
                _become(request, job)
                return
        _say(answers, _wait(forks))


def _wait(forks: list[int]) -> list[int]:
    """How each ended."""
    codes: dict[int, int] = {}
    while left := [fork for fork in forks if fork not in codes]:
        fork, status = os.wait()
        codes[fork] = os.waitstatus_to_exitcode(status)
        if codes[fork]:  # a rank that is gone is waited for by all the others
            for other in left:
                if other != fork:
                    os.kill(other, signal.SIGTERM)
    return [codes[fork] for fork in forks]


def _say(answers: Any, what: object) -> None:
    answers.write(json.dumps(what) + "\n")
    answers.flush()


def _become(request: dict[str, Any], job: dict[str, Any]) -> None:
    """Run the program to its end, in this process."""
    _die_with_parent()
    for number, path in enumerate(job["output"], 1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(job["env"])
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    first, *words = request["argv"]
    module = words.pop(0) if first == "-m" else None
    of_program = Path.cwd() if module else Path(first).resolve().parent
    sys.path[:0] = [str(of_program), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    importlib.invalidate_caches()
    sys.argv = [module or first, *words]
    if module:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    _die_with_parent()
    _serve(sys.argv[1:])
