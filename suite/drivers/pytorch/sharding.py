"""A model divided over the ranks: FSDP2 shards its parameters, tensor parallelism its matrix products."""

from types import SimpleNamespace

import torch

from suite.drivers.events import RunProblem
from suite.drivers.pytorch.compiling import compile_options
from suite.drivers.pytorch.device import EnvironmentProblem
from suite.drivers.pytorch.layout import AXES


def divide(model, task, layout, device, precision, averaged=True):
    """Divide `model`, in place, as `layout` says; its units are compiled each on its own where asked for.

    Not `averaged`: the ranks' gradients stay their own, so every data rank keeps a whole model to itself.
    """
    if not averaged and layout.data_size == 1:
        raise RunProblem("gradients_not_averaged has no gradients to leave out: plan more than one data-parallel rank")
    tools = _tools()
    mesh = tools.init_device_mesh(device.type, (layout.replicas, layout.shards, layout.tensor), mesh_dim_names=AXES)
    if layout.tensor > 1:
        model.to(device.torch_device)
        _split_products(model, task.tensor_plan(model), mesh["tensor"], tools)
    units = list(task.units(model))
    if task.params["compile"] and device.can("compile"):
        for unit in units:
            unit.compile(**compile_options(task.params))
    if averaged and layout.data_size > 1:
        _shard(model, units, mesh, layout, precision, task.params.get("reshard_after_forward", True), tools)
    return model.to(device.torch_device)


def _shard(model, units, mesh, layout, precision, reshard, tools):
    """Parameters of each unit, then the rest, over the data ranks; replicas exchange gradients only."""
    options = {
        # Two dimensions: replicated over the first, sharded over the second, also where that has one rank.
        "mesh": mesh["replica", "shard"] if layout.replicas > 1 else mesh["shard"],
        "mp_policy": tools.MixedPrecisionPolicy(param_dtype=precision.dtype, reduce_dtype=torch.float32),
        "reshard_after_forward": reshard and layout.shards > 1,
    }
    for module in (*units, model):
        tools.fully_shard(module, **options)


def _split_products(model, plan, mesh, tools):
    """Give every module that the plan names its style, and refuse names that no module has."""
    if not plan:
        raise RunProblem("tensor_parallel is above 1, but the case has no Task.tensor_plan: set tensor_parallel = 1")
    styles = {
        "columns": tools.ColwiseParallel,
        "rows": tools.RowwiseParallel,
        "columns_gathered": lambda: tools.ColwiseParallel(output_layouts=tools.Replicate()),
        "vocabulary": lambda: tools.RowwiseParallel(input_layouts=tools.Replicate()),
    }
    modules = dict(model.named_modules())
    for name, style in plan.items():
        if name not in modules or style not in styles:
            known = ", ".join(styles)
            raise RunProblem(f"Task.tensor_plan has {name!r}: {style!r}, no module, or none of the styles {known}")
    tools.parallelize_module(model, mesh, {name: styles[style]() for name, style in plan.items()})


def _tools():
    """torch's own, which older versions keep elsewhere, or lack."""
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        from torch.distributed.tensor import Replicate
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    except ImportError as problem:
        raise EnvironmentProblem(
            f"torch {torch.__version__} cannot divide a model ({problem}): use 2.6 or later, or sharding = 'none' and"
            " tensor_parallel = 1"
        ) from problem
    return SimpleNamespace(
        init_device_mesh=init_device_mesh,
        MixedPrecisionPolicy=MixedPrecisionPolicy,
        fully_shard=fully_shard,
        Replicate=Replicate,
        ColwiseParallel=ColwiseParallel,
        RowwiseParallel=RowwiseParallel,
        parallelize_module=parallelize_module,
    )
