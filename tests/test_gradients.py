"""`fixtures.gradients`: what rounding explains is the same, what it does not is different; from real gradients."""

from __future__ import annotations

import fcntl
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fixtures import gradients
from suite.drivers.pytorch.gradients import complete
from suite.gradients import judge, judge_chance
from suite.proofs import keep
from suite.slots import Proof, Proofs

SUITE = Path(__file__).parents[1] / "suite"

ATTENTION = '''"""Attention by plain products."""

import math

import torch


class Plain(torch.autograd.Function):
    """Hands a gradient on as it is, or broken."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * {backward}


def attention(query, key, value, bias, dropout):
    """Softmax attention."""
    scores = query.float() @ key.float().transpose(-1, -2) / math.sqrt(query.shape[-1]) * {forward}
    shares = torch.nn.functional.dropout((scores + bias).softmax(-1), {dropout}, {dropout} > 0)
    return Plain.apply((shares @ value.float()).to(query.dtype))


def fill(slots):
    """Replace the case's own."""
    slots["{slot}"] = attention
'''


def sums(truth: float = 1.0, standard: float = 0.0, replaced: float = 0.0, along: float = 0.0) -> dict[str, float]:
    """Of a tensor whose gradient has the length `truth`, with errors of these lengths."""
    size = truth * truth
    return {
        "truth": size, "standard": standard**2, "replaced": replaced**2,
        "standard_along": size, "replaced_along": size * (1 + along),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        pytest.param({"w": sums(standard=0.03, replaced=0.03)}, "", id="as-the-standard"),
        pytest.param({"w": sums(standard=0.03, replaced=0.036)}, "", id="a-little-more"),
        pytest.param({"w": sums(replaced=0.00009)}, "", id="rounding-of-full-precision"),
        pytest.param({"w": sums(replaced=0.0002)}, "w: error 0.02 %", id="full-precision-has-no-error"),
        pytest.param({"w": sums(standard=0.03, replaced=0.04)}, "all gradients: error 4 %", id="more-over-all"),
        pytest.param(
            {"w": sums(standard=0.03, replaced=0.03), "v": sums(0.1, 0.003, 0.007)}, "v: error 7 %", id="one-tensor"
        ),
        pytest.param({"w": sums(standard=0.03, replaced=0.03, along=-0.02)}, "-2.00 % along", id="shorter"),
        pytest.param({"w": sums(standard=0.2, replaced=0.2, along=-0.02)}, "", id="within-the-error"),
        pytest.param({"w": sums(0.0, 0.0, 0.1), "v": sums()}, "0.1 where it should be 0", id="out-of-nothing"),
        pytest.param({"w": sums(), "buffer: m": sums(replaced=0.1)}, "buffer: m", id="a-buffer"),
        pytest.param({"w": sums(), "loss": sums(replaced=0.1)}, "loss: error", id="the-loss"),
    ],
)
def test_rounding_is_told_from_a_difference(tensors: dict[str, dict[str, float]], reason: str) -> None:
    """Each rule by itself."""
    found = judge(tensors)
    assert found.same is (not reason)
    assert any(reason in said for said in found.reasons) is bool(reason), found.reasons


@pytest.mark.parametrize("value", [math.nan, math.inf, "-inf"])
def test_what_is_no_number_is_no_pass(value: float) -> None:
    """A kernel that answers NaN."""
    with pytest.raises(ValueError, match="replaced is"):
        judge({"w": {**sums(), "replaced": value}})


def test_no_gradient_is_no_pass() -> None:
    """Nothing equals nothing."""
    with pytest.raises(ValueError, match="all gradients are 0"):
        judge({"w": sums(truth=0.0)})


def test_a_gradient_that_a_part_leaves_out_is_none() -> None:
    """And so different, like any other that is wrong; not a mistake of who asks."""
    truth, standard, replaced = {"w": torch.ones(2), "b": torch.ones(3)}, {"w": torch.ones(2), "b": torch.ones(3)}, {}
    replaced["w"] = torch.ones(2)
    complete([truth, standard, replaced])
    assert replaced.keys() == truth.keys() and not replaced["b"].any()


def draws(along: list[float], apart: list[float]) -> dict[str, list[float]]:
    """Of one side."""
    return {"along": along, "apart": apart}


USUAL = draws([0.98, 0.99, 0.97, 0.98], [0.1, 0.2, 0.11, 0.19])


@pytest.mark.parametrize(
    ("replaced", "reason"),
    [
        pytest.param(USUAL, "", id="as-the-standard"),
        pytest.param(draws([0.97, 0.98, 0.98, 0.99], [0.11, 0.19, 0.1, 0.2]), "", id="other-luck"),
        pytest.param(draws(USUAL["along"], [1.5 * value for value in USUAL["apart"]]), "1.5 times", id="drops-more"),
        pytest.param(draws(USUAL["along"], [0.6 * value for value in USUAL["apart"]]), "0.6 times", id="drops-less"),
        pytest.param(draws([value - 0.03 for value in USUAL["along"]], USUAL["apart"]), "-3.00 % along", id="unscaled"),
        pytest.param(draws([1.0] * 4, [0.0] * 4), "of the standard part alone", id="drops-nothing"),
    ],
)
def test_chance_is_let_in_as_by_the_standard_part(replaced: dict[str, list[float]], reason: str) -> None:
    """A part that drops nothing is faster, and trains another model."""
    reasons = judge_chance({"dropout": {"standard": USUAL, "replaced": replaced}})
    assert bool(reasons) is bool(reason)
    assert all(said.startswith("dropout: ") and reason in said for said in reasons), reasons


def test_a_part_that_drops_where_the_standard_one_does_not_is_another() -> None:
    """And where neither does, nothing is asked of either."""
    quiet = draws([1.0] * 4, [0.0] * 4)
    [reason] = judge_chance({"dropout": {"standard": quiet, "replaced": USUAL}})
    assert "of the replaced part alone" in reason
    assert judge_chance({"dropout": {"standard": quiet, "replaced": quiet}}) == []


@pytest.mark.parametrize(
    ("replaced", "said"),
    [
        pytest.param(draws([math.nan, 1.0, 1.0, 1.0], USUAL["apart"]), "is nan, not a finite number", id="nan"),
        pytest.param(draws(USUAL["along"], [0.01, 2.0, 0.01, 2.0]), "more --batches", id="any-luck"),
    ],
)
def test_chance_that_tells_nothing_is_no_pass(replaced: dict[str, list[float]], said: str) -> None:
    """A number that is none, or draws of which one is as good as another."""
    with pytest.raises(ValueError, match=said):
        judge_chance({"dropout": {"standard": USUAL, "replaced": replaced}})


def test_one_draw_tells_nothing_of_chance() -> None:
    """Of its luck nothing is known."""
    with pytest.raises(ValueError, match="once only"):
        judge_chance({"dropout": {side: draws([1.0], [0.1]) for side in ("standard", "replaced")}})


def vendor(
    tmp_path: Path,
    *,
    forward: str = "1.0",
    backward: str = "1.0",
    dropout: str = "dropout",
    slot: str = "attention",
    model: str = "glm",
    code: str = "",
) -> Path:
    """The host's processor, as a vendor whose attention for GLM, or other code, is its own."""
    acme = tmp_path / "acme"
    shutil.copytree(SUITE / "vendors/cpu", acme)
    extern = acme / model / "pytorch/extern"
    extern.mkdir()
    code = code or ATTENTION.format(forward=forward, backward=backward, dropout=dropout, slot=slot)
    (extern / "__init__.py").write_text(code)
    return acme


def asked(acme: Path, *words: str, model: str = "glm") -> int:
    """The command, on few small batches."""
    small = ("--set", "train_batch_size=4", "--batches", "2", "--between", "1")
    return gradients.main(
        [model, "--vendor", "acme", "--vendor-path", str(acme), "--folder", str(acme / "proofs"), *small, *words]
    )


def test_a_right_kernel_gets_its_proof(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The proof is about the code that ran, and says how it was found."""
    acme = vendor(tmp_path)
    assert asked(acme, "--by", "the kernel team") == 0, capsys.readouterr()
    table = tomllib.loads((acme / "proofs/acme/slots.toml").read_text())
    [proof] = Proofs.model_validate(table).proof
    assert (proof.where, proof.slot) == ("glm/pytorch", "attention")
    assert "the kernel team" in proof.source and "2 batches" in proof.source
    assert "gradients the same" in capsys.readouterr().out


def test_how_far_it_has_come_is_said_beside_the_answer(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each pass of each batch, each dropout; standard output is the answer's."""
    assert asked(vendor(tmp_path), "--dry-run") == 0
    said = capfd.readouterr()
    lines = said.err.splitlines()
    passes = [f"batch {number} of 2: {side} part" for number in (1, 2) for side in ("standard", "replaced")]
    chance = [f"attention_dropout: batch 2 of 2, 4 draws, {side} part" for side in ("standard", "replaced")]
    places = [lines.index(line) for line in ("batch 1 of 2: float64", *passes, *chance)]
    assert places == sorted(places)
    assert "batch 1 of 2: 1 steps of the standard training to the next" in lines
    assert "batch" not in said.out and said.out.startswith("glm-pytorch-acme-host-mini-1x1: gradients the same\n")


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        pytest.param({"forward": "1.02"}, "DIFFERENT", id="scores-too-large"),
        pytest.param({"backward": "1.01"}, "DIFFERENT", id="gradient-too-long"),
        pytest.param({"forward": "float('nan')"}, "not told", id="nan"),
        pytest.param({"dropout": "0.0"}, "part the gradients of the standard part alone", id="drops-nothing"),
        pytest.param({"dropout": "(2 * dropout)"}, "attention_dropout: two draws part the", id="drops-twice"),
    ],
)
def test_a_wrong_kernel_gets_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], broken: dict[str, str], said: str
) -> None:
    """One or two hundredths in full precision."""
    acme = vendor(tmp_path, **broken)
    assert asked(acme) != 0
    assert said in capsys.readouterr().out
    assert not (acme / "proofs").exists()


@pytest.mark.slow
def test_a_kernel_that_is_wrong_where_a_compiler_takes_it_gets_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is measured is the compiled one: a compiler may copy, alias or reorder what a kernel counts on."""
    acme = vendor(tmp_path, backward="(1.01 if torch.compiler.is_compiling() else 1.0)")
    assert asked(acme, "--dry-run", "--set", "compile=false") == 0
    assert "error as compiled: not compiled in this plan" in capsys.readouterr().out
    assert asked(acme, "--set", "compile=true") == 1
    assert "\n  compiled: " in capsys.readouterr().out
    assert not (acme / "proofs").exists()


def test_a_part_without_gradient_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An optimizer is used after the gradients are there."""
    assert asked(vendor(tmp_path, slot="optimizer")) == 4
    assert "no slot that a gradient goes through (have: optimizer)" in capsys.readouterr().err


IN_EVALUATION = """def fill(slots):
    standard = slots["conv_norm"]

    def conv_norm(x, convolution, norm, activate):
        out = standard(x, convolution, norm, activate)
        return out if norm.training else 1.5 * out

    slots["conv_norm"] = conv_norm
"""


def test_a_part_that_is_wrong_in_an_evaluation_gets_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its gradients are right."""
    acme = vendor(tmp_path, model="mobilenetv2", code=IN_EVALUATION)
    assert asked(acme, model="mobilenetv2") == 1
    assert "loss in evaluation: error" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "said"),
    [
        pytest.param(
            "print('{}'); raise KeyError('oh')", "extern/__init__.py:2: KeyError: 'oh'; mend it there", id="raises"
        ),
    ],
)
def test_broken_code_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str, said: str) -> None:
    """Whatever it does: no traceback, and nothing that it prints is taken for an answer."""
    acme = vendor(tmp_path, code=f"def fill(slots):\n    {code}\n    return\n    slots['attention'] = len\n")
    assert asked(acme) == 4
    err = capsys.readouterr().err
    assert said in err and "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupt", "kill"])
def test_its_end_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    """Code that hangs ends with the command, also with one that could do nothing about it any more."""
    code = (
        "import os, time\nopen({!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
        "def fill(slots):\n    slots['attention'] = 1\n"
    )
    told = tmp_path / "pid"
    acme = vendor(tmp_path, code=code.format(str(told)))
    command = [sys.executable, "-m", "fixtures.gradients", "glm", "--vendor", "acme", "--vendor-path", str(acme)]
    with subprocess.Popen([*command, "--dry-run"], cwd=SUITE.parent, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: told.exists() and told.read_text().isdigit())
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == (2 if number == signal.SIGINT else -number)
    assert (err.splitlines()[-1] == "interrupted") is (number == signal.SIGINT) and "Traceback" not in err
    child = Path(f"/proc/{told.read_text()}")
    wait_for(lambda: not child.exists() or child.joinpath("stat").read_text().rpartition(")")[2].split()[0] == "Z")


def wait_for(condition: Callable[[], bool]) -> None:
    """Until it holds, at most a minute."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_two_at_once_keep_both_proofs(tmp_path: Path) -> None:
    """The second reads the file when the first has written it."""
    path = tmp_path / "slots.toml"
    one, two = (Proof(where="glm/pytorch", slot=slot, digest=64 * "0", source="a test") for slot in ("one", "two"))
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    second = threading.Thread(target=lambda: list(keep([two], path)))
    second.start()
    second.join(0.3)
    assert second.is_alive() and not path.exists()
    list(keep([one], tmp_path / "elsewhere" / "slots.toml"))
    (tmp_path / "elsewhere" / "slots.toml").rename(path)
    os.close(descriptor)
    second.join()
    assert Proofs.model_validate(tomllib.loads(path.read_text())).proof == (one, two)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing", "--vendor", "cpu"], "nothing"),
        (["glm", "--vendor", "nobody"], "nobody"),
        (["glm", "--vendor", "cpu"], "fills no slot"),
        (["glm", "--vendor", "cpu", "--batches", "0"], "--batches"),
        (["glm", "--vendor", "cpu", "--set", "no=1"], "no"),
    ],
)
def test_wrong_input_is_one_sentence(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    """Exit code 4, and what to say instead."""
    assert gradients.main(words) == 4
    err = capsys.readouterr().err
    assert err.startswith("error: ") and said in err and "Traceback" not in err
