"""One training of transformers' GPT2LMHeadModel by its Trainer, to a target: time_to_train.py starts one a seed.

`python benchmarks/reference_gpt2_text.py JOB`, a JSON object: `params` of the case, `data_dir`, `seed`, `target` (bits
a byte, or null), `compiled`, `device`, `micro_batch`, `precision`. The last line it prints is a JSON object. Sizes of
the model, spread of its first weights, tokens and their order, batch, optimizer, rates, clipping and evaluations are
the case's.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, SequentialSampler
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "suite/cases/gpt3/pytorch"), str(ROOT)]

from data import Cutter, Place, read_tokens  # noqa: E402

from suite.drivers.schedule import Schedule  # noqa: E402


class Starts(Cutter):
    """Where the sequences begin that the case cuts, in its order."""

    def cut(self, tokens: np.ndarray, which: np.ndarray, offset: int = 0) -> Any:
        """The places instead of the tokens."""
        return offset + np.asarray(which, dtype=np.int64) * self.length


class Sequences(Dataset):
    """Rows of `length` tokens and the one after them, from `starts`."""

    def __init__(self, tokens: np.ndarray, starts: np.ndarray, length: int) -> None:
        self.tokens, self.starts, self.length = tokens, starts, length

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, number: int) -> np.ndarray:
        start = int(self.starts[number])
        return np.asarray(self.tokens[start : start + self.length + 1])


def collate(rows: list[np.ndarray]) -> dict[str, torch.Tensor]:
    """What the model is given; all `length` tokens are asked for, as the case does: labels need no shift."""
    block = torch.from_numpy(np.stack(rows).astype(np.int64))
    following = block[:, 1:].contiguous()
    return {"input_ids": block[:, :-1].contiguous(), "labels": following, "shift_labels": following}


def training_starts(params: dict[str, Any], tokens: np.ndarray, seed: int) -> np.ndarray:
    """The sequences of every step, in the order in which the case trains on them with this seed."""
    cutter, wanted = Starts(params["sequence_length"]), params["max_steps"] * params["global_batch_size"]
    found: list[np.ndarray] = []
    epoch = 0
    while sum(map(len, found)) < wanted:
        epoch += 1
        whole = {"seed": seed, "epoch": epoch, "batch_size": params["global_batch_size"], "place": Place(0, 1)}
        before = len(found)
        found += cutter.batches(tokens, skip=0, **whole)
        if len(found) == before:
            raise SystemExit(f"{len(tokens)} tokens hold no global batch of {params['global_batch_size']} sequences")
    return np.concatenate(found)[:wanted]


@dataclass
class Clock:
    """Seconds since the training began, and those of its evaluations."""

    device: torch.device
    began: float = 0.0
    evaluating: float = 0.0
    curve: list[dict[str, float]] = field(default_factory=list)

    def now(self) -> float:
        """Seconds since the beginning, the device's work done."""
        if self.device.type != "cpu":
            torch.get_device_module(self.device.type).synchronize()
        return time.perf_counter() - self.began


class Timed(Trainer):
    """The Trainer with the case's learning rate and order of the data, and a clock around its evaluations."""

    clock: Clock
    bits: float
    """Bits a byte for each nat a token, of the evaluated text."""
    target: float | None
    params: dict[str, Any]

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """The case's schedule."""
        factor = Schedule(self.params, self.params["global_batch_size"])
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer or self.optimizer, factor)
        return self.lr_scheduler

    def _get_train_sampler(self, *args: Any) -> SequentialSampler:
        return SequentialSampler(self.train_dataset)

    def evaluate(self, *args: Any, **named: Any) -> dict[str, float]:
        """As ever; its time is kept apart, the loss also told in bits a byte, and the target ends the training."""
        start = self.clock.now()
        metrics = super().evaluate(*args, **named)
        end = self.clock.now()
        self.clock.evaluating += end - start
        loss = float(metrics["eval_loss"])
        point = {"step": self.state.global_step, "t": end, "t_training": end - self.clock.evaluating}
        self.clock.curve.append(point | {"token_loss": loss, "bits_per_byte": loss * self.bits})
        print(json.dumps(self.clock.curve[-1]), file=sys.stderr, flush=True)
        if self.target is not None and loss * self.bits <= self.target:
            self.control.should_training_stop = True
        return metrics


def model_of(params: dict[str, Any]) -> GPT2LMHeadModel:
    """GPT-2 with the case's sizes and parameters; its GELU in one kernel, the same function as gelu_new but faster."""
    rows = -(-params["vocab_size"] // params["vocab_multiple"]) * params["vocab_multiple"]
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=rows, n_positions=params["sequence_length"], n_embd=params["hidden_size"],
            n_inner=params["feed_size"], n_layer=params["num_layers"], n_head=params["num_heads"],
            resid_pdrop=params["dropout"], embd_pdrop=params["dropout"], attn_pdrop=params["attention_dropout"],
            initializer_range=params["init_std"],
            activation_function="gelu_pytorch_tanh", use_cache=False, attn_implementation="sdpa",
            bos_token_id=None, eos_token_id=None,
        )
    )  # fmt: skip


def arguments_of(job: dict[str, Any], folder: str) -> TrainingArguments:
    """The Trainer's own options."""
    params, micro, host = job["params"], job["micro_batch"], job["device"] == "cpu"
    workers = 0 if host else params["num_workers"]
    return TrainingArguments(
        output_dir=folder, seed=job["seed"], use_cpu=host, bf16=job["precision"] == "bf16",
        torch_compile=job["compiled"], max_steps=params["max_steps"], per_device_train_batch_size=micro,
        per_device_eval_batch_size=micro, gradient_accumulation_steps=params["global_batch_size"] // micro,
        learning_rate=params["lr"], weight_decay=params["weight_decay"], adam_beta1=params["adam_beta1"],
        adam_beta2=params["adam_beta2"], adam_epsilon=params["adam_eps"], max_grad_norm=params["clip_grad_norm"],
        optim="adamw_torch" if host else "adamw_torch_fused", eval_strategy="steps",
        eval_steps=params["val_check_interval"], prediction_loss_only=True, logging_steps=params["log_freq"],
        save_strategy="no", report_to=[], disable_tqdm=True, remove_unused_columns=False,
        dataloader_num_workers=workers, dataloader_persistent_workers=workers > 0, dataloader_pin_memory=not host,
    )  # fmt: skip


def trainer_of(job: dict[str, Any], folder: str) -> Timed:
    """Everything but the training: the model lies on the device."""
    params, home = job["params"], Path(job["data_dir"])
    set_seed(job["seed"])
    model = model_of(params)
    corpus = read_tokens(home / params["train_data"], home / params["eval_data"], params["vocab_size"])
    length = params["sequence_length"]
    count = min(Cutter(length).count(corpus.held_out), params["eval_sequences"])
    asked = corpus.held_out[1 : count * length + 1]
    trainer = Timed(
        model=model,
        args=arguments_of(job, folder),
        data_collator=collate,
        train_dataset=Sequences(corpus.train, training_starts(params, corpus.train, job["seed"]), length),
        eval_dataset=Sequences(corpus.held_out, np.arange(count, dtype=np.int64) * length, length),
    )
    # All sequences are full: the mean of the micro-batches' means is the mean, whatever the version counts.
    trainer.model_accepts_loss_kwargs = False
    trainer.params, trainer.target, trainer.clock = params, job["target"], Clock(torch.device(job["device"]))
    trainer.bits = len(asked) / math.log(2) / int(corpus.byte_lengths[asked].sum(dtype=np.int64))
    return trainer


def train(job: dict[str, Any]) -> dict[str, Any]:
    """Train until the target or the last step. Returns times, steps and curves."""
    params = job["params"]
    if job["device"] != "cpu" and (visible := torch.get_device_module(job["device"]).device_count()) != 1:
        raise SystemExit(f"{visible} devices are visible, the Trainer would use all: leave one (CUDA_VISIBLE_DEVICES)")
    torch.set_float32_matmul_precision("high")
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(job, folder)
        clock = trainer.clock
        clock.now()  # what the device still does for the model's building
        clock.began = time.perf_counter()
        trainer.train()
        total = clock.now()
    last = clock.curve[-1]
    met = job["target"] is not None and last["bits_per_byte"] <= job["target"]
    tokens = last["step"] * params["global_batch_size"] * params["sequence_length"]
    losses = [[entry["step"], entry["loss"]] for entry in trainer.state.log_history if "loss" in entry]
    return {
        "met": met, "time_to_train_s": last["t"] if met else None,
        "without_evaluation_s": last["t_training"] if met else None, "steps": last["step"], "tokens": tokens,
        "token_loss": last["token_loss"], "bits_per_byte": last["bits_per_byte"],
        "tokens_per_s": tokens / last["t_training"], "train_s": total, "curve": clock.curve, "losses": losses,
        "parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
        "peak_gib": peak(job["device"]),
    }  # fmt: skip


def peak(device: str) -> float | None:
    """GiB of device memory at most; of the host nothing is known."""
    module = torch.get_device_module(device)
    return module.max_memory_allocated() / 2**30 if hasattr(module, "max_memory_allocated") else None


if __name__ == "__main__":
    print(json.dumps(train(json.loads(sys.argv[1]))), flush=True)
