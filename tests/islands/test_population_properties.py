"""Whatever is told: the state is a fold over the order told, and nobody counts twice."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from islands.elite import beats
from islands.policies import PARENTS, TOPOLOGIES
from islands.population import Population, PopulationConfig

SPEEDUPS = st.none() | st.floats(0.1, 20.0)

TOLD = st.lists(
    st.tuples(
        SPEEDUPS,
        st.integers(0, 2),  # island
        st.integers(1, 4),  # threads
        st.integers(0, 12),  # which source
        st.lists(st.integers(0, 30), max_size=2),  # parents, by place in the list; some are never told
        st.floats(0.001, 0.3),  # spread of the interval
        st.sampled_from(["repair", "tune"]),
    ),
    max_size=30,
)

CONFIGS = st.builds(
    PopulationConfig,
    islands=st.just(3),
    migration_every=st.integers(0, 4),
    migrants=st.integers(0, 2),
    relatives=st.integers(0, 10),
    inspirations=st.integers(0, 4),
    parents=st.dictionaries(st.sampled_from(list(PARENTS)), st.floats(0.1, 1), min_size=1, max_size=3),
    topology=st.sampled_from(list(TOPOLOGIES)),
    reset_after=st.sampled_from([0, 0, 2, 5]),
    recent=st.integers(1, 5),
    repairable=st.integers(0, 4),
    repairs=st.integers(0, 3),
    axes=st.sampled_from([(), ("threads",), ("threads", "memory")]),
)


def records(make: Any, told: Any) -> list:
    return [
        make.evaluated(
            number,
            speedup,
            spread,
            island=island,
            source=f"x = {source}\n",
            parent_ids=tuple(f"run00000-{parent:06d}" for parent in parents if parent != number),
            features={"threads": threads},
            mutator=mutator,
        )
        for number, (speedup, island, threads, source, parents, spread, mutator) in enumerate(told)
    ]


def answers(population: Population) -> list:
    return [population.ask(number) for number in range(100, 106) if population.ready(number)]


@settings(max_examples=40, deadline=None)
@given(told=TOLD, config=CONFIGS, data=st.data())
def test_the_state_depends_on_the_order_told_and_on_nothing_else(make, told, config, data):
    plain, disturbed = (Population(config, "run00000", 7) for _ in range(2))
    for one in records(make, told):
        plain.tell(one)
        for number in data.draw(st.lists(st.integers(0, 50), max_size=2)):
            if disturbed.ready(number):
                disturbed.ask(number)
        disturbed.tell(one)
    assert plain.digest() == disturbed.digest()
    assert answers(plain) == answers(disturbed)


@settings(max_examples=40, deadline=None)
@given(told=TOLD, config=CONFIGS)
def test_nobody_counts_twice_and_only_the_correct_become_elites(make, told, config):
    population = Population(config, "run00000", 7)
    for one in records(make, told):
        population.tell(one)
        try:
            population.tell(one)
        except ValueError:
            continue
        raise AssertionError("told twice")
    assert population.told == len(told) == sum(island.told for island in population.islands())
    assert sum(island.correct for island in population.islands()) == sum(one[0] is not None for one in told)
    for island in population.islands():
        assert 0 <= island.stalled <= island.told
        elites = list(island.cells.values())
        assert len({one.candidate.id for one in elites}) == len(elites)
        assert all(one.evaluation.is_correct for one in elites)
        assert (island.best is None) == (not elites)
    had: dict[int, set[str]] = {island.number: set() for island in population.islands()}
    for event in population.migrations:
        if event.is_reset:
            had[event.target].clear()
        assert event.candidate_id not in had[event.target], "copied twice to an island that was not emptied"
        had[event.target].add(event.candidate_id)


@settings(max_examples=40, deadline=None)
@given(told=TOLD, config=CONFIGS)
def test_tickets_keep_their_promises(make, told, config):
    population = Population(config, "run00000", 7)
    for one in records(make, told):
        population.tell(one)
    migrants = {(event.target, event.candidate_id) for event in population.migrations}
    for ticket in answers(population):
        shown = (ticket.parent, *ticket.inspirations)
        sources = [one.candidate.source for one in shown]
        assert len(set(sources)) == len(sources) <= 1 + config.inspirations
        for one in shown:
            assert one.candidate.island == ticket.island or (ticket.island, one.candidate.id) in migrants
        numbers = [one.candidate.number for one in ticket.lineage]
        assert numbers == sorted(set(numbers)) and len(numbers) <= config.relatives
        assert config.relatives == 0 or ticket.parent in ticket.lineage
        assert 0 <= ticket.stalled <= population.islands()[ticket.island].told
        if ticket.failed is not None:
            failed = ticket.failed.candidate
            assert not ticket.failed.evaluation.is_correct and failed.island == ticket.island
            later = [one.candidate for one in records(make, told) if one.candidate.number > failed.number]
            repairs = [one for one in later if one.mutator == "repair" and one.parent_ids[:1] == (failed.id,)]
            assert len(repairs) < config.repairs


@settings(deadline=None)
@given(SPEEDUPS, SPEEDUPS, st.floats(0.001, 0.5), st.floats(0.001, 0.5))
def test_of_two_candidates_at_most_one_beats_the_other(make, first, second, first_spread, second_spread):
    a = make.evaluated(0, first, first_spread).evaluation
    b = make.evaluated(1, second, second_spread).evaluation
    assert not (beats(a, b) and beats(b, a))
    assert not beats(a, a)
    if first is not None and second is not None and beats(a, b):
        assert first > second
