"""Best so far against evaluations, running time and money, and each island's own, with migrations.

Every function is a pure fold over a `Record`; `xs` holds one abscissa for each member of the history.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

from kb_evolve.report import series
from kb_evolve.report.moments import is_moment, moment
from kb_evolve.report.record import Record
from kb_evolve.report.timeline import parts, running_seconds


@dataclass(frozen=True, slots=True)
class Curve:
    """A staircase: from `x[i]` on `speedup[i]` holds, with its 95% interval. The last step is carried to the end."""

    x: tuple[float, ...]
    speedup: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    candidate_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A migration: `candidate_id` of island `origin` became a member of island `target`."""

    number: int
    """Evaluations told to the whole population when it happened."""
    origin: int
    target: int
    speedup: float
    """Of the one that moved."""
    is_reset: bool


EMPTY = Curve((), (), (), (), ())

Item = TypeVar("Item")


def by_evaluation(record: Record) -> list[float]:
    """1 to n."""
    return [float(number) for number in range(1, len(record.history) + 1)]


def by_wall(record: Record) -> list[float]:
    """Seconds for which the run had worked when each was told, pauses left out; empty where moments lack."""
    return running_seconds(record.told_at, parts(record))


def by_dollars(record: Record) -> list[float]:
    """USD that models had cost when each was told; empty where moments lack."""
    paid = payments(record)
    moments = [at for at, _ in paid]
    sums = [0.0, *accumulate(usd for _, usd in paid)]
    return [sums[bisect_right(moments, moment(at))] for at in record.told_at]


def payments(record: Record) -> list[tuple[float, float]]:
    """(seconds since the epoch, USD) of all that was paid, in order of time.

    Replies and failures count as they came; an attempt that recorded none counts, with its own usage, as it closed.
    """
    asked = {one.number for one in record.spent}
    paid = [(_when(one.at), usd_of(one.usage)) for one in record.spent]
    for attempt in record.attempts:
        if attempt.closed_at and attempt.number not in asked:
            paid.append((_when(attempt.closed_at), usd_of(attempt.usage)))
    return sorted(entry for entry in paid if entry[1] > 0)


def total_usd(record: Record) -> float:
    """All that models cost."""
    return sum(usd for _, usd in payments(record))


def best_curve(record: Record, xs: Sequence[float]) -> Curve:
    """The elites of the run, one step each, at the estimates that count now.

    A step down is an elite that lost its place when it was measured afresh.
    """
    by_id = {point.candidate_id: point for point in series.correct_points(record.history)}
    reigns = [reign for reign in record.replayed.reigns if reign.candidate_id in by_id]
    return curve([(reign.number, by_id[reign.candidate_id]) for reign in reigns], xs)


def island_curves(record: Record) -> dict[int, Curve]:
    """By island, the best so far among those that it found itself; what migrated to it is not counted."""
    xs = by_evaluation(record)
    found = series.island_curves(record.history)
    return {island: curve([(point.number, point) for point in points], xs) for island, points in found.items()}


def migrations(record: Record) -> list[Mark]:
    """Every migration and reset of the run, oldest first."""
    speedups = {point.candidate_id: point.speedup for point in series.correct_points(record.history)}
    return [
        Mark(move.after, move.origin, move.target, speedups[move.candidate_id], move.is_reset)
        for move in record.replayed.migrations
        if move.candidate_id in speedups
    ]


def sampled(values: Sequence[Item], most: int) -> list[Item]:
    """At most `most` of them, evenly spaced, the first and the last included."""
    if len(values) <= most:
        return list(values)
    return [values[round(index * (len(values) - 1) / (most - 1))] for index in range(most)]


def curve(steps: Sequence[tuple[int, series.Point]], xs: Sequence[float]) -> Curve:
    """The staircase of (evaluation number, point) over `xs`; EMPTY where there is neither."""
    if not steps or not xs:
        return EMPTY
    points = [point for _, point in steps]
    points.append(points[-1])
    return Curve(
        (*(xs[number - 1] for number, _ in steps), xs[-1]),
        tuple(point.speedup for point in points),
        tuple(point.low for point in points),
        tuple(point.high for point in points),
        tuple(point.candidate_id for point in points),
    )


def _when(at: str) -> float:
    """Its moment; what cannot be read counts as paid before all else."""
    return moment(at) if is_moment(at) else 0.0


def usd_of(usage: Mapping[str, object]) -> float:
    """What was paid; 0 for what is no finite number."""
    value = usage.get("cost_usd")
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0
