"""Relatives: found through parents, nearest and newest first, never more than asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from islands.family import Family
from islands.shelf import Shelf


@pytest.fixture
def family(make: Any) -> Callable[..., Family]:
    """Builds a family from {number: parents' numbers}, told in this order."""

    def build(parents: dict[int, tuple[int, ...]], **changes: Any) -> Family:
        built = Family(Shelf())
        for number, of in parents.items():
            ids = tuple(f"run00000-{one:06d}" for one in of)
            built.add(make.evaluated(number, 1.0, parent_ids=ids, **{"island": 0} | changes))
        return built

    return build


def relatives(family: Family, number: int, limit: int = 100) -> list[int]:
    return [one.candidate.number for one in family.relatives(f"run00000-{number:06d}", limit)]


TREE = {0: (), 1: (), 2: (0,), 3: (2, 1), 4: (2,), 5: (3,), 6: (5,), 7: (4,), 8: ()}


def test_relatives_are_ancestors_siblings_descendants_and_itself(family):
    assert relatives(family(TREE), 3) == [0, 1, 2, 3, 4, 5, 6]


def test_a_stranger_has_only_itself(family):
    assert relatives(family(TREE), 8) == [8]


def test_an_untold_parent_is_no_relative(family):
    assert relatives(family({1: (77,), 2: (1,)}), 2) == [1, 2]


def test_programs_that_differ_only_in_tunables_are_relatives_on_the_same_island(family, make):
    built = family({0: ()}, source="constexpr int TILE = 8;  // tune: 8 16\n")
    for number, island, value in ((1, 0, 16), (2, 1, 16)):
        text = f"constexpr int TILE = {value};  // tune: 8 16\n"
        built.add(make.evaluated(number, 1.0, island=island, source=text))
    assert relatives(built, 0) == [0, 1]


def test_other_islands_twins_come_apart_the_latest_in_the_order_told(family, make):
    built = family({0: ()}, source="constexpr int TILE = 8;  // tune: 8 16\n")
    for number in range(1, 5):
        text = f"constexpr int TILE = {number};  // tune: 8 16\n"
        built.add(make.evaluated(number, 1.0, island=number % 2, source=text))
    assert [one.candidate.number for one in built.elsewhere("run00000-000000", 9)] == [1, 3]
    assert [one.candidate.number for one in built.elsewhere("run00000-000001", 2)] == [2, 4]
    assert relatives(built, 0) == [0, 2, 4]


def test_a_limit_is_kept_and_shared_between_the_kinds(family):
    chain = {number: (number - 1,) if number else () for number in range(50)}
    built = family(chain | {number: (25,) for number in range(50, 90)})
    found = relatives(built, 26, limit=9)
    assert len(found) == 9 and 26 in found
    assert {25, 24} <= set(found), "nearest ancestors"
    assert {27, 28} <= set(found), "nearest descendants"
    assert {88, 89} <= set(found), "newest siblings"


def test_the_order_is_the_order_told(family):
    assert relatives(family({5: (), 3: (5,), 4: (3,)}), 3) == [5, 3, 4]


def test_a_limit_of_zero_shows_nobody(family):
    assert relatives(family(TREE), 3, limit=0) == []


def test_a_parent_named_twice_counts_once(family):
    assert relatives(family({0: (), 1: (0, 0), 2: (0,)}), 2) == [0, 1, 2]
