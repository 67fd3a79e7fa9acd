"""Asking and telling: who becomes an elite, who becomes a parent, who migrates."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from random import Random
from typing import Any

import pytest

from fitness.evaluation import Verdict
from islands.candidate import DUPLICATE_OF
from islands.population import Migration, Population, PopulationConfig

LONE = {"islands": 1, "migration_every": 0}


def ids(evaluated: Any) -> list[int]:
    return [one.candidate.number for one in evaluated]


def test_seeds_are_one_per_island_with_the_first_numbers_and_the_same_source():
    seeds = Population(PopulationConfig(islands=3), "run00000", 7).seed_candidates("x = 0\n", "cpp")
    assert [(seed.id, seed.number, seed.island) for seed in seeds] == [
        (f"run00000-00000{number}", number, number) for number in range(3)
    ]
    assert {(seed.source, seed.generation, seed.backend, seed.mutator) for seed in seeds} == {
        ("x = 0\n", 0, "cpp", "seed")
    }


def test_tickets_go_round_the_islands(grow):
    population = grow([(number, 1.0) for number in range(4)])
    assert [population.ask(number).island for number in range(4, 10)] == [0, 1, 2, 3, 0, 1]


def test_a_ticket_names_its_own_random_seed(grow):
    assert grow([(0, 1.0)], **LONE).ask(12).seed == "7:12"


def test_asking_changes_nothing_and_may_be_repeated_in_any_order(grow):
    told = [(number, 1.0 + number % 7) for number in range(40)]
    population, other = grow(told), grow(told)
    before = population.digest()
    tickets = [population.ask(number) for number in range(40, 80)]
    assert population.digest() == before
    assert [other.ask(number) for number in reversed(range(40, 80))] == tickets[::-1]


def test_different_tickets_of_an_island_get_different_parents(grow):
    population = grow([(number, 1.0 + number / 100) for number in range(30)], **LONE)
    assert len({population.ask(number).parent.candidate.id for number in range(100)}) > 5


def test_an_elite_stays_until_it_is_clearly_beaten(grow):
    population = grow([(0, 1.50), (1, 1.505), (2, 1.49), (3, 1.6), (4, None)], axes=(), **LONE)
    (elite,) = population.cells.values()
    assert elite.candidate.number == 3 == population.best().candidate.number


def test_every_cell_keeps_its_own_elite(grow):
    told = [(0, 3.0, {"features": {"threads": 1}}), (1, 1.1, {"features": {"threads": 8}})]
    population = grow(told, axes=("threads",), **LONE)
    assert {cell: one.candidate.number for (_, cell), one in population.cells.items()} == {(0,): 0, (2,): 1}


def test_own_edges_replace_an_axis_bins(grow):
    told = [(number, 1.5, {"features": {"threads": number}}) for number in (1, 2, 3, 4)]
    population = grow(told, axes=("threads",), edges={"threads": (3,)}, **LONE)
    assert sorted(cell for _, cell in population.cells) == [(0,), (1,)]


def test_a_failed_candidate_enters_no_cell_and_is_still_a_relative(grow):
    population = grow([(0, 1.0), (1, None, {"parent_ids": ("run00000-000000",)})], **LONE)
    assert ids(population.cells.values()) == [0]
    assert ids(population.ask(2).lineage) == [0, 1]
    assert (population.islands()[0].told, population.islands()[0].correct) == (2, 1)


def test_an_island_without_a_correct_member_gives_its_seed_even_failed(grow):
    population = grow([(0, None), (1, None)], **LONE)
    assert population.best() is None
    assert {population.ask(number).parent.candidate.number for number in range(20)} == {0}
    assert population.ask(2).inspirations == ()


def test_an_island_that_was_told_nothing_cannot_be_asked(grow):
    population = grow([(0, 1.0)])
    assert population.ready(4) and not population.ready(5)
    with pytest.raises(ValueError, match="island 1 was told no candidate yet"):
        population.ask(5)


def test_telling_a_candidate_twice_is_refused_and_changes_nothing(grow, make):
    population = grow([(0, 1.0), (1, 1.0)])
    before = population.digest()
    for speedup in (1.0, 9.0):
        with pytest.raises(ValueError, match="told before"):
            population.tell(make.evaluated(1, speedup))
    assert (population.digest(), population.told) == (before, 2)


def test_a_candidate_of_an_island_that_does_not_exist_is_refused(make):
    population = Population(PopulationConfig(islands=2), "run00000", 7)
    with pytest.raises(ValueError, match="island 2"):
        population.tell(make.evaluated(2, 1.0))
    assert population.told == 0


def test_without_migration_no_parent_and_no_inspiration_is_foreign(grow):
    """The case in which a fitness-proportional archive gave 69% foreign parents: one island is far fitter."""
    rng, told = Random(1), []
    for number in range(200):
        level = 50.0 if number % 4 == 2 else 1.0
        told.append((number, level * rng.uniform(1, 1.3), {"features": {"threads": 1 + number % 5}}))
    population = grow(told, migration_every=0, axes=("threads",), edges={"threads": (2, 3, 4, 5)})
    tickets = [population.ask(number) for number in range(200, 1200)]
    seen = [(ticket.island, one) for ticket in tickets for one in (ticket.parent, *ticket.inspirations)]
    assert len(seen) > 2000
    assert [one.candidate.id for island, one in seen if one.candidate.island != island] == []


@pytest.mark.parametrize(
    ("mix", "expected"),
    [
        ({"parents": {"best": 1}}, {3: 1.0}),
        ({"parents": {"cells": 1}}, {0: 0.5, 3: 0.5}),
        ({"parents": {"recent": 1}, "recent": 2}, {2: 0.5, 3: 0.5}),
        ({"parents": {"best": 2, "cells": 2}}, {0: 0.25, 3: 0.75}),
    ],
)
def test_parents_come_in_the_configured_mix(grow, mix, expected):
    speedups = {0: 1.5, 1: 1.0, 2: 1.2, 3: 2.0}
    told = [(number, speedup, {"features": {"threads": number}}) for number, speedup in speedups.items()]
    population = grow(told, axes=("threads",), **LONE, **mix)
    parents = Counter(population.ask(number).parent.candidate.number for number in range(2000))
    shares = {number: count / 2000 for number, count in parents.items()}
    assert shares == pytest.approx(expected, abs=0.04)


def test_inspirations_are_distinct_members_best_first_and_not_the_parent(grow):
    told: list[Any] = [(number, 1.0 + number / 10, {"features": {"threads": number}}) for number in range(1, 9)]
    told += [(number, 1.0, {"source": "x = 8\n", "features": {"threads": 20 + number}}) for number in (9, 10)]
    edges = {"threads": tuple(range(1, 40))}
    population = grow(told, axes=("threads",), edges=edges, inspirations=4, **LONE)
    for number in range(50):
        ticket = population.ask(number)
        sources = [one.candidate.source for one in (ticket.parent, *ticket.inspirations)]
        speedups = [one.evaluation.speedup for one in ticket.inspirations]
        assert len(set(sources)) == 5
        assert speedups == sorted(speedups, reverse=True)
        assert 8 in ids((ticket.parent, *ticket.inspirations)) or "x = 8\n" in sources


def test_inspirations_fall_back_on_the_islands_pareto_archive(grow):
    told = [
        (0, 2.0, {"peak_mem_bytes": 900}),
        (1, 1.0, {"peak_mem_bytes": 10}),
        (2, 1.0, {"peak_mem_bytes": 950}),
    ]
    population = grow(told, axes=(), parents={"best": 1}, **LONE)
    assert ids(population.ask(3).inspirations) == [1]


def test_the_best_of_an_island_is_copied_to_the_next_after_every_n_evaluations(grow):
    told = [(0, 1.0), (1, 1.0), (2, 2.0), (3, 1.0), (4, 3.0), (5, 1.0), (6, None)]
    population = grow(told, islands=2, migration_every=3)
    assert population.migrations == [Migration(5, 0, 1, "run00000-000004")]
    assert population.islands()[0].told == 4
    assert population.islands()[1].best.candidate.number == 4
    assert (population.islands()[1].told, population.islands()[1].correct) == (3, 3)
    parents = {population.ask(number).parent.candidate.number for number in range(7, 107, 2)}
    assert 4 in parents


def test_a_migrant_is_no_duplicate_of_a_source_that_the_island_has_had(grow):
    told: list[Any] = [(number, 1.0, {"source": "seed\n"}) for number in range(4)]
    told += [(number, 0.5, {"source": f"x = {number % 8}\n"}) for number in range(4, 40)]
    population = grow(told, migration_every=2)
    assert population.migrations == []


def test_a_migrant_keeps_its_lineage_and_goes_on_round_the_ring(grow):
    told: list[Any] = [(number, 1.0) for number in range(3)]
    told += [(3, 9.0, {"parent_ids": ("run00000-000000",)})] + [(number, 1.0) for number in range(4, 15)]
    population = grow(told, islands=3, migration_every=2, parents={"best": 1})
    assert [island.best.candidate.number for island in population.islands()] == [3, 3, 3]
    ticket = population.ask(16)
    assert (ticket.island, ticket.parent.candidate.island) == (1, 0)
    assert {0, 3} <= set(ids(ticket.lineage))


def test_an_island_alone_does_not_migrate_to_itself(grow):
    assert grow([(number, 1.0 + number) for number in range(20)], islands=1, migration_every=2).migrations == []


def test_several_migrants_are_the_best_and_the_next_best_elites(grow):
    told = [(number, 1.0 + number, {"features": {"threads": number // 2 + 1}}) for number in range(0, 10, 2)]
    edges = {"threads": (2, 3, 4, 5)}
    population = grow(told, islands=2, migration_every=5, migrants=2, axes=("threads",), edges=edges)
    assert [event.candidate_id[-1] for event in population.migrations] == ["8", "6"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"islands": 0}, "islands must be at least 1"),
        ({"migration_every": -1}, "migration_every"),
        ({"recent": 0}, "recent"),
        ({"parents": {"luck": 1}}, "unknown parent policy 'luck', expected some of best"),
        ({"parents": {"best": -0.1}}, "weight of parent policy 'best' must be 0 or more"),
        ({"parents": {"best": 0, "cells": 0}}, "some policy a weight above 0"),
        ({"topology": "tree"}, "unknown topology 'tree', expected one of ring, full"),
        ({"tournament": 0}, "tournament"),
        ({"half_life": 0}, "half_life"),
        ({"reset_after": -1}, "reset_after"),
        ({"axes": ("colour",)}, "unknown axis 'colour', expected some of backend"),
        ({"edges": {"colour": (1,)}}, "unknown axis 'colour'"),
        ({"edges": {"size": (2, 1)}}, "must ascend"),
        ({"edges": {"registers@cpp": (2,)}}, "axis registers speaks of cuda, triton, not 'cpp'"),
        ({"axes": ("size", "size")}, "axes must differ"),
        ({"relatives": -1}, "relatives"),
        ({"inspirations": -1}, "inspirations"),
        ({"repairable": -1}, "repairable"),
        ({"repairs": -1}, "repairs"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        PopulationConfig(**changes)


def test_asking_and_telling_cost_the_same_after_three_thousand_as_after_four_hundred(make):
    population = Population(PopulationConfig(relatives=50), "run00000", 7)
    for seed in population.seed_candidates("seed\n", "cpp"):
        population.tell(make.Evaluated(seed, make.evaluation(seed, 1.0)))
    rng, costs = Random(5), []
    for number in range(4, 3000):
        start = time.process_time()
        parent = population.ask(number).parent.candidate
        middle = time.process_time()
        new = make.evaluated(number, rng.uniform(1, 3), parent_ids=(parent.id,),
                             peak_mem_bytes=rng.randrange(1 << 28), error_ratio=rng.random())  # fmt: skip
        told_at = time.process_time()
        population.tell(new)
        costs.append(time.process_time() - told_at + middle - start)
    assert statistics.median(costs[2600:]) < 3 * statistics.median(costs[100:400])


PARENT = ("run00000-000000",)


def failing(number: int, verdict: str = "compile_error", **changes: Any) -> Any:
    """What `grow` is told of a failed child of the seed."""
    return number, None, {"parent_ids": PARENT, "verdict": Verdict(verdict), **changes}


def repair(number: int, of: int, speedup: float | None = None) -> Any:
    return number, speedup, {"parent_ids": (f"run00000-{of:06d}",), "mutator": "repair"}


def offered(population: Population, tickets: int = 300) -> Counter[int]:
    """How often each failed candidate is handed out for repair."""
    failed = [population.ask(number).failed for number in range(1000, 1000 + tickets)]
    return Counter(one.candidate.number for one in failed if one is not None)


def test_a_ticket_counts_what_was_told_since_the_islands_best_improved(grow):
    told = [(0, 1.0), (1, 0.5), (2, None), (3, 2.0), (4, 1.9), (5, None)]
    stalled = [grow(told[: length + 1], **LONE).ask(9).stalled for length in range(len(told))]
    assert stalled == [0, 1, 2, 0, 1, 2]


def test_an_island_without_a_best_is_stalled_since_its_first(grow):
    assert grow([(0, None), (1, None)], **LONE).ask(2).stalled == 2


def test_a_better_migrant_ends_a_stall(grow):
    told = [(0, 1.0), (1, 1.0), (3, 0.5), (5, 0.6), (2, 9.0)]
    assert grow(told[:-1], islands=2, migration_every=2).ask(7).stalled == 2
    assert grow(told, islands=2, migration_every=2).ask(7).stalled == 0


def test_without_a_failure_there_is_nothing_to_repair(grow):
    assert offered(grow([(0, 1.0), (1, 2.0)], **LONE)) == {}


@pytest.mark.parametrize(
    "verdict", ["compile_error", "load_error", "runtime_error", "timeout", "out_of_memory", "wrong_result"]
)
def test_failures_of_a_program_are_handed_out_for_repair(grow, verdict):
    assert set(offered(grow([(0, 1.0), failing(1, verdict)], **LONE))) == {1}


@pytest.mark.parametrize("verdict", ["no_verdict", "verified"])
def test_what_says_nothing_against_a_program_is_not_repaired(grow, verdict):
    assert offered(grow([(0, 1.0), failing(1, verdict)], **LONE)) == {}


@pytest.mark.parametrize(
    ("reason", "is_worth_it"),
    [
        ("an output must be float32 (4, 4), found float16 (4, 4)", True),
        ("forward must return 1 tensors, found 2", True),
        ("call 0 failed: ContractBroken: outputs must be dense tensors on cuda, found torch.strided on cpu", True),
        ("forward wrote to its input 0: 3 of 8 elements changed", True),
        ("outputs share memory with one another (alias)", True),
        ("it ran while it was stopped: it must not wake itself up", False),
        ("work of its own was still running on the device between two calls", False),
        ("calling forward answered out of turn (message kind 7)", False),
    ],
)
def test_a_broken_contract_is_repaired_only_where_an_honest_program_may_break_it(grow, reason, is_worth_it):
    told = [(0, 1.0), failing(1, "contract", reason=reason)]
    assert bool(offered(grow(told, **LONE))) is is_worth_it


def test_a_failure_is_repaired_a_limited_number_of_times(grow):
    told = [(0, 1.0), failing(1)]
    assert 1 in offered(grow([*told, repair(2, of=1)], **LONE))
    assert 1 not in offered(grow([*told, repair(2, of=1), repair(3, of=1)], **LONE))
    assert offered(grow(told, **LONE, repairs=0)) == {}


def test_a_child_of_a_failure_by_another_mutator_is_no_repair_of_it(grow):
    other = (2, None, {"parent_ids": ("run00000-000001",), "mutator": "diff"})
    second = (3, None, {"parent_ids": ("run00000-000000", "run00000-000001"), "mutator": "repair"})
    assert 1 in offered(grow([(0, 1.0), failing(1), other, second], **LONE, repairs=1))


def test_a_repair_that_came_out_correct_ends_the_repairs(grow):
    assert offered(grow([(0, 1.0), failing(1), repair(2, of=1, speedup=0.9)], **LONE)) == {}


def test_repairs_of_repairs_get_fewer_so_that_every_chain_ends(grow):
    told = [(0, 1.0), failing(1), repair(2, of=1)]
    assert 2 in offered(grow(told, **LONE))
    assert 2 not in offered(grow([*told, repair(3, of=2)], **LONE)), "once less than the first failure"
    assert 3 not in offered(grow([*told, repair(3, of=2)], **LONE)), "the chain is as long as `repairs`"


def test_however_often_repairs_fail_they_come_to_an_end(grow, make):
    population = grow([(0, 1.0), failing(1)], **LONE, repairs=3, repairable=100)
    number = 2
    while (failed := population.ask(number).failed) is not None:
        population.tell(make.evaluated(number, None, island=0, parent_ids=(failed.candidate.id,), mutator="repair"))
        number += 1
    assert number - 2 == 3 + 3 * 2 + 3 * 2 * 1


def test_failures_of_the_fastest_parents_come_first_then_the_newest(grow):
    told = [(0, 1.0), (1, 3.0, {"parent_ids": PARENT}), failing(2), failing(3)]
    told += [(4, None, {"parent_ids": ("run00000-000001",)}), repair(5, of=4)]
    found = offered(grow(told, **LONE))
    assert [number for number, _ in found.most_common()] == [5, 4, 3, 2]


def test_only_the_latest_failures_are_looked_at(grow):
    told = [(0, 1.0), *(failing(number) for number in range(1, 12))]
    assert set(offered(grow(told, **LONE, repairable=3))) == {9, 10, 11}
    assert offered(grow(told, **LONE, repairable=0)) == {}


def test_failures_stay_on_their_island(grow):
    population = grow([(0, 1.0), (1, 1.0), failing(3, island=1)], islands=2)
    assert population.ask(10).failed is None
    assert population.ask(11).failed.candidate.number == 3


def test_what_is_offered_for_repair_moves_no_other_draw(grow):
    told: list[Any] = [(number, 1.0 + number % 5, {"features": {"threads": number}}) for number in range(30)]
    with_failures = [*told, *(failing(number, island=0) for number in range(30, 40))]
    plain, other = grow(told, **LONE), grow(with_failures, **LONE)
    for number in range(40, 140):
        one, two = plain.ask(number), other.ask(number)
        assert (one.parent, one.inspirations) == (two.parent, two.inspirations)


def test_a_duplicate_of_a_program_of_its_island_is_told_but_becomes_no_member(grow):
    twin = {"features": {"threads": 1, DUPLICATE_OF: "run00000-000001"}}
    population = grow([(0, 1.0), (1, 2.0), (2, 2.0, twin), (3, 9.0, twin)], **LONE)
    island = population.islands()[0]
    assert (island.told, island.correct, island.stalled) == (4, 2, 2)
    assert population.best().candidate.number == island.best.candidate.number == 1
    assert {population.ask(number).parent.candidate.number for number in range(200)} == {0, 1}
    assert population.told == 4


def test_a_duplicate_of_another_islands_program_is_a_member_of_its_own(grow):
    twin = {"features": {DUPLICATE_OF: "run00000-000000"}}
    population = grow([(0, 2.0), (1, 1.0), (3, 2.0, twin)], islands=2, migration_every=0)
    assert population.islands()[1].best.candidate.number == 3


def test_a_failed_program_that_comes_twice_is_repaired_as_one(grow):
    twin = failing(2, features={DUPLICATE_OF: "run00000-000001"})
    assert set(offered(grow([(0, 1.0), failing(1), twin], **LONE))) == {1}
