"""From paired rounds to a speedup with an interval. Pure functions: the clock is read in fitness/judge.py."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LOOKS = (20, 40, 80, 160)
"""Numbers of rounds at which the judge may stop."""
PRECISION = 0.015
"""Half-width of the 95% interval of log(speedup) at which it stops, on the CPU."""
FIRST_LOOK = 6
"""Rounds after which a candidate that is clearly slower than the incumbent is given up."""
HOPELESS = 1.5
"""Clearly slower: this many times the incumbent's time."""
SLOWER = 1.03
"""A candidate whose 95% interval lies above this many times the incumbent's time needs no better estimate."""
RESAMPLES = 1_000


@dataclass(frozen=True, slots=True)
class Timing:
    """What paired rounds say; the milliseconds are per call."""

    kernel_ms: float
    kernel_ms_ci: tuple[float, float]
    reference_ms: float
    speedup: float
    speedup_ci: tuple[float, float]
    rounds: int


def summarise(kernel_ms: Sequence[float], reference_ms: Sequence[float]) -> Timing:
    """Medians with 95% bootstrap intervals; element i of both comes from round i.

    The speedup is the median over rounds of log(reference / candidate): drift of the machine hits both sides of a
    round alike and cancels.
    """
    ratios = [math.log(r / k) for k, r in zip(kernel_ms, reference_ms, strict=True)]
    low, high = median_interval(ratios)
    middle = statistics.median(ratios)
    return Timing(
        kernel_ms=statistics.median(kernel_ms),
        kernel_ms_ci=median_interval(kernel_ms),
        reference_ms=statistics.median(reference_ms),
        speedup=math.exp(middle),
        speedup_ci=(math.exp(low), math.exp(high)),
        rounds=len(ratios),
    )


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """95% percentile-bootstrap interval of the median (Efron 1979), the same for the same values."""
    generator = random.Random(0)
    ordered = sorted(values)
    count = len(ordered)
    medians = sorted(statistics.median(generator.choices(ordered, k=count)) for _ in range(RESAMPLES))
    return medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES) - 1]


def may_stop(
    kernel_ms: Sequence[float],
    reference_ms: Sequence[float],
    incumbent_ms: float | None,
    looks: Sequence[int] = LOOKS,
    precision: float = PRECISION,
) -> bool:
    """Whether enough rounds are in: precise or clearly slower than the incumbent at a look, the last look, hopeless."""
    rounds = len(kernel_ms)
    if rounds >= FIRST_LOOK and incumbent_ms is not None and statistics.median(kernel_ms) > HOPELESS * incumbent_ms:
        return True
    if rounds >= looks[-1]:
        return True
    if rounds not in looks:
        return False
    if incumbent_ms is not None and median_interval(kernel_ms)[0] > SLOWER * incumbent_ms:
        return True
    low, high = median_interval([math.log(r / k) for k, r in zip(kernel_ms, reference_ms, strict=True)])
    return (high - low) / 2 <= precision
