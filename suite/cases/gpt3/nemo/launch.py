"""One rank of a training that NeMo's launcher configures: the launcher writes it down, and submits nothing.

    launch.py --launcher DIR --results DIR --margin_s S --set KEY=VALUE …

Each rank has the launcher (`main.py`) compose the configuration into a folder of its own, reads from the submission
script what that would start, and becomes it. Ranks, nodes and their end stay with whoever started this file.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

COMPOSE_S = 600.0
"""For the launcher to write its files; it imports no framework."""

USAGE = 4
WRITE_ONLY = {"NEMO_LAUNCHER_DEBUG": "1"}
"""The launcher then writes its files and submits nothing."""

# What the launcher's own script would start: an interpreter, a program, where its configuration lies.
_STARTS = re.compile(r"python3 -u (?P<program>\S+\.py)\s+(?P<words>(?:\\?\s*-{2}config-(?:path|name)=\S+\s*)+)")
_CLOCK = re.compile(r"(?:(\d+)[-:])?(\d+):(\d\d):(\d\d)")


class Wrong(Exception):
    """One sentence that names the key, the value and the remedy."""


class _Parser(argparse.ArgumentParser):
    """Wrong words are Wrong: argparse's own status 2 would be an interrupt."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of leaving."""
        raise Wrong(f"{message}; see `{self.prog} --help`")


def seconds_of(text: str, key: str) -> int:
    """`0-02:00:00`, as Slurm writes a time, or `00:01:30:00`, as Lightning does, in seconds. Raises Wrong."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise Wrong(f"{key}={text} is no time: write days, hours, minutes and seconds, as in 0-02:00:00")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def check(overrides: dict[str, str], margin_s: int) -> None:
    """Raise Wrong for values that cannot go together: found here, they cost seconds; found by NeMo, a whole run."""
    limit_key, most_key = "training.run.time_limit", "training.trainer.max_time"
    limit, most = (seconds_of(overrides[key], key) for key in (limit_key, most_key))
    if most + margin_s > limit:
        raise Wrong(
            f"{most_key}={overrides[most_key]} leaves less than {margin_s} s of {limit_key}={overrides[limit_key]}"
            " for the end of the run: lower the one, or raise the other"
        )
    steps, every = (int(overrides[f"training.trainer.{key}"]) for key in ("max_steps", "val_check_interval"))
    if every > steps:
        raise Wrong(
            f"training.trainer.val_check_interval={every} is more than training.trainer.max_steps={steps}:"
            " no validation would be made; lower it"
        )


def compose_argv(launcher: Path, overrides: dict[str, str], folder: Path) -> list[str]:
    """The launcher's command: every change of its files as an override; one without a value is left out."""
    words = [f"{key}={value}" for key, value in overrides.items() if value]
    return [sys.executable, str(launcher / "main.py"), *words, f"training.run.results_dir={folder}"]


def train_argv(script: str, results: Path) -> list[str]:
    """What the submission script would start on each rank, with results that all ranks share. Raises Wrong."""
    found = _STARTS.search(script)
    if found is None:
        raise Wrong("NeMo's launcher wrote a submission script that starts no training: see it, and its version")
    words = [word for word in found["words"].split() if word != "\\"]
    return [sys.executable, "-u", found["program"], *words, f"exp_manager.explicit_log_dir={results}"]


def without_scheduler(environ: dict[str, str]) -> dict[str, str]:
    """The environment without Slurm's own variables, by which Lightning would count its ranks instead of ours."""
    return {name: value for name, value in environ.items() if not name.startswith(("SLURM_", "PMI_", "PMIX_"))}


def parsed(words: Sequence[str]) -> tuple[Path, Path, int, dict[str, str]]:
    """(launcher's folder, results, margin in seconds, overrides in order). Raises Wrong."""
    parser = _Parser(description=__doc__)
    parser.add_argument("--launcher", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--margin_s", type=int, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    found = parser.parse_args(words)
    overrides: dict[str, str] = {}
    for word in found.set:
        key, equals, value = word.partition("=")
        if not equals or key in overrides:
            raise Wrong(f"--set {word} is {'a second value' if equals else 'no KEY=VALUE'}: say each key once")
        overrides[key] = value
    return found.launcher, found.results, found.margin_s, overrides


def compose(launcher: Path, overrides: dict[str, str], folder: Path) -> str:
    """Have the launcher write its files below `folder`; the text of its submission script. Raises Wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    argv = compose_argv(launcher, overrides, folder)
    print(" ".join(argv), flush=True)
    done = subprocess.run(argv, cwd=launcher, env={**os.environ, **WRITE_ONLY}, timeout=COMPOSE_S, check=False)
    scripts = sorted(folder.rglob("*submission*.sh"))
    if done.returncode != 0 or len(scripts) != 1:
        raise Wrong(f"{argv[1]} left with status {done.returncode} and {len(scripts)} submission scripts, not one")
    return scripts[0].read_text(encoding="utf-8")


def main(words: Sequence[str]) -> int:
    """Become the training; return only where that cannot be."""
    try:
        launcher, results, margin_s, overrides = parsed(words)
        check(overrides, margin_s)
        if not (launcher / "main.py").is_file():
            raise Wrong(f"{launcher} has no main.py: name the launcher_scripts folder of NeMo's launcher")
        argv = train_argv(compose(launcher, overrides, results / f"rank{os.environ.get('RANK', '0')}"), results)
    except (Wrong, KeyError, ValueError, OSError, subprocess.TimeoutExpired) as problem:
        print(f"launch.py: {problem}", file=sys.stderr)
        return USAGE
    os.execve(argv[0], argv, without_scheduler(dict(os.environ)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
