"""The rule by which one kernel takes another's place."""

from __future__ import annotations

import math
from random import Random

import pytest

from islands.elite import beats, fitness


def test_fitness_is_the_logarithm_of_the_speedup_and_worst_for_failures(make):
    assert fitness(make.evaluated(0, 4.0).evaluation) == pytest.approx(2 * math.log(2))
    assert fitness(make.evaluated(0, None).evaluation) == -math.inf


@pytest.mark.parametrize(
    ("challenger", "holder", "wins"),
    [
        ((1.2, (1.11, 1.3)), (1.1, (1.0, 1.2)), True),  # its low end lies above the holder's median
        ((1.2, (1.09, 1.3)), (1.1, (1.0, 1.2)), False),  # it does not, and the intervals are wide
        ((1.2, (1.0, 1.21)), (0.9, (0.89, 0.91)), True),  # low end 1.0 > 0.9
        (
            (2.0, (0.9, 2.1)),
            (1.0, (0.99, 1.01)),
            False,
        ),  # a lopsided interval counts on the side that matters
        ((2.0, (1.0, 2.1)), (1.0, (0.5, 1.01)), False),  # gain log 2, joint half-width just above log 2
        ((1.1, (1.1, 1.1)), (1.1, (1.1, 1.1)), False),  # a tie leaves the holder
        ((1.2, (1.1, 1.3)), None, True),
        (None, None, False),
        (None, (1.0, (0.9, 1.1)), False),
    ],
)
def test_a_holder_is_replaced_only_by_a_clear_gain(make, challenger, holder, wins):
    def measured(values):
        if values is None:
            return make.evaluated(0, None).evaluation
        return make.evaluated(0, values[0], speedup_ci=values[1]).evaluation

    assert beats(measured(challenger), None if holder is None else measured(holder)) is wins


def test_any_correct_candidate_beats_a_failed_one(make):
    assert beats(make.evaluated(0, 0.1, 0.9).evaluation, make.evaluated(1, None).evaluation)


def test_a_thousand_equal_kernels_measured_with_noise_replace_few_elites(make):
    """Comparing medians alone would replace the elite about ln(1000) = 7 times, each time by luck."""
    rng, holder, replaced = Random(11), None, -1
    for number in range(1000):
        speedup = math.exp(rng.gauss(0, 0.01))
        challenger = make.evaluated(number, speedup, spread=0.0196).evaluation
        if beats(challenger, holder):
            holder, replaced = challenger, replaced + 1
    assert replaced <= 2
