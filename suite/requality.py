"""The quality evaluated again from a run's final checkpoint: what was found, and the check that holds the run to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path

from suite.artifacts import file_digest
from suite.consistency import check_seals
from suite.curve import points
from suite.events import BadEvents, Event, finite, is_plain_file
from suite.harness_log import bad_exit, read_harness, read_object
from suite.measurement import Missing, Point
from suite.plan import Check, Plan, Quality
from suite.rank_stream import read_stream
from suite.rounding import alike
from suite.run_folders import newest_attempts

FOLDER = "requality"
"""In a plan's folder: run folders of evaluations alone, `r1` for the newest attempt of repeat 1."""
CHECKPOINT = Path("checkpoints") / "latest.pt"
"""In a run folder: the model that its last evaluation was about."""
DEFAULT_SHARE = 0.01
"""Of the target, where the case states no absolute difference: another device and full precision move a few answers."""

VALUE, GAP = "requality", "requality_gap"


def requality_check(quality: Quality) -> Check:
    """The last evaluation of a run must be what its model is worth, whoever asks."""
    allowed = quality.requality_within
    return Check(
        name=VALUE,
        metric=GAP,
        op="<=",
        threshold=round(DEFAULT_SHARE * abs(quality.target), 12) if allowed is None else allowed,
        unit=quality.unit,
        required=True,
        source=f"{quality.metric} of the final checkpoint, evaluated again by this project's own code",
    )


def with_requality(plan: Plan, folder: Path) -> Plan:
    """`plan` with the check, if its models were evaluated again, or somebody tried."""
    again = plan.mode == "converge" and (folder / FOLDER).is_dir()
    if not again or any(check.name == VALUE for check in plan.checks):
        return plan
    return plan.model_copy(update={"checks": (*plan.checks, requality_check(plan.quality))})


def add_requality(
    plan: Plan,
    run_dir: Path,
    curve: Sequence[Point],
    numbers: MutableMapping[str, float],
    missing: MutableMapping[str, Missing],
    last: Event | None,
) -> None:
    """The value found for this run, and how far it is from what the run said; else the reason.

    `last`: the run's last eval_result. Raises BadEvents where it did not ask what a whole evaluation asks.
    """
    if not any(check.name == VALUE for check in plan.checks):
        return
    try:
        value, again = _found(plan, run_dir, curve)
    except BadEvents as problem:
        missing[VALUE] = missing[GAP] = Missing(category="not_measured", reason=str(problem))
        return
    if last is not None:
        same_set(plan.quality.metric, last, again)
    said = curve[-1].value
    numbers[VALUE] = value
    if isinstance(said, str):
        missing[GAP] = Missing(category="not_measured", reason=f"the run's own last evaluation is {said}")
    else:
        numbers[GAP] = abs(value - said)


def same_set(metric: str, last: Event, again: Event) -> None:
    """The run's evaluation was of as many things as the one made again, and of the same. Raises BadEvents."""
    part, whole = (finite(mark.table("counted").get(metric)) for mark in (last, again))
    # Weights that are not whole numbers are added rank by rank, and by another number of ranks here.
    if part is not None and whole is not None and not alike(part, whole):
        raise BadEvents(f"the run's last evaluation counted {part:g}, the whole evaluation set is {whole:g}")
    if again.has("asked") and last.data.get("asked") != again.data["asked"]:
        raise BadEvents("the run's last evaluation asked other questions than the evaluation made again, or tells none")


def _found(plan: Plan, run_dir: Path, curve: Sequence[Point]) -> tuple[float, Event]:
    """(the value, its eval_result). Raises BadEvents with the reason why there is none."""
    folder = next((path for path in newest_attempts(run_dir.parent / FOLDER) if _evaluates(path, run_dir)), None)
    if folder is None:
        raise BadEvents(f"nobody has evaluated the final checkpoint of {run_dir.name} again")
    harness = read_harness(folder)
    if harness.ended is None or harness.ended.status != "passed":
        told = harness.ended.reason if harness.ended is not None else "nothing says how it ended"
        raise BadEvents(f"the evaluation of {run_dir.name} in {FOLDER}/{folder.name} did not succeed: {told}")
    if (left := bad_exit(folder, 1)) is not None:
        raise BadEvents(f"the evaluation of {run_dir.name} did not end well: {left[1]}")
    check_seals(folder, harness.seals)
    _same_checkpoint(run_dir, folder)
    stream = read_stream(folder / "events" / "rank0.jsonl", 0)
    if stream.stop is None or stream.stop.text("status") != "success":
        raise BadEvents(f"the evaluation of {run_dir.name} has no end in its events")
    again = points(plan, stream)
    if not again or not curve:
        raise BadEvents(f"{'the evaluation' if curve else 'the run'} {run_dir.name} holds no value")
    if again[-1].step != curve[-1].step:
        raise BadEvents(
            f"the checkpoint of {run_dir.name} is of step {again[-1].step}, its last evaluation of {curve[-1].step}"
        )
    value = again[-1].value
    if isinstance(value, str) or not math.isfinite(value):
        raise BadEvents(f"the final checkpoint of {run_dir.name} evaluates to {value}")
    return value, stream.all("eval_result")[-1]


def _evaluates(folder: Path, run_dir: Path) -> bool:
    return _told(folder).get("folder") == run_dir.name


def _told(folder: Path) -> Mapping[str, object]:
    """What run.json of an evaluation says of the model: `{folder, sha256}`."""
    told = read_object(folder / "run.json").get("evaluates")
    return told if isinstance(told, dict) else {}


def _same_checkpoint(run_dir: Path, folder: Path) -> None:
    """Raise BadEvents where the run's checkpoint is no longer the one that was evaluated; without one, nothing is."""
    path = run_dir / CHECKPOINT
    if is_plain_file(path) and file_digest(path) != _told(folder).get("sha256"):
        raise BadEvents(f"{run_dir.name}/{CHECKPOINT}: not the file that was evaluated again")
