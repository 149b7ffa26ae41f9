"""Every way to break a run on purpose: where, and the outcome that must follow. Standard library only.

One table: the choices of `--sabotage`, the drivers' seams, the tests and docs/sabotage.md all read it.
"""

from __future__ import annotations

from typing import NamedTuple

EVERY_DRIVER = ("pytorch", "tensorflow2", "paddle")


class Sabotage(NamedTuple):
    """One of them."""

    name: str
    what: str
    """What the run does wrong, for a person."""
    status: str
    category: str
    """How it must end."""
    told_by: str
    """The evidence that tells it."""
    mode: str = "converge"
    """In which it must be told."""
    frameworks: tuple[str, ...] = EVERY_DRIVER
    """Whose driver knows it."""
    ranks: int = 1
    """The fewest that it needs."""
    needs: str = ""
    """`accumulation`: of two micro-batches or more; `repeats`: two runs; `requality`: the quality evaluated again;
    `imbalance`, `throughput`: a check of the vendor's that is named so."""


_VOID = ("failed", "invalid_measurement")

TABLE = (
    Sabotage("lr_zero", "the learning rate is 0", "failed", "quality", "the target"),
    Sabotage(
        "labels_shuffled",
        "labels are permuted within each micro-batch",
        *("failed", "quality", "the target"),
    ),
    Sabotage(
        "gradients_not_averaged",
        "the ranks exchange no gradients",
        *("failed", "ranks_diverged", "checksums of the ranks' parameters"),
        ranks=2,
    ),
    Sabotage(
        "rank_frozen",
        "the last rank steps with a learning rate of 0",
        *("failed", "ranks_diverged", "checksums of the ranks' parameters"),
        ranks=2,
    ),
    Sabotage("eval_in_train_mode", "the model is evaluated in training mode", *_VOID, "`training` of `eval_result`"),
    Sabotage(
        "eval_on_train_data",
        "the evaluation asks what was trained on",
        *_VOID,
        "`asked` of `eval_result`, against the target's own and the evaluation made again",
    ),
    Sabotage(
        "eval_tenth",
        "a tenth of the evaluation set is asked",
        *_VOID,
        "`counted` of `eval_result`, against the target's own and the evaluation made again",
    ),
    Sabotage("metric_reversed", "the ranks hold the metric's other direction for the better one", *_VOID,
             "`met` of `eval_result`, against value and target"),
    Sabotage("data_repeated", "one micro-batch is trained on again and again", *_VOID, "`repeated` of `steps`",
             mode="both"),
    Sabotage("ranks_share_data", "every rank trains on the data of rank 0", *_VOID, "`data` of `steps`, rank by rank",
             mode="both", ranks=2),
    Sabotage("last_batch_dropped", "the last batch of an epoch is not trained on, but counted", *_VOID,
             "samples of each window against its steps"),
    Sabotage("accumulation_as_steps", "each micro-batch counts as a step", *_VOID, "samples against steps",
             mode="both", needs="accumulation"),
    Sabotage("samples_twice", "every sample counts twice", *_VOID, "samples against steps", mode="both"),
    Sabotage("rank_rate_as_total", "the samples of rank 0 are told as those of all", *_VOID, "samples against steps",
             mode="both", ranks=2),
    Sabotage("timer_unsynchronised", "a step's clock is read when its work is handed over, not when it is done", *_VOID,
             "windows must touch", mode="both"),
    Sabotage("warmup_in_init", "twenty steps are trained before the clock starts", *_VOID, "`updates` of `steps`",
             mode="both"),
    Sabotage("skipped_steps_counted", "every second optimizer step is left out, but counted", *_VOID,
             "`updates` of `steps`", mode="both"),
    Sabotage("precision_lowered", "bf16 is switched on behind the header's back", *_VOID,
             "`precision` of `checksum`, against the header", mode="both",
             frameworks=("pytorch", "tensorflow2")),
    Sabotage("slow_rank", "the last rank takes 10 % longer for each step", "failed", "check",
             "a vendor's check of `rank_imbalance`", mode="throughput", ranks=2, needs="imbalance",
             frameworks=("pytorch", "paddle")),
    Sabotage("thermal_slowdown", "steps grow slower and slower, in the end four times as slow", "inconclusive",
             "no_steady_state", "drift of the step times, where a throughput is demanded", mode="throughput",
             needs="throughput"),
    Sabotage("half_devices", "half of the ranks leave, the others train as if they were all", "error", "environment",
             "the ranks' own view of the world, against the plan", mode="both", ranks=2),
    Sabotage("seed_reused", "every repeat trains with one seed", *_VOID, "losses and data of the repeats",
             mode="both", needs="repeats"),
    Sabotage("events_forged", "an evaluation that never was is written into the stream", *_VOID,
             "marks of evaluations"),
    Sabotage("quality_forged", "the evaluation answers what the target wants", *_VOID,
             "the final checkpoint, evaluated again", needs="requality"),
)  # fmt: skip

BY_NAME = {sabotage.name: sabotage for sabotage in TABLE}


def known_to(framework: str) -> tuple[str, ...]:
    """Names that the driver of `framework` can break."""
    return tuple(sabotage.name for sabotage in TABLE if framework in sabotage.frameworks)


def misfit(name: str, *, framework: str, ranks: int, accumulation: int, mode: str, repeat: int) -> str | None:
    """Why a run of this shape cannot be broken so, as the end of a sentence; None: it can."""
    sabotage = BY_NAME[name]
    if framework not in sabotage.frameworks:
        return f"is not built into the driver of {framework} (has: {', '.join(known_to(framework)) or 'none'})"
    if ranks < sabotage.ranks:
        return f"needs {sabotage.ranks} ranks, but the plan has {ranks}: name a larger --topology"
    if sabotage.needs == "accumulation" and accumulation < 2:
        return "needs micro-batches to accumulate: add --set gradient_accumulation_steps=2"
    if sabotage.needs == "repeats" and repeat < 2:
        return "needs two runs: add --repeat 2"
    if sabotage.mode not in ("both", mode):
        return f"shows in mode {sabotage.mode} only: add --mode {sabotage.mode}"
    return None
