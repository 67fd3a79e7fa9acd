"""Paired rounds give honest intervals and stop when they may."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from fitness import timing


def rounds(speedup: float, count: int, *, noise: float, drift: float, seed: int) -> tuple[list[float], list[float]]:
    generator = random.Random(seed)
    kernel, reference = [], []
    for index in range(count):
        pace = 1 + drift * math.sin(index / 7)
        kernel.append(2.0 * pace * math.exp(generator.gauss(0, noise)))
        reference.append(2.0 * speedup * pace * math.exp(generator.gauss(0, noise)))
    return kernel, reference


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    hits = 0
    for seed in range(200):
        low, high = timing.summarise(*rounds(1.3, 40, noise=0.03, drift=0.1, seed=seed)).speedup_ci
        hits += low <= 1.3 <= high
    assert 180 <= hits <= 200


def test_drift_that_hits_both_sides_of_a_round_cancels():
    found = timing.summarise(*rounds(1.5, 80, noise=0.005, drift=0.5, seed=1))
    assert found.speedup == pytest.approx(1.5, rel=0.01)


def test_the_same_times_give_the_same_interval():
    data = rounds(1.1, 40, noise=0.05, drift=0, seed=3)
    assert timing.summarise(*data) == timing.summarise(*data)


def test_precise_rounds_stop_at_the_first_look_and_noisy_ones_go_on():
    assert timing.may_stop(*rounds(2, 20, noise=0.002, drift=0, seed=1), None)
    assert not timing.may_stop(*rounds(2, 20, noise=0.2, drift=0, seed=1), None)
    assert timing.may_stop(*rounds(2, 160, noise=0.2, drift=0, seed=1), None)
    assert not timing.may_stop(*rounds(2, 21, noise=0.002, drift=0, seed=1), None)


def test_a_hopeless_candidate_stops_after_a_few_rounds_only_when_there_is_an_incumbent():
    slow = rounds(0.5, timing.FIRST_LOOK, noise=0.01, drift=0, seed=1)
    assert timing.may_stop(*slow, incumbent_ms=1.0)
    assert not timing.may_stop(*slow, incumbent_ms=None)
    assert not timing.may_stop(*slow, incumbent_ms=1.9)


def test_at_a_look_a_candidate_that_is_surely_slower_than_the_incumbent_stops_however_noisy():
    noisy = rounds(2, 20, noise=0.1, drift=0, seed=1)
    assert timing.may_stop(*noisy, incumbent_ms=1.7)
    assert not timing.may_stop(*noisy, incumbent_ms=1.95)


@pytest.mark.parametrize("count", [6, 10, 40])
def test_the_centre_of_normal_noise_is_nearer_to_the_truth_than_the_median_and_inside_its_interval(count):
    generator, squares, hits = random.Random(5), [0.0, 0.0], 0
    for _ in range(400):
        values = [generator.gauss(0, 1) for _ in range(count)]
        low, high = timing.interval(values)
        assert low <= timing.centre(values) <= high
        hits += low <= 0 <= high
        for which, estimate in enumerate((timing.centre(values), statistics.median(values))):
            squares[which] += estimate**2
    assert squares[0] < 0.9 * squares[1]
    assert 370 <= hits <= 396


def test_a_quarter_of_wild_rounds_moves_the_centre_by_less_than_the_noise():
    generator = random.Random(7)
    values = [generator.gauss(0, 1) for _ in range(30)] + [1e6] * 10
    assert abs(timing.centre(values)) < 1.5


@pytest.mark.parametrize(("count", "first"), [(6, 0), (8, 3), (10, 8), (20, 52)])
def test_the_interval_cuts_off_what_wilcoxons_table_says(count, first):
    averages = sorted((a + b) / 2 for b in range(count) for a in range(b + 1))
    assert timing.interval(list(range(count))) == (averages[first], averages[-1 - first])


def test_one_round_is_its_own_interval():
    assert timing.centre([3.0]) == 3.0
    assert timing.interval([3.0]) == (3.0, 3.0)
