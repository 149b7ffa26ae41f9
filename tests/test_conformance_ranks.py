"""What the ranks of a conformance run measure: sound chips pass, and each broken one is red for its own reason."""

from __future__ import annotations

import json
import os
import subprocess
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from suite.conformance.checks import BY_NAME, SABOTAGES
from tests.conformance_toy import HOST, SPEC, Chip, Holder, Ranks, ThreadExchange, Work
from tests.driver_toy import write_run

torch = pytest.importorskip("torch")

from suite.conformance.chip.pytorch import (  # noqa: E402
    capabilities,
    clocks,
    collectives,
    memory,
    numerics,
    sabotage,
    seeds,
)
from suite.conformance.chip.pytorch.finding import Findings, Unobservable  # noqa: E402
from suite.drivers.events import RunProblem  # noqa: E402
from suite.drivers.pytorch.device import Device  # noqa: E402


def holds(check: str, value: float) -> bool:
    """Whether the value satisfies the check."""
    asked = BY_NAME[check]
    return value <= asked.threshold if asked.op == "<=" else value >= asked.threshold


def device_of(chip: Chip) -> Device:
    return Device.open(SPEC, 0, module=chip)


@pytest.fixture
def host() -> Iterator[Device]:
    """The host, on one core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Device.open(HOST, 0)
    torch.set_num_threads(threads)


class Told:
    """An event writer that remembers."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def write(self, event: str, **keys: Any) -> None:
        self.events.append({"event": event, **keys})


# Clocks


def test_a_chip_that_synchronises_is_not_late() -> None:
    chip = Chip()
    share, remark = clocks.late_share(device_of(chip), Work(chip))
    assert holds("synchronise", share) and "before the launch returned" in remark


def test_a_back_end_that_does_not_synchronise_is_red() -> None:
    chip = Chip(waits=False)
    share, _ = clocks.late_share(device_of(chip), Work(chip))
    assert share > 0.9 and not holds("synchronise", share)


def test_a_synchronise_that_waits_for_half_the_work_is_red() -> None:
    chip = Chip(waits=False)
    device = device_of(chip)
    device.synchronize = lambda: clocks.time.sleep(max(0.0, (chip.done - clocks.time.perf_counter()) / 2))
    assert not holds("synchronise", clocks.late_share(device, Work(chip, 0.2))[0])


def test_work_too_short_to_tell_is_not_called_synchronised() -> None:
    chip = Chip()
    with pytest.raises(Unobservable, match="ms only"):
        clocks.late_share(device_of(chip), Work(chip, 0.001))


def test_the_sabotage_of_synchronise_works_on_a_host_and_its_queue_is_sound_when_waited_for(
    host: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clocks, "LEAST_S", 0.1)
    broken = sabotage.named("no_synchronise")
    work = sabotage.Queued(clocks.Products(host))
    host.synchronize = work.wait
    assert holds("synchronise", clocks.late_share(host, work)[0])
    broken.break_device(host)
    assert not holds("synchronise", clocks.late_share(host, work)[0])


def test_events_that_run_slow_are_red_and_a_host_without_events_has_none(host: Device) -> None:
    sound, slow = Chip(), Chip(speed=0.5)
    assert holds("event_timing", clocks.event_error(device_of(sound), Work(sound))[0])
    assert not holds("event_timing", clocks.event_error(device_of(slow), Work(slow))[0])
    with pytest.raises(Unobservable, match="in line"):
        clocks.event_error(host, None)


def test_stamps_that_step_back_are_counted(host: Device) -> None:
    chip = Chip()
    device = device_of(chip)
    assert clocks.timer_faults(host)[0] == clocks.timer_faults(device, lambda: Work(chip, 0.001).start())[0] == 0

    def step_back() -> None:
        chip.done = clocks.time.perf_counter() + (0.05 if chip.done < clocks.time.perf_counter() else -1.0)

    assert not holds("timers", clocks.timer_faults(device, step_back)[0])


# Number formats


def test_formats_of_the_host_are_what_they_are_called(host: Device) -> None:
    assert holds("dtype_fp32", numerics.worst_error(host, "fp32")[0])
    error, remark = numerics.worst_error(host, "bf16")
    assert error > 1e-4 and holds("dtype_bf16", error) and "product" in remark
    with pytest.raises(Unobservable, match="switch"):
        numerics.worst_error(host, "tf32")


def test_tf32_posing_as_fp32_is_red(host: Device) -> None:
    with sabotage.named("tf32_as_fp32").products():
        error, remark = numerics.worst_error(host, "fp32")
    assert not holds("dtype_fp32", error) and error < 1e-2 and ("product" in remark or "convolution" in remark)


def bf16(tensor: Any) -> Any:
    """What bf16 keeps of fp32."""
    return tensor.bfloat16().float()


def test_bf16_posing_as_fp32_is_red(host: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sabotage, "rounded", lambda tensor: bf16(tensor) if tensor.dtype == torch.float32 else tensor)
    with sabotage.Rounding():
        assert not holds("dtype_fp32", numerics.worst_error(host, "fp32")[0])


def test_one_operation_that_is_wrong_is_found(host: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.softmax
    monkeypatch.setattr(torch, "softmax", lambda a, dim: real(a, dim=dim) + (0 if a.dtype == torch.float64 else 1e-6))
    error, remark = numerics.worst_error(host, "fp32")
    assert not holds("dtype_fp32", error) and "softmax" in remark


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_has_nothing_right(bad: float) -> None:
    assert numerics.relative_error(torch.tensor([1.0, bad]), torch.ones(2).double()) == 1.0


def test_rounding_cuts_thirteen_bits_and_leaves_other_types_alone() -> None:
    assert float(sabotage.rounded(torch.tensor(1 + 2.0**-10))) == 1 + 2.0**-10
    assert float(sabotage.rounded(torch.tensor(1 + 2.0**-11))) == 1.0
    assert sabotage.rounded(torch.tensor(3)).dtype == torch.int64


# Seeds, memory


def test_seeds_reproduce_and_a_seed_that_is_ignored_is_red(host: Device) -> None:
    assert holds("seeds", seeds.draws_not_reproduced(host)[0])
    sabotage.named("seed_ignored").break_device(host)
    value, remark = seeds.draws_not_reproduced(host)
    assert not holds("seeds", value) and "one seed, two series" in remark


def test_a_generator_that_always_begins_anew_is_red(host: Device) -> None:
    host.seed = lambda seed: torch.manual_seed(7)
    value, remark = seeds.draws_not_reproduced(host)
    assert not holds("seeds", value) and "two seeds, one series" in remark


def test_memory_comes_back_and_memory_kept_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "RETURN_S", 0.3)
    met: list[int] = []
    chip = Chip()
    value, _ = memory.kept_mib(device_of(chip), Holder(chip), lambda: met.append(1))
    assert value == 0 and holds("memory_returned", value) and len(met) == 2
    holder = Holder(chip, leaks=200)
    value, remark = memory.kept_mib(device_of(chip), holder)
    assert value == pytest.approx(200) and not holds("memory_returned", value)
    assert "200 MiB are still taken" in remark and not holder.alive


def test_memory_that_nobody_can_see_is_not_called_returned(host: Device) -> None:
    met: list[int] = []
    with pytest.raises(Unobservable, match="everybody"):
        memory.kept_mib(host, None, lambda: met.append(1))
    assert len(met) == 2, "the other ranks are met all the same"
    chip = Chip()
    blind = Holder(chip)
    blind.start = lambda: None
    with pytest.raises(Unobservable, match="shown as free"):
        memory.kept_mib(device_of(chip), blind)


def test_the_holding_process_really_holds_and_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINMARK_RUN", str(write_run(tmp_path)))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    holder = memory.Holder(0, 64)
    holder.start()
    pid = holder._process.pid
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    holder.end()
    assert resident > 64 << 20 and not Path(f"/proc/{pid}").exists()


def test_what_a_library_prints_before_is_passed_over() -> None:
    holder = memory.Holder(0, 64)
    program = "import sys; print('[INFO] hello', flush=True); print('held', flush=True); sys.stdin.read()"
    holder._argv = [memory.sys.executable, "-c", program]
    holder.start()
    assert holder._process.poll() is None, "it holds until it is told to end"
    holder.end()
    assert holder._process.returncode is not None


def test_a_holding_process_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    holder = memory.Holder(0, 64)
    holder._argv = [memory.sys.executable, "-c", "raise SystemExit(1)"]
    with pytest.raises(Unobservable, match="second process"):
        holder.start()
    assert isinstance(holder._process, subprocess.Popen) and holder._process.returncode is not None


# Exchanges


@pytest.mark.parametrize("name", collectives.COLLECTIVES)
def test_collectives_that_are_right_pass_and_a_dropped_rank_is_red(name: str, host: Device) -> None:
    size, ranks = 3, Ranks(3)

    def share(rank: int, broken: Any) -> float:
        group = types.SimpleNamespace(rank=rank, world_size=size)
        exchange = broken.exchange(ThreadExchange(ranks, rank), group)
        return float(collectives.wrong(name, exchange, host, group)[0])

    assert ranks.run(lambda rank: share(rank, sabotage.Sound())) == [0.0] * size
    dropped = ranks.run(lambda rank: share(rank, sabotage.named("rank_dropped")))
    assert all(not holds(name, value) for value in dropped)


def test_what_a_back_end_does_not_offer_is_lacking_only_where_it_may_be(host: Device) -> None:
    class Refusing:
        def __getattr__(self, name: str) -> Any:
            def refuse(mine: Any, size: int) -> Any:
                raise RuntimeError("not supported")

            return refuse

    group = types.SimpleNamespace(rank=0, world_size=2)
    with pytest.raises(Unobservable, match="not offered"):
        collectives.wrong("all_to_all", Refusing(), host, group)
    told = Told()
    Findings(told).measure("all_reduce", lambda: collectives.wrong("all_reduce", Refusing(), host, group))
    assert told.events[0]["value"] == 1.0 and "not supported" in told.events[0]["remark"]


# Findings and capabilities


def test_a_check_that_breaks_has_nothing_right_and_the_next_one_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    told = Told()
    findings = Findings(told)
    findings.measure("fast_path", lambda: 1 / 0)
    findings.measure("dtype_fp32", lambda: (float("nan"), "product"))
    findings.measure("seeds", lambda: (0.0, ""))
    assert [event["value"] for event in told.events] == [0.0, 1.0, 0.0]
    assert not holds("fast_path", 0.0) and not holds("dtype_fp32", 1.0)
    assert "ZeroDivisionError" in told.events[0]["remark"] and "ZeroDivisionError" in capsys.readouterr().err


def test_what_a_check_stands_for_when_it_breaks_is_always_red() -> None:
    assert [asked.name for asked in BY_NAME.values() if holds(asked.name, asked.worst) and asked.op == "<="] == []
    assert not holds("fast_path", BY_NAME["fast_path"].worst)


def test_each_capability_is_asked_alone(host: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(device: Any) -> Any:
        raise OSError("the compiler is gone\nwith all its files")

    monkeypatch.setitem(capabilities.ASKED, "compile", crash)
    monkeypatch.setitem(capabilities.ASKED, "fp64", lambda device: (0.5, 1e-12))
    found = {name: (has, remark) for name, has, remark in capabilities.probe(host)}
    assert found["compile"] == (False, "OSError: the compiler is gone")
    assert found["fp64"][0] is False and "0.5" in found["fp64"][1]
    assert found["bf16"][0] is found["fused_optimizer"][0] is True
    assert "streams" not in found, "of a host it says nothing"


def test_a_denied_capability_is_a_named_fallback_of_the_driver() -> None:
    kept = (torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.mem_efficient_sdp_enabled())
    denied = {"streams": False, "rng_state": False, "attention_flash": False, "attention_efficient": False}
    try:
        chip = Chip()
        chip.Stream = chip.stream = chip.current_stream = lambda *_: None  # type: ignore[attr-defined]
        device = Device.open(SPEC, 0, module=chip, capabilities=denied)
        assert device.side_stream() is None and device.rng_state() is None
        assert {entry["what"] for entry in device.fallbacks} == set(denied)
        assert not torch.backends.cuda.flash_sdp_enabled()
    finally:
        torch.backends.cuda.enable_flash_sdp(kept[0])
        torch.backends.cuda.enable_mem_efficient_sdp(kept[1])


def test_every_sabotage_has_a_class_and_others_are_refused() -> None:
    for name in SABOTAGES:
        assert isinstance(sabotage.named(name), sabotage.Sound)
    with pytest.raises(RunProblem, match="sabotage 'x' is not one of"):
        sabotage.named("x")
    assert type(sabotage.named(None)) is sabotage.Sound


def test_a_rank_without_a_device_ends_as_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_json = write_run(tmp_path, params={"probes": False, "hold_mib": 1, "rest_s": 0, "load_s": 0})
    spec = json.loads(run_json.read_text())
    spec["device"]["type"] = "xpu"
    run_json.write_text(json.dumps(spec))
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [memory.sys.executable, str(root / "suite/conformance/chip/pytorch/train.py")],
        env={**os.environ, "TRAINMARK_RUN": str(run_json), "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = [json.loads(line) for line in (tmp_path / "events/rank0.jsonl").read_text().splitlines()]
    assert done.returncode == 3 and lines[0]["event"] == "header"
    assert (lines[-1]["reason"], "no device of type 'xpu'" in lines[-1]["detail"]) == ("environment", True)
