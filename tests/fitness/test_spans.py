"""Stretches of memory, against sets of bytes."""

from __future__ import annotations

import itertools
import random

import pytest

from fitness.spans import Span, common_bytes, merged, new_share


def some(dice: random.Random, count: int) -> list[Span]:
    starts = [dice.randrange(60) for _ in range(count)]
    return [(start, start + dice.randrange(12)) for start in starts]


def covered(spans: list[Span]) -> set[int]:
    return {byte for start, end in spans for byte in range(start, end)}


@pytest.mark.parametrize("seed", range(100))
def test_they_are_merged_and_compared_as_sets_of_bytes(seed):
    dice = random.Random(seed)
    left, right = some(dice, dice.randrange(8)), some(dice, dice.randrange(8))
    one, other = merged(left), merged(right)
    assert covered(one) == covered(left)
    assert all(end < start for (_, end), (start, _) in itertools.pairwise(one))
    both, mine = covered(left) & covered(right), covered(left)
    assert common_bytes(one, other) == len(both)
    assert new_share(one, other) == pytest.approx(1 - len(both) / len(mine) if mine else 0.0)
