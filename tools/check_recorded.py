"""Recorded runs that a threshold cites: approved baselines, found by the session or the file that the source names."""

from __future__ import annotations

from pathlib import Path

from suite.baseline_file import Baseline, approved
from suite.config_name import DEFAULT_CONFIG, parse_config_name
from suite.vendor_spec import Threshold

METRICS = {
    "time_to_train": "time_to_train_s",
    "throughput": "throughput_train",
    "speedup": "speedup",
    "mfu": "mfu",
    "memory": "memory_peak_gib",
}
"""Threshold -> the metric that it holds, unless it names another."""

Recorded = tuple[tuple[str, Baseline], ...]
"""(file name without suffix, baseline)."""


def recorded(baselines: Path, config: Path) -> Recorded:
    """Approved baselines of the case, machine and topology that a configuration is for; none for a default one."""
    vendor, model, framework = config.parts[-4:-1]
    if config.name == DEFAULT_CONFIG:
        return ()
    machine, topology = parse_config_name(config.name)
    here = (model, framework, machine, str(topology))
    return tuple(
        (file.stem, found)
        for file, found in approved(baselines / vendor)
        if (found.model, found.framework, found.machine, found.topology) == here
    )


def figures(name: str, threshold: Threshold, preset: str, runs: Recorded) -> list[float]:
    """What the cited runs of the preset reached, in the threshold's own metric."""
    metric = threshold.metric or METRICS[name]
    return [
        run.metric[metric].value
        for stem, run in runs
        if run.preset == preset
        and (stem in threshold.source or (run.source and run.source in threshold.source))
        and metric in run.metric
    ]
