"""Log adapters: what the logs of scripts say, and nothing that they do not say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from suite.drivers.events import encode
from suite.drivers.scripts.adapters import ADAPTERS, adapter_of
from suite.drivers.scripts.adapters.bars import bars_in
from suite.drivers.scripts.adapters.course import Event
from suite.drivers.scripts.adapters.hugging_face import TrainerLines
from suite.drivers.scripts.adapters.observed import EvaluationDone, Loss
from suite.rank_stream import read_stream
from tests.adapter_logs import (
    ALMA,
    ALMA_END,
    ALMA_TWO_NODES,
    EVALUATION,
    NEMO,
    SUMMARY,
    TRAINER,
    bar,
    named,
    read,
    read_bytes,
    trainer_log,
)

HEADER = {"schema": 1, "run": "r", "rank": 0, "world_size": 1, "t_mono": 0.5, "device": {}, "precision": {}}


def steps(events: list[Event]) -> list[tuple[object, object, object]]:
    """(first, count, samples) of every window."""
    return [(window["first"], window["count"], window.get("samples")) for window in named(events, "steps")]


def only(events: list[Event], name: str) -> Event:
    """The one event of that name."""
    (event,) = named(events, name)
    return event


# --- the guide's own excerpts


def test_alma_on_one_node_as_the_guide_prints_it() -> None:
    events = read("hf_trainer", [*ALMA, bar(0, 128), bar(64, 128), ALMA_END])
    assert only(events, "init_stop")["trainable"] == 7_733_248
    start = only(events, "run_start")
    assert (start["global_batch"], start["data_parallel"]) == (960, 8)
    assert steps(events) == [(1, 64, 64 * 960), (65, 64, 64 * 960)]
    assert len(named(events, "epoch_start")) == len(named(events, "epoch_stop")) == 8
    stop = only(events, "run_stop")
    assert (stop["status"], stop["step"], stop["samples"], stop["stated"]) == (
        "success",
        128,
        122_880,
        {"step_s": 12.71},
    )


def test_alma_on_two_nodes_has_half_the_steps_of_twice_the_batch() -> None:
    events = read("hf_trainer", [*ALMA_TWO_NODES, bar(0, 64), "100%|██████████| 64/64 [13:34<00:00, 12.72s/it]"])
    start, stop = only(events, "run_start"), only(events, "run_stop")
    assert (start["global_batch"], start["data_parallel"]) == (1920, 16)
    assert (stop["step"], stop["samples"]) == (64, 122_880)


@pytest.mark.parametrize(
    ("line", "total", "seconds", "step_s"),
    [
        ("100%|██████████| 128/128 [27:08<00:00, 12.72s/it]", 128, 1628, 12.72),
        ("100%|██████████| 64/64 [13:34<00:00, 12.73s/it]", 64, 814, 12.73),
        ("100%|██████████| 125/125 [09:22<00:00,  4.50s/it]", 125, 562, 4.50),
    ],
)
def test_the_last_bars_of_the_guide(line: str, total: int, seconds: float, step_s: float) -> None:
    (seen,) = bars_in(line)
    assert (seen.step, seen.total, seen.seconds, seen.step_s, seen.complete) == (total, total, seconds, step_s, True)


def test_the_progress_line_of_nemo() -> None:
    events = read("nemo", ["Epoch 0: :   0%|          | 0/10050 [00:00<?, ?it/s]", NEMO, "Time limit reached. Elapsed"])
    (window,) = named(events, "steps")
    assert (window["first"], window["count"], window["samples"]) == (1, 180, 92_160)
    assert (window["loss"], window["stated_s"]) == ([5.64], [13.4])
    assert only(events, "epoch_start")["epoch"] == 1
    assert named(events, "eval_result") == []  # v_num is no validation loss
    assert (only(events, "run_stop")["status"], only(events, "run_stop")["reason"]) == ("success", "limit")


def test_nemo_states_the_global_batch_by_what_was_consumed() -> None:
    line = bar(10, 2000, ", v_num=0, reduced_train_loss=9.1, global_step=9.0, consumed_samples=5120.0", "Epoch 0: :")
    events = read("nemo", [line, "`Trainer.fit` stopped: `max_steps=10` reached."])
    assert only(events, "run_start")["global_batch"] == 512
    assert steps(events) == [(1, 10, 5120)]


def test_vivit_s_trainer_state_tells_runtime_and_last_evaluation(tmp_path: Path) -> None:
    history = [
        {"epoch": 1.43, "grad_norm": 0.2679580748081207, "learning_rate": 3.7e-06, "loss": 0.0442, "step": 140},
        {"epoch": 1.5, "eval_accuracy": 1.0, "eval_loss": 0.0483052060008049, "eval_runtime": 14.0177, "step": 150},
        {"epoch": 1.5, "step": 150, "total_flos": 1.5e18, "train_loss": 0.5025620261828104, "train_runtime": 150.2643},
    ]
    adapter = adapter_of(["tqdm", "trainer_state"], batch=4, folders=[str(tmp_path)])
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": history, "max_steps": 150}))
    events = [e for t, step in enumerate((0, 70, 150)) for e in adapter.feed(bar(step, 150, ", loss=1.0"), float(t))]
    events += adapter.finish(0, 9.0)
    result, stop = only(events, "eval_result"), only(events, "run_stop")
    assert (result["step"], result["samples"]) == (150, 600)
    assert result["metrics"] == {"accuracy": 1.0, "loss": 0.0483052060008049}
    assert stop["stated"]["train_runtime_s"] == 150.2643  # type: ignore[index]


# --- transformers 5


def test_a_run_of_transformers_5_from_its_bytes() -> None:
    events = read_bytes("hf_trainer", trainer_log())
    assert only(events, "init_stop")["trainable"] == 10
    assert steps(events) == [(1, 1, 8), (2, 4, 32), (6, 5, 40), (11, 1, 8), (12, 9, 72), (21, 13, 104), (34, 7, 56)]
    result = only(events, "eval_result")
    assert (result["step"], result["samples"]) == (10, 80)
    assert result["metrics"] == {"loss": 0.7388, "accuracy": 0.5}
    assert [(e["event"], e["step"]) for e in events if str(e["event"]).startswith("eval_")] == [
        ("eval_start", 10),
        ("eval_result", 10),
        ("eval_stop", 10),
    ]
    stop = only(events, "run_stop")
    assert (stop["status"], stop["reason"], stop["step"], stop["samples"]) == ("success", "max_steps", 40, 320)
    assert stop["stated"] == {"step_s": 2.0, "train_runtime_s": 1.186}


def test_the_examples_of_an_evaluation_are_not_those_of_training() -> None:
    reader = TrainerLines()
    for line in (*TRAINER, "***** Running Evaluation *****"):
        reader.read(line)
    assert reader.read("[transformers]   Num examples = 39") == []


def test_both_spellings_of_a_dictionary_are_one() -> None:
    old, new = "{'loss': 2.4146, 'epoch': 0.07}", "{'loss': '2.4146', 'epoch': '0.07'}"
    assert TrainerLines().read(old) == TrainerLines().read(new)
    assert Loss(2.4146) in TrainerLines().read(old)


def test_an_evaluation_reports_measures_and_not_its_own_speed() -> None:
    (done,) = [said for said in TrainerLines().read(EVALUATION) if isinstance(said, EvaluationDone)]
    assert (done.metrics, done.seconds) == ({"loss": 0.7388, "accuracy": 0.5}, 0.0937)


def test_without_info_lines_the_batch_is_what_the_command_asked_for() -> None:
    lines = [bar(0, 40), bar(5, 40), bar(10, 40), bar(40, 40)]
    assert steps(read("tqdm", lines, batch=8)) == [(1, 10, 80), (11, 30, 240)]
    assert steps(read("tqdm", lines)) == [(1, 10, None), (11, 30, None)], "no batch: no samples, rather than zero"


def test_a_last_epoch_that_is_short_counts_the_examples_that_there_are() -> None:
    lines = [line.replace("= 160", "= 156") for line in TRAINER]
    events = read("hf_trainer", [*lines, bar(0, 40), bar(20, 40), bar(40, 40)])
    assert steps(events) == [(1, 20, 156), (21, 20, 156)]


def test_peft_s_own_count_of_trainable_parameters() -> None:
    line = "trainable params: 7,733,248 || all params: 6,746,148,864 || trainable%: 0.1146"
    events = read("hf_trainer", [line, bar(0, 10), bar(4, 10), bar(7, 10), bar(10, 10)])
    assert only(events, "init_stop")["trainable"] == 7_733_248


# --- bars


def test_a_bar_drawn_twice_counts_once() -> None:
    once = [*TRAINER, bar(0, 40), bar(7, 40), bar(40, 40)]
    twice = [*TRAINER, *(line for line in once[len(TRAINER) :] for _ in range(2))]
    assert steps(read("hf_trainer", twice)) == steps(read("hf_trainer", once)) == [(1, 7, 56), (8, 33, 264)]


def test_a_bar_that_goes_back_is_an_old_one() -> None:
    lines = [*TRAINER, bar(0, 40), bar(9, 40), bar(7, 40), bar(12, 40), bar(40, 40)]
    assert [window[:2] for window in steps(read("hf_trainer", lines))] == [(1, 9), (10, 3), (13, 28)]


@pytest.mark.parametrize(
    "line",
    [
        "100%|██████████| 128/128 [27:08<00:00, 12.7",
        "8/128 [27:08<00:00, 12.72s/it]",
        " 50%|█████     | 128/128 [27:08<00:00, 12.72s/it]",
        "100%|██████████| 129/128 [27:08<00:00, 12.72s/it]",
        "100%|██████████| 128/12  2%|▏         | 3/128 [27:",
        "100%",
    ],
)
def test_a_torn_or_mixed_bar_is_none(line: str) -> None:
    assert list(bars_in(line)) == []


@pytest.mark.parametrize(
    ("line", "step", "total", "seconds", "step_s", "values"),
    [
        ("128it [27:08, 12.72s/it]", 128, None, 1628, 12.72, {}),
        ("0it [00:00, ?it/s]", 0, None, 0, None, {}),
        ("5it [00:02,  2.50it/s, loss=0.5]", 5, None, 2, 0.4, {"loss": "0.5"}),
        (
            " 10%|█         | 5/50 [00:02<00:18, 2.50it/s, loss=0.5, lr=1e-5]",
            5,
            50,
            2,
            0.4,
            {"loss": "0.5", "lr": "1e-5"},
        ),
        ("  0%|          | 0/40 [00:00<?, ?it/s]", 0, 40, 0, None, {}),
        (" 90%|#########  | 9/10 [37:16:04<01:02:03, 100.00s/it]", 9, 10, 134_164, 100.0, {}),
    ],
)
def test_every_kind_of_bar(
    line: str, step: int, total: int | None, seconds: float, step_s: float | None, values: dict[str, str]
) -> None:
    (seen,) = bars_in(line)
    assert (seen.step, seen.total, seen.seconds, seen.values) == (step, total, seconds, values)
    assert seen.step_s == (None if step_s is None else pytest.approx(step_s))


def test_bars_of_data_sets_and_downloads_are_not_training() -> None:
    lines = [
        bar(1, 2, title="Loading checkpoint shards: "),
        bar(7000, 15406, title="Map (num_proc=4): "),
        bar(1, 2),
        bar(2, 2),
        bar(0, 40),
        bar(3, 40),
        bar(9, 40),
        bar(40, 40),
    ]
    assert [window[:2] for window in steps(read("tqdm", lines))] == [(1, 9), (10, 31)]


def test_bars_of_epochs_count_on() -> None:
    lines = [bar(step, 4, ", loss=0.5", f"Epoch {epoch}: ") for epoch in (1, 2) for step in (0, 2, 4)]
    events = read("tqdm", lines)
    assert [window[:2] for window in steps(events)] == [(1, 2), (3, 2), (5, 2), (7, 2)]
    assert [event["epoch"] for event in named(events, "epoch_start")] == [1, 2]
    assert only(events, "run_stop")["status"] == "success"


def test_a_loss_belongs_to_the_next_window() -> None:
    events = read("hf_trainer", [*TRAINER, bar(0, 40), bar(5, 40), "{'loss': 0.5, 'epoch': 0.25}", bar(40, 40)])
    assert [window.get("loss") for window in named(events, "steps")] == [None, [0.5]]


# --- validation of NeMo


def test_a_validation_of_nemo_is_told_by_the_next_progress_line() -> None:
    before, after = ", v_num=0, global_step=239.0", ", v_num=0, global_step=240.0, val_loss=5.10"
    lines = [
        bar(0, 2000, title="Epoch 0: :"),
        bar(240, 2000, before, "Epoch 0: :"),
        bar(0, 50, title="Validation: "),
        bar(50, 50, title="Validation DataLoader 0: "),
        bar(240, 2000, before, "Epoch 0: :"),
        bar(241, 2000, after, "Epoch 0: :"),
        "`Trainer.fit` stopped: `max_steps=241` reached.",
    ]
    events = read("nemo", lines, batch=4)
    result = only(events, "eval_result")
    assert (result["step"], result["metrics"], result["samples"]) == (240, {"val_loss": 5.1}, 960)
    assert only(events, "eval_start")["t"] == 3.0


# --- the end


@pytest.mark.parametrize(
    ("lines", "code", "status", "reason", "says"),
    [
        ([*TRAINER, bar(0, 40), bar(40, 40)], 0, "success", "max_steps", ""),
        ([*TRAINER, bar(0, 40), bar(40, 40)], 1, "aborted", "exception", "status 1"),
        ([*TRAINER, bar(0, 40), bar(9, 40)], -9, "aborted", "exception", "status -9"),
        ([*TRAINER, bar(0, 40), bar(9, 40)], -15, "aborted", "signal", "status -15"),
        ([*TRAINER, bar(0, 40), bar(9, 40)], 0, "aborted", "exception", "ends at step 9"),
        ([*TRAINER, bar(0, 40), bar(9, 40), "Training completed. Do not"], 0, "success", "max_steps", ""),
        ([*TRAINER, bar(40, 40), *TRAINER, bar(40, 40)], 0, "aborted", "exception", "trains a second time"),
        ([*TRAINER, *TRAINER, bar(0, 40), bar(40, 40)], 0, "success", "max_steps", ""),
        (["hello"], 0, "aborted", "exception", "no step of training"),
        ([], 0, "aborted", "exception", "no step of training"),
        (
            [*TRAINER, bar(0, 40), bar(40, 40), "{'loss': nan, 'epoch': 2.0}"],
            0,
            "aborted",
            "nonfinite_loss",
            "not finite",
        ),
    ],
)
def test_how_a_run_ended(lines: list[str], code: int, status: str, reason: str, says: str) -> None:
    stop = read("hf_trainer", lines, code=code)[-1]
    assert (stop["event"], stop["status"], stop["reason"]) == ("run_stop", status, reason)
    assert says in str(stop.get("detail", ""))


def test_numbers_that_contradict_each_other_are_not_believed() -> None:
    torn = [line.replace("steps = 128", "steps = 12") for line in ALMA]
    events = read("hf_trainer", [*torn, *ALMA, bar(0, 128), bar(5, 128), bar(64, 128), bar(128, 128)])
    assert "steps = 128 after another number" in str(only(events, "warning")["text"])
    assert only(events, "run_stop")["step"] == 128


def test_an_unknown_adapter_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        adapter_of(["keras"])
    assert set(ADAPTERS) == {"tqdm", "hf_trainer", "trainer_state", "nemo"}


# --- the contract of events


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("hf_trainer", [*ALMA, *(bar(step, 128) for step in range(0, 129, 8)), SUMMARY]),
        ("hf_trainer", [*TRAINER, bar(0, 40), bar(10, 40), bar(0, 5), EVALUATION, bar(40, 40)]),
        ("nemo", [bar(0, 10050, title="Epoch 0: :"), NEMO]),
    ],
)
def test_the_judge_reads_what_an_adapter_tells(tmp_path: Path, name: str, lines: list[str]) -> None:
    events = [{"event": "header", **HEADER}, *read(name, lines)]
    path = tmp_path / "events" / "rank0.jsonl"
    path.parent.mkdir()
    path.write_bytes(b"".join(map(encode, events)))
    stream = read_stream(path, 0)
    assert stream.stop is not None
    assert stream.windows[-1].last == stream.stop.count("step")
    assert stream.windows[0].start >= stream.all("run_start")[0].t
