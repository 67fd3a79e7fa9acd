"""From paired rounds to a speedup with an interval. Pure functions: the clock is read in fitness/judge.py."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

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
    """Centres with 95% intervals; element i of both comes from round i.

    The speedup is the centre over rounds of log(reference / candidate): drift of the machine hits both sides of a
    round alike and cancels.
    """
    ratios = [math.log(r / k) for k, r in zip(kernel_ms, reference_ms, strict=True)]
    low, high = interval(ratios)
    return Timing(
        kernel_ms=centre(kernel_ms),
        kernel_ms_ci=interval(kernel_ms),
        reference_ms=centre(reference_ms),
        speedup=math.exp(centre(ratios)),
        speedup_ci=(math.exp(low), math.exp(high)),
        rounds=len(ratios),
    )


def centre(values: Sequence[float]) -> float:
    """The Hodges-Lehmann estimate: the median of all pairs' means, each value with itself included.

    Of normal noise it makes nearly as much as the mean (efficiency 0.955, the median's is 0.64), and it bears 29% of
    wild values (Hodges and Lehmann 1963).
    """
    return statistics.median(_walsh_averages(values))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Interval of the centre that holds the truth in 95% of cases or more, from Wilcoxon's signed-rank test: exact for
    values spread alike on both sides of the truth. Of fewer than 6 values it is all of them."""
    averages, first = _walsh_averages(values), _most_cut_off(len(values))
    return averages[first], averages[-1 - first]


@cache
def _most_cut_off(count: int) -> int:
    """The largest rank sum that at most 2.5% of all choices of signs stay at or below (0 where there is none)."""
    ways = [1]  # how many subsets of the first ranks have each sum
    for rank in range(1, count + 1):
        ways = [few + more for few, more in zip(ways + [0] * rank, [0] * rank + ways, strict=True)]
    below = itertools.accumulate(ways)
    return max(0, sum(number <= 0.025 * 2**count for number in below) - 1)


def _walsh_averages(values: Sequence[float]) -> list[float]:
    return sorted((a + b) / 2 for a, b in itertools.combinations_with_replacement(values, 2))


def may_stop(
    kernel_ms: Sequence[float],
    reference_ms: Sequence[float],
    incumbent_ms: float | None,
    looks: Sequence[int] = LOOKS,
    precision: float = PRECISION,
) -> bool:
    """Whether enough rounds are in: precise or clearly slower than the incumbent at a look, the last look, hopeless."""
    rounds = len(kernel_ms)
    if rounds >= FIRST_LOOK and incumbent_ms is not None and centre(kernel_ms) > HOPELESS * incumbent_ms:
        return True
    if rounds >= looks[-1]:
        return True
    if rounds not in looks:
        return False
    if incumbent_ms is not None and interval(kernel_ms)[0] > SLOWER * incumbent_ms:
        return True
    low, high = interval([math.log(r / k) for k, r in zip(kernel_ms, reference_ms, strict=True)])
    return (high - low) / 2 <= precision
