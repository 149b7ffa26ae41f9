"""FLOP formulas against the worked vectors of Llama3-8B at a context of 8,192."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from suite import flops

SHAPE = {"layers": 32, "heads": 32, "head_dim": 128, "context": 8192}
MATMUL = 45.03e9 / 6


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(flops.nominal(MATMUL), 45.03e9, id="nominal"),
        pytest.param(flops.palm(MATMUL, **SHAPE), 57.91e9, id="full attention"),
        pytest.param(flops.palm_causal(MATMUL, **SHAPE), 51.47e9, id="causal"),
        pytest.param(flops.nominal(8e9), 48.0e9, id="nominal size"),
        pytest.param(flops.palm(8.03e9, **SHAPE), 61.07e9, id="palm with embedding"),
        pytest.param(flops.sequence_of(MATMUL, 32, 4096, 8192) / 8192, 57.91e9, id="by sequence"),
        pytest.param(flops.convolution(8.2e9), 24.6e9, id="convolution"),
    ],
)
def test_flop_a_unit(value: float, expected: float) -> None:
    assert value == pytest.approx(expected, rel=3e-4)


@pytest.mark.parametrize(
    ("a_token", "expected"),
    [(flops.palm(MATMUL, **SHAPE), 0.390), (flops.palm_causal(MATMUL, **SHAPE), 0.347), (flops.nominal(8e9), 0.324)],
)
def test_utilisation_of_one_rate_under_three_formulas(a_token: float, expected: float) -> None:
    assert flops.utilisation(a_token, 6667, 989) == pytest.approx(expected, abs=5e-4)


def test_fp8_run_against_both_peaks() -> None:
    a_token = flops.palm(MATMUL, **SHAPE)
    assert flops.utilisation(a_token, 10938, 1) == pytest.approx(633, abs=1)
    assert flops.utilisation(a_token, 10938, 989) == pytest.approx(0.64, abs=5e-3)
    assert flops.utilisation(a_token, 10938, 1979) == pytest.approx(0.32, abs=5e-3)


def test_packed_sequences_counted_full_exceed_the_peak() -> None:
    bert = flops.palm(335e6, 24, 16, 64, 512) * 512
    assert flops.utilisation(bert, 997, 989) > 1


def test_megatron_forms() -> None:
    batch, s, layers, h, v = 4, 2048, 24, 2048, 51200
    model = flops.megatron(batch, s, layers, h, v)
    assert model == pytest.approx(72 * batch * s * layers * h**2 * (1 + s / (6 * h) + v / (12 * layers * h)))
    hardware = flops.megatron(batch, s, layers, h, v, recompute=True)
    logits = 6 * batch * s * h * v
    # The logit layer is not recomputed; everything else is computed four times for three.
    assert hardware - logits == pytest.approx((model - logits) * 4 / 3)
    assert model / (batch * s) == pytest.approx(flops.palm(12 * layers * h**2 + h * v, layers, 1, h, s))


def test_full_recomputation_costs_a_third() -> None:
    assert flops.hfu_over_mfu(10.0, 10.0) == pytest.approx(4 / 3)
    assert flops.hfu_over_mfu(10.0, 0.0) == 1.0


def test_lora_pays_four_for_frozen_and_six_for_trained() -> None:
    assert flops.lora(100, 10, 0, 0, 0, 0) == 460


def test_every_formula_is_described() -> None:
    assert {"nominal", "palm", "palm_causal", "megatron", "lora", "convolution", "counted"} <= flops.FORMULAS.keys()


def test_importable_by_an_old_interpreter() -> None:
    source = Path(flops.__file__).read_text()
    tree = ast.parse(source, feature_version=(3, 8))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported | modules <= {"__future__", "math", "typing"}
