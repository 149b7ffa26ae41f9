"""What a report says of its session besides results: the checkout, the versions, and where CI keeps it."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CI_NAMES = (
    "BUILD_ID", "BUILD_NUMBER", "BUILD_URL", "JOB_NAME", "NODE_NAME", "GIT_BRANCH",  # Jenkins
    "CHANGE_ID", "CHANGE_TARGET", "CHANGE_URL", "BRANCH_NAME",  # Jenkins, multibranch
    "GITHUB_REPOSITORY", "GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT", "GITHUB_REF", "GITHUB_SHA",
    "CI_JOB_ID", "CI_JOB_URL", "CI_PIPELINE_ID", "CI_MERGE_REQUEST_IID", "CI_COMMIT_SHA",  # GitLab
    "SLURM_JOB_ID", "SLURM_CLUSTER_NAME",
)  # fmt: skip
"""The only environment variables that reach a report."""

GIT_DEADLINE_S = 5.0
PACKAGES = ("pytest", "pytest-xdist", "pydantic")


def ci(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables of CI_NAMES that are set, by name."""
    return {name: environment[name] for name in sorted(CI_NAMES) if environment.get(name)}


def versions() -> dict[str, str]:
    """Of the harness: interpreter, runner and operating system; a package that is missing is left out."""
    found = {"python": platform.python_version(), "system": f"{platform.system()} {platform.release()}"}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def git(checkout: Path) -> dict[str, str | bool | None]:
    """`{commit, dirty}` of `checkout`; None where git cannot tell within its deadline."""
    commit = _git(checkout, "rev-parse", "HEAD")
    changes = _git(checkout, "status", "--porcelain") if commit else None
    return {"commit": commit or None, "dirty": None if changes is None else bool(changes)}


def _git(checkout: Path, *arguments: str) -> str | None:
    # Without optional locks git writes nothing: a session may run beside somebody's rebase.
    command = ["git", "-C", str(checkout), "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=GIT_DEADLINE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else None
