"""The measurement of isolation: what it counts, and that it can fail."""

from __future__ import annotations

import pytest

from experiments.bench import isolation
from islands.population import PopulationConfig


def document(foreign: float = 0.0, least: float = 0.5) -> dict[str, object]:
    row = {"foreign_parents": foreign, "foreign_inspirations": 0.0}
    ours = {"ours": {"best": row}}
    arms = {"single population": {"least_distance": 0.0}, "4 islands": {"least_distance": least}}
    return {"foreign": ours, "random_distance": 0.6, "diversity": arms}


def test_a_foreign_parent_and_a_population_below_its_floor_are_faults() -> None:
    assert isolation.failures(document()) == []
    assert "parents by best: 1.0% are foreign" in isolation.failures(document(foreign=0.01))[0]
    assert "4 islands: the mean token distance fell to 0.1" in isolation.failures(document(least=0.1))[0]


@pytest.mark.parametrize("policy", ["best", "cells"])
def test_no_parent_of_ours_is_foreign_though_one_island_is_far_fitter(policy: str) -> None:
    assert isolation.foreign_ours(policy) == {"foreign_parents": 0.0, "foreign_inspirations": 0.0}


def test_a_trial_is_the_same_again_for_the_same_seed_and_gets_better() -> None:
    def after(evaluations: int, seed: int) -> isolation.Trial:
        trial = isolation.Trial(PopulationConfig(), seed)
        while trial.population.told < evaluations:
            trial.step()
        return trial

    one, same, other = after(150, 3), after(150, 3), after(150, 4)
    assert one.population.digest() == same.population.digest() != other.population.digest()
    assert one.look()["best"] > 1.2 * after(4, 3).look()["best"]
    assert len(one.seen) == 150, "no island is told a program twice"
