"""The two checks against a case's reference convergence points: no faster than luck explains, and no slower."""

from __future__ import annotations

from suite.convergence import LEAST_RUNS, limits, reference_at, trimmed
from suite.errors import UsageProblem
from suite.layers import Layers
from suite.plan import Check
from suite.spec import ReferencePoint
from suite.topology import Topology

TOO_GOOD, TOO_SLOW = "too_good", "too_slow"
BOTH_SIDES = frozenset({TOO_GOOD, TOO_SLOW})
METRIC = "samples_to_target"


def convergence_checks(layers: Layers, topology: Topology, repeat: int, samples_unit: str) -> list[Check]:
    """Both checks; none where the case ships no points, or for fewer runs than the statistics need.

    Raises UsageProblem for two points of one global batch.
    """
    points, origin = layers.reference_points
    batch = _global_batch(layers, topology)
    if not points or repeat < LEAST_RUNS or batch is None:
        return []
    _check_distinct(points, origin)
    reference = reference_at([(point.global_batch, trimmed(point.samples)) for point in points], batch)
    if reference is None:
        return []
    cadence = layers.params.get("eval_every_samples", 0)
    resolution = float(cadence) if isinstance(cadence, int) and not isinstance(cadence, bool) else 0.0
    fewest, most = limits(reference, repeat, resolution)
    source = f"reference runs at a global batch of {batch}, mean {reference.mean:.6g}: " + "; ".join(
        dict.fromkeys(point.source for point in points)
    )
    shared = {"metric": METRIC, "unit": samples_unit, "required": True, "source": source, "origin": origin}
    return [
        Check.model_validate({"name": TOO_GOOD, "op": ">=", "threshold": round(fewest, 3), **shared}),
        Check.model_validate({"name": TOO_SLOW, "op": "<=", "threshold": round(most, 3), **shared}),
    ]


def _global_batch(layers: Layers, topology: Topology) -> int | None:
    """Samples of one optimizer step; None where the case does not say."""
    batch, steps = layers.params.get("train_batch_size"), layers.params.get("gradient_accumulation_steps", 1)
    if not isinstance(batch, int) or not isinstance(steps, int):
        return None
    return batch * steps * topology.world_size


def _check_distinct(points: tuple[ReferencePoint, ...], origin: str) -> None:
    batches = [point.global_batch for point in points]
    for batch in batches:
        if batches.count(batch) > 1:
            raise UsageProblem(
                f"{origin}: two [[reference_points]] have global_batch = {batch}; put their samples into one"
            )
