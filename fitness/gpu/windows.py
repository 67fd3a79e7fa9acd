"""From the reference's own windows: how long a call takes, and what a window costs around its calls."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fitness.draws import Draw
from fitness.gpu.calls import GpuRunner

if TYPE_CHECKING:
    import torch

PILOT_CALLS, PILOT_WINDOWS = 16, 4
FIXED_WINDOWS, SETTLING = 9, 2


def call_ms(runner: GpuRunner, new_batch: Callable[[int], Sequence[Draw]], calls: int) -> float:
    """One call's time [ms], roughly: by the difference of two windows, where more than one call fits into one."""
    shortest = {1: math.inf, calls: math.inf}
    for count in (1, calls) * PILOT_WINDOWS:
        batch = [draw.inputs for draw in new_batch(count)]
        shortest[count] = min(shortest[count], runner.call(batch).window_ms)
    if calls == 1:
        return shortest[1]
    return max(shortest[calls] - shortest[1], 0.0) / (calls - 1)


def fixed_ms(runner: GpuRunner, new_batch: Callable[[int], Sequence[Draw]], calls: int, flush: torch.Tensor) -> float:
    """What a window of many calls costs around them [ms], its tail apart, from windows of fewer and of all.

    The first call of a window, on cold caches, is in it. Only for a process that is trusted: a candidate could be slow
    in small windows on purpose.
    """
    few, medians = max(1, calls // 4), []
    for count in (few, calls):  # one after the other: outputs then lie where they lay
        seen = []
        for _ in range(SETTLING + FIXED_WINDOWS):
            batch = [draw.inputs for draw in new_batch(count)]
            call = runner.call(batch, flush)
            seen.append(call.window_ms - call.tail_ms)
        medians.append(statistics.median(seen[SETTLING:]))
    short, long = medians
    return max(0.0, short - few * (long - short) / (calls - few))
