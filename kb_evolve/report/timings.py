"""How the times of a run's kernels are spread, and how well they are known."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from islands.candidate import Evaluated
from kb_evolve.report import series

FASTEST = 12
"""Programs whose intervals are drawn."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A program's time with its 95% interval [ms]."""

    number: int
    kernel_ms: float
    low: float
    high: float
    rounds: int
    is_elite: bool


@dataclass(frozen=True, slots=True)
class Timings:
    """Of all distinct correct programs."""

    kernel_ms: tuple[float, ...]
    """Ascending."""
    reference_ms: tuple[float, ...]
    """The baseline's time as measured beside each of them, ascending: its spread is the machine's."""
    widths: tuple[float, ...]
    """Width of each program's interval over its time, ascending."""
    fastest: tuple[Interval, ...]
    """The elite first, then the others, the fastest first."""

    @property
    def median_width(self) -> float:
        return statistics.median(self.widths)


def timings(history: series.History) -> Timings | None:
    """The spread of times; None where no candidate is correct. Of equal sources the first told counts."""
    distinct: dict[str, Evaluated] = {}
    for each in history:
        if each.evaluation.is_correct:
            distinct.setdefault(each.candidate.source_sha256, each)
    winner = series.best(history)
    if winner is None:
        return None
    found = [_interval(each, winner) for each in distinct.values()]
    ranked = sorted(found, key=lambda each: (not each.is_elite, each.kernel_ms))
    return Timings(
        tuple(sorted(each.kernel_ms for each in found)),
        tuple(sorted(each.evaluation.reference_ms or math.nan for each in distinct.values())),
        tuple(sorted((each.high - each.low) / each.kernel_ms for each in found)),
        tuple(ranked[:FASTEST]),
    )


def shares(values: Sequence[float]) -> list[float]:
    """The empirical distribution of ascending values: the share of them that is no greater than each."""
    return [(rank + 1) / len(values) for rank in range(len(values))]


def _interval(each: Evaluated, winner: Evaluated) -> Interval:
    evaluation = each.evaluation
    assert evaluation.kernel_ms is not None and evaluation.kernel_ms_ci is not None
    low, high = evaluation.kernel_ms_ci
    is_elite = each.candidate.source_sha256 == winner.candidate.source_sha256
    return Interval(each.candidate.number, evaluation.kernel_ms, low, high, evaluation.rounds, is_elite)
