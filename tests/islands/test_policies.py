"""Policies by themselves: who is drawn how often, and where migrants go."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from islands.distance import distance, mean_distance, sketch
from islands.policies import PARENTS, TOPOLOGIES, Members, choose_donor, choose_parent
from islands.population import PopulationConfig

DRAWS = 3000
OUTSIDE = {"ring", "full", "random", "star"}


@pytest.fixture
def members(make: Any) -> Members:
    """Four elites that get faster with their number, number 9 the best; numbers 5 and 6 are recent and no elites."""
    elites = {(place,): make.evaluated(number, 1.0 + number) for place, number in enumerate((0, 3, 7, 9))}
    recent = (make.evaluated(5, 1.5), make.evaluated(6, 1.4), elites[(3,)])
    return Members(elites[(3,)], elites, recent, {(0,): 1, (1,): 4, (2,): 10, (3,): 100})


def shares(members: Members, policy: str, **config: Any) -> dict[int, float]:
    """How often each member is drawn, by its number."""
    rng, settings = Random(3), PopulationConfig(parents={policy: 1.0}, **config)
    drawn = Counter(choose_parent(members, rng, settings).candidate.number for _ in range(DRAWS))
    return {number: count / DRAWS for number, count in drawn.items()}


@pytest.mark.parametrize("policy", list(PARENTS))
def test_every_policy_draws_members_only_and_the_same_for_the_same_generator(members, policy):
    config = PopulationConfig(parents={policy: 1.0})
    drawn = [[choose_parent(members, Random(seed), config) for seed in range(50)] for _ in range(2)]
    assert drawn[0] == drawn[1]
    known = {one.candidate.id for one in (*members.elites, *members.recent)}
    assert {one.candidate.id for one in drawn[0]} <= known


@pytest.mark.parametrize("policy", list(PARENTS))
def test_every_policy_can_do_with_a_single_member(make, policy):
    only = make.evaluated(0, 1.0)
    alone = Members(only, {(): only}, (only,), {(): 1})
    assert choose_parent(alone, Random(1), PopulationConfig(parents={policy: 1.0})) is only


def test_best_gives_the_best_and_cells_give_all_elites_alike(members):
    assert shares(members, "best") == {9: 1.0}
    assert shares(members, "cells") == pytest.approx(dict.fromkeys((0, 3, 7, 9), 0.25), abs=0.04)


def test_recent_gives_the_latest_members_alike_elites_or_not(members):
    assert shares(members, "recent") == pytest.approx(dict.fromkeys((5, 6, 9), 1 / 3), abs=0.04)


def test_a_tournament_prefers_the_fitter_the_larger_it_is(members):
    small, large = shares(members, "tournament", tournament=2), shares(members, "tournament", tournament=5)
    assert small[9] == pytest.approx(1 - (5 / 6) ** 2, abs=0.04)
    assert large[9] == pytest.approx(1 - (5 / 6) ** 5, abs=0.04)
    assert shares(members, "tournament", tournament=1) == pytest.approx(
        dict.fromkeys((0, 3, 5, 6, 7, 9), 1 / 6), abs=0.04
    )


def test_rank_prefers_the_fitter_and_of_equals_the_younger(members, make):
    slow_ageing = shares(members, "rank", half_life=10_000)
    total = sum(1 / place for place in range(1, 7))
    assert slow_ageing[9] == pytest.approx(1 / total, abs=0.04)
    assert slow_ageing[0] == pytest.approx(1 / 6 / total, abs=0.03)
    assert shares(members, "rank", half_life=1)[9] > 0.75
    twins = {(number,): make.evaluated(number, 1.0) for number in (0, 100)}
    old, young = twins.values()
    found = shares(Members(old, twins, (young,), {}), "rank", half_life=100)
    assert found == pytest.approx({0: 0.5, 100: 0.5}, abs=0.04), "first place and twice the age against second place"


def test_the_age_of_a_very_old_member_is_no_error(make):
    old, young = make.evaluated(0, 2.0), make.evaluated(900_000, 1.0)
    assert shares(Members(old, {(): old}, (young,), {}), "rank", half_life=1) == {900_000: 1.0}


def test_curiosity_prefers_cells_that_were_explored_little(members):
    weights = {0: 1.0, 3: 0.25, 7: 0.1, 9: 0.01}
    total = sum(weights.values())
    assert shares(members, "curious") == pytest.approx({one: w / total for one, w in weights.items()}, abs=0.03)


def test_novelty_prefers_the_elite_whose_text_is_least_like_the_others(make):
    common = "for (int i = 0; i < n; ++i) { y[i] = a * x[i] + b; } return y;"
    texts = [common, common + " // same", common.replace("n", "m"), "__shared__ float tile[32]; __syncthreads();"]
    cells = {(place,): make.evaluated(place, 1.0, source=text) for place, text in enumerate(texts)}
    found = shares(Members(cells[(0,)], cells, tuple(cells.values()), {}), "novel", tournament=2)
    assert found[3] == pytest.approx(0.5, abs=0.04), "whenever it is one of the two that are drawn"
    assert found[2] > found.get(0, 0)


def test_a_mix_draws_each_policy_by_its_weight(members):
    config = PopulationConfig(parents={"best": 3, "recent": 1})
    drawn = Counter(choose_parent(members, Random(seed), config).candidate.number for seed in range(DRAWS))
    assert drawn[9] / DRAWS == pytest.approx(0.75 + 0.25 / 3, abs=0.04)


# -- where migrants go ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(TOPOLOGIES))
@pytest.mark.parametrize("islands", [1, 2, 3, 7])
def test_no_island_sends_to_itself_or_to_one_that_does_not_exist(name, islands):
    for origin in range(islands):
        for seed in range(10):
            targets = TOPOLOGIES[name](origin, islands, Random(seed))
            assert set(targets) <= set(range(islands)) - {origin}
            assert len(set(targets)) == len(targets)


def reached(name: str, islands: int, start: int) -> set[int]:
    """The islands that a migrant from `start` can get to in many steps."""
    seen = {start}
    for _ in range(islands):
        seen |= {to for one in seen for seed in range(40) for to in TOPOLOGIES[name](one, islands, Random(seed))}
    return seen


@pytest.mark.parametrize("name", sorted(OUTSIDE))
def test_a_migrant_can_get_everywhere_in_the_end(name):
    assert [reached(name, 5, start) for start in range(5)] == [{0, 1, 2, 3, 4}] * 5


def test_topologies_are_what_their_names_say():
    targets = {name: [TOPOLOGIES[name](one, 4, Random(1)) for one in range(4)] for name in TOPOLOGIES}
    assert targets["ring"] == [(1,), (2,), (3,), (0,)]
    assert targets["full"] == [(1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2)]
    assert targets["star"] == [(1, 2, 3), (0,), (0,), (0,)]
    assert targets["none"] == [()] * 4
    assert [len(one) for one in targets["random"]] == [1] * 4
    assert len({TOPOLOGIES["random"](0, 4, Random(seed)) for seed in range(30)}) == 3


def test_a_donor_is_one_of_the_clearly_better_ones(make):
    own, same, better, best = (make.evaluated(number, speedup) for number, speedup in enumerate((1.0, 1.001, 2.0, 3.0)))
    drawn = {choose_donor(own, [same, better, best], Random(seed)).candidate.number for seed in range(50)}
    assert drawn == {2, 3}
    assert choose_donor(best, [own, same, better], Random(1)) is None
    assert choose_donor(None, [own], Random(1)) is own, "an island without a correct kernel takes any"


# -- how unlike two programs are --------------------------------------------------------------------------


def words(numbers: range) -> str:
    return " ".join(f"word{number}" for number in numbers)


def test_distance_is_the_share_of_token_runs_that_only_one_has():
    one, same, other = words(range(300)), words(range(300)), words(range(300, 600))
    assert distance(sketch(one), sketch(same)) == 0.0
    assert distance(sketch(one), sketch(other)) == 1.0
    half = distance(sketch(one), sketch(words(range(150)) + " x " + words(range(300, 450))))
    assert half == pytest.approx(2 / 3, abs=0.12), "150 of 450 runs are common"
    assert distance(sketch(one), sketch(other)) == distance(sketch(other), sketch(one))


def test_spacing_and_comments_of_cpp_are_no_distance():
    plain, spaced = "int a = b + c; return a;", "int a=b+c; // a sum\n  /* done */ return a;"
    assert distance(sketch(plain), sketch(spaced)) == 0.0
    assert distance(sketch(plain), sketch(plain.replace("+", "*"))) > 0.3


@pytest.mark.parametrize("source", ["", " ", "x", "x y", "//", "\ud800", "/* open"])
def test_any_text_has_a_sketch(source):
    assert distance(sketch(source), sketch(source)) == 0.0
    assert 0.0 <= distance(sketch(source), sketch("int main() { return 0; }")) <= 1.0


def test_mean_distance_counts_each_program_once_and_looks_at_pairs_only():
    one, other = words(range(100)), words(range(100, 200))
    assert mean_distance([]) == mean_distance([one]) == mean_distance([one, one]) == 0.0
    assert mean_distance([one, other, one]) == 1.0
    assert mean_distance([one, other, one + " x"]) == pytest.approx(2 / 3, abs=0.05)
    many = [words(range(start, start + 30)) for start in range(0, 3000, 30)]
    assert mean_distance(many) == 1.0
