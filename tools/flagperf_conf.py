"""FlagPerf's test_conf.py and cluster_conf.py -> a --cases table and a site, with a note for all that changes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from suite.errors import UsageProblem
from tools import toml_text
from tools.flagperf_case import Row, obstacle, parse_row
from tools.python_values import Assignments, Constant, read_assignments
from tools.toml_text import TomlValue

CONFIG_FOLDERS = ("training/run_benchmarks/config", "run_benchmarks/config", "config", ".")
"""Where test_conf.py may lie below the folder that the user names."""

LOG_LEVELS = ("debug", "info", "warning", "error")

ELSEWHERE: Mapping[str, str] = {
    "FLAGPERF_PATH": "the suite runs from its checkout",
    "FLAGPERF_LOG_PATH": "results go to results/, or say --results DIR",
    "HOSTS_PORTS": "only TensorFlow's strategy of FlagPerf used it; ports are leased",
}
"""Names that nothing corresponds to, and what to do instead."""


@dataclass(kw_only=True, slots=True)
class Migration:
    """What two FlagPerf files become."""

    vendor: str
    rows: list[Row] = field(default_factory=list)
    """What the suite can run."""
    refused: list[tuple[Row, str]] = field(default_factory=list)
    """Rows without a plan in this suite, with the reason."""
    site: dict[str, dict[str, TomlValue]] = field(default_factory=dict)
    """Table -> key -> value."""
    notes: list[str] = field(default_factory=list)
    """Sentences about what was changed, left out, or is to be decided."""

    def put(self, table: str, key: str, value: TomlValue) -> None:
        """One value of the site."""
        self.site.setdefault(table, {})[key] = value


def find_config(folder: Path) -> Path:
    """The folder that holds test_conf.py: `folder` itself, or FlagPerf's place for it below."""
    for place in CONFIG_FOLDERS:
        if (folder / place / "test_conf.py").is_file():
            return folder / place
    raise UsageProblem(
        f"{folder}: no test_conf.py there, nor in {', '.join(CONFIG_FOLDERS[:2])} below it; "
        "name FlagPerf's checkout or its config folder"
    )


def migrate(folder: Path, suite_dir: Path) -> Migration:
    """Read both files of a FlagPerf checkout without running them."""
    config = find_config(folder)
    test = read_assignments(config / "test_conf.py")
    vendor = test.values.get("VENDOR")
    if not isinstance(vendor, str) or not vendor:
        raise UsageProblem(f"{test.path}: VENDOR is {vendor!r}, not the name of a vendor; set it as a text")
    result = Migration(vendor=vendor)
    _take_cases(test, result, suite_dir)
    _take_settings(test, result)
    cluster_file = config / "cluster_conf.py"
    if cluster_file.is_file():
        cluster = read_assignments(cluster_file)
        _take_hosts(cluster, result)
        _report_rest(cluster, result)
    else:
        result.notes.append(f"{cluster_file}: no such file; the site names no hosts and everything runs on this one")
    _report_rest(test, result)
    return result


def _take_cases(test: Assignments, result: Migration, suite_dir: Path) -> None:
    """CASES: each row is taken, or named with the reason."""
    cases = test.values.get("CASES", {})
    if not isinstance(cases, dict):
        raise UsageProblem(f"{test.path}: CASES is not a mapping of rows to data folders")
    seen: dict[str, str] = {}
    for key, data_dir in cases.items():
        try:
            row = parse_row(key, data_dir)
        except UsageProblem as problem:
            result.notes.append(f"skipped: {problem}")
            continue
        if row.version:
            result.notes.append(
                f"{key}: version {row.version} of {row.framework} chose an image in FlagPerf; here "
                "the environment or the vendor's image has one version, recorded in every result"
            )
        if row.key in seen:
            result.notes.append(f"skipped: {key} is the same row as {seen[row.key]}")
            continue
        seen[row.key] = key
        reason = obstacle(row, result.vendor, suite_dir)
        if reason:
            result.refused.append((row, reason))
        else:
            result.rows.append(row)
    if not seen:
        result.notes.append(f"{test.path}: CASES has no active row; the cases file is empty")


def _take_settings(test: Assignments, result: Migration) -> None:
    """The other names of test_conf.py."""
    options = _text(test, "ACCE_CONTAINER_OPT", result)
    if options.strip():
        try:
            result.put("container", "options", shlex.split(options))
        except ValueError as problem:
            result.notes.append(
                f"ACCE_CONTAINER_OPT {options!r} left out: {problem}; put the options into [container] options by hand"
            )
    if size := _text(test, "SHM_SIZE", result):
        if re.fullmatch(r"\d+[kKmMgGtT]?", size):
            result.put("container", "shm_size", size)
        else:
            result.notes.append(f"SHM_SIZE {size!r} left out: not a number with k, m, g or t, as in 32G")
    if "container" in result.site:
        result.site["container"] = {"engine": "none"} | result.site["container"]
        result.notes.append(
            'FlagPerf always ran in a container it built; [container] engine = "none" runs in '
            "the environment of pytest. The options are kept for an engine"
        )
    if index := _text(test, "PIP_SOURCE", result):
        result.put("policy", "package_index", index)
    if level := _text(test, "FLAGPERF_LOG_LEVEL", result):
        if level.lower() in LOG_LEVELS:
            result.put("log", "level", level.lower())
        else:
            result.notes.append(f"FLAGPERF_LOG_LEVEL {level!r} left out: not one of {', '.join(LOG_LEVELS)}")
    clear = test.values.get("CLEAR_CACHES")
    if isinstance(clear, bool):
        result.put("log", "clear_caches", clear)
    if name := _text(test, "ACCE_VISIBLE_DEVICE_ENV_NAME", result):
        result.notes.append(
            f"{name} is a fact of the vendor: [device] visible_devices in "
            f"suite/vendors/{result.vendor}/vendor.toml, not of the site"
        )


def _take_hosts(cluster: Assignments, result: Migration) -> None:
    """HOSTS and the ports of cluster_conf.py."""
    hosts = cluster.values.get("HOSTS")
    if isinstance(hosts, list) and hosts and all(isinstance(host, str) and host.strip() for host in hosts):
        result.put("hosts", "names", [str(host).strip() for host in hosts])
        several = len(hosts) > 1
        result.put("launch", "launcher", "ssh" if several else "local")
        result.notes.append(
            f"{len(hosts)} hosts: the launcher is ssh; rows of one node can run on one of them with --launcher local"
            if several
            else f"one host, {hosts[0]}: run pytest there; the launcher is local"
        )
    elif hosts is not None:
        result.notes.append(f"HOSTS {hosts!r} left out: not a list of host names; write [hosts] names by hand")
    for name, key in (("SSH_PORT", "port"), ("MASTER_PORT", "master_port")):
        value = cluster.values.get(name)
        if value is None or (isinstance(value, str) and not value.strip()):
            continue
        port = _port(value)
        if port is None:
            result.notes.append(f"{name} {value!r} left out: not a port from 1 to 65535")
        else:
            result.put("hosts", key, port)


def _port(value: Constant) -> int | None:
    """A TCP port given as text or number."""
    digits = str(value).strip()
    if isinstance(value, bool) or not (digits.isascii() and digits.isdigit() and len(digits) <= 5):
        return None
    return int(digits) if 1 <= int(digits) <= 65535 else None


def _text(source: Assignments, name: str, result: Migration) -> str:
    """A text setting; empty if absent, and named if it is something else."""
    value = source.values.get(name, "")
    if isinstance(value, str):
        return value
    result.notes.append(f"{name} {value!r} left out: not a text")
    return ""


def _report_rest(source: Assignments, result: Migration) -> None:
    """Name what was skipped by the reader, and what has no counterpart."""
    for item in source.skipped:
        result.notes.append(
            f"skipped: {source.path.name}:{item.line}: {item.name}: {item.why}; set it by hand if it matters"
        )
    for name, instead in ELSEWHERE.items():
        if name in source.values:
            result.notes.append(f"{name} is not carried over: {instead}")


def cases_text(migration: Migration) -> str:
    """The --cases file: rows that run, and as comments those that cannot."""
    lines = [
        toml_text.comment(
            "Exactly these plans: pytest suite --cases FILE. model:framework:machine:nnodes:nproc:repeat = data folder"
        )
    ]
    lines += [toml_text.entry(row.key, row.data_dir) for row in migration.rows]
    for row, reason in migration.refused:
        lines += ["", toml_text.comment(reason), toml_text.comment(toml_text.entry(row.key, row.data_dir))]
    return "\n".join(lines) + "\n"


def site_text(migration: Migration) -> str:
    """The site file."""
    head = toml_text.comment("Where it runs; what each key means: docs/configuration.md, «Site files»")
    return "\n".join(
        [head, "", *(toml_text.table(name, entries).rstrip() + "\n" for name, entries in migration.site.items())]
    )
