"""A vendor's scripts and code, read as text and syntax trees: what may stand in them, and what may not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from suite.envfile import read_environment
from suite.errors import UsageProblem
from suite.toml_file import shown
from tools.check_files import plain_files, text_of
from tools.finding import Finding, told

REACHES_OUT = frozenset(
    {"subprocess", "socket", "urllib", "http", "requests", "ftplib", "smtplib", "pty", "shutil", "pickle", "marshal"}
)
"""Modules that code which fills a slot has no business with."""

CALLS = frozenset({"eval", "exec", "compile", "__import__", "os.system", "os.popen", "os.execv", "os.fork", "os.kill"})
"""Calls that hide what runs, or leave the process."""

TAKES_OVER = re.compile(
    r"LD_PRELOAD|LD_AUDIT|BASH_ENV|ENV|PATH|PYTHON(?:STARTUP|HOME|PATH|INSPECT)|(?:HTTPS?|ALL)_PROXY"
)
SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_KEY")
REQUIREMENT = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._-]+\])?\s*([<>=!~]=?=?\s*[\w.*+!-]+\s*,?\s*)*(;.*)?"
)
PIPED = re.compile(r"\b(?:curl|wget)\b[^\n]*\|\s*(?:sudo\s+)?(?:ba|z|da)?sh\b")
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "env", "sudo", "su", "curl", "wget", "nc", "ncat", "perl", "eval"})
INTERPRETER = re.compile(r"python[\d.]*")


def check_scripts(folder: Path, root: Path) -> Iterator[Finding]:
    """Environment files, requirements, recipes and Python of a vendor's folder."""
    for path in plain_files(folder):
        label = shown(path, root)
        if path.name == "environment_variables.sh":
            yield from _environment(path, label)
        elif path.name == "requirements.txt":
            yield from _requirements(path, label)
        elif path.name == "Dockerfile" or path.name.endswith("_install.sh"):
            yield from _recipe(path, label)
        elif path.suffix == ".py":
            yield from _code(path, label)


def _environment(path: Path, label: str) -> Iterator[Finding]:
    try:
        variables = read_environment(path, label)
    except UsageProblem as problem:
        yield told(problem, label)
        return
    for name in variables:
        if TAKES_OVER.fullmatch(name.upper()):
            yield Finding(label, f"{name} changes which code every process runs", "remove the line, or build an image")
        elif SECRET.search(name.upper()):
            yield Finding(label, f"{name} looks like a secret", "remove it; a site gives secrets by name: [secrets]")


def _requirements(path: Path, label: str) -> Iterator[Finding]:
    for number, line in enumerate(text_of(path).splitlines(), 1):
        wanted = line.partition("#")[0].strip()
        if wanted and not REQUIREMENT.fullmatch(wanted):
            yield Finding(
                f"{label}:{number}",
                f"{wanted[:60]!r} is more than a package and its versions",
                "write NAME>=VERSION; where packages come from is the site's to say: [policy] package_index",
            )


def _recipe(path: Path, label: str) -> Iterator[Finding]:
    text = text_of(path)
    if found := PIPED.search(text):
        yield Finding(label, f"runs what it downloads: {found[0][:60]!r}", "install a package of a stated version")
    bases = re.findall(r"^(?:FROM|ARG BASE=)\s*(\S+)", text, re.MULTILINE) if path.name == "Dockerfile" else []
    for base in bases:
        if "$" not in base and (":" not in base.rpartition("/")[2] or base.endswith(":latest")):
            yield Finding(label, f"{base} is another image tomorrow", "name a tag, or better a digest: NAME@sha256:…")


def _code(path: Path, label: str) -> Iterator[Finding]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        yield Finding(f"{label}:{getattr(error, 'lineno', None) or 1}", "not valid Python", "mend it, or remove it")
        return
    building = "csrc" in path.parts
    for node in ast.walk(tree):
        line = f"{label}:{getattr(node, 'lineno', 1)}"
        for module in _imported(node):
            if module.partition(".")[0] in REACHES_OUT and not building:
                yield Finding(line, f"imports {module}", "code of a vendor computes; take it out, or ask in the review")
            elif module.startswith(("suite.drivers.events", "fixtures", "reports")):
                yield Finding(line, f"imports {module}", "events and verdicts are the harness's own; take it out")
        if isinstance(node, ast.Call) and (name := _called(node.func)) in CALLS:
            yield Finding(line, f"calls {name}()", "write out what shall run; take the call out")


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        yield node.module


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Name):
        return function.id
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return f"{function.value.id}.{function.attr}"
    return ""


def check_command(words: tuple[str, ...], key: str, label: str) -> Iterator[Finding]:
    """The argv of a probe, a monitor, a health check or a prefix: a program of the vendor's, no shell."""
    if not words:
        return
    program = words[0].rpartition("/")[2]
    if program in SHELLS or (INTERPRETER.fullmatch(program) and "-c" in words):
        yield Finding(
            label, f"{key} starts {program!r}, which runs anything", "name the vendor's own tool and its words"
        )
    elif odd := next((word for word in words if re.search(r"[;&|`]|\$\(", word)), None):
        yield Finding(label, f"{key} holds {odd!r}, which only a shell would understand", "write plain words: no shell")
