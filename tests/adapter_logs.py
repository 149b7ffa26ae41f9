"""Logs for the tests of the adapters: lines as scripts print them, and how they are fed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from suite.drivers.scripts.adapters import ADAPTERS, adapter_of
from suite.drivers.scripts.adapters.course import Event
from suite.drivers.scripts.adapters.reader import LogReader

BATCH = "Total train batch size (w. parallel, distributed & accumulation)"

ALMA = (
    "[INFO|trainer.py:1777] 2024-03-12 01:36:28,535 >> ***** Running training *****",
    "[INFO|trainer.py:1778] 2024-03-12 01:36:28,535 >>   Num examples = 15,406",
    "[INFO|trainer.py:1779] 2024-03-12 01:36:28,535 >>   Num Epochs = 8",
    "[INFO|trainer.py:1780] 2024-03-12 01:36:28,535 >>   Instantaneous batch size per device = 12",
    f"[INFO|trainer.py:1781] 2024-03-12 01:36:28,535 >>   {BATCH} = 960",
    "[INFO|trainer.py:1782] 2024-03-12 01:36:28,535 >>   Gradient Accumulation steps = 10",
    "[INFO|trainer.py:1783] 2024-03-12 01:36:28,535 >>   Total optimization steps = 128",
    "[INFO|trainer.py:1784] 2024-03-12 01:36:28,537 >>   Number of trainable parameters = 7,733,248",
)
"""The guide's ALMA run on one node."""

ALMA_END = "100%|██████████| 128/128 [27:08<00:00, 12.71s/it][INFO|trainer.py:2044] 2024-03-12 02:03:37,121 >>"

ALMA_TWO_NODES = (
    "[INFO|trainer.py:1777] 2024-03-12 02:35:30,971 >> ***** Running training *****",
    "[INFO|trainer.py:1778] 2024-03-12 02:35:30,971 >>   Num examples = 15,406",
    "[INFO|trainer.py:1779] 2024-03-12 02:35:30,971 >>   Num Epochs = 8",
    "[INFO|trainer.py:1780] 2024-03-12 02:35:30,971 >>   Instantaneous batch size per device = 12",
    f"[INFO|trainer.py:1781] 2024-03-12 02:35:30,971 >>   {BATCH} = 1,920",
    "[INFO|trainer.py:1782] 2024-03-12 02:35:30,971 >>   Gradient Accumulation steps = 10",
    "[INFO|trainer.py:1783] 2024-03-12 02:35:30,971 >>   Total optimization steps = 64",
    "[INFO|trainer.py:1784] 2024-03-12 02:35:30,973 >>   Number of trainable parameters = 7,733,248",
)
"""The same on two."""

NEMO = (
    "Epoch 0: :   2%|▏         | 180/10050 [40:46<37:16:04, v_num=m9yd, reduced_train_loss=5.640, "
    "global_step=179.0, consumed_samples=92160.0, train_step_timing in s=13.40]"
)
"""The guide's progress line."""

TRAINER = (
    "[transformers] ***** Running training *****",
    "[transformers]   Num examples = 160",
    "[transformers]   Num Epochs = 2",
    "[transformers]   Num update steps per epoch = 20",
    "[transformers]   Instantaneous batch size per device = 4",
    f"[transformers]   {BATCH} = 8",
    "[transformers]   Gradient Accumulation steps = 2",
    "[transformers]   Total optimization steps = 40",
    "[transformers]   Number of trainable parameters = 10",
)
"""transformers 5, one process."""

EVALUATION = (
    "{'eval_loss': '0.7388', 'eval_accuracy': '0.5', 'eval_runtime': '0.0937', "
    "'eval_samples_per_second': '427.1', 'eval_steps_per_second': '53.38', 'epoch': '0.5'}"
)
SUMMARY = "{'train_runtime': '1.186', 'train_samples_per_second': '269.8', 'train_loss': '0.7667', 'epoch': '2'}"


def bar(step: int, total: int, rest: str = ", 2.00s/it", title: str = "") -> str:
    """One drawing of a bar, as tqdm makes it."""
    return f"{title}{step * 100 // total:3d}%|██        | {step}/{total} [00:{step % 60:02d}<00:10{rest}]"


def trainer_log() -> bytes:
    """A whole run of transformers 5 as its bytes: bars by carriage returns, an evaluation in the middle, sequences."""
    parts = ["\r\n".join(TRAINER), "\n"]
    parts += [f"\r{bar(step, 40)}" for step in (0, 1, 5, 10)]
    parts += ["\r" + " " * 40 + "\r\n", "{'loss': '0.6758', 'grad_norm': '0.3455', 'epoch': '0.5'}\n"]
    parts += [
        f"\r{bar(10, 40)}",
        "[transformers] \n***** Running Evaluation *****\n[transformers]   Num examples = 39\n",
    ]
    parts += ["[transformers]   Batch size = 8\n\n\r", bar(0, 5), "\x1b[A\r\n", EVALUATION, "\n\r", bar(10, 40), "\n\r"]
    parts += [bar(5, 5), "\x1b[A", f"\r{bar(11, 40)}", f"\r{bar(20, 40)}", f"\r{bar(33, 40)}", f"\r{bar(40, 40)}"]
    parts += ["[transformers] \n\nTraining completed. Do not forget to share your model\n\n\n\r\n", SUMMARY, "\n"]
    return "".join(parts).encode("utf-8")


def read(names: str | Sequence[str], lines: Iterable[str], *, code: int = 0, **more: int) -> list[Event]:
    """The events of these lines, one a second from t = 1, the end included."""
    kinds = [names] if isinstance(names, str) else list(names)
    adapter = adapter_of(kinds, **more)
    told = [event for t, line in enumerate(lines, 1) for event in adapter.feed(line, float(t))]
    return told + adapter.finish(code, 1000.0)


def read_bytes(name: str, data: bytes, cuts: Sequence[int] = (), *, code: int = 0) -> list[Event]:
    """The events of a log that arrives in pieces, all at one time: what is left out is only when it came."""
    reader = LogReader(ADAPTERS[name]())
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < len(data)}), len(data)]
    told = [event for a, b in pairwise(edges) for event in reader.feed(data[a:b], 1.0)]
    return told + reader.finish(code, 1.0)


def named(events: Iterable[Event], name: str) -> list[Event]:
    """The events of that name."""
    return [event for event in events if event["event"] == name]
