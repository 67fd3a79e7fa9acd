"""Who becomes a parent, and where migrants go: pure functions, by name.

A parent policy is a function of an island's members, a generator and the configuration; a topology is one of an
island's number, how many islands there are and a generator. Generators are seeded by what they are for, so that a
replay draws the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import TYPE_CHECKING

from islands.candidate import Evaluated
from islands.distance import COMPARED, distance, sketch
from islands.elite import beats, fitness
from islands.features import Coordinates

if TYPE_CHECKING:
    from islands.population import PopulationConfig


@dataclass(frozen=True, slots=True)
class Members:
    """What an island chooses parents from."""

    best: Evaluated
    cells: Mapping[Coordinates, Evaluated]
    """The elite of each occupied cell; never empty."""
    recent: tuple[Evaluated, ...]
    """The latest members, oldest first; never empty."""
    visits: Mapping[Coordinates, int]
    """How often a cell was explored: members that settled in it, and children told, failed ones too, whose first
    parent lies in it."""

    @property
    def elites(self) -> list[Evaluated]:
        return list(self.cells.values())


Policy = Callable[[Members, Random, "PopulationConfig"], Evaluated]


def best(members: Members, rng: Random, config: PopulationConfig) -> Evaluated:
    """The island's best."""
    del rng, config
    return members.best


def cells(members: Members, rng: Random, config: PopulationConfig) -> Evaluated:
    """The elite of a cell, all cells alike (MAP-Elites: Mouret and Clune, arXiv 1504.04909)."""
    del config
    return rng.choice(members.elites)


def recent(members: Members, rng: Random, config: PopulationConfig) -> Evaluated:
    """One of the latest members, elite or not."""
    del config
    return rng.choice(members.recent)


def tournament(members: Members, rng: Random, config: PopulationConfig) -> Evaluated:
    """The fittest of `config.tournament` draws, with replacement, from the elites and the latest members."""
    drawn = rng.choices(_all(members), k=config.tournament)
    return max(drawn, key=lambda one: fitness(one.evaluation))


def rank(members: Members, rng: Random, config: PopulationConfig) -> Evaluated:
    """One by rank and age: weight 1 / (1 + rank), halved for every `config.half_life` tickets since its birth.

    The age is counted from the youngest member's ticket, so it does not run while nothing new settles.
    """
    ranked = sorted(_all(members), key=lambda one: -fitness(one.evaluation))
    now = max(one.candidate.number for one in ranked)
    ages = [min(1000.0, (now - one.candidate.number) / config.half_life) for one in ranked]
    return rng.choices(ranked, [0.5**age / (1 + place) for place, age in enumerate(ages)])[0]


def curious(members: Members, rng: Random, config: PopulationConfig) -> Evaluated:
    """The elite of a cell that was explored little: weight 1 / visits."""
    del config
    places = list(members.cells)
    return members.cells[rng.choices(places, [1 / max(1, members.visits.get(place, 0)) for place in places])[0]]


def novel(members: Members, rng: Random, config: PopulationConfig) -> Evaluated:
    """The elite whose tokens are least like other elites' (mean distance), of `config.tournament` drawn ones.

    Each is compared with the others drawn and with COMPARED more, so that large maps cost no more.
    """
    order = shuffled(members.elites, rng)
    drawn = list(islice(order, config.tournament))
    if len(drawn) == 1:
        return drawn[0]
    sketches = [sketch(one.candidate.source) for one in (*drawn, *islice(order, COMPARED))]

    def strangeness(one: Evaluated) -> float:
        own = sketch(one.candidate.source)
        return sum(distance(own, other) for other in sketches)

    return max(drawn, key=strangeness)


def shuffled(members: list[Evaluated], rng: Random) -> Iterator[Evaluated]:
    """The members in random order, drawn one by one as they are taken (Fisher and Yates); changes the list."""
    for place in range(len(members)):
        other = rng.randrange(place, len(members))
        members[place], members[other] = members[other], members[place]
        yield members[place]


def _all(members: Members) -> list[Evaluated]:
    """Elites and the latest members, each once."""
    return list({one.candidate.id: one for one in (*members.elites, *members.recent)}.values())


PARENTS: Mapping[str, Policy] = {
    "best": best,
    "cells": cells,
    "recent": recent,
    "tournament": tournament,
    "rank": rank,
    "curious": curious,
    "novel": novel,
}


def choose_parent(members: Members, rng: Random, config: PopulationConfig) -> Evaluated:
    """A parent by one of the policies of `config.parents`, drawn by their weights."""
    names = [name for name in PARENTS if name in config.parents]  # in one order, whatever order the table had
    return PARENTS[rng.choices(names, [config.parents[name] for name in names])[0]](members, rng, config)


def check_parents(parents: Mapping[str, float]) -> None:
    """ValueError for a policy that does not exist, a weight below 0, or weights of which none is above 0."""
    for name, weight in parents.items():
        if name not in PARENTS:
            raise ValueError(f"unknown parent policy {name!r}, expected some of {', '.join(PARENTS)}")
        if not 0 <= weight < float("inf"):
            raise ValueError(f"the weight of parent policy {name!r} must be 0 or more, found {weight}")
    if not sum(parents.values()) > 0:
        raise ValueError(f"parents must give some policy a weight above 0, found {dict(parents)}")


# -- migration --------------------------------------------------------------------------------------------

Topology = Callable[[int, int, Random], tuple[int, ...]]
"""Origin, number of islands, generator -> the islands that migrants from the origin are copied to."""


def ring(origin: int, islands: int, rng: Random) -> tuple[int, ...]:
    """The next island."""
    del rng
    return ((origin + 1) % islands,) if islands > 1 else ()


def full(origin: int, islands: int, rng: Random) -> tuple[int, ...]:
    """Every other island."""
    del rng
    return tuple(number for number in range(islands) if number != origin)


def random(origin: int, islands: int, rng: Random) -> tuple[int, ...]:
    """One other island, drawn each time."""
    others = full(origin, islands, rng)
    return (rng.choice(others),) if others else ()


def star(origin: int, islands: int, rng: Random) -> tuple[int, ...]:
    """From island 0 to every other one, from the others to island 0."""
    return full(origin, islands, rng) if origin == 0 else (0,)


def none(origin: int, islands: int, rng: Random) -> tuple[int, ...]:
    """Nowhere."""
    del origin, islands, rng
    return ()


TOPOLOGIES: Mapping[str, Topology] = {"ring": ring, "full": full, "random": random, "star": star, "none": none}


def choose_donor(stagnant: Evaluated | None, others: list[Evaluated], rng: Random) -> Evaluated | None:
    """The best of one of the islands that are clearly better than a stagnant one, None where none is.

    As in FunSearch (Romera-Paredes et al., Nature 625, 2024, Methods: the worse islands are emptied and each starts
    again from the best of a surviving one). An island survives here where no other one's best beats its own
    (elite.beats), so the best of all always does.
    """
    ahead = [one for one in others if beats(one.evaluation, stagnant.evaluation if stagnant else None)]
    return rng.choice(ahead) if ahead else None
