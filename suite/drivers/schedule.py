"""Learning rates: a pure function of the step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from suite.drivers.events import RunProblem

NAMES = ("constant", "linear", "cosine", "inverse_sqrt", "step", "milestones", "poly")


class Schedule:
    """`schedule(step)` is the factor on every group's learning rate at the optimizer step `step`, counted from 0."""

    def __init__(self, params: Mapping[str, Any], global_batch: int) -> None:
        self.name: str = params["lr_schedule"]
        if self.name not in NAMES:
            raise RunProblem(f"lr_schedule = {self.name!r} is not one of {', '.join(NAMES)}: change params.lr_schedule")
        self.total: int = params["schedule_steps"] or max(1, math.ceil(params["max_samples"] / global_batch))
        self.warmup: int = params["warmup_steps"] or round(params["warmup_ratio"] * self.total)
        self.floor: float = params["lr_min_ratio"] if self.name in ("linear", "cosine") else 0.0
        if self.name == "poly":
            self.power: float = params["lr_power"]
        if self.name == "step":
            self.every, self.gamma = params["lr_step_every"], params["lr_step_gamma"]
            if self.every < 1:
                raise RunProblem(f"lr_step_every = {self.every} must be at least 1: change params.lr_step_every")
        if self.name == "milestones":
            self.gamma = params["lr_gamma"]
            self.milestones = [samples / global_batch for samples in params["lr_milestones"]]

    def __call__(self, step: int) -> float:
        if step < self.warmup:
            return (step + 1) / self.warmup
        if self.name == "constant":
            return 1.0
        if self.name == "inverse_sqrt":
            return math.sqrt(max(1, self.warmup) / (step + 1))
        if self.name == "step":
            return float(self.gamma ** (step // self.every))
        if self.name == "milestones":
            return float(self.gamma ** sum(step >= milestone for milestone in self.milestones))
        if self.name == "poly":  # of all steps, warm-up included: it begins below 1, as NGC's BERT does
            return float((1 - min(1.0, step / self.total)) ** self.power)
        progress = min(1.0, (step - self.warmup) / max(1, self.total - self.warmup))
        share = 1 - progress if self.name == "linear" else (1 + math.cos(math.pi * progress)) / 2
        return self.floor + (1 - self.floor) * share
