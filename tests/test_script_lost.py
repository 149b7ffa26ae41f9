"""Scripts seen by their log whose numbers are not finite, or that fail with words of their own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from suite.drivers.scripts.adapters.course import Event
from suite.drivers.scripts.last_words import MOST_BYTES, LastWords
from tests.adapter_logs import TRAINER, bar, named, read
from tests.script_toy import TRAINS, judged, script_plan

END = ("Training completed. Do not forget to share your model",)
QUOTES = pytest.mark.parametrize("quote", ["", "'"], ids=["transformers 4", "transformers 5"])


def trained(*lines: str) -> Event:
    """How a training of 40 steps ends in whose middle these lines stand."""
    told = read("hf_trainer", [*TRAINER, bar(1, 40), bar(20, 40), *lines, bar(21, 40), bar(40, 40), *END])
    (stop,) = named(told, "run_stop")
    return stop


def logged(quote: str, **numbers: str) -> str:
    """The Trainer's dictionary."""
    return "{" + ", ".join(f"'{name}': {quote}{value}{quote}" for name, value in numbers.items()) + "}"


@QUOTES
@pytest.mark.parametrize("norm", ["nan", "inf"])
def test_a_loss_that_the_trainer_hides_is_told_by_its_gradients(quote: str, norm: str) -> None:
    stop = trained(logged(quote, loss="0.0", grad_norm=norm, learning_rate="1e-05", epoch="0.5"))
    assert (stop["status"], stop["reason"]) == ("aborted", "nonfinite_loss")
    assert stop["detail"] == (
        f"grad_norm is {norm} beside a loss shown as 0, as the Trainer shows one that is not finite (step 20)"
    )


@QUOTES
def test_the_loss_of_an_evaluation_that_is_not_finite_is_told(quote: str) -> None:
    stop = trained(logged(quote, eval_loss="nan", eval_accuracy="0.1", eval_runtime="0.2", epoch="0.5"))
    assert (stop["status"], stop["reason"], stop["detail"]) == (
        "aborted",
        "nonfinite_loss",
        "eval_loss is nan (step 20)",
    )


@pytest.mark.parametrize(
    "line",
    [
        logged("", loss="2.5", grad_norm="inf", epoch="0.5"),
        logged("", loss="0.0", grad_norm="0.0", epoch="0.5"),
        logged("", loss="0.0", epoch="0.5"),
        logged("", eval_loss="0.7", eval_accuracy="nan", epoch="0.5"),
    ],
    ids=["a scaler skipped a step", "a loss of 0", "no norm", "another measure"],
)
def test_what_is_no_such_sign_is_not_taken_for_one(line: str) -> None:
    stop = trained(line)
    assert (stop["status"], stop["reason"]) == ("success", "max_steps")


def test_the_first_such_number_is_the_one_that_is_told() -> None:
    stop = trained(logged("", loss="0.0", grad_norm="nan", epoch="0.5"), logged("", eval_loss="nan", epoch="0.5"))
    assert str(stop["detail"]).startswith("grad_norm is nan")


def test_a_history_tells_it_with_its_step(tmp_path: Path) -> None:
    history = [{"step": 30, "epoch": 1.5, "loss": 0.0, "grad_norm": float("nan")}]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"max_steps": 40, "log_history": history}))
    told = read(
        "hf_trainer", [*TRAINER, bar(1, 40), bar(40, 40), f"Saving model checkpoint to {tmp_path}/checkpoint-40"]
    )
    (stop,) = named(told, "run_stop")
    assert stop["reason"] == "nonfinite_loss" and str(stop["detail"]).endswith("(step 30)")


def test_such_a_run_is_judged_as_one_whose_loss_is_not_finite(tmp_path: Path) -> None:
    hides = TRAINS.replace('{"loss": 1.0 / step, "epoch"', '{"loss": 0.0, "grad_norm": float("nan"), "epoch"')
    assert hides != TRAINS
    outcome = judged(tmp_path, script_plan(tmp_path, hides)).outcome
    assert (outcome.status, outcome.category, outcome.rank) == ("failed", "nonfinite_loss", 0)
    assert "grad_norm is nan beside a loss shown as 0" in outcome.reason


@pytest.mark.parametrize("rank", [pytest.param(0, marks=[pytest.mark.slow, pytest.mark.nightly]), 1])
def test_the_exception_of_a_script_is_in_the_reason(tmp_path: Path, rank: int) -> None:
    raises = TRAINS + "\n"
    raises = raises.replace(
        'print("words:"',
        f'if os.environ["RANK"] == "{rank}": raise LookupError("no column called label: name it")\nprint("words:"',
    )
    outcome = judged(tmp_path, script_plan(tmp_path, raises)).outcome
    assert (outcome.status, outcome.category, outcome.rank) == ("error", "crash", rank)
    assert outcome.reason == (
        f"rank {rank} stopped with exception: the script left with status 1:"
        " LookupError: no column called label: name it"
    )


def said(text: str, size: int = 7) -> str:
    """The last words of an output that arrives in pieces."""
    words = LastWords()
    data = text.encode("utf-8")
    for start in range(0, len(data), size):
        words.feed(data[start : start + size])
    return words.said()


TRACEBACK = """Traceback (most recent call last):
  File "a.py", line 1, in <module>
    f()
    ~^^
{}
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TRACEBACK.format("ValueError: bad"), "ValueError: bad"),
        (TRACEBACK.format("RuntimeError: CUDA error: out\nCompile with X=1"), "RuntimeError: CUDA error: out"),
        (
            TRACEBACK.format("KeyError: 'a'") + "\nDuring this, another\n\n" + TRACEBACK.format("OSError: b"),
            "OSError: b",
        ),
        (" 50%|##   | 3/6\r" + TRACEBACK.format("ValueError: bad").replace("\n", "\r\n"), "ValueError: bad"),
        (TRACEBACK.format("SystemError") + "Exception ignored in: <x>\n", "SystemError"),
        ("usage: run.py\nrun.py: error: no such option\n\n", "run.py: error: no such option"),
        ("done\n 50%|##   | 3/6 [00:01<00:01]\r", "done"),
        ("[rank0]: " + TRACEBACK.format("ValueError: bad").replace("\n", "\n[rank0]: "), "ValueError: bad"),
        ("\x1b[31merror: red\x1b[0m\n", "error: red"),
        ("", ""),
    ],
    ids=["one", "long", "chained", "carriage returns", "bare", "no traceback", "a bar", "labelled", "coloured", "mute"],
)
def test_last_words(text: str, words: str) -> None:
    assert said(text) == words
    assert said(text, 1 << 20) == words


def test_only_the_end_of_an_output_is_kept() -> None:
    assert said(TRACEBACK.format("ValueError: old") + "x\n" * MOST_BYTES, 1 << 20) == "x"
    assert sys.getsizeof(said("y" * MOST_BYTES * 2, 4096)) < 1000
