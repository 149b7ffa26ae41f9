"""What the chip has and what it lacks: each capability is used once, and its result compared with the CPU's."""

import contextlib
import importlib
import os
import tempfile

import torch

from suite.conformance.chip.pytorch import numerics
from suite.conformance.chip.pytorch.finding import Unobservable
from suite.drivers.pytorch import optimizer

CLOSE = 1e-5
HALF = 1.6e-2
"""Error of half precision, as for bf16."""
CACHE = "TORCHINDUCTOR_CACHE_DIR"
MEMBER = {"attention_flash": "FLASH_ATTENTION", "attention_efficient": "EFFICIENT_ATTENTION"}
"""Kernels of scaled_dot_product_attention by torch's own names."""


class Lacking(Exception):
    """The chip does not have it: one sentence."""


def probe(device):
    """(name, has, remark) of each capability that can be told here, each asked on its own."""
    for name, ask in ASKED.items():
        try:
            error, limit = ask(device)
        except Unobservable:
            continue  # nothing to tell of this kind of device
        except Lacking as problem:
            yield name, False, str(problem)
            continue
        except Exception as problem:  # a vendor's library may raise anything at all
            yield name, False, f"{type(problem).__name__}: {problem}".splitlines()[0]
            continue
        right = error <= limit
        yield name, right, "" if right else f"relative error {error:.2g}, more than {limit:g}"


def _dtype(name, limit):
    def ask(device):
        try:
            return numerics.worst_error(device, name)[0], limit
        except Unobservable as problem:
            raise Lacking(str(problem)) from problem

    return ask


def _double(device):
    a, b, *_ = (operand.double() for operand in numerics.operands())
    place = device.torch_device
    return numerics.relative_error(a.to(place) @ b.to(place), a @ b), 1e-12


def _event_timing(device):
    if device.is_host:
        raise Unobservable("a host computes in line")
    why = [entry["why"] for entry in device.fallbacks if entry["what"] == "event_timing"]
    if why:
        raise Lacking(why[0])
    return 0.0, 0.0


def _streams(device):
    stream = _of_a_chip(device).side_stream()
    if stream is None:
        raise Lacking("its module has no streams")
    here = numerics.operands()[0]
    moved = device.copy_beside(device.pin(here), stream)
    return numerics.relative_error(moved * 2, here.double() * 2), CLOSE


def _pinned_memory(device):
    _of_a_chip(device)
    page = torch.ones(1 << 16).pin_memory()
    moved = page.to(device.torch_device, non_blocking=True)
    device.synchronize()
    return numerics.relative_error(moved, torch.ones(1 << 16).double()), 0.0


def _rng_state(device):
    state = _of_a_chip(device).rng_state()
    if state is None:
        raise Lacking("its module does not show the generator's state")
    first = torch.randn(512, device=device.torch_device).cpu()
    device.set_rng_state(state)
    return numerics.relative_error(torch.randn(512, device=device.torch_device), first.double()), 0.0


def _fused_optimizer(device):
    """One step of AdamW in one kernel against torch's loops on the CPU."""
    results = []
    for place, fused in ((device.torch_device, True), (torch.device("cpu"), False)):
        weight = torch.nn.Parameter(numerics.operands()[0].to(place))
        weight.grad = numerics.operands()[1].to(place)
        optimizer.CLASSES["adamw"]([weight], lr=0.1, fused=fused).step()
        results.append(weight)
    return numerics.relative_error(results[0], results[1].detach().cpu().double()), CLOSE


def _compile(device):
    """A small network, forward and backward, as compiled and as written."""
    with _own_cache():
        compiled = _gradient(device, torch.compile)
    return numerics.relative_error(compiled, _gradient(device, lambda model: model).cpu().double()), 1e-4


def _gradient(device, prepare):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
    model = model.to(device.torch_device)
    prepare(model)(numerics.operands()[0][:, :64].to(device.torch_device)).square().mean().backward()
    return model[0].weight.grad


@contextlib.contextmanager
def _own_cache():
    """What was compiled once proves nothing about a compiler today, and nothing shall be left behind."""
    kept = os.environ.get(CACHE)
    with tempfile.TemporaryDirectory(prefix="trainmark-compile-", ignore_cleanup_errors=True) as folder:
        os.environ[CACHE] = folder
        try:
            yield
        finally:
            os.environ.pop(CACHE)
            os.environ.update({} if kept is None else {CACHE: kept})


def _attention(member):
    def ask(device):
        attention = importlib.import_module("torch.nn.attention")  # torch is imported without it
        backend = getattr(attention.SDPBackend, member)
        half = torch.float32 if device.is_host else torch.float16
        draw = torch.Generator().manual_seed(21)
        query, key, value = (torch.randn(2, 4, 128, 64, generator=draw) for _ in range(3))
        exact = torch.softmax(query.double() @ key.double().transpose(-1, -2) / 8, dim=-1) @ value.double()
        placed = [tensor.to(device.torch_device, half) for tensor in (query, key, value)]
        with attention.sdpa_kernel([backend]):
            got = torch.nn.functional.scaled_dot_product_attention(*placed)
        return numerics.relative_error(got, exact), HALF

    return ask


def _of_a_chip(device):
    if device.is_host:
        raise Unobservable("of a host it means nothing")
    return device


ASKED = {
    "fp16": _dtype("fp16", 2e-3),
    "bf16": _dtype("bf16", HALF),
    "tf32": _dtype("tf32", 2e-3),
    "fp64": _double,
    "event_timing": _event_timing,
    "streams": _streams,
    "pinned_memory": _pinned_memory,
    "rng_state": _rng_state,
    "fused_optimizer": _fused_optimizer,
    "compile": _compile,
    **{name: _attention(member) for name, member in MEMBER.items()},
}
