"""Time to a fixed validation loss on real text: Hugging Face's Trainer against the preset 124m_text of gpt3/pytorch.

`python benchmarks/time_to_train.py --data-dir DIR [--pilot] [--target L] [--seeds 3] [--variant eager|compiled|both]`
trains the reference, a process a seed, and prints one JSON line each. `--pilot` trains the whole schedule with a seed
of its own and prints the target that follows. `python benchmarks/time_to_train.py --ours RESULTS --reference FILE`
compares the runs of `pytest suite` in RESULTS with such lines. docs/time-to-train.md says what is the same on both
sides. The best reference is the one to beat.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, variance
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CASE = ROOT / "suite/cases/gpt3/pytorch/case.toml"
sys.path.insert(0, str(ROOT))

from suite.drivers.command_line import Parser  # noqa: E402

PILOT_SEED = 100
"""No run that is compared has it."""
PILOT_SHARE = 2 / 3
"""Of the schedule: the target is what the pilot has reached there, rounded up to a hundredth."""
TINY: dict[str, Any] = {
    "hidden_size": 32, "feed_size": 64, "num_layers": 2, "num_heads": 2, "sequence_length": 32, "vocab_multiple": 64,
    "init_std": 0.1, "lr": 1e-2, "warmup_steps": 2, "schedule_steps": 12, "max_steps": 12, "max_samples": 96,
    "global_batch_size": 8, "train_batch_size": 8, "val_check_interval": 3, "log_freq": 3, "num_workers": 0,
}  # fmt: skip
PACKAGES = ("torch", "transformers", "accelerate")
TIMES = ("time_to_train_s", "without_evaluation_s")


def parameters(preset: str, tiny: bool) -> dict[str, Any]:
    """The parameters of the case, of a toy with `tiny`."""
    case = tomllib.loads(CASE.read_text(encoding="utf-8"))
    return case["params"] | case["preset"][preset]["params"] | (TINY if tiny else {})


def default_target(preset: str) -> float:
    """The target of the case."""
    case = tomllib.loads(CASE.read_text(encoding="utf-8"))
    return float(case["preset"][preset]["target"]["value"])


def run_reference(given: argparse.Namespace, seed: int, compiled: bool, target: float | None) -> dict[str, Any]:
    """One training's line, whatever becomes of it."""
    params = parameters(given.preset, given.tiny)
    host = given.device == "cpu"
    job = {
        "params": params, "data_dir": str(given.data_dir.resolve()), "seed": seed, "target": target,
        "compiled": compiled, "device": given.device, "precision": "fp32" if host else "bf16",
        "micro_batch": given.micro_batch or params["global_batch_size"],
    }  # fmt: skip
    line: dict[str, Any] = {key: job[key] for key in ("seed", "target", "compiled", "device", "micro_batch")}
    line |= {"reference": "transformers Trainer", "preset": given.preset, "tiny": given.tiny}
    line |= {name: importlib.metadata.version(name) for name in PACKAGES}
    argv = [sys.executable, str(HERE / "reference_gpt2_text.py"), json.dumps(job)]
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=given.timeout, check=False)
    except subprocess.TimeoutExpired:
        return line | {"error": f"not done after {given.timeout:g} s: say --timeout SECONDS"}
    if done.returncode:
        return line | {"error": f"left with {done.returncode}, its last words stand above"}
    return line | json.loads(done.stdout.strip().splitlines()[-1])


def rule(line: dict[str, Any], steps: int) -> float:
    """The target that a pilot's curve gives: its last bits a byte up to two thirds of the schedule, rounded up."""
    within = [point["bits_per_byte"] for point in line["curve"] if point["step"] <= steps * PILOT_SHARE]
    return math.ceil(within[-1] * 100) / 100


def train(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The lines of all trainings, as they end."""
    if given.pilot:
        line = run_reference(given, PILOT_SEED, False, None)
        steps = parameters(given.preset, given.tiny)["max_steps"]
        yield line | ({} if "error" in line else {"pilot": True, "target_by_rule": rule(line, steps)})
        return
    target = default_target(given.preset) if given.target is None else given.target
    for compiled in {"eager": (False,), "compiled": (True,), "both": (False, True)}[given.variant]:
        for seed in range(given.first_seed, given.first_seed + given.seeds):
            yield run_reference(given, seed, compiled, target)


def our_runs(folder: Path) -> list[dict[str, Any]]:
    """The runs of every result.json below `folder`; times are absent where the target was not met."""
    found = []
    for path in sorted(folder.rglob("result.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        target = next((check["threshold"] for check in result["checks"] if check["name"] == "quality"), None)
        for run in result["runs"]:
            metrics, whole = run["metrics"], run["metrics"].get("time_to_train_s")
            evaluating = run["ledger"].get("eval", 0.0)
            found.append(
                {
                    "id": result["id"], "seed": run["seed"], "target": target, "outcome": run["outcome"]["status"],
                    "compiled": result["params"]["compile"], "steps": metrics.get("steps"), "time_to_train_s": whole,
                    "without_evaluation_s": None if whole is None else whole - evaluating, "curve": run["curve"],
                    "device": (run["environment"].get("device") or {}).get("type"),
                }
            )  # fmt: skip
    if not found:
        raise SystemExit(f"--ours {folder}: no result.json with a run in it; name the --results folder of pytest suite")
    return found


def reference_lines(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """The JSON lines of the files; other lines, as of a shell's log, are passed by."""
    lines = []
    for path in paths:
        if not path.is_file():
            raise SystemExit(f"--reference {path}: no such file; name what the trainings of this script printed")
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if text.startswith("{"):
                try:
                    lines.append(json.loads(text))
                except json.JSONDecodeError:
                    raise SystemExit(f"--reference {path}:{number}: a torn line; remove it, or train anew") from None
    return lines


def check_training(given: argparse.Namespace) -> None:
    """Leaves with one sentence, before anything is trained, where no training could be made."""
    if given.data_dir is None or not given.data_dir.is_dir():
        what = "is needed" if given.data_dir is None else f"is {given.data_dir}, which is no folder"
        raise SystemExit(f"--data-dir DIR {what}: name the folder that python -m tools data prepare gpt3 wrote")
    presets = tomllib.loads(CASE.read_text(encoding="utf-8"))["preset"]
    if given.preset not in presets:
        raise SystemExit(f"--preset {given.preset}: gpt3/pytorch has no such preset (have: {', '.join(presets)})")
    if given.seeds < 1:
        raise SystemExit(f"--seeds {given.seeds}: at least one training is needed")
    for name in PACKAGES:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            raise SystemExit(f"{name} is not installed, the reference needs it: pip install -e '.[local,hf]'") from None


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean of theirs / ours (above 1: ours is sooner), with 95 %: Welch's t of the logarithms."""
    from suite.convergence import student_t

    a, b = [math.log(x) for x in theirs], [math.log(x) for x in ours]
    middle = fmean(a) - fmean(b)
    if min(len(a), len(b)) < 2:
        return math.exp(middle), math.nan, math.nan
    parts = [(variance(values) / len(values), len(values) - 1) for values in (a, b)]
    error = sum(part for part, _ in parts)
    # Rounded down, so that the interval is rather too wide.
    freedom = max(1, int(error**2 / sum(part**2 / n for part, n in parts))) if error else sum(n for _, n in parts)
    slack = student_t(0.975, freedom) * math.sqrt(error)
    return math.exp(middle), math.exp(middle - slack), math.exp(middle + slack)


def compare(ours: list[dict[str, Any]], lines: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One line a pair of variants: ratios of both times. Runs to another target, or that missed it, are said."""
    kinds = (False, True)
    if not any(not line.get("pilot") and line.get("compiled") in kinds for line in lines):
        yield {"error": "--reference holds no trainings: name the files that this script's lines went to"}
    for mine in kinds:
        for compiled in kinds:
            left = [run for run in ours if run["compiled"] is mine]
            right = [line for line in lines if line.get("compiled") is compiled and not line.get("pilot")]
            if left and right:
                yield {"ours_compiled": mine, "reference_compiled": compiled} | _pair(left, right)


def _pair(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> dict[str, Any]:
    targets = sorted({float(run["target"]) for run in (*ours, *theirs) if run["target"] is not None})
    if len(targets) != 1:
        return {"error": f"targets {targets}: only runs to one target are compared"}
    devices = sorted({str(run["device"]).partition(":")[0] for run in (*ours, *theirs)})
    if len(devices) != 1:
        return {"error": f"devices {', '.join(devices)}: only runs on one kind are compared"}
    missed = [sum(run.get("time_to_train_s") is None for run in side) for side in (ours, theirs)]
    line: dict[str, Any] = {"target": targets[0], "runs": [len(ours), len(theirs)], "missed": missed}
    if any(missed):
        return line | {"error": "runs that missed the target, or failed, have no time: no ratio"}
    for name in TIMES:
        pair = [[run[name] for run in side] for side in (ours, theirs)]
        middle, low, high = ratio(*pair)
        interval = [low, high] if math.isfinite(low) else None
        line[name] = {"ours": pair[0], "reference": pair[1], "ratio": middle, "interval_95": interval}
    line["steps"] = [[run["steps"] for run in side] for side in (ours, theirs)]
    return line


def main(argv: list[str] | None = None) -> int:
    """Train the reference, or compare. Returns 0, 1 where a line is an error."""
    given = _parser().parse_args(argv)
    if given.ours:
        if not given.reference:
            raise SystemExit("--ours needs --reference FILE: what the trainings of this script printed")
        lines = compare(our_runs(given.ours), reference_lines(given.reference))
    else:
        check_training(given)
        lines = train(given)
    failed = False
    for line in lines:
        failed |= "error" in line
        print(json.dumps(line), flush=True)
    return int(failed)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="the data folder of the case")
    parser.add_argument("--preset", default="124m_text")
    parser.add_argument("--target", type=float, help="bits a byte (default: the case's)")
    parser.add_argument("--pilot", action="store_true", help="the whole schedule, for the target")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--variant", choices=("eager", "compiled", "both"), default="both")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--micro-batch", type=int, default=0, help="sequences at once (default: the global batch)")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds of one training")
    parser.add_argument("--tiny", action="store_true", help="a toy, to try this script")
    parser.add_argument("--ours", type=Path, metavar="RESULTS", help="compare: results of pytest suite")
    parser.add_argument("--reference", type=Path, nargs="+", metavar="FILE", help="compare: lines of this script")
    return parser


if __name__ == "__main__":
    sys.exit(main())
