"""The Pareto archive against the definition, by brute force."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from islands.archive import Archive, objectives, pareto

POINTS = st.lists(
    st.tuples(
        st.sampled_from([0.5, 1.0, 2.0, 3.0]),
        st.none() | st.integers(1, 4),
        st.none() | st.sampled_from([0.5, 1.0, 2.0, math.nan]),
    ),
    max_size=14,
)


def points(make: Any, values: Any) -> list:
    return [
        make.evaluated(number, speedup, peak_mem_bytes=memory, error_ratio=error)
        for number, (speedup, memory, error) in enumerate(values)
    ]


def dominates(a: Any, b: Any) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True)) and a != b


@settings(max_examples=60, deadline=None)
@given(POINTS)
def test_the_front_is_what_no_other_candidate_dominates(make, values):
    told = points(make, values)
    front = pareto(told)
    expected = {
        objectives(one) for one in told if not any(dominates(objectives(other), objectives(one)) for other in told)
    }
    assert {objectives(one) for one in front} == expected
    assert len(front) == len(expected)
    times_ms = [objectives(one)[0] for one in front]
    assert times_ms == sorted(times_ms)


def test_of_equals_the_first_is_kept(make):
    first, second = points(make, [(1.0, 5, 1.0), (1.0, 5, 1.0)])
    assert pareto([first, second]) == [first]


def test_what_was_not_measured_counts_as_the_worst(make):
    unknown, known = points(make, [(2.0, None, None), (2.0, 10**12, 1000.0)])
    assert pareto([unknown, known]) == [known]


def test_failed_candidates_never_enter(make):
    archive = Archive()
    assert archive.add(make.evaluated(0, None)) is False
    assert archive.front() == []


def test_adding_says_whether_the_candidate_entered(make):
    archive = Archive()
    slow, fast, slower = points(make, [(1.0, 5, 1.0), (2.0, 5, 1.0), (0.5, 5, 1.0)])
    assert [archive.add(one) for one in (slow, fast, slower)] == [True, True, False]
    assert archive.front() == [fast]
