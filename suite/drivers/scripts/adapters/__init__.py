"""Log adapters: events from the output of scripts that cannot be changed. Python 3.8, standard library only.

A case of evidence `log` names them in `[script] adapters`. Several names make one adapter (`adapter_of`), for two that
read the same bar would tell every step twice. `LogReader` also takes the bytes of a log apart.
"""

from __future__ import annotations

from typing import Dict, Optional, Sequence, Type

from suite.drivers.scripts.adapters.adapter import (
    Adapter,
    HuggingFaceTrainer,
    NeMo,
    Tqdm,
    TrainerState,
    combined,
)

__all__ = ["ADAPTERS", "Adapter", "adapter_of"]

ADAPTERS: Dict[str, Type[Adapter]] = {
    "tqdm": Tqdm,
    "hf_trainer": HuggingFaceTrainer,
    "trainer_state": TrainerState,
    "nemo": NeMo,
}
"""By the names that case.toml gives them."""


def adapter_of(names: Sequence[str], batch: Optional[int] = None, folders: Sequence[str] = ()) -> Adapter:
    """One adapter for all these names. Raises KeyError for an unknown one."""
    return combined([ADAPTERS[name] for name in names], batch, folders)
