"""Exact hypervolume against a Monte-Carlo estimate and against shapes whose volume is known."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from islands.hypervolume import exclusive, hypervolume, maximal


def estimate(points: list[tuple[float, ...]], samples: int, rng: Random) -> tuple[float, float]:
    """Volume and its standard error, by throwing points into the box that holds all of them."""
    sides = [max(point[axis] for point in points) for axis in range(len(points[0]))]
    box = math.prod(sides)
    hits = 0
    for _ in range(samples):
        thrown = [rng.uniform(0, side) for side in sides]
        hits += any(all(x <= y for x, y in zip(thrown, point, strict=True)) for point in points)
    share = hits / samples
    return box * share, box * math.sqrt(max(share * (1 - share), 1 / samples) / samples)


@pytest.mark.parametrize("axes", [2, 3, 4])
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_the_hypervolume_is_what_random_points_estimate(axes: int, data: st.DataObject) -> None:
    gain = st.floats(0.05, 4.0)
    points = data.draw(st.lists(st.tuples(*[gain] * axes), min_size=1, max_size=10))
    expected, error = estimate(points, 3000, Random(repr(points)))
    assert abs(hypervolume(points) - expected) < 5 * error


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=8))
def test_on_whole_numbers_it_is_the_count_of_unit_cubes(points: list[tuple[int, ...]]) -> None:
    cubes = {(x, y, z) for a, b, c in points for x in range(a) for y in range(b) for z in range(c)}
    assert hypervolume(points) == len(cubes)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=8))
def test_a_point_adds_what_it_alone_covers(points: list[tuple[int, ...]]) -> None:
    *others, last = points
    assert exclusive(last, others) == hypervolume(points) - hypervolume(others)


def test_nothing_has_no_volume() -> None:
    assert hypervolume([]) == 0.0


def test_a_point_that_gains_nothing_in_one_axis_counts_for_nothing() -> None:
    assert hypervolume([(3.0, 0.0, 3.0), (1.0, 1.0, 1.0)]) == 1.0
    assert exclusive((3.0, -1.0, 3.0), []) == 0.0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=10))
def test_the_maximal_points_are_those_of_brute_force(points: list[tuple[int, ...]]) -> None:
    expected = {
        point
        for point in points
        if min(point) > 0
        and not any(other != point and all(x >= y for x, y in zip(other, point, strict=True)) for other in points)
    }
    found = maximal(points)
    assert set(found) == expected
    assert len(found) == len(expected)
