"""Tensors of a divided model: which piece this rank holds, and who holds the same."""

from suite.drivers.pytorch import checksum


def is_piece(tensor):
    """Whether a tensor is a rank's part of a larger one: torch's DTensor, told without importing what may be absent."""
    return hasattr(tensor, "placements") and hasattr(tensor, "to_local")


def local(tensor):
    """What this rank itself holds of a tensor."""
    return tensor.to_local() if is_piece(tensor) else tensor


def split_axes(tensor):
    """The axes of its mesh, by name, over which a tensor is split; none for a whole one."""
    if not is_piece(tensor):
        return ()
    mesh = tensor.device_mesh
    return tuple(name for name, place in zip(mesh.mesh_dim_names, tensor.placements) if not place.is_replicate())


def coordinate(tensor):
    """Where in a split tensor this rank's piece lies, as text: equal text, equal piece."""
    mesh = getattr(tensor, "device_mesh", None)
    return " ".join(f"{axis}{mesh.get_local_rank(axis)}" for axis in split_axes(tensor))


def by_division(tensors, key=lambda tensor: tensor):
    """Lists of items whose tensors (`key` of an item) are divided alike: one foreach operation takes no mixture."""
    groups = {}
    for item in tensors:
        tensor = key(item)
        mesh = tensor.device_mesh if is_piece(tensor) else None
        groups.setdefault((mesh, split_axes(tensor)), []).append(item)
    return list(groups.values())


def compare(model, group):
    """As checksum.compare, for a model of which ranks hold different pieces: each piece among those that hold it.

    Values that one rank alone holds cannot be compared; they are counted as `uncovered`.
    """
    own = {}
    for name, parameter in model.named_parameters():
        own.setdefault(coordinate(parameter), []).append((name, local(parameter.detach())))
    mine = {piece: checksum.digest(tensors) for piece, tensors in own.items()}
    everyone = group.gather(mine)
    groups, spreads, uncovered, equal = [], [], 0, None
    for piece, (digest, count, _) in mine.items():
        holders = [rank for rank, held in enumerate(everyone) if piece in held]
        if len(holders) == 1:
            uncovered += count
            continue
        groups.append({"name": f"parameters {piece}".strip(), "holders": holders, "count": count, "digest": digest})
        equal = equal is not False and all(everyone[rank][piece][0] == digest for rank in holders)
        spreads.append(checksum.spread([everyone[rank][piece][2] for rank in holders]))
    return {
        "groups": groups,
        "equal": equal,
        "spread": checksum.largest(spreads) if spreads else None,
        "uncovered": uncovered,
    }
