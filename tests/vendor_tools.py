"""The tools of every vendor whose devices are told by tools."""

from __future__ import annotations

from dataclasses import dataclass

from tests.vendor_answers import (
    amd_enumeration,
    amd_list,
    amd_metric,
    amd_process,
    amd_static,
    gaudi_monitor,
    gaudi_probe,
    hygon_bus,
    hygon_memory,
    hygon_product,
    xpu_discovery,
    xpu_dump,
)
from tests.vendor_card import Output
from tests.vendor_tables import cnmon, hygon_table, ixsmi, kunlun, mthreads_query, mthreads_table, mxsmi, npu


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What the sources of one vendor print, in the order of vendor.toml, and what its devices are called."""

    probe: tuple[Output, ...]
    monitor: tuple[Output, ...]
    name: str
    machine: str


TOOLS = {
    "amd": Tools(
        probe=(amd_static, amd_enumeration),
        monitor=(amd_list, amd_metric, amd_process),
        name="AMD Instinct MI300X",
        machine="MI300X",
    ),
    "ascend": Tools(probe=(npu,), monitor=(npu, npu), name="910B3", machine="910B3"),
    "cambricon": Tools(probe=(cnmon,), monitor=(cnmon, cnmon), name="MLU370-X8", machine="MLU370-X8"),
    "hygon": Tools(
        probe=(hygon_bus, hygon_product, hygon_memory),
        monitor=(hygon_table, hygon_memory),
        name="K100_AI",
        machine="K100_AI",
    ),
    "iluvatar": Tools(probe=(ixsmi,), monitor=(ixsmi, ixsmi), name="Iluvatar BI-V100", machine="BI-V100"),
    "intel-gaudi": Tools(probe=(gaudi_probe,), monitor=(gaudi_monitor,), name="HL-225", machine="Gaudi2"),
    "intel-xpu": Tools(
        probe=(xpu_discovery,), monitor=(xpu_dump,), name="Intel(R) Data Center GPU Max 1550", machine="Max-1550"
    ),
    "kunlunxin": Tools(probe=(kunlun,), monitor=(kunlun,), name="P800 OAM", machine="P800"),
    "metax": Tools(probe=(mxsmi,), monitor=(mxsmi, mxsmi), name="MetaX C500", machine="C500"),
    "mthreads": Tools(
        probe=(mthreads_query,), monitor=(mthreads_query, mthreads_table), name="MTT S4000", machine="S4000"
    ),
}
"""Every vendor whose devices are told by tools."""
