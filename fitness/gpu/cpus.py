"""Which CPUs the judge of a GPU keeps for itself, so that it and a runner never take turns on one core."""

from __future__ import annotations

import re
from pathlib import Path

TOPOLOGY = Path("/sys/devices/system/cpu")
FEWEST = 4
"""With fewer CPUs than this nothing is set aside."""


def divided(device: str, available: frozenset[int], topology: Path = TOPOLOGY) -> tuple[frozenset[int], frozenset[int]]:
    """The judge's CPUs (one core, with its hardware threads) and everybody else's.

    Cores are given away from the last one down, one per device. Both are `available` where that is too few.
    """
    cores = sorted({_siblings(cpu, topology) & available for cpu in available}, key=max, reverse=True)
    number = int(device.partition(":")[2] or 0)
    if len(available) < FEWEST or number + 1 >= len(cores):
        return available, available
    return cores[number], available.difference(*cores[: number + 1])


def _siblings(cpu: int, topology: Path) -> frozenset[int]:
    """CPUs of the same core, from a list such as `0-1,8`; the CPU alone where the kernel does not say."""
    try:
        text = (topology / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text()
    except OSError:
        return frozenset({cpu})
    spans = re.findall(r"(\d+)(?:-(\d+))?", text)
    return frozenset({cpu, *(n for first, last in spans for n in range(int(first), int(last or first) + 1))})
