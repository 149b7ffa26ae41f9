"""What vendors' tools print for people, in the form that each is known to have, of any devices."""

from __future__ import annotations

from collections.abc import Sequence

from tests.vendor_card import Card, with_unit


def npu(cards: Sequence[Card]) -> str:
    """`npu-smi info` of one-chip NPUs."""
    rule = "+===========================+===============+====================================================+"
    lines = [
        rule.replace("=", "-"),
        "| npu-smi 24.1.rc2                 Version: 24.1.rc2                                              |",
        rule.replace("=", "-"),
        "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|",
        "| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |",
        rule,
    ]
    for c in cards:
        lines += [
            f"| {c.number:<5} {c.name:<19} | OK            | {c.power:<11} {c.temperature:<17} 0    / 0             |",
            f"| 0                         | {c.bus:<13} | {c.load:<11} 0    / 0          {c.used} / {c.total:<13}|",
            rule,
        ]
    lines += [
        rule.replace("=", "-"),
        "| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |",
    ]
    for c in cards:
        lines.append(rule)
        lines += [
            f"| {c.number:<7} 0                 | {pid:<13} |                          | 37709                   |"
            for pid in c.pids
        ]
        lines += [] if c.pids else [f"| No running processes found in NPU {c.number:<61}|"]
    return "\n".join([*lines, rule, ""])


def cnmon(cards: Sequence[Card]) -> str:
    """`cnmon` 5."""
    rule = "+-------------------------------+----------------------+-----------------------+"
    lines = [
        "Wed Nov  8 16:16:45 2023",
        rule,
        "| CNMON v5.10.22                                               Driver v5.10.22 |",
        rule,
        "| Card  VF  Name       Firmware |               Bus-Id | Util        Ecc-Error |",
        "| Fan   Temp      Pwr:Usage/Cap |         Memory-Usage | Mode     Compute-Mode |",
        rule.replace("-", "="),
    ]
    for c in cards:
        lines += [
            f"| {c.number:<5} /   {c.name:<12} v1.1.6 | {c.bus:>20} | {with_unit(c.load, '%'):<11}         0 |",
            (
                f"|  0%   {with_unit(c.temperature, 'C'):<7} {with_unit(c.power, ' W'):>7}/ 250 W"
                f" | {with_unit(c.used, ' MiB'):>9}/{c.total:>6} MiB | FULL          Default |"
            ),
            rule,
        ]
    lines += ["", "| Processes:                                                                   |"]
    lines += ["|  Card  MI  PID     Command Line                             MLU Memory Usage |"]
    rows = [
        f"|  {c.number}     /   {pid:<7} python3 train.py                                 311 MiB |"
        for c in cards
        for pid in c.pids
    ]
    return "\n".join(
        [*lines, *(rows or ["|  No running processes found                                                  |"]), ""]
    )


def kunlun(cards: Sequence[Card]) -> str:
    """`xpu-smi` of Kunlunxin's driver 5."""
    rule = "+-------------------------------+----------------------+----------------------+"
    lines = [
        "Wed Jun 25 19:45:10 2025",
        "| XPU-SMI               Driver Version: 5.0.21.21    XPU-RT Version: 5.0.21   |",
        "| XPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | XPU-Util  Compute M. |",
        rule.replace("-", "="),
    ]
    for c in cards:
        lines += [
            f"|   {c.number}  {c.name:<18} N/A   | 0000{c.bus} N/A |                    0 |",
            (
                f"| N/A   {with_unit(c.temperature, 'C')}  N/A  {with_unit(c.power, 'W'):>7} / 400W"
                f" | {with_unit(c.used, 'MiB'):>9} / {c.total}MiB |      {with_unit(c.load, '%'):<4}    Default |"
            ),
            "|                               |      0MiB /    96MiB |             Disabled |",
            rule,
        ]
    return "\n".join([*lines, ""])


def ixsmi(cards: Sequence[Card]) -> str:
    """`ixsmi` 4."""
    rule = "+-------------------------------+----------------------+----------------------+"
    lines = [
        rule,
        "|  IX-ML: 4.0.0       Driver Version: 4.1.0       CUDA Version: N/A           |",
        "| GPU  Name                     | Bus-Id               | Clock-SM  Clock-Mem  |",
        "| Fan  Temp  Perf  Pwr:Usage/Cap|      Memory-Usage    | GPU-Util  Compute M. |",
        rule.replace("-", "="),
    ]
    for c in cards:
        lines += [
            f"| {c.number:<4} {c.name:<24} | 0000{c.bus}     | 1500MHz   1200MHz    |",
            (
                f"| 0%   {with_unit(c.temperature, 'C')}   P0   {with_unit(c.power, 'W')} / 250W   "
                f" | {with_unit(c.used, 'MiB')} / {c.total}MiB    | {with_unit(c.load, '%'):<9} Default    |"
            ),
            rule,
        ]
    lines += ["", "| Processes:                                                       GPU Memory |"]
    lines += ["|  GPU        PID      Process name                                Usage(MiB) |"]
    rows = [
        f"|  {c.number:<10} {pid:<8} python3                                     3072       |"
        for c in cards
        for pid in c.pids
    ]
    return "\n".join(
        [*lines, *(rows or ["|  No running processes found                                                 |"]), ""]
    )


def mxsmi(cards: Sequence[Card]) -> str:
    """`mx-smi` 2."""
    rule = "+------------------------------------+---------------------+----------------------+"
    lines = [
        "mx-smi  version: 2.2.8",
        f"Attached GPUs                                     : {len(cards)}",
        "| MX-SMI 2.2.8                        Kernel Mode Driver Version: 3.0.11          |",
        "| GPU     NAME         Persistence-M | Bus-id              | GPU-Util      sGPU-M |",
        "| Temp    Pwr:Usage/Cap         Perf | Memory-Usage        | GPU-State            |",
        rule.replace("-", "="),
    ]
    for c in cards:
        lines += [
            f"| {c.number:<7} {c.name:<22} Off | {c.bus:<19} | {with_unit(c.load, '%'):<13} Native |",
            (
                f"| {with_unit(c.temperature, 'C'):<6} {with_unit(c.power, 'W')} / 350W              P0"
                f" | {c.used}/{c.total} MiB{'':<7}| Available            |"
            ),
            rule,
        ]
    lines += ["", "| Process:                                                                        |"]
    lines += ["|  GPU                    PID         Process Name                 GPU Memory     |"]
    rows = [
        f"|  {c.number:<22} {pid:<11} python3                      3072           |" for c in cards for pid in c.pids
    ]
    return "\n".join(
        [*lines, *(rows or ["|  no process found                                                               |"]), ""]
    )


def mthreads_query(cards: Sequence[Card]) -> str:
    """`mthreads-gmi -q`."""
    lines = [
        "Driver Version                                    :  2.7.0",
        f"Attached GPUs                                     :  {len(cards)}",
    ]
    for c in cards:
        pairs = [
            ("    Product Name", c.name), ("    Product Brand", "MTT"), ("    GPU UUID", f"uuid-of-{c.number}"),
            ("    FB Memory Usage", ""), ("        Total", f"{c.total}MiB"), ("        Used", with_unit(c.used, "MiB")),
            ("    Utilization", ""), ("        Gpu", with_unit(c.load, "%")),
            ("    Temperature", ""), ("        GPU Current Temp", with_unit(c.temperature, "C")),
            ("    Power Readings", ""), ("        Power Draw", with_unit(c.power, "W")),
        ]  # fmt: skip
        lines += ["", f"GPU{c.number} 0000{c.bus.lower()}"]
        lines += [f"{key:<50}:  {value}" if value else key for key, value in pairs]
    return "\n".join([*lines, ""])


def mthreads_table(cards: Sequence[Card]) -> str:
    """`mthreads-gmi`."""
    lines = ["Tue Jun 23 17:48:04 2026", "    mthreads-gmi:2.4.1           Driver Version:5.1.0-server"]
    for c in cards:
        lines += [
            f"{c.number:<4} {c.name:<20} |0000{c.bus.lower()}  |{with_unit(c.load, '%'):<5} {c.used}MiB({c.total}MiB)",
            f"     Physical      P0     |16x(16x)            |{with_unit(c.temperature, 'C')}   YES",
        ]
    lines += ["Processes:", "ID   PID       Process name                         GPU Memory"]
    rows = [f"{c.number:<4} {pid:<9} python3 train.py                     1234MiB" for c in cards for pid in c.pids]
    return "\n".join([*lines, *(rows or ["   No running processes found"]), "-" * 60, ""])


def hygon_table(cards: Sequence[Card]) -> str:
    """`hy-smi`."""
    lines = ["", "================================= System Management Interface =================================="]
    lines += ["HCU     Temp     AvgPwr     Perf     PwrCap     VRAM%      HCU%      Dec%      Enc%      Mode"]
    lines += [
        f"{c.number:<7} {with_unit(c.temperature, 'C'):<8} {with_unit(c.power, 'W'):<10} auto     400.0W     5%        "
        f" {with_unit(c.load, '%'):<9} 0.0%      0.0%      Normal"
        for c in cards
    ]
    return "\n".join(
        [*lines, "======================================== End of SMI Log ========================================", ""]
    )
