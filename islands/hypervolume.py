"""Exact hypervolume of a front, for points whose every coordinate is a gain over a reference point at zero."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

Point = tuple[float, ...]
"""Gains over the reference, larger is better; one that is not above zero counts for nothing."""


def hypervolume(points: Iterable[Point]) -> float:
    """Volume of the union of the boxes from the origin to each point, in the product of the coordinates' units.

    The points are taken up one by one, each adding what those before it do not cover (While, Bradstreet and Barone,
    "A Fast Way of Calculating Exact Hypervolumes", IEEE TEVC 16(1), 2012, section III).
    """
    volume, front = 0.0, list[Point]()
    for point in sorted(points, reverse=True):
        volume += exclusive(point, front)
        front.append(point)
    return volume


def exclusive(point: Point, others: Sequence[Point]) -> float:
    """The part of the point's own box that no other one's covers: what the hypervolume grows by when it joins.

    Its box, less the hypervolume of the others cut down to it (section III.B there).
    """
    box = math.prod(max(0.0, gain) for gain in point)
    if box == 0.0:
        return 0.0
    cut = [tuple(map(min, other, point)) for other in others]
    if point in cut:
        return 0.0
    return max(0.0, box - hypervolume(maximal(cut)))


def maximal(points: Sequence[Point]) -> list[Point]:
    """Those that no other one is at least as good as in everything, and above zero in everything; equals once."""
    kept: list[Point] = []
    for point in sorted(set(points), reverse=True):
        if min(point) > 0 and not any(covers(other, point) for other in kept):
            kept.append(point)
    return kept


def covers(a: Point, b: Point) -> bool:
    """Is `a` at least as good as `b` in every coordinate?"""
    return all(x >= y for x, y in zip(a, b, strict=True))
