"""Told candidates leave memory and come back the same, with the evaluation that counts."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from islands.candidate import Evaluated
from islands.population import Population, PopulationConfig
from islands.shelf import Shelf


@pytest.fixture
def told(make: Any) -> dict[str, Evaluated]:
    return {one.candidate.id: one for one in (make.evaluated(number, 1.0 + number) for number in range(10))}


def test_what_was_pushed_out_is_fetched_in_the_order_asked_for(told):
    asked: list[str] = []

    def fetch(ids):
        asked.extend(ids)
        return [told[one] for one in reversed(ids)]

    shelf = Shelf(fetch, held=3)
    for one in told.values():
        shelf.put(one)
    ids = list(told)
    assert shelf.get([ids[8], ids[1], ids[0]]) == [told[ids[8]], told[ids[1]], told[ids[0]]]
    assert asked == [ids[1], ids[0]]
    shelf.get([ids[0]])
    assert asked == [ids[1], ids[0]], "what was fetched stays for a while"


def test_an_amended_evaluation_outlives_its_place_in_memory(told, make):
    shelf = Shelf(lambda ids: [told[one] for one in ids], held=1)
    first, second, *_ = told.values()
    amended = dataclasses.replace(first, evaluation=make.evaluated(0, 7.0).evaluation)
    shelf.put(amended, is_amended=True)
    shelf.put(second)
    assert shelf.get([first.candidate.id]) == [amended]


def test_a_lost_row_is_an_error_that_names_it(told):
    shelf = Shelf(lambda _: [], held=1)
    ids = list(told)
    for one in told.values():
        shelf.put(one)
    with pytest.raises(LookupError, match=ids[0]):
        shelf.get(ids[:1])


def test_what_is_looked_at_later_is_read_once_and_counts_as_it_did_when_it_was_given(told, make):
    asked: list[list[str]] = []

    def fetch(ids):
        asked.append(list(ids))
        return [told[one] for one in ids]

    shelf = Shelf(fetch, held=2)
    ids = list(told)
    amended = dataclasses.replace(told[ids[0]], evaluation=make.evaluated(0, 7.0).evaluation)
    shelf.put(amended, is_amended=True)
    for one in list(told.values())[1:]:
        shelf.put(one)
    later = shelf.later([ids[0], ids[9], ids[4]])
    assert len(later) == 3 and not asked
    shelf.put(dataclasses.replace(told[ids[4]], evaluation=make.evaluated(4, 9.0).evaluation), is_amended=True)
    shelf.put(told[ids[5]])
    assert list(later) == [amended, told[ids[9]], told[ids[4]]] and later[1:] == (told[ids[9]], told[ids[4]])
    assert asked == [[ids[0], ids[4]]]
    assert shelf.later([ids[0], ids[9]]) == later[:2] and shelf.later([ids[1]]) != later[:1]
    assert shelf.get([ids[9]]) and asked[-1] == [ids[9]], "looking brings nothing into memory"


def test_a_lost_row_is_an_error_when_somebody_looks(told):
    shelf = Shelf(lambda _: [], held=1)
    for one in told.values():
        shelf.put(one)
    later = shelf.later(list(told))
    with pytest.raises(LookupError, match="its row is lost"):
        list(later)


def test_without_anywhere_to_fetch_from_all_stay(told):
    shelf = Shelf(held=1)
    for one in told.values():
        shelf.put(one)
    assert shelf.get(list(told)) == list(told.values())


def test_a_population_that_reads_from_the_store_answers_as_one_that_holds_all(store, make, monkeypatch):
    """Many candidates, of which only a handful may stay in memory."""
    monkeypatch.setattr(Shelf.__init__, "__defaults__", (None, 4))
    config = PopulationConfig(islands=2, migration_every=5)
    both = Population(config, "run00000", 1), Population(config, "run00000", 1, fetch=store.told_of)
    for number in range(60):
        parents = (f"run00000-{both[0].ask(number).parent.candidate.number:06d}",) if number >= 2 else ()
        one = make.evaluated(number, 1.0 + (number * 7 % 13) / 10, island=number % 2, parent_ids=parents)
        make.record(store, make.run(), one)
        for population in both:
            population.tell(one)
        assert not number or both[0].ask(number) == both[1].ask(number)
    assert both[0].digest() == both[1].digest()
