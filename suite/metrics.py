"""Every metric, declared once: name, unit, direction, meaning. The case's own quality metric joins by `metric_of`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from suite.plan import Better, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A number computed by the harness from events."""

    name: str
    """With its unit where it has one."""
    unit: str
    better: Better
    description: str


def _declare(*rows: tuple[str, str, Better, str]) -> Mapping[str, Metric]:
    return {
        name: Metric(name=name, unit=unit, better=better, description=description)
        for name, unit, better, description in rows
    }


METRICS: Mapping[str, Metric] = _declare(
    ("time_to_train_s", "s", "lower", "run_start to the first evaluation that meets the target, evaluations included"),
    ("time_to_train_resolution_s", "s", "lower", "time between the meeting evaluation and the one before it"),
    ("init_s", "s", "lower", "rank 0's header to init_stop: building model, optimizer and process group"),
    ("throughput_whole", "samples/s", "higher", "samples of all ranks over run_start to the end of training"),
    ("throughput_train", "samples/s", "higher", "samples of all ranks over the slowest rank's time, steady steps only"),
    ("throughput_core", "samples/s", "higher", "throughput_train without the time spent waiting for data"),
    ("tokens_per_s", "tokens/s", "higher", "real tokens of all ranks, timed as throughput_train"),
    ("epoch_time_s", "s", "lower", "median duration of a whole epoch, evaluations included"),
    (
        "step_time_s",
        "s",
        "lower",
        "mean step of the whole run, warm-up, compilation and waits for data included, each on its slowest rank",
    ),
    ("step_time_median_s", "s", "lower", "median steady step, each step timed on its slowest rank"),
    (
        "step_time_stated_s",
        "s",
        "lower",
        "step time in the log's own words: median of the steady steps' timings, else the mean of the finished bar",
    ),
    ("train_runtime_s", "s", "lower", "length of training in the script's own words"),
    ("step_time_p95_s", "s", "lower", "95th percentile of the same"),
    ("step_time_p99_s", "s", "lower", "99th percentile of the same"),
    ("step_time_max_s", "s", "lower", "slowest steady step"),
    ("step_time_cv", "", "lower", "standard deviation of the steady steps over their mean"),
    ("step_time_drift", "", "lower", "last third of the steady steps over the first, minus one"),
    ("data_wait_fraction", "", "lower", "share of the steady steps' time spent waiting for data, all ranks"),
    ("rank_spread", "", "lower", "largest over median of the ranks' median steps: the straggler index"),
    (
        "rank_imbalance",
        "",
        "lower",
        "forward time of the slowest rank over the median of the others: who makes the others wait in the exchange",
    ),
    ("mfu", "", "higher", "model FLOP at throughput_train over the devices' dense peak at the compute dtype"),
    ("memory_peak_gib", "GiB", "lower", "peak device memory of rank 0, or the most that the monitor saw on one device"),
    (
        "power_mean_w",
        "W",
        "lower",
        "mean power of all devices together while training; throughput: in the steady steps",
    ),
    ("energy_j", "J", "lower", "energy of all devices while training; throughput: in the steady steps"),
    ("energy_per_sample_j", "J", "lower", "energy_j over the samples trained in that time"),
    ("gpu_utilisation_mean", "%", "higher", "mean utilisation of the devices in the same time"),
    ("samples_to_target", "samples", "lower", "samples of all ranks up to the first evaluation that meets the target"),
    ("samples_trained", "samples", "lower", "samples of all ranks, earlier segments of a resumed run included"),
    ("steps", "steps", "lower", "optimizer steps, earlier segments included"),
    ("optimizer_steps", "steps", "lower", "steps that changed the model: none that the loss scaler skipped"),
    ("global_batch", "samples", "lower", "samples of one optimizer step over all ranks and micro-batches"),
    ("trainable_parameters", "", "lower", "parameters that the optimizer may change, as rank 0 counted them"),
    ("skipped_steps", "steps", "lower", "steps that the loss scaler skipped, on rank 0"),
    ("epochs", "epochs", "lower", "epochs begun"),
    ("quality_best", "", "higher", "best evaluation of the case's own metric"),
    ("requality", "", "higher", "last evaluation of the run, made again from its final checkpoint by our own code"),
    ("requality_gap", "", "lower", "how far that is from what the run said"),
    ("ranks_in_sync", "", "higher", "1 if all replicas ended with equal parameters, 0 if not"),
    ("speedup", "x", "higher", "the case's speedup metric over its base's"),
    ("efficiency", "", "higher", "speedup over the ratio of device counts"),
    ("unaccounted_over", "s", "lower", "unaccounted time of rank 0 above max(2 %, 1 s); negative: within"),
)


def metric_of(plan: Plan, name: str) -> Metric:
    """The declaration of `name` for this plan: rates in its samples' unit, quality in the case's unit and direction."""
    quality = plan.quality
    if name in ("quality_best", quality.metric):
        meaning = "best" if name == "quality_best" else "last"
        description = f"{meaning} evaluation of {quality.metric}"
        return Metric(name=name, unit=quality.unit, better=quality.better, description=description)
    known = METRICS.get(name)
    if known is not None and name in ("requality", "requality_gap"):
        better = quality.better if name == "requality" else known.better
        return Metric(name=name, unit=quality.unit, better=better, description=known.description)
    if known is None:
        return Metric(name=name, unit="", better="higher", description="declared by the case")
    if known.unit == "samples/s":
        return Metric(name=name, unit=f"{plan.samples_unit}/s", better=known.better, description=known.description)
    return known
