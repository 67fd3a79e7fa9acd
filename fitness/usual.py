"""What the reference of a problem usually takes, known from the rounds of earlier candidates.

It is the same program each time, but its processes are not: one whose memory lies badly, or a stretch of time in which
something else wants the memory, made an eager reference slower by a third where the candidates beside it lost a tenth.
Of 90 judgements of one kernel 6 read 10% or more too fast, all of them with such a reference.
"""

from __future__ import annotations

import statistics
from collections import deque

SLOW = 1.2
FEWEST, MOST = 20, 200
"""Rounds before anything is usual, and those that are remembered: what has changed for good is usual again in time."""


class Usual:
    """The latest times of one reference."""

    def __init__(self) -> None:
        self._times_ms: deque[float] = deque(maxlen=MOST)

    def is_slow(self, time_ms: float) -> bool:
        """Whether it took surely longer than it usually does."""
        return len(self._times_ms) >= FEWEST and time_ms > SLOW * statistics.median(self._times_ms)

    def add(self, time_ms: float) -> None:
        """Takes note of a round's time, slow or not."""
        self._times_ms.append(time_ms)
