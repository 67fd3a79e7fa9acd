"""Between islands: migrants, resets of stagnant islands, and what an island has become."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from islands.candidate import DUPLICATE_OF
from islands.population import Population, PopulationConfig

LONE = {"islands": 1, "migration_every": 0}
PARENT = ("run00000-000000",)


def test_a_migrant_is_no_duplicate_of_the_same_program_in_other_words(grow):
    twin = {"features": {DUPLICATE_OF: "run00000-000000"}}
    told: list[Any] = [(0, 2.0), (1, 1.0), (3, 2.0, twin), (2, 1.0), (4, 1.0)]
    assert grow(told, islands=2, migration_every=3).migrations == []
    assert len(grow([*told[:2], *told[3:]], islands=2, migration_every=3).migrations) == 1


def test_a_program_that_is_a_migrants_in_other_words_becomes_no_second_member(grow):
    twin = {"features": {DUPLICATE_OF: "run00000-000002"}}
    population = grow([(0, 1.0), (1, 1.0), (2, 2.0), (3, 2.0, twin)], islands=2, migration_every=2, axes=())
    assert [event.candidate_id for event in population.migrations] == ["run00000-000002"]
    island = population.islands()[1]
    assert (island.correct, island.best.candidate.number) == (1, 2)
    assert {population.ask(number).parent.candidate.number for number in range(5, 205, 2)} == {1, 2}


def test_each_islands_clock_is_its_own(grow):
    busy = grow(
        [(0, 1.0), (1, 1.0), *((number, 1.0 + number) for number in range(2, 22, 2))], islands=2, migration_every=4
    )
    assert {event.origin for event in busy.migrations} == {0}
    assert [island.told for island in busy.islands()] == [11, 1]
    assert [event.after for event in busy.migrations] == [5, 9]


@pytest.mark.parametrize(
    ("topology", "targets"), [("ring", {1}), ("full", {1, 2, 3}), ("star", {1, 2, 3}), ("none", set())]
)
def test_migrants_go_where_the_topology_says(grow, topology, targets):
    told = [(number, 1.0) for number in range(4)] + [(number, 1.0 + number) for number in range(4, 24, 4)]
    population = grow(told, migration_every=3, topology=topology)
    assert {event.target for event in population.migrations} == targets
    assert all(event.origin == 0 and not event.is_reset for event in population.migrations)


def test_a_random_topology_is_drawn_anew_each_time_and_the_same_on_replay(grow):
    told = [(number, 1.0) for number in range(4)] + [(number, 1.0 + number) for number in range(4, 84, 4)]
    population = grow(told, migration_every=1, topology="random")
    assert {event.target for event in population.migrations if event.origin == 0} == {1, 2, 3}
    assert grow(told, migration_every=1, topology="random").digest() == population.digest()


STAGNANT = [(0, 3.0), (1, 1.0), (2, 2.0), (4, 0.9), (7, 0.8), (10, 0.7)]
"""Three islands with bests of 3, 1 and 2; island 1 was told three more that are no better."""


def test_a_stagnant_island_starts_again_from_the_best_of_a_better_one(grow):
    population = grow(STAGNANT, islands=3, migration_every=0, reset_after=3, axes=("threads",))
    (event,) = population.migrations
    assert (event.after, event.target, event.is_reset) == (6, 1, True)
    assert event.candidate_id == f"run00000-{event.origin:06d}" and event.origin in (0, 2)
    island = population.islands()[1]
    assert [one.candidate.id for one in island.cells.values()] == [event.candidate_id] == [island.best.candidate.id]
    assert (island.told, island.correct, island.stalled) == (4, 4, 0), "its clock goes on"
    assert {population.ask(number).parent.candidate.island for number in range(13, 313, 3)} == {event.origin}


def test_an_island_that_no_other_one_beats_is_never_reset(grow):
    told = [(0, 3.0), (1, 1.0), *((number, 0.5 + number / 1000) for number in range(2, 40, 2))]
    assert grow(told, islands=2, migration_every=0, reset_after=3).migrations == []
    assert grow([(number, 1.0) for number in range(40)], islands=2, migration_every=0, reset_after=3).migrations == []


def test_an_island_without_a_correct_kernel_is_reset_too(grow):
    population = grow([(0, 1.5), (1, None), (3, None), (5, None)], islands=2, migration_every=0, reset_after=3)
    assert [(event.origin, event.target) for event in population.migrations] == [(0, 1)]
    assert population.ask(7).parent.candidate.number == 0
    assert population.ask(7).failed is None, "its failures are forgotten"


def test_without_reset_after_nothing_is_reset(grow):
    assert grow(STAGNANT, islands=3, migration_every=0).migrations == []


def test_a_reset_island_may_be_given_again_what_it_had_before(grow):
    told = [*STAGNANT[:3], (4, 1.1), (7, 0.8), (10, 0.7), (13, 0.6)]
    population = grow(told, islands=3, migration_every=0, reset_after=3)
    founder = population.migrations[0].candidate_id
    assert not population.islands()[1].holds("run00000-000001")
    assert population.islands()[1].holds(founder)


def test_children_count_as_visits_of_their_first_parents_cell_also_when_they_fail(grow):
    cells = [(0, 1.0, {"features": {"threads": 1}}), (1, 1.0, {"features": {"threads": 8}})]
    tried = [(number, None, {"parent_ids": PARENT}) for number in range(2, 22)]
    config = {"axes": ("threads",), "parents": {"curious": 1.0}, **LONE}
    drawn = Counter(grow([*cells, *tried], **config).ask(number).parent.candidate.number for number in range(400))
    assert drawn[1] / 400 == pytest.approx(21 / 22, abs=0.04), "cell (0,) has been visited 21 times, the other once"


def test_every_setting_is_part_of_the_digest_in_whatever_order_it_is_written(grow):
    told = [(number, 1.0 + number % 9) for number in range(60)]
    configs: list[Any] = [{}, {"topology": "full"}, {"reset_after": 5}, {"axes": ("size",)}, {"parents": {"rank": 1}}]
    assert len({grow(told, **config).digest() for config in configs}) == len(configs)
    tables = [{"best": 1, "rank": 2}, {"rank": 2, "best": 1}]
    one, other = (grow(told, parents=table) for table in tables)
    assert one.digest() == other.digest()
    assert [one.ask(number) for number in range(60, 90)] == [other.ask(number) for number in range(60, 90)]


def test_one_island_holds_elites_of_three_backends_and_none_dethrones_anothers(make):
    population = Population(PopulationConfig(**LONE), "run00000", 7)
    features = {"cpp": {"vector_bits": 256, "threads": 1}, "cuda": {"registers": 40}, "triton": {"registers": 40}}
    for number, (backend, speedup) in enumerate([("cpp", 9.0), ("cuda", 1.0), ("triton", 2.0), ("cuda", 1.5)]):
        new = make.candidate(number, backend=backend, island=0)
        population.tell(make.Evaluated(new, make.evaluation(new, speedup, features=features[backend])))
    assert [one.candidate.number for one in population.cells.values()] == [0, 3, 2]
    parents = Counter(population.ask(number).parent.candidate.backend for number in range(300))
    assert set(parents) == {"cpp", "cuda", "triton"}


def test_diversity_is_measured_per_island(grow):
    seed = {"source": "seed a b c d e f g h\n", "features": {"threads": 1}}
    told = [(0, 1.0, seed), (1, 1.0, seed)]
    told += [(number, 1.0, {"source": f"v{number} w{number} x{number} y{number}\n", "features": {"threads": 8}})
             for number in range(2, 12, 2)]  # fmt: skip
    varied, same = grow(told, islands=2, migration_every=0, axes=("threads",)).diversity()
    assert (varied.cells, same.cells) == (2, 1)
    assert varied.distance == 1.0 and same.distance == 0.0
