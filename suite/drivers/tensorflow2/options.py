"""The options of tf.distribute, by FlagPerf's names: what can be had, and what is refused with a sentence."""

from suite.drivers.events import RunProblem

NAMES = ("off", "one_device", "mirrored", "multi_worker_mirrored", "tpu")
ALONE = ("off", "one_device", "mirrored", "tpu")
"""Of one process: they know nothing of other ranks."""
OVER_WORKERS = {"auto": "AUTO", "ring": "RING", "nccl": "NCCL"}
IN_PROCESS = {"auto": "", "nccl": "NcclAllReduce", "hierarchical_copy": "HierarchicalCopyAllReduce"}


def check_options(params, world_size, on_host):
    """Raise RunProblem for what cannot be had, naming key, value and remedy."""
    name, algorithm, devices = params["distribution_strategy"], params["all_reduce_alg"], params["num_gpus"]
    if name == "parameter_server":
        raise RunProblem(
            "distribution_strategy = 'parameter_server': its workers update without waiting, so there are neither steps"
            " to time nor ranks to compare; say multi_worker_mirrored"
        )
    if name not in NAMES:
        raise RunProblem(
            f"distribution_strategy = {name!r} is not one of {', '.join(NAMES)}: change params.distribution_strategy"
        )
    if world_size > 1 and name in ALONE:
        raise RunProblem(
            f"distribution_strategy = {name!r} is of one process, and {world_size} ranks train:"
            " say multi_worker_mirrored"
        )
    if bool(params["tpu"]) != (name == "tpu"):
        raise RunProblem(f"tpu = {params['tpu']!r} with distribution_strategy = {name!r}: set both or neither")
    if devices != int(not on_host):
        raise RunProblem(
            f"num_gpus = {devices}: a rank drives one device, or none where the host computes; "
            f"say {int(not on_host)} and plan as many ranks as devices"
        )
    _check_algorithm(name, algorithm, on_host)


def _check_algorithm(name, algorithm, on_host):
    known = {"multi_worker_mirrored": OVER_WORKERS, "mirrored": IN_PROCESS}.get(name)
    if known is None:  # nothing is exchanged, and the key not read
        return
    if algorithm not in known:
        raise RunProblem(
            f"all_reduce_alg = {algorithm!r} is not one of {', '.join(known)}, which {name} has: "
            "change params.all_reduce_alg"
        )
    if algorithm == "nccl" and on_host:
        raise RunProblem("all_reduce_alg = 'nccl' is for devices, and the host computes: say ring or auto")
